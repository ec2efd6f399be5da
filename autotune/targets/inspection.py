"""Finds the facts of a target by building it and taking one real optimizer step; says which were inferred."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import length_hint
from typing import Any

from msgspec.structs import replace
from torch import nn

from autotune.core.records import CheckLine, Config, Declaration, StepFacts, TargetFacts, Value
from autotune.errors import TargetError
from autotune.knobs import KNOBS, defaults, found, plan_of, worker_knob
from autotune.knobs.base import SHORT_CYCLE, Plan
from autotune.knobs.declared import declaring
from autotune.targets import data as sources
from autotune.targets import kinds, switches, variables
from autotune.targets.asking_for_loader_worker import asking_for_loader_worker
from autotune.targets.attention import Attention
from autotune.targets.base import Order, Session, Step, Watch, check_effect
from autotune.targets.batches import describe, layout
from autotune.targets.build import assemble, common_arguments, run_setup
from autotune.targets.check_lines import check_lines, loader_options, step_line, takes_workers
from autotune.targets.commands.watching.stepped_parameters import SteppedParameters
from autotune.targets.contract import OF_A_STEP, Contract
from autotune.targets.counting import OwnBatches
from autotune.targets.data import Data
from autotune.targets.declared_knobs import described
from autotune.targets.declared_settings import read_settings
from autotune.targets.halved_batch import halved_losses
from autotune.targets.live_modules import class_name
from autotune.targets.loop import Training
from autotune.targets.model_facts import model_facts
from autotune.targets.optimizer_facts import Updates
from autotune.targets.own_loop import OwnLoop, OwnSession
from autotune.targets.ranks import data_shares, parallel, rank_check_lines, world
from autotune.targets.ranks.exposed import exposed_share
from autotune.targets.ranks.gradient_agreement import Agreement
from autotune.targets.reference import TargetPlace
from autotune.targets.user_errors import blaming

Phase = Callable[[str], None]


def inspect(
    reference: TargetPlace, device: str, config: Config | None, phase: Phase,
    asked: Sequence[Declaration] = (), *, lasts: bool = False,
) -> TargetFacts:  # fmt: skip
    """Return the facts of the target that a search needs, after one step of `config` or of the target's baseline.

    `asked` are knobs that the user declares besides those of the target's `space`. With `lasts` a command must train
    for as long as a probe needs. Raises `TargetError` for what the user must change, and memory errors unchanged.
    """
    world.join(device)  # before the user's code, which may ask for its rank
    usual = common_arguments(config or Config(values=defaults()), device)
    found, declared = kinds.load(reference, usual, phase, asked)
    with declaring(*declared):
        if isinstance(found, OwnLoop):
            facts = _own_loop(found, device, config, phase, lasts=lasts)
        else:
            facts = _contract(found, reference, device, config, phase)
    is_command = reference.command is not None
    told = [*rank_check_lines.untuned_parallelism(reference.file)]  # a command tells of its script itself
    told += [CheckLine(name=one.name, text=described(one, of_command=is_command)) for one in declared]
    return replace(facts, declared=declared, check_lines=(*facts.check_lines, *told, *variables.late_threads()))


def _contract(
    contract: Contract, reference: TargetPlace, device: str, config: Config | None, phase: Phase
) -> TargetFacts:
    settings = read_settings(contract)
    own = {one.name: one.default for one in KNOBS}
    values = own | (settings.baseline or {}) if config is None else config.values
    offered = common_arguments(Config(values=values), device)
    run_setup(contract, offered)
    data = sources.find(contract, offered)
    settings.check(data.samples)
    if config is None and "batch_size" not in (settings.baseline or {}) and data.samples is not None:
        values["batch_size"] = max(1, min(int(values["batch_size"] or 1), data.samples // world.world().size))
    plan, of_model = _planned(values, device), dict[str, Any]()
    plan.model_transforms.insert(0, lambda model: of_model.update(model_facts(model)) or model)  # before any knob does
    training = assemble(contract, data, plan, common_arguments(Config(values=values), device))
    phase("warm-up")
    first = _FirstStep()
    training.source = first.remembering(training.source)
    is_container = type(training.model) is nn.Sequential  # whose class says nothing
    facts = _step_of_all_ranks(contract, training, first)
    own, optimizer = found(values, training.observed()), first.updates.facts(facts.seconds)
    halved = halved_losses(training, first.batch)
    _confirm_count(contract, data, training, values, phase)
    return TargetFacts(
        **of_model,
        name=reference.label.removesuffix(".py") if is_container else class_name(training.model),
        data=data.kind,
        dataset_samples=data.samples,
        baseline=settings.baseline,
        space=settings.space,
        global_batch_size=settings.global_batch_size,
        is_mean_loss=halved.is_mean if halved else None,
        has_validation=training.validation is not None,
        takes_workers=takes_workers(contract, data),
        loader_options=loader_options(contract, data),
        repeats_samples=data.kind == "iterable" and not first.asked_for_loader_worker,
        has_collate="collate" in contract,
        has_sampler="sampler" in contract,
        batch_layout=layout(first.batch, is_unpacked="loss" not in contract),
        settable=_settable(contract),
        framework=contract.framework,
        ranks=world.world().size,
        finds_unused_parameters=parallel.finds_unused(contract),
        exposed_communication=exposed_share(training),
        optimizer=optimizer,
        attention=first.attention.found(),
        calls_attention=first.attention.was_called,
        compiles_itself=not plan.compiles and switches.compiled_graphs() > first.graphs_before,
        is_deterministic=switches.is_deterministic(),
        found=own,
        update=tuple(name for name in OF_A_STEP if name in contract),
        check_lines=(
            *check_lines(contract, data, training, first.batch, facts, is_shared_out=first.asked_for_loader_worker),
            *(halved.check_lines if halved else ()),
            *data_shares.check_lines(data.kind, data.samples, first.batch, first.batches, contract.line(contract.data)),
            *rank_check_lines.check_lines(
                training.model,
                reference.file,
                all_got_gradients=all(world.gathered(facts.parameters_with_gradient == facts.trainable_parameters)),
                finds_unused=parallel.finds_unused(contract),
            ),
            *switches.float32_check_lines(device),
        ),
        step=facts,
    )


def _step_of_all_ranks(contract: Contract, training: Training, first: _FirstStep) -> StepFacts:
    """Take the first step, and return its facts. Raises `TargetError` unless all ranks then have equal parameters."""
    agreement = Agreement(training.model, training.parallel.called, contract)
    if training.exchanges:
        first.at_first = lambda batch: agreement.try_alone(
            lambda: training.gradients(batch, exchanges=False), finds_unused=parallel.finds_unused(contract)
        )
    with blaming(first, contract.root), agreement.watching():
        facts = _take_step(training, training.model, first)
    agreement.check()
    return facts


def _settable(contract: Contract) -> tuple[str, ...] | None:
    """Return the knobs that can be set: None for all; all but accumulation if a step of the user's takes one batch."""
    if "step" not in contract:
        return None
    return tuple(one.name for one in KNOBS if one.name != "gradient_accumulation_steps")


