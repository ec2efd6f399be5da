"""Reads the script of a command from its text, without running it."""
