"""Memory foretold for a search: one dry run after the baseline, where memory can bind, corrected by every probe since.

It is what the sampler believes beforehand, never a verdict: nothing is refused or recommended because of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from autotune import folder as disk
from autotune.forecast import ON_DEVICE, ON_HOST, Arm, Calibration, DryRun, Foretold, calibrated
from autotune.knobs import KNOBS, traded
from autotune.knobs.base import TACIT, Knob, MemoryEffect
from autotune.launch.base import Launcher
from autotune.records import Config, StudyRequest, Value
from autotune.requests import DryRunRequest, ProbeBudget
from autotune.results import Measurement, Outcome, Trial, Verdict
from autotune.space import SearchSpace
from autotune.tuning.reporter import Reporter

SHARE = 0.1  # of the time budget, that may be spent on it
LEAST_SECONDS = 8.0  # with which it is begun at all: importing and a few steps of one arm
STARTING_SECONDS = 60.0  # that importing and loading may take besides, before the process is given up
SLACK = 0.5  # of the usable memory: where even the upper bound of the largest batch needs less, nothing can bind
INTERPRETER_BYTES = 150 * 2**20  # that a process with torch holds at least: 221 MiB (2.13 for the CPU, Linux, measured)
ACCUMULATING = 2  # micro-batches of a step, where gradients of the first live while the second is computed

Judged = Sequence[tuple[Trial, Verdict]]


class Foretelling:
    """The dry run of one study."""

    def __init__(self, request: StudyRequest, space: SearchSpace, judged: Judged) -> None:
        """`judged` are the probes of the study; those that come later are looked at, too."""
        self._request, self._space, self._judged = request, space, judged
        self._found: DryRun | None = None
        self._calibrated: tuple[int, Calibration, float] | None = None

    def of(self, config: Config) -> Foretold | None:
        """What the dry run says of the peak of `config`; None: nothing is known."""
        predicted = self._found.peak_bytes(config.values) if self._found else None
        if predicted is None:
            return None
        calibration, per_worker = self._calibration()
        return calibration.foretold(predicted, per_worker * _workers(config), self._usable)

    def expects_to_fit(self, config: Config) -> bool:
        """Whether `config` fits by the upper end of what is predicted; without a dry run: whether everything must."""
        arm = self._found.arm(config.values) if self._found else None
        if arm is None or not arm.points:
            return self._found is None and not self._can_bind()
        return self._fits(arm, config.batch_size, _workers(config))

    def run(self, folder: Path, launcher: Launcher, reporter: Reporter, budget_seconds: float) -> None:
        """Read what an earlier run of this study found; else, where memory can bind and time allows, run it and say so.

        `budget_seconds` is the search's whole time budget.
        """
        known = disk.attempts(folder, DryRunRequest.kind())
        if known:
            self._found = known[-1][1]
            return
        begun = sum(self._seconds_to_begin())
        seconds = SHARE * budget_seconds - begun
        if seconds < LEAST_SECONDS or not self._can_bind():
            return
        _, place = disk.new_attempt(folder, DryRunRequest)
        vary = any(measured.shapes_vary for _, measured in self._measured())
        asked = asking(self._request, self._space, self._usable, seconds, shapes_vary=vary)
        self._found = launcher.run(asked, place)
        reporter.note(told(self._found, self._space, self._fits))

    @property
    def _usable(self) -> int:
        return self._request.memory_limit_bytes - self._request.headroom_bytes

    def _fits(self, arm: Arm, batch: int, workers: int = 0) -> bool:
        """Whether even the upper end of what is predicted may be used."""
        calibration, per_worker = self._calibration()
        probed = any(arm.values.items() <= trial.config.values.items() for trial, _ in self._measured())
        return calibration.most(arm.peak_bytes(batch) or 0.0, probed=probed) + per_worker * workers <= self._usable

    def _seconds_to_begin(self) -> Iterable[float]:
        """What the baseline's process took until its model stood."""
        baseline = next((trial for trial, _ in self._judged if trial.config == self._request.baseline), None)
        phases = baseline.result.phase_seconds if baseline else {}
        return (phases.get(name, 0.0) for name in ("start", "load", "build"))

    def _can_bind(self) -> bool:
        """Whether the largest batch might need more than may be used.

        Every phase of a step needs a + c * b bytes with a >= 0, so a measured peak grows at most as the batch does;
        on the host, what is more than the interpreter.
        """
        largest = max(config.batch_size for config in self._space.configs)
        bounds = []
        for trial, measured in self._measured():
            if traded(trial.config.values):
                continue  # others need more
            memory, times = measured.memory, max(1.0, largest / trial.config.batch_size)
            fixed = INTERPRETER_BYTES if memory.reserved_bytes is None else 0
            bounds.append(fixed + (memory.bytes - fixed) * times)
        return not bounds or min(bounds) > SLACK * self._usable

    def _measured(self) -> list[tuple[Trial, Measurement]]:
        return [(t, t.result.measurement) for t, _ in self._judged if t.result.measurement is not None]

    def _calibration(self) -> tuple[Calibration, float]:
        """Of predictions to measured peaks, and the bytes of one loader worker on the host (0 on a device)."""
        if self._calibrated is None or self._calibrated[0] != len(self._judged):
            assert self._found is not None, "there is something to calibrate"
            peaks, workers = [], []
            for trial, measured in self._measured():
                memory = measured.memory
                own = memory.process_bytes if memory.reserved_bytes is None else memory.bytes
                predicted = self._found.peak_bytes(trial.config.values)
                if predicted is not None:
                    peaks.append((predicted, float(own)))
                if _workers(trial.config):
                    workers.append((memory.bytes - own) / _workers(trial.config))
            per_worker = sum(workers) / len(workers) if workers else 0.0
            prior = ON_HOST if self._request.environment.device_kind == "cpu" else ON_DEVICE
            self._calibrated = len(self._judged), calibrated(self._found.base_bytes, peaks, prior), per_worker
        return self._calibrated[1:]


