"""The planned length of a training run, which decides whether compiling pays."""

from __future__ import annotations

import math
import re

from autotune.units import parse_seconds

_EPOCHS = re.compile(r"([0-9]+(?:\.[0-9]*)?)\s*epochs?")
LEAST_TRAINING_SHARE = 0.01  # least share, for a run that mostly compiles: a score must be above 0


def parse_run_length(text: str) -> str:
    """Return `12h`, `1h30m` or `30epochs` without its spaces. Raises `ValueError` with the accepted forms."""
    short = "".join(text.lower().split())
    if "epoch" in short:
        if epochs_of(short) is None:
            raise ValueError(f"{text!r} is not a number of epochs above 0: write 30epochs")
        return short
    try:
        parse_seconds(short)
    except ValueError as error:
        raise ValueError(f"{error}, or 30epochs") from None
    return short


def epochs_of(text: str) -> float | None:
    """Return the epochs of a run length; None where it is a time."""
    found = _EPOCHS.fullmatch(text)
    epochs = float(found[1]) if found else 0.0
    return epochs if 0 < epochs < math.inf else None


def training_share(run_length: str | None, compiling_seconds: float, rate: float, samples: int | None) -> float:
    """Return the share of the planned run in which it trains, if it compiles for so many seconds first; 1: no plan.

    `rate` is in samples/s; `samples` are those of an epoch, None if unknown.
    """
    if run_length is None or compiling_seconds <= 0:
        return 1.0
    epochs = epochs_of(run_length)
    if epochs is None:
        return max(LEAST_TRAINING_SHARE, 1 - compiling_seconds / parse_seconds(run_length))
    if samples is None:
        return 1.0
    training = epochs * samples / rate
    return max(LEAST_TRAINING_SHARE, training / (training + compiling_seconds))


def break_even_seconds(compiling_seconds: float, speedup: float) -> float | None:
    """Return the seconds after which a run that compiles first is ahead of one that does not; None: never.

    With C seconds of compiling and s times the speed, both have trained on as many samples when C + t / s = t.
    """
    return compiling_seconds * speedup / (speedup - 1) if speedup > 1 else None
