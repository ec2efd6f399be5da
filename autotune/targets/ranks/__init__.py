"""Several processes that train one model together, as one of them sees it: its share, and what they exchange."""
