"""The child process: one request in, one result out. The only room where torch is at home."""


class UnstableTraining(Exception):
    """Training does not get going: a property of the configuration. Here, so that judging it needs no torch."""
