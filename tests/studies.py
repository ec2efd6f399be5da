"""Studies of every kind, for tests of what a person reads: the recorded ones, and invented ones of what none shows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from autotune.core.codes import Code
from autotune.core.notices import notice
from autotune.core.records import Config
from autotune.study.recommendation import Undecided
from autotune.study.view import StudyView, load_view
from tests.reporting import GIB, config, confirmed, failed, ladder, measured, recommendation, trial, view

STUDIES = Path(__file__).parents[1] / "studies"
# By name: whoever follows README has studies of his own beside them.
RECORDED = (
    "digits_cnn-epyc", "digits_cnn-epyc-forked", "digits_cnn-epyc-malloc", "digits_cnn-epyc-minute", "digits_cnn-xeon",
    "slow_loader-xeon", "train-epyc",
)  # fmt: skip


def kept() -> StudyView:
    """No configuration beat the baseline."""
    base = recommendation().baseline
    same: dict[str, Any] = {"params": base, "speedup": 1.0, "speedup_low": 1.0, "speedup_high": 1.0}
    own: dict[str, Any] = {"peak_bytes": 6 * GIB, "headroom_fraction": 0.925, "data_wait_share": 0.94, "warnings": ()}
    return view(ladder(), recommendation(samples_per_second=152.0, changes=(), **same, **own))


def tie() -> StudyView:
    """The rounds could not tell the answer from the baseline."""
    rival = Undecided(config=Config(values=recommendation().params), gain=1.08, gain_low=0.95, gain_high=1.22, rounds=3)
    close: dict[str, Any] = {"speedup": 1.08, "speedup_low": 0.95, "speedup_high": 1.22}
    return view(ladder(), recommendation(undecided=rival, samples_per_second=164.2, **close))


def limited() -> StudyView:
    """The answer needs nearly all the memory there is."""
    return view(ladder(), recommendation(peak_bytes=75 * GIB, headroom_fraction=0.0625))


def larger() -> StudyView:
    """The answer has another global batch."""
    changed = notice(Code.GLOBAL_BATCH_CHANGED, before=64, now=1024, factor=16.0, learning_rate_factor=4.0)
    best = recommendation(baseline=config(64).values, baseline_global_batch_size=64, global_batch_change=changed)
    return view((trial(0, config(64), measured(152, wait=0.94), "baseline"), *ladder()[1:]), best, baseline=config(64))


def command() -> StudyView:
    """The target is a command."""
    target = "-- python train.py --batch-size {batch_size=64}"
    return view(ladder(), recommendation(target=target), target=target)


def no_images() -> StudyView:
    """The target has no images, and its code settles the workers."""
    trials = (
        trial(0, config(), measured(152), "baseline"),
        trial(1, config(amp_dtype="bfloat16"), measured(300)),
        trial(2, config(128, amp_dtype="bfloat16"), measured(320)),
    )
    facts = view().request.facts
    best = recommendation(
        params=trials[1].config.values, baseline=trials[0].config.values, samples_per_second=300.0, speedup=300 / 152,
        speedup_low=1.9, speedup_high=2.1,
    )  # fmt: skip
    return view(trials, best, facts=replace(facts, has_convolution=False, takes_workers=False), baseline=config())


ANSWERED: dict[str, Callable[[], StudyView]] = {
    **{name: partial(load_view, STUDIES / name) for name in RECORDED},
    "rounds": lambda: confirmed(ladder()),  # with probes that failed
    "kept": kept,
    "tie": tie,
    "limited": limited,
    "larger": larger,
    "command": command,
    "no images": no_images,
}
FAILED: dict[str, Callable[[], StudyView]] = {
    "failed": lambda: view(tuple(trial(number, config(8 << number), failed()) for number in range(6)))
}
