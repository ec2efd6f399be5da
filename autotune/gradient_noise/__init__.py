"""The gradient noise scale: measured once for time-to-quality, estimated, and told as advice on the global batch."""
