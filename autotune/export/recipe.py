"""A recommendation taken apart into what a script says: loader, accumulation, arguments, statements, remarks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune.export.plan import planned
from autotune.knobs import KNOBS, environ
from autotune.knobs.wording import Framework, Wording
from autotune.tuning.recommendation import Recommendation, baseline_name
from autotune.units import format_rate

WIDTH = 100  # characters of a call that stays on one line
OPTIMIZER = "# make the optimizer here, from model.parameters()"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What remains to be written down, in whatever order a framework wants it."""

    remarks: tuple[str, ...]  # where the numbers come from, and what is done before Python starts
    device: str  # "cuda"
    loader: Mapping[str, Any]  # keyword arguments of DataLoader
    accumulation_steps: int
    arguments: Mapping[str, Any]  # of the framework's own object
    setup: tuple[str, ...]  # statements, as in `Wording`
    model: tuple[str, ...]
    batch: tuple[str, ...]
    contexts: tuple[str, ...]
    scaler: bool


def recipe(best: Recommendation, framework: Framework) -> Recipe:
    """`best` in the words of `framework`. Loader and accumulation are those of the knobs' own plan.

    Raises `UsageError` for a setting that is unknown or has an impossible value.
    """
    device = best.environment.device_kind
    plan = planned(best.params, device)
    said = [knob.wording(best.params[knob.name], framework, device) for knob in KNOBS]
    return Recipe(
        remarks=_remarks(best),
        device=device,
        loader={**plan.loader_options, "drop_last": True},
        accumulation_steps=plan.accumulation_steps,
        arguments={name: value for one in said for name, value in one.arguments.items()},
        setup=_all(said, "setup"),
        model=_all(said, "model"),
        batch=_all(said, "batch"),
        contexts=tuple(one.context for one in said if one.context),
        scaler=any(one.scaler for one in said),
    )


def call(function: str, given: str = "", /, **arguments: Any) -> str:
    """A call in Python with `given` before the keyword arguments, on one line where it fits."""
    parts = [given] * bool(given) + [f"{name}={_literal(value)}" for name, value in arguments.items()]
    line = f"{function}({', '.join(parts)})"
    if len(line) <= WIDTH:
        return line
    return "\n".join([f"{function}(", *(f"    {part}," for part in parts), ")"])


def loader(found: Recipe) -> str:
    """The statement that makes the loader of `dataset`, shuffled."""
    return f"loader = {call('DataLoader', 'dataset, shuffle=True', **found.loader)}"


def program(found: Recipe, imports: tuple[str, ...], *body: str) -> str:
    """Remarks, imports, `body`: a piece of Python to be put into a script."""
    remarks = "\n".join(f"# {line}" for line in found.remarks)
    needed = ("import torch",) * any("torch." in line for line in (*found.setup, *found.model, *body))
    extra = tuple(line for line in found.setup if line.startswith("import "))
    statements = tuple(line for line in found.setup if line not in extra)
    head = "\n".join((*sorted({*extra, *needed}), *imports))
    text = "\n".join((*statements, *(line for line in body if line)))
    return f"{remarks}\n{head}\n\n{text}\n"


def for_each_batch(found: Recipe) -> str:
    """What has to happen to the batches where the framework runs the loop: a remark."""
    return "\n".join(f"# and for each batch: {line}" for line in found.batch)


def _remarks(best: Recommendation) -> tuple[str, ...]:
    where = f"{best.environment.device_name}, torch {best.environment.torch}, {best.measured_at[:10]}"
    baseline = baseline_name(assumed=best.baseline_assumed)
    gain = "" if best.speedup is None else f", {best.speedup:.2f}× {baseline}"
    if best.params == best.baseline:
        gain = f", {baseline} itself: nothing was measurably faster"
    return (
        f"{best.model}: {format_rate(best.samples_per_second)} samples/s{gain}; measured on {where}",
        f"Global batch {best.global_batch_size} on one device; on N devices accumulate N times less to keep it.",
        *(f"Before Python starts: export {name}={text}" for name, text in environ(best.params).items()),
    )


def _all(said: list[Wording], place: str) -> tuple[str, ...]:
    return tuple(line for one in said for line in getattr(one, place))


def _literal(value: Any) -> str:
    return json.dumps(value) if isinstance(value, str) else repr(value)
