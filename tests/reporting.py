"""A small invented study for the tests of report/: closed-form throughput, written to disk as a search writes it."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from autotune.core import codec
from autotune.core.codes import Code
from autotune.core.interference_readings import GpuUse, HostInterference
from autotune.core.notices import notice
from autotune.core.records import CheckLine, Config, Environment, Goal, StepFacts, StudyRequest, TargetFacts
from autotune.core.requests import ProbeRequest
from autotune.core.results import IsolatedTiming, Measurement, MemoryPeak, Outcome, ProbeResult, Trial
from autotune.precision.records import LossRun, PrecisionCheckRequest, PrecisionCheckResult
from autotune.study import disk
from autotune.study.recommendation import Confirmation, Recommendation, RunnerUp
from autotune.study.view import StudyView, load_view
from tests.worlds import GIB as GIB
from tests.worlds import config as config
from tests.worlds import earlier
from tests.worlds import failed as failed

ENVIRONMENT = Environment(
    device="cuda:0",
    device_name="Example GPU",
    device_bytes=80 * GIB,
    native_dtypes=("bfloat16", "float16"),
    torch="2.13.0",
    python="3.11.2",
    platform="Linux",
    usable_cores=16,
    host_bytes=128 * GIB,
    cpu="Example CPU",
    driver="580.82",
)
FACTS = TargetFacts(
    name="ResNet",
    parameter_count=25_600_000,
    has_convolution=True,
    has_batch_norm=True,
    checkpointable_blocks=16,
    data="dataset",
    dataset_samples=1_281_167,
    check_lines=(
        CheckLine(name="model", text="ResNet, 25.6 M parameters"),
        CheckLine(name="loss", text="cross_entropy", inferred=True, override="loss(model, batch)"),
    ),
    step=StepFacts(loss=2.3, seconds=0.4, parameters_with_gradient=161, trainable_parameters=161),
)


def request(**changes: Any) -> StudyRequest:
    """What the study was asked."""
    settings: dict[str, Any] = {
        "target": "model.py",
        "goal": Goal(global_batch=1024),
        "environment": ENVIRONMENT,
        "facts": FACTS,
        "baseline": config(64, gradient_accumulation_steps=16),
        "baseline_assumed": False,
        "domains": {name: (value,) for name, value in config().values.items()} | {"batch_size": (64, 128, 256)},
        "memory_limit_bytes": 80 * GIB,
        "enforced_limit_bytes": None,
        "headroom_bytes": 4 * GIB,
        "created_at": "2026-11-21T10:00:00+00:00",
    }
    return StudyRequest(**(settings | changes))


def measured(
    rate: float, peak_bytes: int = 6 * GIB, wait: float = 0.09, half_width: float | None = 0.012, **more: Any
) -> ProbeResult:
    """A probe that ran at `rate` samples/s; `more` are fields of its measurement."""
    return ProbeResult(
        outcome=Outcome.OK,
        elapsed_seconds=7.0,
        measurement=Measurement(
            **more,
            samples=(1024,) * 8,
            step_seconds=(1024 / rate,) * 8,
            loader_wait_seconds=(wait * 1024 / rate,) * 8,
            losses=(2.3,) * 8,
            warmup_seconds=(0.5,) * 3,
            memory=MemoryPeak(process_bytes=2 * GIB, reserved_bytes=peak_bytes),
            relative_half_width=half_width,
        ),
    )


def trial(number: int, chosen: Config, result: ProbeResult, purpose: Any = "search") -> Trial:
    """A numbered probe."""
    return Trial(number=number, purpose=purpose, config=chosen, result=result)


def timed(result: ProbeResult, began: float, elapsed: float = 7.0, **more: Any) -> ProbeResult:
    """The result with times, `began` in seconds after the study; `more` are fields of it."""
    moment = datetime(2026, 11, 21, 10, tzinfo=UTC) + timedelta(seconds=began)
    phases = {"start": 0.2 * elapsed, "build": 0.2 * elapsed, "measure": 0.5 * elapsed}
    times = {"started_at": moment.isoformat(timespec="seconds"), "elapsed_seconds": elapsed, "phase_seconds": phases}
    return msgspec.structs.replace(result, **times, **more)


def whole(count: int = 40) -> tuple[Trial, ...]:
    """A study with everything that a probe can tell: halves alone, interference, GPU, times, reference probes."""
    trials = []
    for number, base in enumerate(itertools.islice(itertools.cycle(ladder()[:-1]), count)):
        rate, purpose = 152.0, "search"
        if base.result.measurement is not None:
            rate = base.result.measurement.samples_per_second
        chosen, result = base.config, base.result
        if number == 0 or number % 15 == 14:
            chosen, purpose = config(64, gradient_accumulation_steps=16), "reference" if number else "baseline"
            rate = 152.0 * (1 + 0.01 * (number % 4))
        elif number >= count - 4:
            purpose = "confirm"
        if chosen.values["num_workers"] and number % 3 == 1:
            chosen = config(**{**chosen.values, "num_workers": (2, 4, 8)[number % 9 // 3]})
            rate *= 0.4 + 0.15 * (number % 9 // 3)
        if base.result.measurement is not None:
            result = measured(
                rate,
                base.result.measurement.memory.bytes,
                wait=0.94 if not chosen.values["num_workers"] else 0.05 + 0.3 * (number % 3 == 1),
                compute_only=IsolatedTiming(seconds=(1.0, 1.0), samples=round(1.1 * rate)),
                loader_only=IsolatedTiming(seconds=(1.0, 1.0), samples=round(1.4 * rate)),
                interference=HostInterference(run_queue_wait_share=0.01 * (number % 5), foreign_cores=0.1),
            )
        gpu = GpuUse(readings=20, utilization=0.8 + 0.004 * (number % 40), power_watts=512.0, sm_clock_mhz=(1700, 1980))
        trials.append(trial(number, chosen, timed(result, 8.0 * number, gpu=gpu), purpose))
    return tuple(trials)


def paired(
    worse: float = 0.0, broken_from: int | None = None, steps: int = 50
) -> tuple[PrecisionCheckRequest, PrecisionCheckResult]:
    """bf16 against fp32 with one seed: behind by `worse` of the loss, not finite from a step on."""
    curve = [0.5 + 2.0 * 0.93**step + 0.01 * (step % 3) for step in range(steps)]
    own: list[float | None] = [loss + worse * step / steps for step, loss in enumerate(curve)]
    if broken_from is not None:
        own[broken_from:] = [None] * (steps - broken_from)
    runs = (
        LossRun(role="reference", seed=0, losses=tuple(curve)),
        LossRun(role="perturbed", seed=0, losses=tuple(loss + 1e-4 for loss in curve)),
        LossRun(role="candidate", seed=0, losses=tuple(own)),
    )
    asked = PrecisionCheckRequest(
        target="model.py", reference=config(64), candidate=config(64, amp_dtype="bfloat16"), device="cuda:0"
    )
    return asked, PrecisionCheckResult(outcome=Outcome.OK, runs=runs)


def ladder() -> tuple[Trial, ...]:
    """Four arms up to their out-of-memory, an unstable probe, and the baseline."""
    trials = [trial(0, config(64, gradient_accumulation_steps=16), measured(152, wait=0.94), "baseline")]
    for amp, layout, top, memory in (
        ("bfloat16", True, 2600, 0.047),
        ("float16", True, 2560, 0.047),
        ("bfloat16", False, 1700, 0.052),
        (None, False, 640, 0.11),
    ):
        for exponent in range(5, 12):
            batch = 1 << exponent
            chosen = config(
                batch,
                gradient_accumulation_steps=max(1, 1024 // batch),
                amp_dtype=amp,
                channels_last=layout,
                num_workers=12,
            )
            if batch * memory > 80:
                trials.append(trial(len(trials), chosen, failed()))
                break
            rate = top * batch / (batch + 120)
            trials.append(trial(len(trials), chosen, measured(rate, int((1 + batch * memory) * GIB))))
    unstable = failed(Outcome.UNSTABLE, "loss is not finite in 3 of 40 steps")
    return (*trials, trial(len(trials), config(512, amp_dtype="float16", num_workers=12), unstable))


def recommendation(**changes: Any) -> Recommendation:
    """The answer of the study."""
    best = config(1024, amp_dtype="bfloat16", num_workers=12, channels_last=True)
    settings: dict[str, Any] = {
        "study": "studies/resnet",
        "target": "model.py",
        "model": "ResNet",
        "params": best.values,
        "samples_per_second": 2330.4,
        "relative_half_width": 0.008,
        "tokens_per_second": None,
        "speedup": 15.33,
        "speedup_low": 14.9,
        "speedup_high": 15.8,
        "rounds": 3,
        "baseline": config(64, gradient_accumulation_steps=16).values,
        "baseline_assumed": False,
        "baseline_samples_per_second": 152.0,
        "global_batch_size": 1024,
        "baseline_global_batch_size": 1024,
        "peak_bytes": 49 * GIB,
        "memory_limit_bytes": 80 * GIB,
        "headroom_fraction": 0.39,
        "data_wait_share": 0.011,
        "stability": notice(Code.LOSSES_FINITE, reference="full precision", steps=240),
        "reasons": (notice(Code.GLOBAL_BATCH_HELD, batch=1024),),
        "warnings": (notice(Code.BATCH_NORM, now=1024, before=64),),
        "runners_up": (
            RunnerUp(config=config(512, amp_dtype="float16"), samples_per_second=2310.0, reason=earlier("0.9% slower")),
            RunnerUp(config=config(2048), samples_per_second=None, reason=earlier("ran out of memory")),
        ),
        "goal": Goal(global_batch=1024),
        "environment": ENVIRONMENT,
        "fingerprint": "H200-torch2.13.0-0123456789ab",
        "measured_at": "2026-11-21T10:08:00+00:00",
        "probes": 33,
        "seconds": 438.0,
    }
    return Recommendation(**(settings | changes))


def confirmed(trials: tuple[Trial, ...], factors: tuple[float, ...] = (0.99, 1.01)) -> StudyView:
    """The study with a run-off: baseline and recommendation, measured again at other rates, once for each factor."""
    best = recommendation()
    ends = {config(**best.baseline): 152.0, config(**best.params): 2330.4}
    again, confirmations = list(trials), []
    for chosen, mean in ends.items():
        numbers = []
        for factor in factors:
            numbers.append(len(again))
            again.append(trial(len(again), chosen, measured(mean * factor, 49 * GIB), "confirm"))
        rounds = tuple(mean * factor for factor in factors)
        confirmations.append(
            Confirmation(
                config=chosen,
                samples_per_second=mean,
                rounds=rounds,
                trials=tuple(numbers),
                peak_bytes=49 * GIB,
                data_wait_share=0.011,
            )
        )
    return view(tuple(again), recommendation(confirmations=tuple(confirmations), rounds=len(factors)))


def view(
    trials: tuple[Trial, ...] = (), best: Recommendation | None = None, running: bool = False, **changes: Any
) -> StudyView:
    """A study as read, without a disk."""
    return StudyView(
        folder=Path("studies/resnet"), request=request(**changes), trials=trials, recommendation=best, running=running
    )


def written(folder: Path, trials: tuple[Trial, ...], best: Recommendation | None = None) -> StudyView:
    """The study on disk, and what is read back."""
    folder.mkdir(parents=True)
    codec.write(folder / disk.STUDY, request())
    for one in trials:
        place = disk.log_of(folder, one.number).parent
        place.mkdir(parents=True)
        asked = ProbeRequest(
            target="model.py", config=one.config, device="cuda:0", number=one.number, purpose=one.purpose
        )
        codec.write(place / "request.json", asked)
        codec.write(place / "result.json", one.result)
        disk.log_of(folder, one.number).write_text(f"log of probe {one.number}\n")
    if best is not None:
        codec.write(folder / disk.BEST, best)
    return load_view(folder)
