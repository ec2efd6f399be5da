"""Surfaces of real targets: every configuration of a small space measured once, to replay searches over in seconds."""
