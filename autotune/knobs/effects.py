"""The properties of a knob: how it changes memory, and from where it can be set."""

from __future__ import annotations

from enum import StrEnum


class MemoryEffect(StrEnum):
    """The ways in which a knob changes memory; the guard draws conclusions from out-of-memory by these rules only."""

    GROWS = "grows"  # a larger value never needs less, on the device and on the host
    GROWS_HOST = "grows-host"  # the same, on the host only
    SHRINKS = "shrinks"  # by `needs_no_less`: some values never need less than others, on the device and on the host
    CHANGES = "changes"  # nothing is concluded from one value about another
    UNSEEN = "unseen"  # the same, and a shape run, where nothing is allocated, does not show it
    NONE = "none"


class Reach(StrEnum):
    """The places from which a knob can be set for a training whose code must not be edited."""

    CODE = "code"  # none: only the code itself can set it
    LOADER = "loader"  # arguments of a DataLoader that the code leaves out
    PROCESS = "process"  # the process, before the code runs
