"""Torch's operations in forward pass and loss, each with the user's line: their time, and what became of tensors.

Watching makes operations slower; what is counted for the user's own Python is the time between them (`line_times.py`),
which `passes.py` holds against steps that were not watched. On a CPU only: an accelerator computes meanwhile.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode

from autotune.profile.measuring.backward_times import NOBODYS, BackwardTimes
from autotune.profile.measuring.batched import Sample, elements_of
from autotune.profile.measuring.core_time import moment, spent
from autotune.profile.measuring.line_times import LineTimes
from autotune.profile.measuring.stopwatch import freeing_seconds
from autotune.profile.measuring.user_lines import UserLine, calling_line, user_modules

FEWEST_KEPT = 3  # tensors of one line from as many steps: one may be what the user shows as the last loss
FEWEST_GROWING = 6  # steps, each with more than the one before: of random sizes one in 720 does that
FEWEST_CALLS = 16  # of one operation of one module from one line up to a backward pass
DEPENDENT_SHARE = 0.5  # of these calls, from which on they are layers or time steps, one after the other
_LOOPS_OF_TORCH = tuple(  # over parameters
    str(Path(torch.__file__).parent / one) for one in ("nn/utils", "nn/modules/module.py", "optim")
)
SHORT_SECONDS = 100e-6  # of an operation: below it, most is what any operation takes, however little it computes


@dataclass
class Called:
    """One operation as one line calls it, in all steps together."""

    count: int = 0
    seconds: float = 0.0
    dependent: int = 0  # of those calls, whose arguments were made of the result of an earlier one
    of_torch: int = 0  # of those calls, that a loop of torch's makes: nobody can write it otherwise
    sample: Sample | None = None  # of those calls, if there were many
    alike: int = 0  # later calls, on as many elements as that
    alike_seconds: float = 0.0


_Name = tuple[UserLine, str]  # of an operation: the user's line, and the function


class _Made(NamedTuple):
    """A tensor that was made in a watched step."""

    tensor: weakref.ref[Tensor]
    line: UserLine
    step: int
    passed: frozenset[_Name]  # the operations behind it, in that step


class Operations(TorchFunctionMode):
    """Watches torch's operations; the time between them is that of `lines`.

    Others make what is computed longer by the factor `stretch`.
    """

    def __init__(self, lines: LineTimes, stretch: float = 1.0) -> None:
        super().__init__()
        self._lines, self._stretch, self.backward = lines, stretch, BackwardTimes(lines.stopwatch)
        self._step = 0
        self._module = 0  # id of the one that was called last
        self._made: dict[int, _Made] = {}
        self._copies: list[tuple[UserLine, float, Tensor, Tensor, int, int]] = []  # of this step, with both versions
        self._sizes: dict[_Name, dict[int, int]] = defaultdict(dict)  # elements worked on, by step
        self.inside: Counter[str] = Counter()  # seconds of operations, of all steps, by part
        self.called = defaultdict[tuple[UserLine, str, int], Called](Called)  # by line, operation and module
        self.between_steps = set[UserLine]()  # lines of `called` that are in the part `other`
        self.needless = defaultdict[UserLine, Called](Called)  # clone() of what nobody changes
        self.changed = defaultdict[UserLine, Called](Called)  # copies made after all
        self.casts = defaultdict[tuple[torch.dtype, torch.dtype], dict[UserLine, Called]](dict)
        self.doubled = Counter[UserLine]()  # seconds of operations that made float64, by line
        self._doubling = Counter[UserLine]()  # those that made it of something else

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch the thread that enters it, which has to be the main one: it gets the signals."""

        def note(module: torch.nn.Module, inputs: Any) -> None:
            self._module = id(module)

        hook = register_module_forward_pre_hook(note)
        try:
            with self._lines.watched(), self.backward.watched(), self:
                yield
        finally:
            hook.remove()

    def step(self) -> None:
        """End an optimizer step: copies that nobody changed, nor their source, count as needless."""
        self._step, self._module = self._step + 1, 0
        for line, seconds, source, copy, of_source, of_copy in self._copies:
            is_needless = (source._version, copy._version) == (of_source, of_copy)
            _add((self.needless if is_needless else self.changed)[line], seconds)
        self._copies.clear()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do the operation, and take note of its time and of the tensor that it made."""
        lines, part = self._lines, self._lines.part
        if not part or func is Tensor.backward or lines.is_counted_elsewhere():
            return func(*args, **(kwargs or {}))
        frame = sys._getframe(1)
        lines.look(frame)
        worked_on = list(_tensors(args))
        self.backward.follow(worked_on, NOBODYS)  # what no operation made
        lines.pause()  # a signal takes longer than a small operation
        try:
            began = moment()
            made = func(*args, **(kwargs or {}))
            seconds = spent(began, moment()).stretched(self._stretch)
            self._seen(func, args, kwargs or {}, made, frame, worked_on, seconds)
        finally:
            lines.resume()
        return made

    def _seen(
        self, func: Any, args: Any, options: Any, made: Any, frame: FrameType, worked_on: list[Tensor], seconds: float
    ) -> None:
        part = self._lines.part
        self.inside[part] += seconds  # type: ignore[assignment]  # a counter of seconds
        line = calling_line(frame) if part in ("forward", "other") else None
        # Those that were changed in place, too.
        self.backward.follow([*_tensors([made]), *worked_on], line if part == "forward" else NOBODYS)
        if line is not None:
            is_of_torch = frame.f_code.co_filename.startswith(_LOOPS_OF_TORCH)
            called = self._note_call(func, worked_on, made, line, seconds, is_of_torch)
            passes = max(1, self.backward.passes) if part == "forward" else 1
            if called.count == FEWEST_CALLS * passes:  # of a loop: others would be many
                called.sample = Sample.of(func, args, options)
            elif called.sample and called.sample.elements == elements_of(args):
                called.alike, called.alike_seconds = called.alike + 1, called.alike_seconds + seconds
            if part == "other":  # of a loop of the user's own
                self.between_steps.add(line)
            elif isinstance(made, Tensor):
                self._note(func, args, options, made, line, seconds)

    def _note_call(
        self, func: Any, worked_on: list[Tensor], made: Any, line: UserLine, seconds: float, is_of_torch: bool
    ) -> Called:
        name = getattr(func, "__name__", "")
        passed = frozenset[_Name]().union(*map(self._passed, worked_on))
        called = self.called[line, name, self._module]
        _add(called, seconds)
        called.dependent += (line, name) in passed
        called.of_torch += is_of_torch
        self._remember(made, line, passed | {(line, name)})
        return called

    def _note(self, func: Any, arguments: Any, options: Any, made: Tensor, line: UserLine, seconds: float) -> None:
        name, worked_on = getattr(func, "__name__", ""), list(_tensors(arguments))
        sizes = self._sizes[line, name]
        sizes[self._step] = sizes.get(self._step, 0) + sum(one.numel() for one in worked_on)
        if made.dtype is torch.float64:
            self.doubled[line] += seconds  # type: ignore[assignment]  # a counter of seconds
            if not any(isinstance(one, Tensor) and one.dtype is torch.float64 for one in arguments):
                self._doubling[line] += seconds  # type: ignore[assignment]
        source = arguments[0] if arguments else None
        if name in _COPYING and isinstance(source, Tensor) and source is not made:
            self._note_copy(name, source, made, line, seconds + freeing_seconds(partial(func, *arguments, **options)))

    def _remember(self, made: Any, line: UserLine, passed: frozenset[_Name]) -> None:
        for one in _tensors([made]):
            if (known := self._made.get(id(one))) is None or known.tensor() is not one:
                self._made[id(one)] = _Made(weakref.ref(one), line, self._step, passed)

    def _passed(self, tensor: Tensor) -> frozenset[_Name]:
        known = self._made.get(id(tensor))
        is_of_step = known is not None and known.tensor() is tensor and known.step == self._step
        return known.passed if known is not None and is_of_step else frozenset()

    def _note_copy(self, name: str, source: Tensor, made: Tensor, line: UserLine, seconds: float) -> None:
        is_like = made.stride() == source.stride() and source._base is None  # the copy of a view frees the rest
        if name == "clone" and is_like and not source.is_inference():
            self._copies.append((line, seconds, source, made, source._version, made._version))
        pair = source.dtype, made.dtype
        if name != "clone" and pair[0] is not pair[1] and all(one.is_floating_point for one in pair):
            _add(self.casts[pair].setdefault(line, Called()), seconds * (2 if made.requires_grad else 1))

    def doubling(self) -> UserLine | None:
        """Return the line that float64 comes from: that which makes it, else that which computes most with it."""
        return next((line for lines in (self._doubling, self.doubled) for line, _ in lines.most_common(1)), None)

    def kept(self) -> tuple[UserLine, str] | None:
        """Return the line whose tensors stay alive from step to step, and what keeps them; None: there is none."""
        alive = defaultdict[UserLine, dict[int, Tensor]](dict)  # one tensor of each step
        for one in self._made.values():
            if (tensor := one.tensor()) is not None and one.step < self._step - 1:
                alive[one.line][one.step] = tensor
        most = max(alive, key=lambda line: len(alive[line]), default=None)
        if most is None or len(alive[most]) < FEWEST_KEPT:
            return None
        return most, _container(next(iter(alive[most].values())))

    def growing(self) -> dict[_Name, Called]:
        """Return the operations that work on more elements in every step than in the one before."""
        found = {}
        for (line, name), sizes in self._sizes.items():
            in_order = [sizes.get(step, 0) for step in range(self._step)]
            is_growing = all(before < after for before, after in pairwise(in_order))
            if is_growing and len(in_order) >= FEWEST_GROWING:
                found[line, name] = added(one for key, one in self.called.items() if key[:2] == (line, name))
        return found

    def of_loop(self, line: UserLine) -> tuple[float, float]:
        """Return the seconds of a loop's operations in all steps, and the share that one on everything would take."""
        whole = left = 0.0
        for one in (called for key, called in self.called.items() if key[0] == line):
            alone = one.sample.alone(one.count // self._step) if one.sample else None
            seconds = one.seconds
            if alone and one.alike:  # else others are larger or smaller
                more = one.alike_seconds / one.alike - alone.seconds * self._stretch  # of each, because it is watched
                seconds = max(0.0, seconds - max(0.0, more) * one.count)
            whole, left = whole + seconds, left + seconds * (alone.joined_share if alone else 0.0)
        return whole, left / whole if whole else 0.0

    def loops(self) -> dict[UserLine, tuple[str, Called]]:
        """Return lines that call one short operation many times a step, with all that they call.

        None of these calls needs the result of another, but for a few. Micro-batches are no loop of the user's.
        """
        found = {}
        for (line, name, _), one in self.called.items():
            passes = self._step if line in self.between_steps else max(self._step, self.backward.passes)
            is_often = one.count - one.of_torch >= FEWEST_CALLS * passes
            if is_often and one.dependent < DEPENDENT_SHARE * one.count and line not in found:
                everything = added(other for key, other in self.called.items() if key[0] == line)
                if everything.seconds < SHORT_SECONDS * self._stretch * everything.count:
                    found[line] = shown_operation(name), everything
        return found


_COPYING = ("clone", "to", "float", "half", "bfloat16", "type", "type_as")


def shown_operation(name: str) -> str:
    """Return the name of an operation as a user writes it."""
    return {"__getitem__": "an index", "__get__": "an attribute"}.get(name, f"{name}()")


def _add(called: Called, seconds: float) -> None:
    called.count, called.seconds = called.count + 1, called.seconds + seconds


def added(calls: Iterable[Called]) -> Called:
    """Return the number and the seconds of all these calls together."""
    whole = Called()
    for one in calls:
        whole.count, whole.seconds = whole.count + one.count, whole.seconds + one.seconds
    return whole


def _tensors(arguments: Any) -> Iterator[Tensor]:
    """Return the tensors among arguments, also those in lists."""
    for one in arguments:
        if isinstance(one, Tensor):
            yield one
        elif isinstance(one, list | tuple):
            yield from (each for each in one if isinstance(each, Tensor))


def _container(tensor: Tensor) -> str:
    """Return the name of what holds `tensor` in a module of the user's; empty: it has none there."""
    holders = [one for one in gc.get_referrers(tensor) if isinstance(one, list | dict | set) or hasattr(one, "append")]
    for module in user_modules():
        for name, value in list(vars(module).items()):
            if any(value is one for one in holders):
                return name
    return ""