def _own_loop(loop: OwnLoop, device: str, config: Config | None, phase: Phase, *, lasts: bool) -> TargetFacts:
    """Return the facts of a user's own loop, after one step of `config` or of its settings of today."""
    plan = Plan(device=device) if config is None else _planned(config.values, device)
    model, first, stepped = loop.build(config, plan), _FirstStep(), SteppedParameters()
    facts, session = None if model is None else loop.facts(), OwnSession(loop)
    phase("warm-up")
    first.after_step = loop.note_model
    first.needs_another_step = lambda: stepped.needs_another_step() or loop.needs_another_step()
    first.lasts = loop.lasts if lasts else first.lasts
    with blaming(first, loop.root), stepped.watched():
        step = _take_step(session, model, first)
    facts = facts or loop.facts()
    seen = facts.step or step
    step = replace(seen, seconds=step.seconds and seen.seconds)
    known = config.values if config else facts.baseline or {}
    check_effect(session, known, facts.dataset_samples)
    return replace(
        facts,
        step=step,
        of_rank=facts.of_rank and stepped.facts(facts.of_rank),
        optimizer=first.updates.facts(step.seconds),
        attention=first.attention.found(),
        calls_attention=first.attention.was_called,
        compiles_itself=not plan.compiles and switches.compiled_graphs() > first.graphs_before,
        compiles_model=not plan.compiles and facts.compiles_model,
        is_deterministic=switches.is_deterministic(),
        found={} if config else found(defaults() | known, session.observed()),
        check_lines=(*facts.check_lines, *stepped.check_lines, step_line(step), *switches.float32_check_lines(device)),
    )


