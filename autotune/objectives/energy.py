"""`energy`: samples per joule of the GPU, by its own counter."""

from __future__ import annotations

from autotune.core.codes import Code
from autotune.core.notices import Notice, notice
from autotune.core.records import Environment, Goal, TargetFacts
from autotune.core.requests import ProbeBudget
from autotune.core.results import ProbeResult
from autotune.errors import UsageError
from autotune.machine.nvml import find_gpu, library, read_gpu
from autotune.objectives.base import Decision, Objective

INSTEAD = "Search with --objective throughput: what is faster mostly takes less energy too."


class Energy(Objective):
    """The energy of the GPU alone: no counter that it can read covers processor, memory and fans of the host.

    The counter is NVML's (Volta and later; many consumer GPUs have none). It changes every 0.1 s, so that windows
    should last 5 s (docs/notes/gpu.md 1): they are then right to 2 %, and the rounds of the confirmation average over
    several.
    """

    name = "energy"
    option_help = "samples per joule of an NVIDIA GPU"
    unit = "samples/J"
    wish = "the most samples per joule of the GPU"
    better, worse, best = "more energy-efficient", "less energy-efficient", "most energy-efficient"
    unbeaten = "measurably more energy-efficient"
    missing = Code.NO_ENERGY  # the counter did not answer, or did not change
    probe_budget = ProbeBudget(min_seconds=5.0, max_seconds=8.0, max_steps=10_000)

    def check(self, goal: Goal, environment: Environment, facts: TargetFacts) -> None:
        """Raise `UsageError` if there is no GPU whose energy counter answers."""
        if environment.device_kind != "cuda":
            raise UsageError(
                f"--objective energy needs a GPU that counts its energy; the device is {environment.device} "
                f"({environment.device_name}). Only NVIDIA's driver reports it, through NVML. {INSTEAD}"
            )
        if environment.device_uuid is None:  # an old torch does not name its GPU: the first probe will show
            return
        nvml = library()
        gpu = find_gpu(nvml, environment.device_uuid)
        if gpu is None or read_gpu(nvml, gpu).energy_joules is None:
            raise UsageError(
                f"--objective energy: NVML reports no energy for {environment.device_name}. The driver's library is "
                f"absent, the GPU has no counter (many consumer GPUs), or it is one slice of a GPU. {INSTEAD}"
            )

    def score(self, result: ProbeResult, goal: Goal, noise_scale: float | None = None) -> float | None:
        """Return the samples of the window per joule that the GPU took during it; None if not measured."""
        return result.samples_per_joule

    def headline(self, decision: Decision) -> Notice | None:
        """Return such as `1.31× as many samples per joule as your baseline (1.25 to 1.38)`; None without a gain."""
        return decision.gained(Code.LESS_ENERGY)

    def reasons(self, decision: Decision) -> tuple[Notice, ...]:
        """Return the samples per joule, and the power in watts that follows from it."""
        now, before = decision.chosen, decision.baseline
        other = None if before == now else before
        return (
            notice(
                Code.ENERGY,
                samples_per_joule=now.score,
                watts=now.samples_per_second / now.score,
                baseline_samples_per_joule=other.score if other else None,
                baseline_watts=other.samples_per_second / other.score if other else None,
            ),
        )
