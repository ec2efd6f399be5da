"""How results are shown: lines on a terminal, and a page in a browser."""
