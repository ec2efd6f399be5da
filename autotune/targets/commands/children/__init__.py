"""What a Python process loads that a watched program starts: its folder is on PYTHONPATH meanwhile."""