def asking(
    request: StudyRequest, space: SearchSpace, usable_bytes: int, seconds: float, *, shapes_vary: bool = False
) -> DryRunRequest:
    """Ask for every arm and micro-batch of the space, as far as `seconds` go; at twice that the process is ended."""
    return DryRunRequest(
        target=request.target,
        config=request.baseline,
        arms=arms(space, request.baseline),
        batches=tuple(sorted({config.batch_size for config in space.configs})),
        device=request.environment.device,
        micro_batches=min(ACCUMULATING, max(config.gradient_accumulation_steps for config in space.configs)),
        shapes_vary=shapes_vary,
        limit_bytes=usable_bytes,
        max_seconds=seconds,
        seed=request.seed,
        budget=ProbeBudget(total_deadline_seconds=2 * seconds + STARTING_SECONDS),
    )


def arms(space: SearchSpace, baseline: Config) -> tuple[dict[str, Value], ...]:
    """What a dry run has to tell apart: values of the knobs that move device memory.

    The baseline's own arm first; those that trade time for memory last, which matter only where the others do not fit.
    """
    names = [knob.name for knob in KNOBS if _moves_memory(knob)]
    found = {
        tuple(config[name] for name in names): {name: config[name] for name in names}
        for config in (baseline, *space.configs)
    }
    own, *others = found.values()
    others.sort(key=lambda values: bool(traded(values)))
    in_space = any(own.items() <= config.values.items() for config in space.configs)
    return (own, *others) if in_space else tuple(others)


def told(found: DryRun, space: SearchSpace, fits: Callable[[Arm, int], bool]) -> str:
    """One sentence: which batches are predicted to fit, or why nobody can say."""
    if found.outcome is not Outcome.OK:
        why = found.failure.message.partition("\n")[0] if found.failure else found.outcome.value
        return f"Dry run: memory cannot be foretold ({why}). The search goes on without it."
    known = [arm for arm in found.arms if arm.points]
    if not known:
        why = found.arms[0].reason if found.arms else "there is no arm"
        return f"Dry run: memory cannot be foretold, because {why}. The search goes on without it."
    batches = sorted({config.batch_size for config in space.configs})
    fitting = [(arm, max((batch for batch in batches if fits(arm, batch)), default=0)) for arm in known]
    knobs = _deciding(fitting)
    words: dict[int, list[str]] = {}
    for arm, most in sorted(fitting, key=lambda pair: -pair[1]):
        shown = arm_name(arm, knobs)
        if shown not in words.setdefault(most, []):
            words[most].append(shown)
    parts = [_up_to(most, batches) + (f" with {' or '.join(some)}" if knobs else "") for most, some in words.items()]
    return f"Dry run: {', '.join(parts)} (predicted)."


def arm_name(arm: Arm, knobs: Sequence[Knob]) -> str:
    """`bf16 nhwc`, `fp32 ckpt`: what it is called where those knobs tell it from others; empty without knobs."""
    shown = [knob.show(arm.values[knob.name]) for knob in knobs]
    return " ".join(text for text in shown if text not in TACIT) or " ".join(
        f"{text} {knob.label}" for text, knob in zip(shown, knobs, strict=True)
    )


def _up_to(most: int, batches: Sequence[int]) -> str:
    if most == 0:
        return "no batch fits"
    return "all batches fit" if most == batches[-1] else f"batches up to {most} fit"


def _deciding(fitting: Sequence[tuple[Arm, int]]) -> list[Knob]:
    """The knobs without which arms of different largest batches could not be told apart."""
    knobs = [knob for knob in KNOBS if knob.name in fitting[0][0].values]
    for knob in tuple(knobs):
        others = [one for one in knobs if one is not knob]
        seen: dict[tuple[Value, ...], int] = {}
        if all(seen.setdefault(tuple(arm.values[o.name] for o in others), most) == most for arm, most in fitting):
            knobs = others
    return knobs


def _moves_memory(knob: Knob) -> bool:
    return knob.memory in (MemoryEffect.CHANGES, MemoryEffect.GROWS) and knob.name != "batch_size"


def _workers(config: Config) -> int:
    return sum(int(config[knob.name] or 0) for knob in KNOBS if knob.counts_workers)
