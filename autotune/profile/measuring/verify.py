"""Tries slow lines (`--verify`): leaves each one out in the process of the profile, compares steps, and undoes it.

    the same steps twice ─► alike?  ─► each slow line: the same steps without it ─► alike? ─► with and without, in turn
                             no: nothing can be said                          no: undone, and said

The gain is a share of steps in turn, of the step whose parts were timed, so that it stands beside the estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from statistics import median

from msgspec.structs import replace
from torch.utils.data import DataLoader

from autotune.core.slow_line_sentences import SLOW_LINE_TEXTS
from autotune.profile.measuring.at_once import fetching_at_once
from autotune.profile.measuring.comparison import LeavingOut, again, compare, gained, median_interval
from autotune.profile.measuring.replay import Replay, StepsGiven
from autotune.profile.measuring.stubs import Stub, gives_up, left_out, out_of_order
from autotune.profile.measuring.without import Without
from autotune.profile.records import MeasuredGain, SlowLine
from autotune.targets.base import Step
from autotune.targets.data import Epochs, Source
from autotune.targets.loop import Training

Tried = Generator[None, Step, SlowLine]
NOT_REPEATED = "the same steps again have other losses already, so whether it changes them is not known"
NOT_FINITE = "the losses are not finite, so whether it changes them is not known"
CHANGES = "the losses of the next steps change without it"


class Verifying:
    """Tries slow lines, one after another; each `yield` is one step."""

    def __init__(
        self, training: Training, source: Source, without: Without, step_seconds: float, most_seconds: float
    ) -> None:
        """`step_seconds`: of a usual step. `most_seconds`: of one comparison, if it can be had so soon."""
        self._training, self._without = training, without
        self._loader = source.loader if isinstance(source, Epochs) else None
        self._step_seconds, self._most_seconds = step_seconds, most_seconds
        self._replay = Replay(training)
        self._why_not = ""  # nothing can be said of losses
        self.at: SlowLine | None = None  # what is tried now

    def try_each(
        self, found: list[SlowLine], tell: Callable[[SlowLine, SlowLine], None]
    ) -> Generator[None, Step, None]:
        """Try each slow line; `tell` is called with the line before and after."""
        self._replay.keep()
        usual = yield from self._replay.again()
        self._why_not = "" if (yield from self._replay.again()) == usual else NOT_REPEATED
        if not usual.are_finite:
            self._why_not = NOT_FINITE
        for one in found:
            self.at = one
            tell(one, (yield from self._try(one, usual)))
        self.at = None

    def _try(self, one: SlowLine, usual: StepsGiven) -> Tried:
        if one.kind in ("tail", "order") and self._loader is not None and self._loader.num_workers:
            return (yield from self._try_order(one, self._loader))
        if why := SLOW_LINE_TEXTS[one.kind].untried or self._why_not:
            return replace(one, unverified=why)
        if one.kind == "one by one":
            return (yield from self._try_at_once(one, usual))
        if (known := self._without.way(one)) is not None:
            with self._without.watched():
                return (yield from self._try_alike(one, known, usual))
        return (yield from self._try_stub(one, usual))

    def _try_stub(self, one: SlowLine, usual: StepsGiven) -> Tried:
        stub = Stub(one)
        with left_out(stub, one, self._training.model) as is_possible:
            if not is_possible:
                return replace(one, unverified="it is in a function that steps cannot do without")
            stub.is_noting = True
            yield from self._replay.again()
            stub.is_noting = False
            return (yield from self._try_alike(one, stub.set, usual, lambda: stub.doubt))

    def _try_alike(
        self, one: SlowLine, leave_out: LeavingOut, usual: StepsGiven, doubt: Callable[[], str] = lambda: ""
    ) -> Tried:
        """Return the measured gain, if the same steps without the line give equal results, bit for bit."""
        with again(leave_out):
            leave_out(True)
            given = yield from self._replay.again()
        if why := doubt() or ("" if given == usual else CHANGES):
            return replace(one, unverified=why)
        seconds = (yield from compare(leave_out, self._training.plan.device, self._most_seconds)).seconds
        return replace(one, gain=self._gain(one, seconds, same_losses=True))

    def _try_at_once(self, one: SlowLine, usual: StepsGiven) -> Tried:
        if self._loader is None or self._loader.num_workers:
            return replace(one, unverified="loader workers, which are other processes, take the samples")
        with fetching_at_once(self._loader.dataset) as leave_out:
            return (yield from self._try_alike(one, leave_out, usual))

    def _try_order(self, one: SlowLine, loader: DataLoader[object]) -> Tried:
        """Batches in any order: many steps at a time, for workers have some ready."""
        steps = 2 * loader.num_workers * (loader.prefetch_factor or 2)
        with out_of_order() as leave_out:
            compared = yield from compare(leave_out, self._training.plan.device, self._most_seconds, steps)
        return replace(one, gain=self._gain(one, compared.seconds, same_losses=False))

    def _gain(self, one: SlowLine, seconds: list[float], *, same_losses: bool) -> MeasuredGain:
        shares = gained(seconds)
        low, high = median_interval(shares)
        middle, low, high = (self._step_seconds * share for share in (median(shares), low, high))
        return MeasuredGain(seconds=middle, low=low, high=high, same_losses=same_losses, gives_up=gives_up(one))
