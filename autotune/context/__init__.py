"""What all stages of a search share: the time budget, what may be probed, the reporter, and the context of them all."""
