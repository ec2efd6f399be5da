"""The measurements in the process of a profile: passes over the steps, and the instruments that they use."""
