"""A LightningModule and its data: trained by its Trainer if it needs one, else read as a contract.

    training_step ─► loss · configure_optimizers ─► optimizer · train_dataloader ─► dataset, collate, sampler, baseline

Our loop then takes the same step; `check` names the code that a Trainer would run in addition.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Mapping
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, RandomSampler, default_collate

from autotune.core.records import CheckLine
from autotune.errors import TargetError
from autotune.targets.contract import DATA, OF_A_STEP, Contract
from autotune.targets.kinds.lightning_parts import OF_WORKERS, Parts, checked_loader, defines, find, made
from autotune.targets.kinds.lightning_trainer import LightningTrainer
from autotune.targets.kinds.unused_trainer import NAME, unused_trainer
from autotune.targets.loaded import Loaded
from autotune.targets.user_errors import blaming

OURS = (*DATA, *OF_A_STEP, "loss", "optimizer", "collate", "sampler", "samples", "validation", "worst_batch")
CHANGING = (  # hooks without which our loop would take another step: a Trainer must call them
    "backward", "optimizer_step", "on_before_batch_transfer", "transfer_batch_to_device",
)  # fmt: skip
ADDING = (  # hooks that add to a step, or prepare it
    "configure_callbacks", "configure_gradient_clipping", "optimizer_zero_grad", "on_fit_start", "on_train_start",
    "on_train_epoch_start", "on_train_batch_start", "on_before_zero_grad", "on_before_backward", "on_after_backward",
    "on_before_optimizer_step", "on_train_batch_end",
)  # fmt: skip
BETWEEN = ("lr_scheduler_step", "on_train_epoch_end", "validation_step")  # hooks that add nothing to the time of a step
WITH_TRAINER = f"def {NAME}(): return Trainer()"


def read(loaded: Loaded, offered: Mapping[str, Any]) -> Contract | LightningTrainer | None:
    """Return the contract of the file's LightningModule, or its Trainer; None if it has none, or a `model`.

    Agreed names in the file (`optimizer`, `dataloader`, `worst_batch`, ...) replace the parts of the module. Raises
    `TargetError`.
    """
    parts = None if "model" in loaded.names else find(loaded, offered)
    if parts is None:
        return None
    asked = [f"the file has {NAME}()"] if inspect.isfunction(vars(loaded.module).get(NAME)) else []
    manual = [] if parts.module.automatic_optimization else [f"{parts.name} optimizes manually"]
    needed = [*asked, *manual, *_said("there is {}", parts.defined(CHANGING))]
    ours = [name for name in OURS if name in loaded.names]
    if ours and needed:
        raise TargetError(
            f"{loaded.label} has {' and '.join(ours)}, which the loop of autotune would read, and it needs a Trainer: "
            f"{needed[0]}. A Trainer asks {parts.name} for its data and its optimizers. Leave the names out."
        )
    reading = _said("a Trainer is asked by {}", parts.reading_trainer())
    reasons = needed or [*_said("there is {}", parts.defined(ADDING)), *reading]
    return LightningTrainer(parts, offered, reasons) if reasons and not ours else _contract(parts, offered)


def _said(what: str, names: list[str]) -> list[str]:
    return [what.format(", ".join(names))] if names else []


def _contract(parts: Parts, offered: Mapping[str, Any]) -> Contract:
    loaded, module, source, kind = parts.loaded, parts.module, parts.source, parts.kind
    _prepare(module, source, loaded)
    own = {name: value for name, value in loaded.names.items() if name != "setup"}
    loader = None if any(name in own for name in DATA) else _loader(source, loaded)
    ready, name = [module], parts.name

    def model() -> Any:
        if not ready:  # a shape run builds one for every arm
            ready.append(made(kind, loaded, offered))
            _prepare(ready[0], ready[0], loaded)
        return ready.pop()

    names = {
        "model": model if inspect.isclass(kind) else kind,
        "loss": _loss(module, source),
        "optimizer": lambda model: _optimizer(model, name),
        **(_data(loader) if loader is not None else {}),
    }
    if loader is not None and parts.has_own_sizes:
        names["baseline"] = {"batch_size": loader.batch_size, "num_workers": loader.num_workers}
    theirs = {"loss": f"{name}.training_step", "optimizer": f"{name}.configure_optimizers"}
    return Contract(
        label=loaded.label,
        root=loaded.root,
        names={**names, **own},
        theirs={key: text for key, text in theirs.items() if key not in own},
        loader={key: getattr(loader, key) for key in OF_WORKERS} if loader is not None else {},
        framework="lightning",
        notes=_notes(parts, has_baseline="baseline" in names and "baseline" not in own),
    )


def _prepare(module: Any, source: Any, loaded: Loaded) -> None:
    """Call the hooks that a Trainer calls before it asks for a loader."""
    owners = (source,) if source is module else (source, module)
    for hook, arguments in (("prepare_data", ()), ("setup", ("fit",)), ("configure_model", ())):
        for owner in owners:
            if defines(owner, hook):
                with blaming(f"{type(owner).__name__}.{hook}()", loaded.root):
                    getattr(owner, hook)(*arguments)


def _loader(source: Any, loaded: Loaded) -> DataLoader[Any]:
    """Return the user's own training loader, which will be made again with other arguments. Raises `TargetError`."""
    asked = f"{type(source).__name__}.train_dataloader()"
    with blaming(asked, loaded.root):
        loader = source.train_dataloader()
    return checked_loader(loader, asked, "write dataloader(batch_size, num_workers) beside it.")


