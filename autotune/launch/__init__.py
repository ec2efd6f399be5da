"""The launcher: runs a probe and reads its end, behind the seam in `base.py`."""
