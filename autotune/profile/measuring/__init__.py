"""What is done in the process of a profile: passes over the steps, and what they watch."""
