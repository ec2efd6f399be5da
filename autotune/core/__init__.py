"""Records that travel between processes or are stored, and what encodes and averages them."""
