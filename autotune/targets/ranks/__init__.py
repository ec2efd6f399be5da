"""Several processes (ranks) that train one model together, as seen by one of them: its share, and the exchange."""
