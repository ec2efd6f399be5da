"""Are the answers those that an expert would give? Searched repeatedly, and checked in plain training loops."""
