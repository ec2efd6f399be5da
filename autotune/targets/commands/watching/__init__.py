"""A command while it trains, in the process of the probe: run as it is, and watched by hooks in torch."""
