"""A search over several machines: a launcher whose requests workers fetch from a queue on PostgreSQL."""
