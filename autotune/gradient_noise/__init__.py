"""The gradient noise scale: measured once for time-to-quality, estimated, and given as advice on the global batch."""
