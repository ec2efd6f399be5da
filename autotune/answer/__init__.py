"""From measured rounds to a recommendation: what is confirmed, what wins, why, and what the answer warns of. Pure."""
