"""Records that travel between processes or are stored, and functions that encode and average them."""
