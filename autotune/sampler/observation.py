"""The observation of a probe for the sampler: one small record, kept as an attribute of the trial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from autotune.core.records import Record
from autotune.core.results import Outcome, ProbeResult, Verdict

ATTRIBUTE = "observation"  # trial attribute that holds an `Observation` as JSON


class Observation(Record, frozen=True, kw_only=True):
    """The rates in samples/s and the peak of one probe; None: not measured."""

    outcome: Outcome = Outcome.OK
    samples_per_second: float | None = None  # coupled: loading and computing at once
    compute_samples_per_second: float | None = None  # on one batch repeatedly
    loader_samples_per_second: float | None = None  # without training
    memory_bytes: int | None = None  # peak
    limit_bytes: int | None = None  # usable memory: the limit without its headroom
    training_share: float = 1.0  # of the planned run, without compiling; in the trial's value, in no rate here
    fits: bool | None = None  # into memory; None: it follows from the peak and the limit

    @property
    def memory_share(self) -> float | None:
        """The peak as a share of the usable memory."""
        return self.memory_bytes / self.limit_bytes if self.memory_bytes and self.limit_bytes else None

    @property
    def within_memory(self) -> bool | None:
        """Whether it fits into memory; None: unknown, because it failed for another reason."""
        if self.outcome.out_of_memory:
            return False
        if self.fits is not None:
            return self.fits
        if self.memory_share is not None:
            return self.memory_share <= 1
        return True if self.samples_per_second is not None else None

    def attributes(self) -> dict[str, Any]:
        """Return the attributes to set on the trial, of JSON types."""
        return {ATTRIBUTE: {name: value for name, value in msgspec.to_builtins(self).items() if value is not None}}


def observed(result: ProbeResult, verdict: Verdict, usable_bytes: int) -> Observation:
    """Return the observation of a probe and its verdict.

    Where the memory constraint is violated although the peak is within the limit (the driver spilled, the allocator
    thrashed), the configuration does not fit and its peak is left out.
    """
    measurement = result.measurement
    if measurement is None:
        return Observation(outcome=result.outcome, limit_bytes=usable_bytes)
    fits = verdict.constraints.get("memory", -1.0) <= 0
    peak = measurement.memory.bytes
    return Observation(
        outcome=result.outcome,
        samples_per_second=measurement.samples_per_second,
        compute_samples_per_second=measurement.compute_samples_per_second,
        loader_samples_per_second=measurement.loader_samples_per_second,
        memory_bytes=peak if fits or peak > usable_bytes else None,
        limit_bytes=usable_bytes,
        training_share=verdict.training_share,
        fits=fits,
    )


def recalled(attributes: Mapping[str, Any]) -> Observation:
    """Return the observation among a trial's attributes. Raises `msgspec.ValidationError`."""
    return msgspec.convert(attributes[ATTRIBUTE], Observation)
