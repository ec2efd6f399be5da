"""Small worlds for tests of the search wing: facts, machines, spaces and results made by hand."""

import msgspec

from autotune.knobs import KNOBS, defaults
from autotune.launch.fake import ENVIRONMENT, FACTS
from autotune.records import Config, Goal, StudyRequest
from autotune.results import Failure, Measurement, MemoryPeak, Outcome, ProbeResult, Trial, Verdict
from autotune.space import build

GIB = 2**30


def config(**values):
    return Config(values={**defaults(), **values})


def facts(**changes):
    return msgspec.structs.replace(FACTS, **changes)


def environment(**changes):
    return msgspec.structs.replace(ENVIRONMENT, **changes)


def space(goal=None, baseline=None, of=None, on=None):
    return build(of or FACTS, on or ENVIRONMENT, goal or Goal(global_batch=64), baseline or config(batch_size=64))


def study_request(**changes):
    baseline = config(batch_size=64)
    domains = space().domains
    made = StudyRequest(
        target="model.py", goal=Goal(global_batch=64), environment=ENVIRONMENT, facts=FACTS, baseline=baseline,
        baseline_assumed=False, domains=domains, memory_limit_bytes=16 * GIB, enforced_limit_bytes=None,
        headroom_bytes=GIB,
    )  # fmt: skip
    return msgspec.structs.replace(made, **changes)


def measured(rate=100.0, *, peak=GIB, losses=(2.0, 1.9, 1.8, 1.7), skipped=0, calibration=0, wait=0.0, samples=64):
    seconds = samples / rate
    return ProbeResult(
        outcome=Outcome.OK,
        elapsed_seconds=5.0,
        measurement=Measurement(
            samples=(samples,) * 4, step_seconds=(seconds,) * 4, loader_wait_seconds=(seconds * wait,) * 4,
            losses=losses, warmup_seconds=(seconds,), skipped_steps=skipped, calibration_skips=calibration,
            memory=MemoryPeak(process_bytes=GIB, reserved_bytes=peak, device_used_bytes=peak),
        ),
    )  # fmt: skip


def failed(outcome=Outcome.OOM_DEVICE, message="out of memory"):
    return ProbeResult(outcome=outcome, failure=Failure(phase="warm-up", message=message, evidence="made by hand"))


def trial(result, number=0, purpose="search", **values):
    return Trial(number=number, purpose=purpose, config=config(**values), result=result)


def good(value):
    return Verdict(value=value, constraints={"memory": -1.0, "stability": -1.0, "runnable": -1.0})


def bad(reason="out of memory"):
    return Verdict(value=None, constraints={"memory": 1.0, "stability": -1.0, "runnable": -1.0}, reason=reason)


def knob_names():
    return [knob.name for knob in KNOBS]
