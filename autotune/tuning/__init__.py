"""One search from settings to recommendation."""