@dataclass
class _FirstStep(Watch):
    """A watch that stops after one optimizer step, or after those that are needed, and keeps the first one's input."""

    batch: Any = None
    batches: int = 0  # of an epoch; 0: its loader does not know
    asked_for_loader_worker: bool = False  # whether loading it called `torch.utils.data.get_worker_info`
    at_first: Callable[[Any], None] = lambda batch: None  # called with the first batch before the step
    after_step: Callable[[], None] = lambda: None  # called after each step, in the thread that took it
    needs_another_step: Callable[[], bool] = lambda: False  # asked after each step: whether another one is needed
    lasts: Callable[[], bool] = lambda: True  # asked the same: whether training is long enough
    reached: set[int] = field(default_factory=set)  # ids of the parameters that got a gradient
    steps: list[Step] = field(default_factory=list)
    updates: Updates = field(default_factory=Updates)
    attention: Attention = field(default_factory=Attention)
    graphs_before: int = field(default_factory=switches.compiled_graphs)

    def __str__(self) -> str:
        if self.batch is None:
            return "the first training step"
        return f"the first training step, on a batch of {describe(self.batch)}"

    def step(self, step: Step) -> Order:
        """Keep the first step, and stop training, unless another one is needed."""
        self.steps = self.steps or [step]
        self.after_step()
        if self.needs_another_step() or not self.lasts():
            self.updates.ignores_later_steps = True
            return Order.CONTINUE
        return Order.STOP

    def ended(self) -> bool:
        """Return whether a step was taken, and training is long enough: more steps are not necessary."""
        return bool(self.steps) and self.lasts()

    def remembering(self, source: sources.Source) -> sources.Source:
        """Return `source`, changed to keep its first batch (on the host, as it was loaded)."""

        def epoch() -> Iterator[Any]:
            batches = iter(source())
            if self.batch is None:
                if world.world().size > 1:  # a length may take long, or be missing
                    self.batches = length_hint(batches)
                with asking_for_loader_worker() as asking:
                    self.batch = next(batches, None)
                self.asked_for_loader_worker = bool(asking)
                if self.batch is None:
                    return
                self.at_first(self.batch)
                yield self.batch
            yield from batches

        return epoch


def _take_step(session: Session, model: nn.Module | None, first: _FirstStep) -> StepFacts:
    trainable: list[Any] = [one for one in (() if model is None else model.parameters()) if one.requires_grad]
    hooks = [one.register_post_accumulate_grad_hook(lambda got: first.reached.add(id(got))) for one in trainable]
    began = time.perf_counter()
    with first.updates.watched(), first.attention:
        session.train(first)
        loss = float(first.steps[0].loss)  # waits for the device
    seconds = None if switches.compiled_graphs() > first.graphs_before else time.perf_counter() - began
    session.validate(1)
    for hook in hooks:
        hook.remove()
    return StepFacts(
        loss=loss if math.isfinite(loss) else None,
        seconds=seconds,
        parameters_with_gradient=len(first.reached),
        trainable_parameters=len(trainable),
    )


def _confirm_count(contract: Contract, data: Data, training: Training, values: dict[str, Value], phase: Phase) -> None:
    """Ask for a batch of another size, as a dimension may have the first size by chance. Raises `TargetError`."""
    count = training.count_samples
    if not isinstance(count, OwnBatches) or not count.is_told or not count.can_be_seen:
        return
    phase("build")  # making the loader again may take as long again
    size = int(values["batch_size"] or 1)
    other = size // 2 or 2
    changed = values | {"batch_size": other}
    plan = _planned(changed, training.plan.device)
    offered = common_arguments(Config(values=changed), plan.device)
    try:
        with blaming(f"{contract.data}(batch_size={other})", contract.root):
            source = sources.training_source(contract, data, plan, offered, training.model)
            batch = next(iter(source()), None)
            if batch is None:
                raise TargetError("the loader gave no batch")
    except TargetError as error:
        said = (
            f"{str(error).removesuffix('.')}. {contract.data}() was asked for batches of {other} after {size}, to see "
            f"which dimension is that of the samples. Make it give other sizes too, or write samples(batch)."
        )
        raise TargetError(said, traceback=error.traceback) from error
    count.confirm(batch, other)


def _planned(values: Mapping[str, Value], device: str) -> Plan:
    plan = plan_of({**values, worker_knob().name: 0}, device)  # starting workers does not pay for one batch
    plan.accumulation_steps = min(plan.accumulation_steps, SHORT_CYCLE)
    for prepare in plan.setup:
        prepare()
    return plan
