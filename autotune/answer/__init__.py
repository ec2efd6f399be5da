"""From measured rounds to a recommendation: what is raced, what wins, why, and what the answer warns of. Pure."""
