"""What a person should know beside the numbers: why this configuration, and what to mind."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from autotune.core.records import Config, StudyRequest
from autotune.core.results import Trial
from autotune.core.stats import memory_growth
from autotune.gradient_noise.estimate import learning_rate_factor
from autotune.knobs import loader_workers, worker_knob
from autotune.objectives.verdict import headroom_bytes
from autotune.study.interference import interference_causes
from autotune.study.summary import ConfigSummary
from autotune.tuning.header import shown
from autotune.tuning.racing import FEWEST_ROUNDS, undisturbed_rounds
from autotune.units import format_bytes, format_rate, format_share

LOADER_BOUND = 0.15  # share of a step spent waiting: 0.04 if compute-bound, else 0.2 to 0.75 (docs/notes/timing.md 4)
MOST_TOLD = 3  # probes: the others were slowed by the same work
NOISY = 0.05  # spread of repeats beyond which a ranking of near-ties means little


def advise(
    winner: ConfigSummary, request: StudyRequest, noise: float, *, busy: bool = False,
    probed: Collection[Config] = (), noise_scale: float | None = None,
) -> tuple[tuple[str, ...], tuple[str, ...]]:  # fmt: skip
    """Return reasons for the choice, and warnings with a next step each; `probed`: all that the study has tried."""
    config, baseline = winner.config, request.baseline
    reasons = []
    if request.goal.global_batch is not None:
        reasons.append(f"global batch held at {request.goal.global_batch}")
    if request.goal.exact:
        reasons.append("computes what the baseline computes, up to the order of rounding (--exact)")
    warnings = _untried(request, probed)
    warnings += [*_global_batch(winner, request, noise_scale), *_loader(winner, request, probed)]
    warnings += [*_repeated_samples(winner, request), *_growth(winner, request), *_worst(winner, request)]
    if request.facts.has_batch_norm and config.batch_size != baseline.batch_size:
        warnings.append(
            f"BatchNorm now sees micro-batches of {config.batch_size} instead of {baseline.batch_size}: its "
            f"statistics change with them. Keep batch_size {baseline.batch_size} where that matters "
            f"(--fix batch={baseline.batch_size}, or --exact)."
        )
    if noise > NOISY:
        warnings.append(
            f"Repeats of one configuration differed by {noise:.0%}: this machine is busy or throttled. Search again "
            f"when it is quiet; gains below that are not to be trusted."
        )
    if busy:
        warnings.append(
            "Others used this machine throughout: probes that were repeated for it were disturbed again. The rates are "
            "too low, and small differences may be theirs. Search again when it is quiet."
        )
    if request.facts.data == "batch":
        warnings.append(
            "The batches are synthetic: data loading was neither measured nor tuned. Write dataset() for that."
        )
    return tuple(reasons), tuple(warnings)


def _untried(request: StudyRequest, probed: Collection[Config]) -> list[str]:
    if set(probed) != {request.baseline} or all(len(values) == 1 for values in request.domains.values()):
        return []
    return [
        "Nothing but the baseline was tried: the budget was spent on it. Search again with a longer --time-budget (or "
        "more --probes); what was measured is kept."
    ]


def _global_batch(winner: ConfigSummary, request: StudyRequest, phi: float | None) -> list[str]:
    now, before = winner.config.global_batch_size(), request.baseline.global_batch_size()
    if now == before:
        return []
    factor = now / before
    rule = f"{math.sqrt(factor):.2g} (square root of {factor:.3g}; no more than a place to start)"
    if phi is not None:
        rate = learning_rate_factor(now, before, phi)
        rule = (
            f"{rate:.2g} with SGD, by {math.sqrt(rate):.2g} with Adam and its beta2 to the power of {factor:.3g} (from "
            f"the noise scale; no more than a place to start, right to about 2 times)"
        )
    return [
        f"The global batch changes from {before} to {now} samples per optimizer step, and with it what the model "
        f"learns. As a starting point multiply the learning rate by {rule}, restate schedules in samples, and compare "
        f"the losses; or hold it with --global-batch {before}."
    ]


def _repeated_samples(winner: ConfigSummary, request: StudyRequest) -> list[str]:
    """Each worker has its own copy of an iterable dataset (https://pytorch.org/docs/stable/data.html)."""
    now, before = (loader_workers(config) for config in (winner.config, request.baseline))
    if request.facts.data != "iterable" or now < 2 or now <= before:
        return []
    return [
        f"Each of the {now} workers iterates over the whole of an iterable dataset, so that every sample comes {now} "
        f"times, unless __iter__ takes its share by torch.utils.data.get_worker_info(). See that it does, or keep the "
        f"workers with --fix workers={before}."
    ]


def _growth(winner: ConfigSummary, request: StudyRequest) -> list[str]:
    """Whatever configuration wins, the baseline too: it is the code that grows."""
    slopes = sorted(memory_growth(one.memory_track) for one in winner.measurements)
    slope = slopes[len(slopes) // 2] if slopes else 0.0  # the median: one probe may have been disturbed
    if not slope:
        return []
    left = int(max(0, request.memory_limit_bytes - winner.peak_bytes) / slope)
    return [
        f"Memory grows by {format_bytes(slope)} with every step: it runs out after about {left:,} steps, whatever the "
        f"configuration. Something probably keeps the graph of every step, such as `total += loss` or a list of "
        f"outputs. Keep numbers instead (`total += loss.item()`), or `.detach()` what is kept."
    ]


def _worst(winner: ConfigSummary, request: StudyRequest) -> list[str]:
    unknown = [m for m in winner.measurements if m.shapes_vary and not m.worst_batches]
    if not unknown:
        return []
    free = headroom_bytes(unknown[0], request) / request.memory_limit_bytes
    todo = "Write worst_batch(batch_size), which returns one such batch, to have it tried."
    if request.facts.owns_loop:
        todo = "The target's own loop chooses its batches: pad all of them to the longest to have it tried."
    return [
        f"Batches differ in shape, and the largest was not tried: which it is cannot be told from this data. "
        f"{format_share(free)} of the memory are kept free for it. {todo}"
    ]


def _loader(winner: ConfigSummary, request: StudyRequest, probed: Collection[Config]) -> list[str]:
    share = winner.data_wait_share
    if share <= LOADER_BOUND or not request.facts.tunes_loader:
        return []
    most = max(int(value or 0) for value in request.domains[worker_knob().name])
    own = loader_workers(winner.config)
    tried = max(map(loader_workers, probed), default=own)
    step = f"allow more with --workers 0:{2 * max(most, 1)}, or make the samples cheaper"
    if not request.facts.takes_workers:
        step = "let dataloader() take num_workers, which is tuned then, or make the samples cheaper"
    elif tried > own:
        step = f"more workers, up to {tried}, were probed and gained nothing, so make the samples cheaper"
    elif own != most:
        step = f"search longer (up to {most} workers were allowed), or make the samples cheaper"
    return [
        f"Every step waits for data during {format_share(share)} of its time, the loader is the bottleneck: {step}."
    ]


def left_out_warnings(candidates: Sequence[ConfigSummary]) -> tuple[str, ...]:
    """Return warnings: which probes of the race were left out because of interference, and which are doubtful."""
    left = [trial for candidate in candidates for trial in candidate.left_out]
    warnings = []
    if left:
        warnings.append(
            f"Other work disturbed the confirmation, so {len(left)} of its probes {'is' if len(left) == 1 else 'are'} "
            f"left out: {_listed(left)}."
        )
    raced = [c for c in candidates if any(trial.purpose == "confirm" for trial in (*c.trials, *c.left_out))]
    doubtful = [
        c
        for c in raced
        if undisturbed_rounds(c) < FEWEST_ROUNDS and (c.left_out or undisturbed_rounds(c) < len(c.trials))
    ]
    if doubtful:
        few = "; ".join(
            f"{shown(c.config)} was left in peace in {undisturbed_rounds(c)} of {len(c.trials + c.left_out)} rounds"
            for c in doubtful[:MOST_TOLD]
        )
        kept = [trial for c in doubtful for trial in c.trials if interference_causes(trial.result)]
        counts = f" What counts all the same: {_listed(kept)}." if kept else ""
        warnings.append(
            f"The confirmation was disturbed: {few}.{counts} The rates are probably too low, and which configuration "
            f"is faster is not certain. Close other work and run the same command again."
        )
    return tuple(warnings)


def _listed(trials: Sequence[Trial]) -> str:
    """`probe 7 at 125 samples/s (other processes kept ...); and 2 more`."""
    words = []
    for trial in trials[:MOST_TOLD]:
        measured = trial.result.measurement
        rate = f" at {format_rate(measured.samples_per_second)} samples/s" if measured else ""
        words.append(f"probe {trial.number}{rate} ({'; '.join(interference_causes(trial.result))})")
    more = len(trials) - MOST_TOLD
    return "; ".join(words) + (f"; and {more} more" if more > 0 else "")
