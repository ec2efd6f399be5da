"""The gradient noise scale: measured once for time-to-quality, estimated, and used for advice on the global batch."""
