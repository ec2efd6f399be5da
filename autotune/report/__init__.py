"""Shows results: as lines on a terminal, and as a page in a browser."""
