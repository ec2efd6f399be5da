"""The structured sampler: it knows how training behaves, and learns the rest from a few probes."""
