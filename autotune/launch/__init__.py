"""The launcher: it runs a probe and reads how it ended, behind the interface in `base.py`."""
