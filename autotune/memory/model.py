"""The memory model: peaks by a shape run, interpolated over the micro-batch, and corrected by measured peaks.

The peak of a step is the largest of its phases (forward, backward, optimizer), each of them a + c * b in the
micro-batch b with c >= 0: convex and piecewise linear. So between two known points their chord is an upper bound, and
beyond the last one the line through the last two is a lower bound, which is why a shape run climbs until its slopes
agree (docs/notes/memory.md 5). The memory of a real process is offset + ratio * predicted (section 6): the offset is
the context or the interpreter, the ratio fragmentation, and both are learned from measured peaks.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.core.memory_breakdown import Breakdown
from autotune.core.notices import Notice
from autotune.core.records import Record, Value

# Relative difference up to which two slopes count as one segment: 2 points on the last one err by <= 2.6 %.
SLOPE_AGREEMENT = 0.005
START_MARGIN = 0.07  # of a peak, one-sided, before residuals are known (docs/notes/memory.md 6)
PEAK_SPREAD = 0.01  # of one measured peak, relative


@dataclass(frozen=True, kw_only=True)
class Prior:
    """The prior of offset and ratio, before any probe."""

    besides_bytes: float  # that training holds in addition to ratio * predicted
    offset_spread: float  # standard deviation of the offset, as a share of a peak
    ratio: float
    ratio_spread: float
    margin: float  # share by which a peak may exceed the expected one, before any was measured
    arm_spread: float  # standard deviation of the ratio between arms of one target


# The ratio is that of reserved to allocated bytes in a first probe; the prior of the offset is wide.
# The numbers are judgements.
ON_DEVICE = Prior(
    besides_bytes=0.0, offset_spread=0.5, ratio=1.0, ratio_spread=0.1, margin=START_MARGIN, arm_spread=0.0
)
# Lines through the resident sets of 70 probes in 27 arms of four targets (torch 2.13 for CPUs, Linux, 2026-11-21,
# `studies/surfaces`): 101 MiB besides (78 to 130) and 1.7 +- 0.55 times the tensors (1.1 to 2.6, all but one). These
# tensors took tens of MiB; with gigabytes the ratio was 1.0 (docs/notes/memory.md 4). Arms of one target differ, too:
# char_transformer took 1.3 times its tensors in float32, and 1.9 times with activation checkpointing (2026-11-22).
ON_HOST = Prior(besides_bytes=100 * 2.0**20, offset_spread=0.1, ratio=1.7, ratio_spread=0.6, margin=0.0, arm_spread=0.6)
MOST_RATIO = 2.6  # the largest ratio of these arms, except one
SLACK_SHARE = 0.5  # of the usable memory: if the upper bound of the largest batch is lower, memory cannot bind


class Arm(Record, frozen=True, kw_only=True):
    """The peaks of one arm: fixed values of all knobs that affect memory, except the micro-batch."""

    values: dict[str, Value]
    points: tuple[tuple[int, int], ...] = ()  # (micro-batch, peak bytes of all tensors), by micro-batch
    reason: Notice | None = None  # why there are no points, or no more; None: there is no reason
    breakdown: Breakdown | None = None  # of the tensors of one step, where it was asked for

    @property
    def why(self) -> str:
        """The reason as text; empty without one."""
        return self.reason.text if self.reason else ""

    def peak_bytes(self, batch: int) -> float | None:
        """Return the bytes of tensors at their peak with that micro-batch; None if they are unknown.

        Below the first point it is that point's peak: a smaller batch never needs more.
        """
        if not self.points:
            return None
        first, last = self.points[0], self.points[-1]
        if batch <= first[0]:
            return float(first[1])
        place = bisect_left(self.points, (batch, 0))
        if place == len(self.points):
            return last[1] + max(0.0, self._slope(-1)) * (batch - last[0])
        left, right = self.points[place - 1], self.points[place]
        return left[1] + (right[1] - left[1]) * (batch - left[0]) / (right[0] - left[0])

    def frontier(self, limit_bytes: float) -> float | None:
        """Return the largest micro-batch within `limit_bytes`: 0 if none fits, infinite if all do; None: unknown.

        It is not rounded, because only the caller knows which batches there are.
        """
        if not self.points:
            return None
        if limit_bytes < self.points[0][1]:
            return 0.0
        for left, right in zip(self.points, self.points[1:], strict=False):
            if right[1] > limit_bytes:
                return left[0] + (limit_bytes - left[1]) * (right[0] - left[0]) / (right[1] - left[1])
        slope = self._slope(-1)
        last = self.points[-1]
        return last[0] + (limit_bytes - last[1]) / slope if slope > 0 else math.inf

    @property
    def settled(self) -> bool:
        """Whether the last two slopes agree and are above 0: beyond them the line can be extrapolated.

        A flat beginning shows that the optimizer step needs more than small batches; it ends where activations need
        more.
        """
        if len(self.points) < 3:
            return False
        before, last = self._slope(-2), self._slope(-1)
        return last > 0 and abs(last - before) <= SLOPE_AGREEMENT * last

    def _slope(self, which: int) -> float:
        """Return the bytes per sample of the last segment (-1) or the one before it (-2); 0 where there is none."""
        if len(self.points) < 1 - which:
            return 0.0
        left, right = self.points[which - 1], self.points[which]
        return (right[1] - left[1]) / (right[0] - left[0])


@dataclass(frozen=True, kw_only=True)
class PredictedPeak:
    """The predicted peak of one configuration, and the errors that it shares with all others of the same shape run."""

    share: float  # of the usable memory
    together: tuple[float, ...] = ()  # change of its logarithm by one standard deviation of each shared unknown


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The correction of predicted bytes of tensors to bytes of a real process: offset + ratio * predicted."""

    offset_bytes: float
    ratio: float = 1.0
    margin: float = START_MARGIN  # share by which the real peak may exceed the estimate
    spreads: tuple[float, float] = (0.0, 0.0)  # standard deviations of the prior: of offset (bytes) and ratio
    variances: tuple[float, float, float] = (0.0, 0.0, 0.0)  # left after all peaks: of offset, of ratio, of both
    arm_spread: float = 0.0  # standard deviation of the ratio between arms
    moved: tuple[float, float] = (0.0, 0.0)  # by how many of these measured peaks have moved each

    def real(self, predicted_bytes: float) -> float:
        """Return the peak in bytes that a real process is expected to have where tensors take `predicted_bytes`."""
        return self.offset_bytes + self.ratio * predicted_bytes

    def most(self, predicted_bytes: float, *, probed: bool = False) -> float:
        """Return the upper end of the peak in bytes: by the margin, or by one standard deviation of offset and ratio.

        Near a measured peak the margin is larger. Far from it the uncertain ratio decides, which a single peak does not
        determine, and on a host not even many peaks of another arm do: `probed` says that some are of this arm.
        """
        of_offset, of_ratio, of_both = self.variances
        of_ratio += 0.0 if probed else self.arm_spread**2
        variance = of_offset + predicted_bytes * (2 * of_both + predicted_bytes * of_ratio)
        expected = self.real(predicted_bytes)
        return expected + max(self.margin * expected, math.sqrt(max(0.0, variance)))

    def prior_peak(self, predicted_bytes: float, besides_bytes: float, usable_bytes: float) -> PredictedPeak:
        """Return the peak by shape run and prior alone, for a sampler that also knows measured peaks and overflows.

        `besides_bytes` are those of loader workers. The logarithm of the peak is linearised in offset and ratio around
        their calibrated values, and then moved back to their prior values. So the slopes are right near the truth, and
        yet no measured peak counts twice.
        """
        real = self.real(predicted_bytes) + besides_bytes
        together = (self.spreads[0] / real, self.spreads[1] * predicted_bytes / real)
        back = math.fsum(slope * moved for slope, moved in zip(together, self.moved, strict=True))
        return PredictedPeak(share=real * math.exp(-back) / usable_bytes, together=together)


