"""A LightningModule that is trained by the user's own Trainer, or by one like it: `Trainer.fit` runs and is watched.

    Trainer(...), as it is made ─► with the values of the knobs ─► fit ─► train_dataloader ─► its loader, made again

The hooks that watch commands watch it, too (`commands/watching/witness.py`). Not covered: a knob that adds a forward
context and has no argument in `Knob.wording`.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from torch import Tensor
from torch.nn.parameter import UninitializedParameter
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler, default_collate

from autotune import telling
from autotune.core.records import CheckLine, Config, StepFacts, TargetFacts, Value
from autotune.errors import TargetError
from autotune.knobs import KNOBS, knob
from autotune.knobs.base import Knob, Plan
from autotune.knobs.observed import Observed
from autotune.knobs.wording import Framework
from autotune.targets import optimizer_implementations
from autotune.targets.batches import move
from autotune.targets.commands.watching.loader_defaults import LoaderDefaults
from autotune.targets.commands.watching.main_thread import Guest
from autotune.targets.commands.watching.witness import Witness
from autotune.targets.contract import Contract
from autotune.targets.declared_settings import read_settings
from autotune.targets.importing import as_a_script
from autotune.targets.kinds.lightning_arguments import (
    GIVEN,
    INSTEAD,
    PRECISIONS,
    changed_arguments,
    has_own_precision,
    kept,
    making,
    replace_result,
    require_new_enough,
    taken,
)
from autotune.targets.kinds.lightning_endless import make_endless, telling_of
from autotune.targets.kinds.lightning_parts import OF_WORKERS, Parts, checked_loader, count_samples
from autotune.targets.kinds.unused_trainer import NAME, unused_trainer
from autotune.targets.model_facts import model_facts
from autotune.targets.named_arguments import bind
from autotune.targets.own_loop import LoopReport, OwnLoop
from autotune.targets.user_errors import blaming

ACCUMULATION = "gradient_accumulation_steps"
_OF_A_LOADER = ("batch_size", "num_workers", "pin_memory", "prefetch_factor", "persistent_workers")


class LightningTrainer(OwnLoop):
    """The user's `Trainer.fit`, run by a probe with the values of the knobs."""

    def __init__(self, parts: Parts, offered: Mapping[str, Any], reasons: Sequence[str]) -> None:
        """`reasons`: why the module needs a Trainer, in words."""
        self.label, self.root = parts.loaded.label, parts.loaded.root
        self._parts, self._offered, self._reasons = parts, offered, reasons
        self._plan, self._is_today = Plan(device="cpu"), True
        self._trainer: Any = None
        self._loader: DataLoader[Any] | None = None  # the user's own
        self._witness: Witness | None = None
        self._updates = 0  # of the steps that were told
        self._reached: set[int] = set()  # parameters that had a gradient in the first step, by identity
        self._trainable, self._hooks = list[Any](), list[Any]()

    def build(self, config: Config | None, plan: Plan) -> None:
        """Make the Trainer with the user's arguments, or those of `config`. Raises `TargetError`."""
        self._plan, self._is_today = plan, config is None
        library, asked = self._parts.library, {} if config is None else self._asked(config)
        require_new_enough(library)
        function = vars(self._parts.loaded.module).get(NAME)
        make = bind(function if inspect.isfunction(function) else library.Trainer, NAME, self._offered)
        changing = making(library.Trainer, lambda given: changed_arguments(given, library, plan.device, asked))
        with blaming(f"{NAME}()", self.root), as_a_script(self.label, f"{NAME}() ran"), changing:
            self._trainer = make(**self._offered)
        self._check(asked)
        module, strategy = self._parts.module, self._trainer.strategy
        replace_result(module, "configure_callbacks", lambda callbacks: kept(callbacks, library))
        replace_result(self._parts.source, "train_dataloader", self._made_again)
        if plan.batch_transforms:
            replace_result(strategy, "batch_to_device", lambda batch: move(batch, self._changed, plan.device))

    def run(self, report: LoopReport) -> None:
        """Train until the watch stops it."""
        trainer, parts = self._trainer, self._parts
        self._witness = witness = Witness(
            self.label, report, _Leaving(), loader_defaults=LoaderDefaults(), transforms=(), is_told=True
        )
        trainer.callbacks.append(telling_of(parts.library, report, self._begin, self._end_batch))
        make_endless(trainer)
        try:
            with witness.installed():
                witness.begin()
                trainer.fit(parts.module, datamodule=parts.data_module)
        except _Enough:
            pass

    def observed(self) -> Observed:
        """Return the settings that the hooks saw; none if the file's `baseline` differs from the code's settings."""
        says_other = self._is_today and "baseline" in self._parts.loaded.names
        return self._witness.observed() if self._witness and not says_other else Observed()

    def loss_scale(self) -> float | None:
        """Return the loss scale of its precision plugin; None without a gradient scaler."""
        scaler = getattr(self._trainer.precision_plugin, "scaler", None)
        return float(scaler.get_scale()) if scaler is not None and scaler.is_enabled() else None

    def facts(self) -> TargetFacts:
        """Return the facts that its first step showed."""
        parts, witness, loader = self._parts, self._witness, self._loader
        assert witness is not None and loader is not None, "asked after a step"
        samples = count_samples(loader)
        settings = read_settings(Contract(label=self.label, root=self.root, names=parts.loaded.names))
        fixed = self._fixed()
        return TargetFacts(
            **model_facts(parts.module),
            name=parts.name,
            data="iterable" if samples is None else "dataset",
            dataset_samples=samples,
            baseline=self._today(loader) | (settings.baseline or {}),
            space=settings.space,
            global_batch_size=settings.global_batch_size,
            settable=tuple(one.name for one in KNOBS if one.name not in fixed) if fixed else None,
            has_collate=loader.collate_fn is not default_collate,
            has_sampler=samples is not None and type(loader.sampler) not in (RandomSampler, SequentialSampler),
            owns_loop=True,
            framework="lightning",
            step=StepFacts(
                loss=witness.tally.loss(),
                seconds=witness.tally.seconds,
                parameters_with_gradient=len(self._reached),
                trainable_parameters=len(self._trainable),
            ),
            check_lines=(*self._check_lines(samples), *fixed.values()),
        )

    def _begin(self, module: Any) -> None:
        """Change the module as the plan says, once it is on its device and has its layers. Raises `TargetError`."""
        lazy = [name for name, one in module.named_parameters() if isinstance(one, UninitializedParameter)]
        if lazy:
            raise TargetError(
                f"{self._parts.name}.{lazy[0]} has no shape yet. Lazy modules get theirs from the first batch, after "
                f"the optimizer wants it. Run one batch through it in __init__() or configure_model()."
            )
        self._trainable = [one for one in module.parameters() if one.requires_grad]
        for parameter in self._trainable:
            self._hooks.append(parameter.register_post_accumulate_grad_hook(lambda now: self._reached.add(id(now))))
        for transform in self._plan.model_transforms:
            transform(module)
        optimizer_implementations.choose(self._trainer.optimizers, self._plan.optimizer_options)

    def _end_batch(self) -> None:
        """Report a step at the end of each batch in which any optimizer stepped, however often."""
        assert self._witness is not None, "trains"
        if self._witness.updates == self._updates:
            return
        self._updates = self._witness.updates
        while self._hooks:  # the first step shows which parameters have a gradient
            self._hooks.pop().remove()
        telling.step()

    # -- the arguments that it trains with

    @property
    def _given(self) -> dict[str, Any]:
        """Return the arguments that the user gives the Trainer."""
        given: dict[str, Any] = vars(self._trainer)[GIVEN]
        return given

    @property
    def _is_manual(self) -> bool:
        return not self._parts.module.automatic_optimization

    def _asked(self, config: Config) -> dict[str, Any]:
        """Return a configuration's arguments, without accumulation if the module steps itself: a Trainer refuses it."""
        words = (one.wording(config[one.name], Framework.LIGHTNING, self._plan.device) for one in KNOBS)
        named = {name: value for word in words for name, value in word.arguments.items()}
        return named if self._is_manual else {**named, "accumulate_grad_batches": self._plan.accumulation_steps}

    def _check(self, asked: Mapping[str, Any]) -> None:
        """Raise `TargetError` unless a Trainer was made that will use the arguments that were asked for."""
        trainer, library = self._trainer, self._parts.library
        if not isinstance(trainer, library.Trainer):
            raise TargetError(
                f"{NAME}() returned a {type(trainer).__name__}. The function of that name is called for a "
                f"{library.__name__}.Trainer, which then trains {self._parts.name}. Return one, or rename the function."
            )
        if GIVEN not in vars(trainer):
            raise TargetError(
                f"{NAME}() returned a Trainer that was made before it was called. No configuration could reach it. "
                f"Make it in {NAME}()."
            )
        given = taken(asked, self._given, library)
        if lost := [name for name, value in given.items() if getattr(trainer, name) != value]:
            raise TargetError(
                f"{NAME}() returned a Trainer with another {' and '.join(lost)} than it was given. Its code or "
                f"Lightning changed that after it was made. Leave it as it is given."
            )

    def _changed(self, tensor: Tensor) -> Tensor:
        for transform in self._plan.batch_transforms:
            tensor = transform(tensor)
        return tensor

    def _made_again(self, loader: Any) -> DataLoader[Any]:
        """Return the user's loader with the options of the configuration, without its last partial batch.

        It is an object of the same class, with the same attributes. Raises `TargetError`.
        """
        asked = f"{type(self._parts.source).__name__}.train_dataloader()"
        self._loader = own = checked_loader(loader, asked, INSTEAD)
        options = {name: getattr(own, name) for name in _OF_A_LOADER} if self._is_today else self._plan.loader_options
        samples, size, steps = count_samples(own), int(options["batch_size"]), self._trainer.accumulate_grad_batches
        if samples is not None and samples < size * steps:
            needed = f"{size} samples" if steps == 1 else f"{steps} batches of {size}"
            raise TargetError(
                f"{asked} has {samples} samples, one step needs {needed}. A last partial step is left out, so there "
                f"would be none at all. Lower the batch or its accumulation, or give more samples."
            )
        kept = {name: getattr(own, name) for name in OF_WORKERS} if options["num_workers"] else {}
        if not isinstance(own.dataset, IterableDataset):
            kept["sampler"] = own.sampler
        again: DataLoader[Any] = object.__new__(type(own))
        vars(again).update({name: value for name, value in vars(own).items() if name != "_DataLoader__initialized"})
        DataLoader.__init__(
            again, own.dataset, collate_fn=own.collate_fn, generator=own.generator, **kept, **options, drop_last=True
        )
        return again

    # -- the facts that are reported

    def _today(self, loader: DataLoader[Any]) -> dict[str, Value]:
        """Return the knob values of today, from the loader and the Trainer, or as observed."""
        assert self._witness is not None, "asked after a step"
        seen, given, has_sizes = self._witness.observed(), self._given, self._parts.has_own_sizes
        is_seen = self._is_today or has_own_precision(given, self._parts.library)
        dtype = PRECISIONS.get(given.get("precision"))
        today = Observed(
            micro_batch=loader.batch_size if has_sizes else None,
            micro_batches=seen.micro_batches if self._is_manual else given.get("accumulate_grad_batches", 1),
            workers=loader.num_workers if has_sizes else None,
            precisions=seen.precisions if is_seen else frozenset({dtype} if dtype else ()),
            recomputes=seen.recomputes or None,
            channels_last=seen.channels_last or None,
        )
        return {one.name: values[0] for one in KNOBS if (values := one.seen(today))}

    def _done_by_itself(self) -> list[str]:
        """Return the names of the knobs whose work the module does itself."""
        if not self._is_today or self._witness is None:
            return []
        seen = self._witness.observed()
        of_model = Observed(recomputes=seen.recomputes, channels_last=seen.channels_last)
        return [one.name for one in KNOBS if True in one.seen(of_model)]

    def _fixed(self) -> dict[str, CheckLine]:
        """Return the knobs that cannot be set, by name, with the reason."""
        fixed: dict[str, str] = {}
        if self._is_manual:
            fixed[ACCUMULATION] = f"{self._parts.name} optimizes manually, and decides itself when it steps"
        if has_own_precision(self._given, self._parts.library):
            own = "a plugin" if self._given.get("precision") is None else f"precision={self._given['precision']!r}"
            why = f"the Trainer has {own}, which an autocast cannot replace"
            fixed |= {one.name: why for one in KNOBS if self._sets_precision(one)}
        fixed |= dict.fromkeys(self._done_by_itself(), f"{self._parts.name} does it itself")
        return {name: CheckLine(name=knob(name).label, text=f"not tuned: {why}") for name, why in fixed.items()}

    def _sets_precision(self, knob: Knob) -> bool:
        return "precision" in knob.wording(knob.default, Framework.LIGHTNING, self._plan.device).arguments

    def _check_lines(self, samples: int | None) -> list[CheckLine]:
        parts, loader = self._parts, self._loader
        size = "samples not counted" if samples is None else f"{samples:,} samples"
        count = sum(one.numel() for one in parts.module.parameters())
        return [
            CheckLine(name="model", text=f"{parts.name}, {count:,} parameters"),
            CheckLine(name="data", text=f"{type(loader and loader.dataset).__name__}, {size}"),
            CheckLine(name="loop", text=f"Trainer.fit(), because {' and '.join(self._reasons)}"),
            CheckLine(name="left out", text="loggers, checkpoints, progress bars, early stopping and validation"),
            *unused_trainer(parts.loaded),
        ]


class _Enough(BaseException):
    """Raised when the watch has enough. It is no `Exception`, so that user code does not catch it by accident."""


class _Leaving(Guest):
    """Leaves a training that our code runs: by raising `_Enough`."""

    def leave(self, error: BaseException | None = None) -> NoReturn:
        """Leave `Trainer.fit`, which ends its workers."""
        raise error or _Enough
