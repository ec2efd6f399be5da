"""A recommendation as what a script says: loader, accumulation, arguments, statements, remarks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from typing import Any

from msgspec.structs import replace

from autotune.core.records import Config, Value
from autotune.errors import UsageError
from autotune.export.data import ExportedData, data_of
from autotune.export.ranks import OWN_LOADER, check_strategy, joining, ranks_of, starting
from autotune.harmless import comment, plain, python, shell_word
from autotune.knobs import KNOBS, check, environ, plan_of
from autotune.knobs.base import Knob, Plan
from autotune.knobs.training_arguments import FORMER_RECOMPUTE, RECOMPUTE
from autotune.knobs.wording import Framework, Wording
from autotune.study.answers import is_uncompared
from autotune.study.recommendation import Recommendation, baseline_name
from autotune.targets.commands.command import Command, is_command
from autotune.units import counted, format_rate, format_speedup, range_phrase

MAPPING = "from collections.abc import Mapping"  # which the function for a batch needs
OPTIMIZER = "# make the optimizer here, from model.parameters()"
OPTIMIZERS = "# make your optimizers here, from the parameters of model"
UNUSED = "find_unused_parameters"  # DistributedDataParallel's argument
WORKERS = "num_workers"  # the knob, and DataLoader's argument
MOST_SIZES = 4  # micro-batches that a message suggests, the largest
ASSUMED = "The study does not say what its batches are: batches of (inputs, targets) and a loss of the two are assumed."


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The statements and arguments of a script, in whatever order its framework wants them."""

    remarks: tuple[str, ...]  # where the numbers come from, and what is done before Python starts
    device: str  # "cuda"
    data: ExportedData
    loader: Mapping[str, Any]  # keyword arguments of DataLoader
    accumulation_steps: int
    arguments: Mapping[str, Any]  # of the framework's own object
    setup: tuple[str, ...]  # statements, as in `Wording`
    model: tuple[str, ...]
    function: str  # that those statements call, or ""
    batch: tuple[str, ...]  # statements about a batch, before the loss; of its copy too where no framework makes it
    contexts: tuple[str, ...]
    scaler: bool
    world_size: int = 1  # devices that train together
    rank_setup: tuple[str, ...] = ()  # by which a loop joins the other processes, before the model moves
    replicated: Mapping[str, Any] | None = None  # arguments of DistributedDataParallel; None: it is not used
    exchanges_first: bool = False  # its first backward pass exchanges gradients, also within an optimizer step
    finds_unused: bool | None = None  # whether it was measured with that argument; None: not known
    strategy: str | None = None  # by which these processes share the weights out; None: they do not
    optimizer: Mapping[str, Any] = field(default_factory=dict)  # keyword arguments of the optimizer
    optimizers: tuple[str, ...] = ()  # the classes of the target's own
    update: tuple[str, ...] = ()  # agreed names that the target has for the end of a step: clip_grad_norm, step, ...

    @property
    def optimizer_line(self) -> str:
        """A remark where the optimizer is made, with its arguments."""
        made = OPTIMIZERS if self.data.own_training else OPTIMIZER
        return made + f", with {self._optimizer_arguments}" * bool(self.optimizer)

    @property
    def beside_optimizer(self) -> str:
        """A remark for where the optimizer is made out of sight; empty where it is made as ever."""
        return f"# and make your optimizer with {self._optimizer_arguments}" * bool(self.optimizer)

    @property
    def _optimizer_arguments(self) -> str:
        return ", ".join(f"{name}={python(value)}" for name, value in self.optimizer.items())


def recipe(best: Recommendation, framework: Framework, world_size: int | None = None) -> Recipe:
    """`best` in the words of `framework`. Loader and accumulation are those of the knobs' own plan.

    `world_size` None: on as many devices as were measured. With more accumulation falls, so that the global batch
    stays; see `on_devices`.
    Raises `UsageError` for a setting that is unknown or has an impossible value, or that `framework` would leave out.
    """
    compared = _compared(best)
    best, device = on_devices(best, world_size), best.environment.device_kind
    count = world_size or ranks_of(best)
    joins = count > 1 and not is_command(best.target)  # of a command the script does so
    # Accumulating, other frameworks begin under no_sync, where DDP cannot record its graph (torch 2.13).
    begins_apart = framework is not Framework.TORCH and best.params["gradient_accumulation_steps"] != 1
    unsaid = [one for one in KNOBS if (one.of_ranks and not joins) or (one.exchanges_first and begins_apart)]
    best = replace(best, params={**best.params, **{one.name: one.default for one in unsaid}})
    plan, data = planned(best.params, device), data_of(best.facts, best.target)
    data = replaced(data, is_shared_out=joins and framework in OWN_LOADER)
    check_strategy(plan.strategy, framework, device)
    said = [_worded(knob, best, framework, device) for knob in KNOBS]
    copies = framework is Framework.TORCH and device != "cpu"  # other frameworks copy by themselves
    pinned = bool(plan.loader_options.get("pin_memory"))
    unused = None if best.facts is None else best.facts.finds_unused_parameters
    replicated = {**plan.parallel_options, **({UNUSED: True} if unused else {})}
    function, batch = data.arrival(device if copies else "", _all(said, "images"), pinned=pinned)
    return Recipe(
        remarks=_remarks(best, compared, count, framework, data),
        device=device,
        data=data,
        loader=_loader_options(best, plan),
        accumulation_steps=plan.accumulation_steps,
        arguments={name: value for one in said for name, value in one.arguments.items()},
        setup=_all(said, "setup"),
        model=_all(said, "model"),
        function=function,
        batch=batch,
        contexts=tuple(one.context for one in said if one.context),
        scaler=any(one.scaler for one in said),
        world_size=count,
        rank_setup=joining(device) if joins else (),
        replicated=replicated if joins and plan.strategy is None else None,
        exchanges_first=any(one.exchanges_first and best.params[one.name] for one in KNOBS),
        finds_unused=unused,
        strategy=plan.strategy,
        optimizer=plan.optimizer_options,
        optimizers=best.facts.optimizer.names if best.facts and best.facts.optimizer else (),
        update=best.facts.update if best.facts else (),
    )


