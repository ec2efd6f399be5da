"""The script of a command, read from its text: nothing of it is run."""