def calibrated(base_bytes: float, peaks: Sequence[tuple[float, float]], prior: Prior = ON_DEVICE) -> Calibration:
    """Fit the correction to the bytes besides tensors and to (predicted, measured) peaks of all probes, in bytes.

    The fit is weighted least squares with a prior; the offset is never below 0. One probe changes the offset, and the
    ratio as far as its prior is uncertain; probes of different sizes tell them apart. The margin is the largest
    optimistic residual, and at least 7 % over the root of the number of peaks.
    """
    base = base_bytes + prior.besides_bytes
    spread = prior.offset_spread * max((measured for _, measured in peaks), default=base)
    if not peaks:
        return Calibration(
            offset_bytes=base, ratio=prior.ratio, margin=prior.margin, spreads=(spread, prior.ratio_spread),
            arm_spread=prior.arm_spread,
        )  # fmt: skip
    # Normal equations of [ratio - its prior, offset - base], every row divided by its standard deviation.
    rows = [(1 / prior.ratio_spread, 0.0, 0.0), (0.0, 1 / spread, 0.0)]
    for predicted, measured in peaks:
        weight = 1 / (PEAK_SPREAD * measured)
        rows.append((predicted * weight, weight, (measured - prior.ratio * predicted - base) * weight))
    aa, ab, bb, ay, by = (
        math.fsum(products) for products in zip(*((a * a, a * b, b * b, a * y, b * y) for a, b, y in rows), strict=True)
    )
    determinant = aa * bb - ab * ab  # above 0: the prior alone has full rank
    ratio = prior.ratio + (ay * bb - by * ab) / determinant
    offset = base + (aa * by - ab * ay) / determinant
    if offset < 0:  # impossible: the shape run then over-estimates by a factor, so only the ratio is fitted
        weighed = [(predicted, predicted / measured**2, measured) for predicted, measured in peaks]
        ratio = math.fsum(w * m for _, w, m in weighed) / math.fsum(w * p for p, w, _ in weighed)
        offset = 0.0
    worst = max(measured / (offset + ratio * predicted) - 1 for predicted, measured in peaks)
    return Calibration(
        offset_bytes=offset,
        ratio=ratio,
        margin=max(worst, START_MARGIN / math.sqrt(len(peaks))),
        spreads=(spread, prior.ratio_spread),
        variances=(aa / determinant, bb / determinant, -ab / determinant),
        arm_spread=prior.arm_spread,
        moved=((offset - base) / spread, (ratio - prior.ratio) / prior.ratio_spread),
    )