def on_devices(best: Recommendation, world_size: int | None) -> Recommendation:
    """Return `best` for several devices that train together: the micro-batch of each stays, and the global batch too.

    Raises `UsageError` where accumulation cannot make up the global batch.
    """
    ranks = ranks_of(best)
    if world_size is None or world_size == ranks:
        return best
    config = Config(values=best.params)
    micro_batches = config.gradient_accumulation_steps * ranks
    if world_size < 1 or micro_batches % world_size:
        raise UsageError(_no_share(world_size, config.batch_size, micro_batches, ranks, best.environment.device_kind))
    return replace(best, params={**best.params, "gradient_accumulation_steps": micro_batches // world_size})


def _no_share(devices: int, size: int, micro_batches: int, ranks: int, kind: str) -> str:
    """Return why that many devices cannot train with this global batch, and with what they can."""
    if devices < 1:
        return f"--world-size {devices} is no number of devices. They train together, at least 1. Give their number."
    whole = size * micro_batches
    fitting = " or ".join(map(str, _divisors(micro_batches)))
    if ranks > 1:
        many = f"--{'devices' if kind == 'cuda' else 'ranks'} {devices}"
        more = f" --global-batch {whole - whole % devices + devices}" * (whole % devices > 0)
        advice = f"Search with that many: {many}{more}."
    elif whole % devices:
        advice = f"Search with a multiple of {devices}: --global-batch {whole - whole % devices + devices}."
    else:
        sizes = ",".join(map(str, _divisors(whole // devices)[-MOST_SIZES:]))
        advice = f"Search with smaller micro-batches for {devices}: --global-batch {whole} --batch {sizes}."
    return (
        f"--world-size {devices} cannot keep the global batch of {whole} samples. It is {micro_batches} × {size}, the "
        f"micro-batch of one device, and {micro_batches} is no multiple of {devices}. --world-size can be {fitting}. "
        f"{advice}"
    )


def _divisors(count: int) -> list[int]:
    return [one for one in range(1, count + 1) if count % one == 0]


def planned(values: Mapping[str, Value], device: str) -> Plan:
    """Apply all `values` by knob name: what was measured is what is used. Imports no torch.

    Raises `UsageError` for a setting that is unknown or has an impossible value.
    """
    unknown = sorted(values.keys() - {knob.name for knob in KNOBS})
    if unknown:
        raise UsageError(
            f"This autotune has no knob called {', '.join(unknown)}. A newer version probably wrote the study. "
            f"Install that version, or search again."
        )
    try:
        check(values)
    except ValueError as error:
        raise UsageError(
            f"The settings cannot be applied: {error}. They were probably edited by hand. "
            f"Correct best.json, or search again."
        ) from error
    return plan_of(values, device)


def _loader_options(best: Recommendation, plan: Plan) -> dict[str, Any]:
    """Return the arguments of a DataLoader that were measured; of a command no more than autotune set."""
    if not is_command(best.target):
        return {**plan.loader_options, "drop_last": True}
    if WORKERS not in Command.parse(best.target).knobs:
        return dict(plan.loader_options)
    return {name: plan.loader_options[name] for name in ("batch_size", WORKERS, *sorted(plan.loader_asked))}


def loader(found: Recipe) -> str:
    """The statement that makes the loader, as it was measured."""
    return found.data.loader({name: python(value) for name, value in found.loader.items()})


def epochs(found: Recipe, *lines: str) -> tuple[str, ...]:
    """The loop that carries out `lines` for every micro-batch."""
    order = ("    loader.sampler.set_epoch(epoch)  # a new order",) * found.data.is_sampled
    start = f"    for {found.data.batch} in loader:"
    return ("for epoch in range(epochs):", *order, start, *(f"{' ' * 8}{x}" for x in lines))


def assembled(found: Recipe, imports: tuple[str, ...], *body: str) -> str:
    """Remarks, those of the `imports` that are used, `body`: a piece of Python to be put into a script."""
    remarks = "\n".join(map(comment, found.remarks))
    extra = tuple(line for line in found.setup if line.startswith("import "))
    statements = tuple(line for line in found.setup if line not in extra)
    text = "\n".join((*statements, *(line for line in body if line)))
    functions = [f"\n{found.function}\n"] if found.function else []
    whole = "".join([*functions, text])
    needed = [MAPPING] * len(functions) + [f"import {x}" for x in ("contextlib", "torch") if f"{x}." in whole]
    used = [line for line in imports if f"{line.rpartition(' ')[2]}(" in text]
    head = "\n".join((remarks, *sorted({*extra, *needed}), *used))
    return "\n\n".join([head, *functions, text]) + "\n"


def for_each_batch(found: Recipe, place: str) -> str:
    """Return a remark on what has to happen to each batch in `place`, where the framework runs the loop."""
    return "\n".join(f"# in your {place}: {line}" for line in found.batch)


def _compared(best: Recommendation) -> str:
    """Return what is known of it against the baseline, behind its rate."""
    baseline, rival = baseline_name(assumed=best.baseline_assumed), best.undecided
    is_kept = best.params == best.baseline
    itself = f", {baseline} itself" if is_kept else ""
    if rival is not None:
        ends = range_phrase(rival.gain_low, rival.gain_high)
        spread = f", {ends}" if ends else ""
        other = "another configuration" if is_kept else baseline
        return f"{itself}, undecided against {other} ({format_speedup(rival.gain)}×{spread})"
    if is_kept:
        return f"{itself}: nothing {'could be compared with it' if is_uncompared(best) else 'was measurably faster'}"
    return "" if best.speedup is None else f", {format_speedup(best.speedup)}× {baseline}"


def _remarks(
    best: Recommendation, compared: str, count: int, framework: Framework, data: ExportedData
) -> tuple[str, ...]:
    where = f"{best.environment.device_name}, torch {best.environment.torch}, {best.measured_at[:10]}"
    change = best.global_batch_change
    ranks = ranks_of(best)
    devices = "one device"
    if Config(values=best.params).gradient_accumulation_steps > 1:
        devices += "; on N devices accumulate N times less to keep it"
    if count != ranks:
        devices = f"{counted(count, 'device')}; the speed was measured on {'one' if ranks == 1 else ranks}"
    elif ranks > 1:
        devices = f"{ranks} ranks, as measured"
    said = (
        *((change.text,) if change else ()),
        f"{best.model}: {format_rate(best.samples_per_second)} samples/s{compared}; measured on {where}",
        f"Global batch {best.global_batch_size} on {devices}.",
        *starting(best, count, framework, data),
        *(ASSUMED,) * (best.facts is None and not is_command(best.target)),
        *_of_a_step(() if best.facts is None else best.facts.update),
        *_of_optimizers(best, framework, data),
        *(f"Before Python starts: export {name}={shell_word(text)}" for name, text in environ(best.params).items()),
    )
    return tuple(map(plain, said))


def _of_a_step(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return remarks about the parts of a step that the user's file has."""
    own = "Losses, backward passes and optimizer steps are those of your step(model, batch, optimizers)."
    others = [name for name in names if name != "step"]
    belong = "belongs" if len(others) == 1 else "belong"
    said = f"Your {' and '.join(others)} {belong} to every optimizer step, as in what was measured."
    return (own,) * ("step" in names) + (said,) * bool(others)


def _of_optimizers(best: Recommendation, framework: Framework, data: ExportedData) -> tuple[str, ...]:
    """Return a remark that `optimizer` of the exported loop stands for several, if it does."""
    names = best.facts.optimizer.names if best.facts and best.facts.optimizer else ()
    is_loop = framework in (Framework.TORCH, Framework.ACCELERATE) and not data.own_training
    if len(names) < 2 or not is_loop:
        return ()
    return (f"`optimizer` stands for your {' and '.join(names)}, each made of its own parameters: call each of them.",)


def _worded(knob: Knob, best: Recommendation, framework: Framework, device: str) -> Wording:
    """Return the knob's own words, or for what a Trainer recomputes by itself its argument."""
    is_trainers = knob.name == RECOMPUTE and best.facts is not None and knob.name in best.facts.written
    if is_trainers and framework is Framework.HUGGING_FACE:
        values = [best.params[knob.name], best.baseline[knob.name]]
        return Wording(arguments={FORMER_RECOMPUTE: values[0]} if any(values) else {})
    return knob.wording(best.params[knob.name], framework, device)


def _all(said: list[Wording], place: str) -> tuple[str, ...]:
    return tuple(line for one in said for line in getattr(one, place))
