"""Which configuration to probe next: expected improvement times the chance to fit, over the whole grid."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.prediction import Prediction
from autotune.structured.grid import Floats, Integers
from autotune.structured.law import Law
from autotune.structured.posterior import Posterior

CAUTION = 3.0  # exponent of the chance to fit: 3 instead of 2 more than halved the out-of-memory probes (decision 0021)
CLOSENESS = 1e-5  # of its rate, that a row is worth besides: decides only where next to nothing can be won any more
AS_GOOD = 0.97  # of the best acquisition: among these the fewest workers are taken, they cost memory and trouble
CONFIDENCE = 0.9  # of every interval and of the statement about the rest
AT_ONCE = 8  # particles: what the law makes of them and 10,000 rows on its way stays in a cache of some megabytes
LIKELY = 0.5  # chance to fit, above which a running probe counts as a rival

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Outlook:
    """What every configuration of the grid is believed to do; entries are (particles, rows) unless said otherwise."""

    rates: Floats  # samples/s
    fits: Floats  # chance to fit into memory
    memory: Floats  # (rows) median peak as a share of what may be used
    departure: Floats  # (rows) mean logarithm by which computing departs from the law
    direct: Mask  # (rows) the law is broken in this arm: what is foreseen there rests on the measurements around it


def foresee(law: Law, posterior: Posterior, chance: np.random.Generator) -> Outlook:
    """Rates with their departures drawn once per particle and cell, and chances to fit."""
    from scipy.special import ndtr

    particles, places = posterior.particles, law.everywhere
    draw = chance.standard_normal
    computing = law.computing(particles, places) + posterior.cell_mean
    computing += posterior.cell_spread * draw(computing.shape)
    loading = law.loading(particles, places) + posterior.stream_mean
    loading += posterior.stream_spread * draw(loading.shape)
    rates = np.empty((len(particles), len(places.samples)))
    for start in range(0, len(particles), AT_ONCE):
        some = slice(start, start + AT_ONCE)
        compute, load = law.clocks(particles[some], places, computing[some], loading[some])
        np.divide(places.samples, law.together(particles[some], places, compute, load), out=rates[some])
    memory = law.memory(particles, places) + posterior.room_mean
    fits = ndtr(-memory / posterior.room_spread)
    return Outlook(
        rates=rates,
        fits=fits[:, places.room],
        memory=np.exp(np.median(memory, axis=0))[places.room],
        departure=posterior.cell_mean.mean(0)[places.cell],
        direct=(posterior.scale > 1)[law.arms],
    )


def incumbents(outlook: Outlook, rows: Integers) -> Floats:
    """The rate of the best configuration among `rows` in every particle, as a column; 0 if there is none."""
    if not len(rows):
        return np.zeros((len(outlook.rates), 1))
    found: Floats = outlook.rates[:, rows].max(1, keepdims=True)
    return found


def rivals(outlook: Outlook, measured: Integers, running: Integers) -> Integers:
    """The rows to improve upon: what was measured and fits, and what is being measured now and probably fits."""
    likely = running[outlook.fits[:, running].mean(0) > LIKELY]
    return np.unique(np.concatenate([measured, likely]))


def gains(outlook: Outlook, best: Floats) -> Floats:
    """Expected improvement over `best` in samples/s, times the chance to fit, per row.

    Both are compared within each particle: what only shares the luck of the incumbent promises nothing.
    """
    found = np.zeros(outlook.rates.shape[1])
    for rates, fits, incumbent in zip(outlook.rates, outlook.fits, best, strict=True):  # a line of each stays in cache
        gain = rates - incumbent
        np.maximum(gain, 0, out=gain)
        gain *= fits
        found += gain
    return found / len(outlook.rates)


def ranked(outlook: Outlook, best: Floats, workers: Floats) -> Integers:
    """Rows by how much a probe of them promises, the most first; nearly equal promises by fewer workers."""
    likely = outlook.fits.mean(0)
    worth = gains(outlook, best) * likely ** (CAUTION - 1) + CLOSENESS * outlook.rates.mean(0) * likely**CAUTION
    order = np.argsort(-worth, kind="stable")
    close = order[: int((worth >= AS_GOOD * worth.max()).sum())]
    return np.concatenate([close[np.argsort(workers[close], kind="stable")], order[len(close) :]])


def prediction(outlook: Outlook, best: Floats, row: int, limit_bytes: int | None, worth: float = 1.0) -> Prediction:
    """Why `row` was proposed, to be held against its measurement; `worth` of a sample/s, where rates were weighed."""
    rates, low = outlook.rates[:, row], (1 - CONFIDENCE) / 2
    incumbent = float(best.mean())
    gain = float((np.maximum(rates - best[:, 0], 0) * outlook.fits[:, row]).mean())
    return Prediction(
        samples_per_second=float(np.median(rates)) / worth,
        low=float(np.quantile(rates, low)) / worth,
        high=float(np.quantile(rates, 1 - low)) / worth,
        memory_share=float(outlook.memory[row]),
        memory_bytes=int(outlook.memory[row] * limit_bytes) if limit_bytes else None,
        fits=float(outlook.fits[:, row].mean()),
        gain=gain / incumbent if incumbent > 0 else None,
        departure=float(np.expm1(-outlook.departure[row])),
        why="direct" if outlook.direct[row] else "gain",
    )


def faster_elsewhere(outlook: Outlook, measured: Integers, open_rows: Mask, chance: np.random.Generator) -> float:
    """By which share no configuration among `open_rows` is expected to be faster than the best measured one (90 %).

    A mask of the rows that were not measured and may still be; 0.04 says 4 %. Infinite if nothing was measured.
    """
    if not len(measured):
        return float("inf")
    if not open_rows.any():
        return 0.0
    best = incumbents(outlook, measured)[:, 0]
    fits = chance.random((len(best), 1)) < outlook.fits[:, open_rows]
    rest = np.where(fits, outlook.rates[:, open_rows], 0.0).max(1)
    return float(max(0.0, np.quantile(rest / best, CONFIDENCE) - 1))
