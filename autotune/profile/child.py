"""The process of a profile: one configuration, trained by our loop in passes (`measuring/passes.py`)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from autotune.child import collector
from autotune.child import device as devices
from autotune.child.lifeline import Progress
from autotune.child.run import seed_all
from autotune.core.memory_breakdown import ALLOCATION_SITES
from autotune.core.results import Outcome
from autotune.knobs import completed, plan_of
from autotune.knobs.plan import Plan
from autotune.profile.measuring.allocation_lines import AllocationLines
from autotune.profile.measuring.communication import GraphSearches, exchange_told_apart
from autotune.profile.measuring.left_on import LeftOn
from autotune.profile.measuring.line_passes import FromTheStart, Passing
from autotune.profile.measuring.memory_history import MemoryHistory
from autotune.profile.measuring.opened_files import fresh_caches
from autotune.profile.measuring.own_passes import UserLoopPasses
from autotune.profile.measuring.passes import OurLoopPasses
from autotune.profile.measuring.stopwatch import parts_told_apart, replaced
from autotune.profile.measuring.storage import read_storage
from autotune.profile.measuring.user_lines import UserLine, calling_line
from autotune.profile.records import ProfileRequest, ProfileResult
from autotune.targets import resolve, variables
from autotune.targets.base import Order, Step, Watch
from autotune.targets.commands.distributed import world_size
from autotune.targets.loop import Training
from autotune.targets.own_loop import OwnSession

# Passes of a loop that ended early, and of ranks that go on because others wait for them; the process ends soon.
_unfinished = list[Passing | ExitStack]()


def measure(request: ProfileRequest, progress: Progress) -> ProfileResult:
    """Return the readings of the configuration's steps. Raises whatever the user's code, torch or the machine raise."""
    if request.extent == "storage":
        return _storage(request, progress)
    from_the_start = FromTheStart(LeftOn(), GraphSearches())
    with from_the_start.left_on.watched(), from_the_start.searches.noted():
        return _measured(request, progress, from_the_start)


def _storage(request: ProfileRequest, progress: Progress) -> ProfileResult:
    """Return the readings of the dataset's storage; no model is trained."""
    assert request.output is not None, "of caches"
    kept, plan = Path(request.output), plan_of(completed(request.config).values, devices.choose_device(request.device))
    plan.settable = request.settable
    with fresh_caches(kept) as caches:
        session = resolve(request.target).open(completed(request.config), plan, progress.phase)
        progress.phase("measure")
        source = session.source if isinstance(session, Training) else None
        found = read_storage(source, kept, request.seed, len(caches), progress.beat)
    return ProfileResult(outcome=Outcome.OK, storage=found)


def _measured(request: ProfileRequest, progress: Progress, from_the_start: FromTheStart) -> ProfileResult:
    device = devices.choose_device(request.device)
    seed_all(request.seed)
    devices.limit_memory(device, request.memory_limit_bytes)
    history = MemoryHistory(device, None if request.output is None else Path(request.output))
    if request.extent == "sites" or (request.extent == "whole" and request.ranks == 1):
        history.begin()
    plan = plan_of(completed(request.config).values, device)
    plan.settable = request.settable
    lines = AllocationLines(device)
    if request.extent == "sites" and not device.startswith("cuda"):
        plan.setup.append(lines.begin)
    try:
        return _trained(request, progress, from_the_start, plan, history)
    except Exception as error:
        if sites := history.sites or lines.sites:
            setattr(error, ALLOCATION_SITES, sites)
        raise


def _trained(
    request: ProfileRequest, progress: Progress, from_the_start: FromTheStart, plan: Plan, history: MemoryHistory
) -> ProfileResult:
    with _optimizer_lines() as made_at:
        session = resolve(request.target).open(completed(request.config), plan, progress.phase)
    variables.check()
    variables.show()
    import_module("torch._dynamo")  # as in a probe: the first step would
    collector.resume()
    if isinstance(session, OwnSession):
        if request.extent != "sites":
            history.end()  # nothing tells us where its first steps end, and those that are timed begin
        return _watched(session, UserLoopPasses(session, plan.device, from_the_start, request), progress)
    assert isinstance(session, Training)
    profiling = OurLoopPasses(session, made_at, from_the_start, request, history)
    progress.phase("warm-up")
    with (
        exchange_told_apart(profiling.stopwatch),
        parts_told_apart(session, profiling.stopwatch),
        profiling.samples.watched(),
        closing(profiling.passes(progress.phase)) as passes,
    ):
        try:
            session.train(Stepping(passes, progress.beat))
        except Exception as error:
            if not profiling.broke(error):
                raise
    progress.beat()
    result = profiling.result()
    history.end()
    return result


def _watched(session: OwnSession, profiling: UserLoopPasses, progress: Progress) -> ProfileResult:
    """Return the result of the user's loop. Its thread stops inside a step: the passes stay as they are then."""
    progress.phase("warm-up")
    passes = profiling.passes(progress.phase)
    _unfinished.append(passes)  # closing it in another thread would end its watching there
    with ExitStack() as to_end:
        to_end.enter_context(exchange_told_apart(profiling.stopwatch))
        to_end.enter_context(profiling.parts.told_apart())
        session.train(OwnStepping(passes, progress.beat, profiling))
        if world_size() > 1:
            _unfinished.append(to_end.pop_all())
    progress.beat()
    return profiling.result()


@contextmanager
def _optimizer_lines() -> Iterator[list[UserLine]]:
    """Yield a list that collects the user's lines that make optimizers."""
    lines, begin = list[UserLine](), torch.optim.Optimizer.__init__

    def noted(*arguments: Any, **options: Any) -> None:
        if (line := calling_line(sys._getframe(1))) is not None:
            lines.append(line)
        begin(*arguments, **options)

    with replaced(torch.optim.Optimizer, "__init__", noted):
        yield lines


class Stepping(Watch):
    """The watch of a session: it gives each step to a generator, and stops when the generator ends."""

    def __init__(self, passes: Passing, beat: Callable[[], None]) -> None:
        self._passes, self._beat = passes, beat
        next(passes)

    def micro_batch(self) -> None:
        """Report progress to the search."""
        self._beat()

    def step(self, step: Step) -> Order:
        """Send the step to the generator; return `STOP` when that ends."""
        self._beat()
        try:
            self._passes.send(step)
        except StopIteration:
            return Order.STOP
        return Order.CONTINUE


class OwnStepping(Stepping):
    """The same for a user's own loop, which may end earlier."""

    def __init__(self, passes: Passing, beat: Callable[[], None], profiling: UserLoopPasses) -> None:
        super().__init__(passes, beat)
        self._profiling = profiling

    def step(self, step: Step) -> Order:
        """Send the step to the generator, and end a forward pass that the stopwatch still counts."""
        self._profiling.parts.end_forward()
        return super().step(step)

    def ended(self) -> bool:
        """End the passes because the loop has no more steps; return whether parts were timed by then."""
        return self._profiling.ended()
