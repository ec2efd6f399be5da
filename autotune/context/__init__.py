"""What every stage of a search shares: the time budget, what may be probed, who is told, and what holds them all."""
