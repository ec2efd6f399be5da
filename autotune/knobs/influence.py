"""The influence of a knob on the time and the memory of a training run: the model-based sampler's prior."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.core.records import Value


@dataclass(frozen=True)
class Factor:
    """A factor that is not known exactly: log-normal around `center`.

    `spread` is the standard deviation of its logarithm; with 0.3 two values in three lie within a third of `center`.
    With a spread of 0 the factor is certain.
    """

    center: float = 1.0
    spread: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Influence:
    """The factors of one value of a knob, relative to the value `relative_to` of the same knob.

    Values of an ordered knob are always relative to their next lower neighbour.
    A micro-batch of b samples takes fixed_time + sample_time * b seconds and fixed_memory + sample_memory * b bytes;
    loading_time is the time of one worker for one sample. oversubscription is the time for which computing on a CPU
    stalls while workers use the cores of its threads, in units of the time of loading; it acts on CPUs only.
    """

    fixed_time: Factor = Factor()
    sample_time: Factor = Factor()
    fixed_memory: Factor = Factor()
    sample_memory: Factor = Factor()
    loading_time: Factor = Factor()
    oversubscription: Factor = Factor()
    relative_to: Value = None  # None: the knob's default
    on_cores: Influence | None = None  # instead of all this where the model computes on a CPU; None: no different

    @property
    def trades_time_for_memory(self) -> bool:
        """Whether every sample takes longer and needs less memory: never faster where the model fits without it."""
        return self.sample_time.center > 1 and self.fixed_time.center >= 1 and self.sample_memory.center < 1

    @property
    def trades_time_for_cores(self) -> bool:
        """Whether every operator takes longer and waits less for cores: never faster where nothing else wants them."""
        return self.fixed_time.center > 1 and self.sample_time.center >= 1 and self.oversubscription.center < 1


NEUTRAL = Influence()
# For a knob without a prior of its own: it may act on everything but oversubscription, and its effect is learned from
# its probes. The spreads are judgements: wide enough for a quarter more or less, narrow enough that a value is not
# probed for its uncertainty alone.
UNKNOWN = Influence(
    fixed_time=Factor(1.0, 0.25),
    sample_time=Factor(1.0, 0.25),
    fixed_memory=Factor(1.0, 0.1),
    sample_memory=Factor(1.0, 0.1),
    loading_time=Factor(1.0, 0.15),
)
