"""The ranks of one request, started and watched over by one process, which makes one result of theirs."""
