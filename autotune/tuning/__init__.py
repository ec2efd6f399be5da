"""The search: `engine.py` lists its stages in their order, and each stage has a file of its own."""
