"""How a probe is run and its end is read, behind the seam in `base.py`."""
