"""The code that every Python process of a watched program loads first: its folder is on PYTHONPATH meanwhile."""