def _data(loader: DataLoader[Any]) -> dict[str, Any]:
    """Return the dataset, collate, sampler and baseline of the user's loader, by agreed name."""
    found: dict[str, Any] = {"dataset": lambda: loader.dataset}
    if loader.collate_fn is not default_collate:
        found["collate"] = loader.collate_fn
    if not isinstance(loader.dataset, IterableDataset) and type(loader.sampler) is not RandomSampler:
        found["sampler"] = lambda: loader.sampler
    return found


def _loss(module: Any, source: Any) -> Callable[[Any, Any], Any]:
    """Return `training_step` as the loss of a batch, with the user's batch hooks on the device before it."""
    counts, asked = itertools.count(), len(inspect.signature(module.training_step).parameters)
    name, arrival = type(module).__name__, "on_after_batch_transfer"
    changes = next((one for one in (source, module) if defines(one, arrival)), None)

    def loss(model: Any, batch: Any) -> Any:
        try:
            if changes is not None:
                batch = (model if changes is module else changes).on_after_batch_transfer(batch, 0)
            output = model.training_step(*(batch, next(counts), 0)[:asked])
        except RuntimeError as error:
            _explain(error, f"{name}.training_step")
            raise
        value = output.get("loss") if isinstance(output, Mapping) else output
        if value is None:
            raise TargetError(
                f"{name}.training_step returned no loss. A Trainer skips such a batch, and there is none: the loop of "
                f"autotune trains. Return a loss for every batch, or have its Trainer train it: write  {WITH_TRAINER}"
            )
        return value

    return loss


def _optimizer(model: Any, name: str) -> Any:
    """Return the only optimizer of `configure_optimizers`, whatever the form of its result. Raises `TargetError`."""
    asked = f"{name}.configure_optimizers"
    try:
        given = model.configure_optimizers()
    except RuntimeError as error:
        _explain(error, asked)
        raise
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], list | tuple):
        given = given[0]  # the second are schedulers
    found = list(given) if isinstance(given, list | tuple) else [given]
    if len(found) != 1:
        raise TargetError(
            f"{asked} returned {len(found)} optimizers, and {name} does not step them itself. Lightning takes several "
            f"in manual optimization only. Set self.automatic_optimization = False, and step them in training_step."
        )
    return found[0].get("optimizer") if isinstance(found[0], Mapping) else found[0]


def _explain(error: RuntimeError, asking: str) -> None:
    """Raise `TargetError` if `error` shows a use of the Trainer (lightning 2.6, `LightningModule.trainer`)."""
    if "not attached to a `Trainer`" in str(error):
        raise TargetError(
            f"{asking} uses self.trainer, but autotune's loop runs without a Trainer. Code that it calls in other "
            f"classes or functions probably does so. To train with its Trainer, write  {WITH_TRAINER}"
        ) from error


def _notes(parts: Parts, *, has_baseline: bool) -> tuple[CheckLine, ...]:
    """Return lines of `check` about the Trainer, which does not run."""
    hooks = [name.partition(".")[2] for name in parts.defined((*ADDING, *BETWEEN))]
    text = "not run: the loop of autotune trains, without callbacks, loggers, schedulers and clipping"
    left_out = f"; nor are {', '.join(hooks)}" if hooks else ""
    adding = any(name in ADDING for name in hooks)
    notes = [CheckLine(name="Trainer", text=text + left_out, needs_attention=adding, override=WITH_TRAINER)]
    notes += unused_trainer(parts.loaded)
    if has_baseline:
        said = "batch and workers of train_dataloader(); accumulation and precision are your Trainer's, not read"
        notes.append(
            CheckLine(name="baseline", text=said, inferred=True, override='baseline = {"batch_size": ..., ...}')
        )
    return tuple(notes)
