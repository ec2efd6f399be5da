"""The ranks of one request: one process starts and supervises them, and makes one result of theirs."""
