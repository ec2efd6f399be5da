"""Finds the words of a typed command that are knobs."""
