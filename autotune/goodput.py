"""Whether trainings with several global batches bear out what the noise scale foretells of their samples. Pure.

At equal samples the branch with the higher loss L is behind. The other one passed L earlier, after fewer samples: the
ratio of the two counts is how many times the samples the one behind needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from autotune.branches import Branch, BranchesResult, BranchLoss, GoodputCheck
from autotune.gradients import NoiseScale
from autotune.noise_scale import GROWTH

LAST = 0.25  # of the samples, whose losses are compared
FEWEST_STEPS = 6  # in it: with fewer their spread says nothing
BLOCKS = 20  # of equal samples, of which the course of a loss is made
CENTRE = 1.5  # standard error in the middle of a parabola over that of a mean
WIDEST = 4.0  # upper over lower end of an interval: the noise scale is right within 3.4 (docs/notes/noise.md 3)
SMOOTHING = 1.02  # times, by which blocks are off: up to 1.6 % on exponentials that fall by ten time constants
QUANTILE_90, QUANTILE_95 = 1.645, 1.96  # of the normal distribution, both sides
Ratio = tuple[float | None, float | None, float | None]


def judge(result: BranchesResult, noise: NoiseScale, batch: int) -> GoodputCheck:
    """How the branch of global batch `batch` did against the first one, and against what `noise` foretells.

    `noise` must have a phi and an upper end, and `batch` must be among the branches.
    """
    assert noise.phi is not None and noise.high is not None, "else nothing is foretold"
    base = result.branches[0]
    branch = next(one for one in result.branches if one.global_batch == batch)
    samples = min(sum(one.samples) for one in result.branches)
    phis = (noise.phi, noise.low, GROWTH * noise.high)  # it grows while the branches are trained, as in `batch_range`
    middle, *ends = (relative_samples(batch, base.global_batch, phi) for phi in phis)
    low, high = sorted(ends)
    check = GoodputCheck(
        verdict="not resolved",
        global_batch=batch,
        baseline_batch=base.global_batch,
        samples=samples,
        optimizer=branch.optimizer,
        branches=tuple(_came_to(one, samples) for one in result.branches),
        foretold=middle,
        foretold_low=low,
        foretold_high=high,
    )
    return _compared(check, base, branch)


def relative_samples(batch: float, before: float, phi: float) -> float:
    """How many times the samples a global batch needs for the same progress as `before`: (1 + B / phi) over the same.

    McCandlish et al. 2018 (arXiv 1812.06162), section 2.3: E = E_min (1 + B / phi). Below 1 for a smaller batch.
    """
    phi = max(phi, 1e-9)  # an interval may begin at 0
    return (1 + batch / phi) / (1 + before / phi)


def _compared(check: GoodputCheck, base: Branch, branch: Branch) -> GoodputCheck:

    for one in (branch, base):
        if any(loss is None for loss in one.losses):
            why = f"the loss stopped being finite with a global batch of {one.global_batch}"
            return replace(check, verdict="does not agree" if one is branch else "not resolved", why=why)
    for one in (branch, base):
        if _count(one, check.samples) < FEWEST_STEPS:
            steps = math.ceil(FEWEST_STEPS / LAST)
            why = f"a global batch of {one.global_batch} came to fewer than about {steps} steps"
            return replace(check, why=why)
    middle, low, high = _ratio(base, branch, check.samples)
    told = replace(check, observed=middle, low=low, high=high)
    if (low is not None and low > check.foretold_high) or (high is not None and high < check.foretold_low):
        return replace(told, verdict="does not agree")
    if low is None or high is None or high > WIDEST * low:
        return replace(told, why="the losses scatter too much, or fall too little, over so few samples")
    return replace(told, verdict="agrees")


def _came_to(branch: Branch, samples: int) -> BranchLoss:
    loss, error = None, None
    if all(one is not None for one in branch.losses) and _count(branch, samples) >= FEWEST_STEPS:
        _, loss, error = _end(branch, samples)
    return BranchLoss(
        global_batch=branch.global_batch,
        learning_rate_factor=branch.learning_rate_factor,
        loss=loss,
        half_width=None if error is None else QUANTILE_95 * error,
    )


def _course(branch: Branch, samples: int) -> tuple[Any, Any]:
    """Samples seen before each step's update, and its loss, NaN where not finite; over the first `samples`."""
    import numpy as np  # not for those who only read what was recommended

    seen = np.cumsum(branch.samples) - np.asarray(branch.samples)
    within = seen < samples
    return seen[within].astype(float), np.asarray(branch.losses, dtype=float)[within]


