"""What a knob says of itself: how it changes memory, and from where it can be set."""

from __future__ import annotations

from enum import StrEnum


class MemoryEffect(StrEnum):
    """The ways in which a knob changes memory; the guard concludes from an out-of-memory by these rules only."""

    GROWS = "grows"  # a larger value never needs less, on the device and on the host
    GROWS_HOST = "grows-host"  # the same, on the host only
    SHRINKS = "shrinks"  # by `needs_no_less`: some values never need less than others, on the device and on the host
    CHANGES = "changes"  # nothing is concluded from one value about another
    UNSEEN = "unseen"  # the same, and a shape run, where nothing is allocated, does not show it
    NONE = "none"


class Reach(StrEnum):
    """The places where a knob can be set from outside of a training that nobody may edit."""

    CODE = "code"  # nowhere: the code has to take it
    LOADER = "loader"  # arguments of a DataLoader that whoever makes it leaves out
    PROCESS = "process"  # the process, before the code runs
