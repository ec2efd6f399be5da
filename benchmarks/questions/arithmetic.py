"""Whether dropout draws the same masks in every dtype, and where our own training loop waits for the device."""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path

import torch

from autotune.core.records import Config
from autotune.knobs import KNOBS, defaults
from autotune.knobs.base import Plan
from autotune.targets import resolve
from autotune.targets.base import Order, Step
from autotune.targets.paired_dropout import paired_dropout
from benchmarks.questions import needs_cuda

SIZES = (1_000, 1 << 20, 10_000_019)
SHAPE = (256, 512)
DTYPES = (torch.bfloat16, torch.float16)
WARM_UP, WATCHED = 3, 4
WAITED = "called a synchronizing"  # torch 2.13: the words of the mode's warning
TARGET = "benchmarks/targets/resnet.py"


def dropout(device: str) -> list[str]:
    """The share of places that are dropped alike, and whether the generator has moved on alike."""
    lines = []
    for size in SIZES:
        reference, after = _mask(device, size, torch.float32)
        for dtype in DTYPES:
            mask, moved = _mask(device, size, dtype)
            same = (mask == reference).float().mean().item()
            generator = "the same" if torch.equal(moved, after) else "another"
            lines.append(f"{size:,} values, {dtype} against float32: {same:.4%} alike, then {generator} state")
    draws = ", ".join(f"{share:.4%}" for share in _draws_alike(device))
    lines.append(f"`bernoulli_` of bfloat16 and float16 against float32: {draws} alike")
    with paired_dropout(device):
        masks = [_mask(device, SIZES[-1], dtype)[0] for dtype in (torch.float32, *DTYPES)]
    shares = ", ".join(f"{(mask == masks[0]).float().mean().item():.4%}" for mask in masks[1:])
    lines.append(f"as paired runs draw, bfloat16 and float16 against float32: {shares} alike")
    kind = device.partition(":")[0]
    inputs, layer = torch.ones(SHAPE, device=device), torch.nn.Linear(SHAPE[1], SHAPE[1]).to(device)
    masks = []
    for half in (None, *DTYPES):
        torch.manual_seed(1)
        with torch.autocast(kind, dtype=half or torch.bfloat16, enabled=half is not None):
            masks.append(torch.nn.functional.dropout(layer(inputs).abs() + 1, 0.5) != 0)
    shares = ", ".join(f"{(mask == masks[0]).float().mean().item():.4%}" for mask in masks[1:])
    return [*lines, f"under autocast, after a linear layer, bfloat16 and float16 against float32: {shares} alike"]


def _mask(device: str, size: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    kept = torch.nn.functional.dropout(torch.ones(size, device=device, dtype=dtype), 0.5) != 0
    cuda = device.startswith("cuda")
    return kept, torch.cuda.get_rng_state(device) if cuda else torch.get_rng_state()


def _draws_alike(device: str) -> list[float]:
    found = []
    for dtype in (torch.float32, *DTYPES):
        torch.manual_seed(1)
        found.append(torch.empty(SIZES[-1], device=device, dtype=dtype).bernoulli_(0.5) != 0)
    return [(mask == found[0]).float().mean().item() for mask in found[1:]]


class _Watched:
    """Lets some steps pass, then counts what waits during the next ones."""

    steps_at_once = 1

    def __init__(self) -> None:
        self._done = 0

    def first_batch(self, seconds: float) -> None: ...

    def epoch(self) -> None: ...

    def micro_batch(self) -> None: ...

    def update(self) -> None: ...

    def loaded(self, samples: int) -> Order:
        return Order.STOP

    def step(self, step: Step) -> Order:
        self._done += 1
        if self._done == WARM_UP:
            torch.cuda.set_sync_debug_mode("warn")
        if self._done < WARM_UP + WATCHED:
            return Order.CONTINUE
        torch.cuda.set_sync_debug_mode("default")
        return Order.STOP


def waits(device: str) -> list[str]:
    """Where steps of the product's own loop synchronise, per step, in every dtype."""
    needs_cuda(device)
    lines = []
    for dtype in (None, "bfloat16", "float16"):
        values = {**defaults(), "amp_dtype": dtype}
        plan = Plan(device=device)
        for knob in KNOBS:
            knob.apply(values[knob.name], plan)
        session = resolve(TARGET).open(Config(values=values), plan, lambda name: None)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            session.train(_Watched())
        places = Counter(f"{Path(one.filename).name}:{one.lineno}" for one in caught if WAITED in str(one.message))
        shown = ", ".join(f"{count / WATCHED:g} × {place}" for place, count in places.most_common(5))
        lines.append(
            f"{dtype or 'float32'}: {sum(places.values()) / WATCHED:g} waits a step{': ' * bool(shown)}{shown}"
        )
    return lines
