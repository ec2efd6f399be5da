"""A study: its folder, its database, its lock, its history, and the summary of each configuration."""
