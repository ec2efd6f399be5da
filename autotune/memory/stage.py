"""Memory prediction: one shape run after the baseline, where memory can bind, corrected by every probe since.

It is the sampler's prior belief, never a verdict: nothing is refused or recommended because of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from autotune.context.search_context import SearchContext
from autotune.core.codes import Code
from autotune.core.records import Config, StudyRequest, Value
from autotune.core.results import Outcome
from autotune.knobs import KNOBS, traded
from autotune.knobs.base import TACIT, Knob, MemoryEffect
from autotune.memory.asking import shape_run_request
from autotune.memory.model import Arm
from autotune.memory.records import ShapeRun, ShapeRunRequest
from autotune.sampler.space import SearchSpace
from autotune.study.history import History
from autotune.study.pace import starting_seconds

LEAST_PREDICTION_SECONDS = 8.0  # with which it is begun at all: importing and a few steps of one arm
MOST_ARMS = 64  # each takes a second or more; of more, the sampler's model puts together what a few knobs do


def predict_memory(context: SearchContext) -> None:
    """Make and report one shape run, if memory can bind, time allows, it is used, and none was made for this limit."""
    history, prediction = context.history, context.memory_prediction
    if _is_known(history, prediction.usable_bytes) or not (
        context.settings.sampler == "structured" or context.trades.decides
    ):
        return
    if context.request.facts.owns_loop:  # the search has said so at the beginning
        return
    if context.request.facts.ranks > 1:  # shapes alone do not show the buffers of their communication
        context.reporter.detail("Memory is not predicted for several ranks. The search finds its limit by probes.")
        return
    known = history.baseline_known
    seconds = context.budget.prediction_seconds - (starting_seconds(known[0].result) if known else 0.0)
    if seconds < LEAST_PREDICTION_SECONDS or not prediction.can_bind:
        return
    wanted = asking(
        context.request, context.space, prediction.usable_bytes, seconds, shapes_vary=prediction.shapes_vary
    )
    asked = replace(wanted, spares_trades=True)
    history.add_measured(asked, found := context.run_dispensable(asked))
    context.reporter.detail(describe_shape_run(found, context.space, prediction.fits))


def _is_known(history: History, usable_bytes: int) -> bool:
    """Return whether the last shape run was made for this limit: it has no peaks beyond it, nor arms that it spares.

    An earlier version made them without a limit. On another machine of the same class a study may go on with another.
    """
    runs = history.of(ShapeRunRequest.kind())
    return bool(runs) and runs[-1][0].limit_bytes in (None, usable_bytes)


def asking(
    request: StudyRequest, space: SearchSpace, usable_bytes: int, seconds: float, *, shapes_vary: bool = False
) -> ShapeRunRequest:
    """Ask for every arm and micro-batch of the space within `seconds`; the process is ended at twice that time."""
    asked = shape_run_request(
        request.target,
        request.baseline,
        request.environment.device,
        arms=arms(space, request.baseline),
        batches=batches_of(space),
        accumulation=max(map(_count, space.configs.values("gradient_accumulation_steps"))),
        seconds=seconds,
        seed=request.seed,
    )
    return replace(asked, shapes_vary=shapes_vary, limit_bytes=usable_bytes)


def arms(space: SearchSpace, baseline: Config) -> tuple[dict[str, Value], ...]:
    """Return the arms of a shape run: values of the knobs that affect device memory, at most `MOST_ARMS` combinations.

    The baseline's arm comes first, then the others by the number of knobs that differ from it. Arms that trade time for
    memory come last, because they matter only where the others do not fit. Compiled configurations are predicted by the
    same arm without compiling: probes show the difference.
    """
    moving = (MemoryEffect.CHANGES, MemoryEffect.SHRINKS, MemoryEffect.GROWS)
    names = [one.name for one in KNOBS if one.memory in moving and not one.of_ranks and one.name != "batch_size"]
    own = {name: baseline[name] for name in names}
    found = space.configs.combinations(names)
    others = sorted(
        (values for values in found if values != own),
        key=lambda values: (bool(traded(values)), sum(values[name] != own[name] for name in names)),
    )
    return ((own, *others) if own in found else tuple(others))[:MOST_ARMS]


def batches_of(space: SearchSpace) -> tuple[int, ...]:
    """Return the micro-batches of the space, ascending."""
    return tuple(sorted(map(_count, space.configs.values("batch_size"))))


def _count(value: Value) -> int:
    return int(value or 0)


def describe_shape_run(found: ShapeRun, space: SearchSpace, fits: Callable[[Arm, int], bool]) -> str:
    """Return a sentence that says which batches are predicted to fit, or why this is unknown."""
    if found.outcome is not Outcome.OK:
        return f"Memory prediction: not possible ({found.why}). The search goes on without it."
    known = [arm for arm in found.arms if arm.points]
    if not known:
        why = found.arms[0].why if found.arms else Code.NOTHING_PREDICTED.sentence
        return f"Memory prediction: not possible, because {why}. The search goes on without it."
    batches = batches_of(space)
    fitting = [(arm, max((batch for batch in batches if fits(arm, batch)), default=0)) for arm in known]
    knobs = _deciding(fitting)
    words: dict[int, list[str]] = {}
    for arm, most in sorted(fitting, key=lambda pair: -pair[1]):
        shown = arm_name(arm, knobs)
        if shown not in words.setdefault(most, []):
            words[most].append(shown)
    parts = [_up_to(most, batches) + (f" with {' or '.join(some)}" if knobs else "") for most, some in words.items()]
    return f"Memory prediction: {', '.join(parts)}."


def arm_name(arm: Arm, knobs: Sequence[Knob]) -> str:
    """Return the name of an arm by the knobs that distinguish it, `bf16 nhwc`; empty without knobs."""
    shown = [knob.show(arm.values[knob.name]) for knob in knobs]
    return " ".join(text for text in shown if text not in TACIT) or " ".join(
        f"{text} {knob.label}" for text, knob in zip(shown, knobs, strict=True)
    )


def _up_to(most: int, batches: Sequence[int]) -> str:
    if most == 0:
        return "no batch fits"
    return "all batches fit" if most == batches[-1] else f"batches up to {most} fit"


def _deciding(fitting: Sequence[tuple[Arm, int]]) -> list[Knob]:
    """Return the knobs that are needed to distinguish arms whose largest batches differ."""
    knobs = [knob for knob in KNOBS if knob.name in fitting[0][0].values]
    for knob in tuple(knobs):
        others = [one for one in knobs if one is not knob]
        seen: dict[tuple[Value, ...], int] = {}
        if all(seen.setdefault(tuple(arm.values[o.name] for o in others), most) == most for arm, most in fitting):
            knobs = others
    return knobs
