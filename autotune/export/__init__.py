"""Recommendations in the words of each framework, one file each."""
