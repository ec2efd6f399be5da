"""The reasons for a recommended configuration, and the warnings that belong to it."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterator, Sequence

from autotune.answer.confirmation_rounds import FEWEST_ROUNDS, rounds_without_interference
from autotune.answer.exposed_communication import exposed_communication
from autotune.answer.uneven_ranks import uneven_ranks
from autotune.core.codes import Code
from autotune.core.interference_readings import MOST_FOREIGN_CORES
from autotune.core.memory_growth import MOST_STEPS_LEFT, memory_growth
from autotune.core.notices import Notice, notice
from autotune.core.records import Config, StudyRequest
from autotune.core.results import Trial
from autotune.knobs import loader_workers, worker_knob
from autotune.knobs.changes import keeps_memory
from autotune.objectives.verdict import headroom_for
from autotune.sampler.space import is_settable
from autotune.study.shown import moving, shown_config
from autotune.study.summary import ConfigSummary
from autotune.study.valid_probes import interference_causes

# Of the loop, and of loop and workers in the mean: 0.10 to 0.32 where three processes computed on two cores
# (packed_cnn), 0.03 to 0.08 where eight workers waited for a network (slow_loader).
FULL_WAIT_SHARE = 0.09
LOADER_BOUND = 0.15  # share of a step spent waiting: 0.04 if compute-bound, else 0.2 to 0.75 (docs/notes/timing.md 4)
MISLEADING_SPREAD = 0.05  # relative, of repeats: beyond it a ranking of near-ties means little


def reasons_for(request: StudyRequest) -> Iterator[Notice]:
    """Yield the limits and settings that held for every configuration of the search."""
    if request.goal.global_batch is not None:
        yield notice(Code.GLOBAL_BATCH_HELD, batch=request.goal.global_batch)
    if request.goal.exact:
        yield notice(Code.EXACT)


def is_unconfirmed(one: ConfigSummary) -> bool:
    """Return whether it was measured too rarely to be confirmed: there was no time to measure it again."""
    return not one.failure and len((*one.trials, *one.left_out)) < FEWEST_ROUNDS


def warnings_of(
    winner: ConfigSummary, request: StudyRequest, spread: float, faultless_spread: float, *, busy: bool = False,
    probed: Collection[Config] = (), is_open: bool = False,
) -> Iterator[Notice]:  # fmt: skip
    """Yield the warnings that the winner needs, with a next step each.

    `spread` is the relative standard deviation of a repeat, pooled over all configurations (`Rounds.noise`),
    `faultless_spread` the same without the time of page faults. `probed` are all configurations that the study has
    tried. `is_open`: it is undecided whether any of them is faster than the baseline.
    """
    now, before = winner.config.batch_size, request.baseline.batch_size
    if set(probed) == {request.baseline} and any(len(values) > 1 for values in request.domains.values()):
        yield notice(Code.ONLY_BASELINE_TRIED)
    if winner.config != request.baseline and is_unconfirmed(winner):
        yield notice(Code.NOT_CONFIRMED)
    yield from _loader(winner, request, probed, is_open=is_open)
    yield from _repeated_samples(winner, request)
    yield from _growth(winner, request)
    yield from uneven_ranks(winner.measurements)
    if differing := request.facts.ranks_differ:
        yield notice(Code.RANKS_DIFFER, parameters=differing)
    yield from exposed_communication(winner.measurements)
    unknown = [m for m in winner.measurements if m.shapes_vary and not m.worst_batches]
    if unknown:
        free = headroom_for(unknown[0], request) / request.memory_limit_bytes
        owned = request.facts.owns_loop
        yield notice(Code.LARGEST_BATCH_UNTRIED_OWN_LOOP if owned else Code.LARGEST_BATCH_UNTRIED, free_share=free)
    if request.facts.has_batch_norm and now != before:
        yield notice(Code.BATCH_NORM, now=now, before=before)
    if request.facts.is_mean_loss is False and now != before:
        yield notice(Code.LOSS_OF_BATCH, now=now, before=before)
    if paused := sum(m.paused_seconds for m in winner.measurements):
        yield notice(
            Code.PAUSES_LEFT_OUT, seconds=paused, measured=sum(sum(m.step_seconds) for m in winner.measurements)
        )
    if min(spread, faultless_spread) > MISLEADING_SPREAD:
        yield notice(Code.RATES_SPREAD, spread=spread)
    elif spread > MISLEADING_SPREAD and not keeps_memory(winner.config, request.baseline):
        yield notice(Code.FAULTS_SPREAD, spread=spread)  # not caused by other work, so waiting does not help
    if busy:
        yield notice(Code.INTERFERENCE_THROUGHOUT)
    if request.facts.data == "batch" and not request.facts.owns_loop:  # a loop that draws its own batches has real ones
        yield notice(Code.SYNTHETIC_BATCHES)


def _repeated_samples(winner: ConfigSummary, request: StudyRequest) -> Iterator[Notice]:
    """Yield a warning: each worker has its own copy of an iterable dataset (https://pytorch.org/docs/stable/data.html)."""
    now, before = (loader_workers(config) for config in (winner.config, request.baseline))
    if request.facts.data == "iterable" and now > max(1, before):
        yield notice(Code.SAMPLES_REPEATED, workers=now, before=before)


def _growth(winner: ConfigSummary, request: StudyRequest) -> Iterator[Notice]:
    """Yield a warning, for the baseline too: the code makes memory grow, not the configuration."""
    slopes = sorted(memory_growth(one.memory_track) for one in winner.measurements)
    slope = slopes[(len(slopes) - 1) // 2] if slopes else 0.0  # the lower median: memory must have grown in most probes
    left = int(max(0, request.memory_limit_bytes - winner.peak_bytes) / slope) if slope else MOST_STEPS_LEFT
    if left < MOST_STEPS_LEFT:
        yield notice(Code.MEMORY_GROWS, step_bytes=round(slope), steps_left=left)


def _loader(
    winner: ConfigSummary, request: StudyRequest, probed: Collection[Config], *, is_open: bool
) -> Iterator[Notice]:
    share = winner.data_wait_share
    if share <= LOADER_BOUND or not request.facts.tunes_loader:
        return
    most = max(int(value or 0) for value in request.domains[worker_knob().name])
    own = loader_workers(winner.config)
    tried = max(map(loader_workers, probed), default=own)
    if not is_settable(worker_knob().name, request.facts):
        yield notice(Code.LOADER_BOUND_COMMAND, wait_share=share)
    elif not request.facts.takes_workers:
        yield notice(Code.LOADER_BOUND_WORKERS_FIXED, wait_share=share)
    elif tried > own:
        known = Code.LOADER_BOUND_WORKERS_OPEN if is_open else Code.LOADER_BOUND_WORKERS_TRIED
        yield notice(known, wait_share=share, workers=tried)
    elif own != most:
        yield notice(Code.LOADER_BOUND_SEARCH_SHORT, wait_share=share, workers=most)
    elif own and _are_cores_full(winner, (own + 1) * request.facts.ranks):
        yield notice(Code.LOADER_BOUND_CORES_FULL, wait_share=share, workers=own)
    else:
        yield notice(Code.LOADER_BOUND, wait_share=share, workers=2 * max(most, 1))


def _are_cores_full(winner: ConfigSummary, processes: int) -> bool:
    """Return whether workers and loop wait for cores that no other program keeps busy; False if that is unknown."""
    read = [one.interference for one in winner.measurements if one.interference is not None]
    calm = [one for one in read if one.foreign_cores is not None and one.foreign_cores <= MOST_FOREIGN_CORES]
    waits = [
        min(one.threads_wait_share / processes, one.run_queue_wait_share)
        for one in calm
        if one.threads_wait_share is not None and one.run_queue_wait_share is not None
    ]
    return bool(waits) and statistics.median(waits) > FULL_WAIT_SHARE


def left_out_warnings(
    candidates: Sequence[ConfigSummary], request: StudyRequest, winner: Config, *, is_sure: bool
) -> Iterator[Notice]:
    """Yield warnings that name the probes that were slowed and left out, and the doubtful ones that were not.

    `winner` is recommended. `is_sure`: which configuration is faster is certain all the same.
    """
    left = [trial for candidate in candidates for trial in candidate.left_out]
    if left:
        yield notice(Code.PROBES_LEFT_OUT, count=len(left), probes=tuple(map(_slowed_probe, left)))
    confirmed = [
        c for c in candidates
        if is_unconfirmed(c) or any(trial.purpose == "confirm" for trial in (*c.trials, *c.left_out))
    ]  # fmt: skip
    doubtful = [
        (c, clean)
        for c in confirmed
        if (clean := rounds_without_interference(c)) < FEWEST_ROUNDS and (c.left_out or clean < len(c.trials))
    ]
    if doubtful:
        rounds = tuple(_slowed_rounds(c, clean, request) for c, clean in doubtful)
        kept = [trial for c, _ in doubtful for trial in c.trials if interference_causes(trial.result)]
        is_alone = sum(bool(c.trials) and not c.failure for c in candidates) == 1  # nothing was compared
        code = Code.LONE_RATE_INTERFERENCE if is_alone or is_sure else Code.CONFIRMATION_INTERFERENCE
        slowed = {c.config for c, _ in doubtful}
        if is_sure and not is_alone and request.baseline in slowed and winner not in slowed:
            code = Code.BASELINE_RATE_INTERFERENCE
        yield notice(code, rounds=rounds, probes=tuple(map(_slowed_probe, kept)) or None)


def _slowed_rounds(candidate: ConfigSummary, clean: int, request: StudyRequest) -> Notice:
    ran = len(candidate.trials + candidate.left_out)
    configuration = shown_config(candidate.config.values, moving(request))
    return notice(Code.SLOWED_ROUNDS, configuration=configuration, slowed=ran - clean, rounds=ran)


def _slowed_probe(trial: Trial) -> Notice:
    """Return a slowed probe in words: `probe 7 at 125 samples/s (other processes kept ...)`."""
    measured = trial.result.measurement
    rate = measured.samples_per_second if measured else None
    causes = interference_causes(trial.result) or (notice(Code.SLOWED_BY_UNKNOWN),)
    return notice(Code.SLOWED_PROBE, number=trial.number, samples_per_second=rate, causes=causes)
