"""Runs a command in the process of the probe, unchanged, and watches its training by hooks in torch."""
