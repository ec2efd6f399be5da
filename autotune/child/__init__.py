"""The child process: it reads one request and writes one result. Here and in the target's code torch is used freely."""


class UnstableTraining(Exception):
    """Training never starts to learn, by its configuration. Defined here so that judging it needs no torch."""