def _count(branch: Branch, samples: int) -> int:
    """Steps in the last quarter."""
    return int((_course(branch, samples)[0] >= (1 - LAST) * samples).sum())


def _window(branch: Branch, samples: int, centre: float) -> tuple[Any, Any]:
    """The course over a quarter of the samples around `centre`, as far as there are any."""
    places, losses = _course(branch, samples)
    half = LAST / 2 * samples
    centre = min(max(centre, half), samples - half)
    inside = abs(places - centre) <= half
    return places[inside], losses[inside]


def _middle(places: Any, losses: Any) -> tuple[float, float, float]:
    """Place and loss in the middle of a window, by a parabola, and what single losses scatter by around it."""
    import numpy as np

    middle = float(places.mean())
    unit = (places - middle) / (np.ptp(places) or 1.0)
    curve = np.polyfit(unit, losses, 2)
    spread = math.sqrt(float(((losses - np.polyval(curve, unit)) ** 2).sum()) / (len(losses) - 3))
    return middle, float(curve[-1]), spread


def _end(branch: Branch, samples: int) -> tuple[float, float, float]:
    """Where the branch came to: place, loss and its standard error."""
    places, losses = _window(branch, samples, samples)
    place, loss, spread = _middle(places, losses)
    return place, loss, CENTRE * spread / math.sqrt(len(losses))


def _ratio(base: Branch, branch: Branch, samples: int) -> Ratio:
    """Samples that `branch` needs over those of `base`, with an interval; None: open, or not to be told."""
    (_, base_loss, _), (_, loss, _) = _end(base, samples), _end(branch, samples)
    is_behind = loss >= base_loss
    behind, ahead = (branch, base) if is_behind else (base, branch)
    passed = _passing(ahead, samples)
    place, level, error = _end(behind, samples)
    there = passed(level) if passed is not None else None
    if passed is None or there is None:
        return None, None, None
    *_, spread = _middle(*_window(ahead, samples, there))
    block = len(_course(ahead, samples)[0]) / BLOCKS
    margin = QUANTILE_90 * math.hypot(error, spread / math.sqrt(max(1.0, block)))
    most, least = (
        None if count is None else place / count for count in (passed(level + margin), passed(level - margin))
    )
    middle = place / there  # passed early: a high ratio
    most, least = most and most * SMOOTHING, least and least / SMOOTHING
    if is_behind:
        return middle, least, most
    return 1 / middle, None if most is None else 1 / most, None if least is None else 1 / least


def _passing(branch: Branch, samples: int) -> Callable[[float], float | None] | None:
    """After how many samples the branch had come down to a loss; None: from its start on. No such: it does not fall.

    Block means, made to fall by isotonic regression; beyond their end the loss goes on falling with the logarithm of
    the samples as it did over the second half.
    """
    import numpy as np
    from scipy.optimize import isotonic_regression

    places, losses = _course(branch, samples)
    blocks = np.array_split(np.arange(len(places)), min(BLOCKS, len(places)))
    centres = np.array([places[block].mean() for block in blocks])
    falling = isotonic_regression([losses[block].mean() for block in blocks], increasing=False).x
    second = centres >= samples / 2
    slope = -np.polyfit(np.log(centres[second]), falling[second], 1)[0]
    end_place, end_loss, _ = _end(branch, samples)
    if slope <= 0 or end_loss >= falling[0]:
        return None
    inside = centres < end_place
    known = np.minimum.accumulate(np.append(falling[inside], end_loss))
    where = np.append(centres[inside], end_place)

    def passed(loss: float) -> float | None:
        if loss >= falling[0]:
            return None
        if loss <= end_loss:
            return end_place * math.exp((end_loss - loss) / slope)
        return float(np.interp(-loss, -known, where))

    return passed
