"""The search: its stages in their order (`engine.py`), and a file for each of them."""
