"""A LightningModule and its data, read as a contract: our loop trains what their hooks compute.

    training_step ─► loss · configure_optimizers ─► optimizer · train_dataloader ─► dataset, collate, sampler, baseline

What changes a step and takes a Trainer is refused; what a Trainer would run besides is named in `check`.
"""

from __future__ import annotations

import inspect
import itertools
import sys
from collections.abc import Callable, Mapping
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, default_collate

from autotune.core.records import Finding
from autotune.errors import TargetError
from autotune.targets.arguments import bind, takes, takes_nothing
from autotune.targets.contract import DATA, Contract
from autotune.targets.loaded import Loaded
from autotune.targets.user_errors import blaming

PACKAGES = ("lightning.pytorch", "pytorch_lightning")  # one library under two names, each with classes of its own
INSTEAD = "Write what is to be tuned as functions: model(), dataset(), loss(model, batch), optimizer(params)"
BY_ITSELF = (  # what takes more than one loss and one optimizer
    "Write model(), dataset(), optimizer(model) and step(model, batch, optimizers), or tune the command that runs your "
    "Trainer: autotune search -- python train.py"
)
REFUSED = ("backward", "optimizer_step", "on_before_batch_transfer", "transfer_batch_to_device")  # they change a step
LEFT_OUT = (  # a Trainer would run them as well
    "configure_callbacks", "configure_gradient_clipping", "lr_scheduler_step", "optimizer_zero_grad", "on_fit_start",
    "on_train_start", "on_train_epoch_start", "on_train_batch_start", "on_before_zero_grad", "on_before_backward",
    "on_after_backward", "on_before_optimizer_step", "on_train_batch_end", "on_train_epoch_end", "validation_step",
)  # fmt: skip
_LOADER = ("worker_init_fn", "multiprocessing_context", "timeout")  # of the user's loader, kept where there are workers
_THEIRS = ("lightning", "pytorch_lightning", "lightning_fabric", "torch")  # packages whose hooks are no user's


def read(loaded: Loaded, offered: Mapping[str, Any]) -> Contract | None:
    """The contract of the one LightningModule there is; None where there is none, or the file has a `model`.

    Agreed names beside it (`optimizer`, `dataloader`, `worst_batch`, ...) replace what it would give. Raises
    `TargetError`.
    """
    kind = None if "model" in loaded.names else _only("LightningModule", loaded)
    if kind is None:
        return None
    data_kind = _only("LightningDataModule", loaded)
    module = _made(kind, loaded, offered)
    source = _made(data_kind, loaded, offered) if data_kind else module
    _refuse(module, source)
    _prepare(module, source, loaded)
    own = {name: value for name, value in loaded.names.items() if name != "setup"}
    loader = None if any(name in own for name in DATA) else _loader(source, loaded)
    ready, name = [module], type(module).__name__

    def model() -> Any:
        if not ready:  # a dry run builds more of them, one for every arm
            ready.append(_made(kind, loaded, offered))
            _prepare(ready[0], ready[0], loaded)
        return ready.pop()

    names = {
        "model": model if inspect.isclass(kind) else kind,
        "loss": _loss(module, source),
        "optimizer": lambda model: _optimizer(model, name),
        **(_data(loader) if loader is not None else {}),
    }
    if loader is not None and not any(_is_given(one, "batch_size") for one in (kind, data_kind)):
        names["baseline"] = {"batch_size": loader.batch_size, "num_workers": loader.num_workers}
    theirs = {"loss": f"{name}.training_step", "optimizer": f"{name}.configure_optimizers"}
    return Contract(
        label=loaded.label,
        root=loaded.root,
        names={**names, **own},
        theirs={key: text for key, text in theirs.items() if key not in own},
        loader={key: getattr(loader, key) for key in _LOADER} if loader is not None else {},
        notes=_notes(module, source, has_baseline="baseline" in names and "baseline" not in own),
    )


def _only(kind: str, loaded: Loaded) -> Any:
    """The one class of Lightning's `kind` that the file defines, or what the user named. Raises `TargetError`."""
    bases = tuple(getattr(sys.modules[package], kind) for package in PACKAGES if package in sys.modules)
    given = loaded.value if isinstance(loaded.value, tuple) else (loaded.value,)
    named = next((value for value in given if isinstance(value, bases)), None)
    if named is not None or not bases or (kind == "LightningModule" and not loaded.is_whole_module):
        return named
    classes = [value for value in vars(loaded.module).values() if inspect.isclass(value) and issubclass(value, bases)]
    own = dict.fromkeys(one for one in classes if one.__module__ == loaded.module.__name__)
    found = [one for one in own if not any(one in other.__mro__[1:] for other in own)]  # bases of others are not meant
    if len(found) > 1:
        names = [one.__name__ for one in found]
        raise TargetError(
            f"{loaded.label} has {' and '.join(names)}, each a {kind}. One is trained, and which is not autotune's to "
            f"choose. Name it, {loaded.label}:{names[0]}, or name a function that returns (module, datamodule)."
        )
    return found[0] if found else None


def _is_given(kind: Any, argument: str) -> bool:
    """Whether a class is handed `argument`, because it has required ones."""
    return isinstance(kind, type) and not takes_nothing(kind) and takes(kind, argument)


def _made(kind: Any, loaded: Loaded, offered: Mapping[str, Any]) -> Any:
    """The object; of a class one with its own defaults, or with what it asks for where it has none."""
    if not isinstance(kind, type):
        return kind
    with blaming(f"{kind.__name__}()", loaded.root):
        return kind() if takes_nothing(kind) else bind(kind, kind.__name__, offered)(**offered)


def _prepare(module: Any, source: Any, loaded: Loaded) -> None:
    """Call what a Trainer calls before it asks for a loader."""
    owners = (source,) if source is module else (source, module)
    for hook, arguments in (("prepare_data", ()), ("setup", ("fit",)), ("configure_model", ())):
        for owner in owners:
            if _defines(owner, hook):
                with blaming(f"{type(owner).__name__}.{hook}()", loaded.root):
                    getattr(owner, hook)(*arguments)


def _defines(owner: Any, hook: str) -> bool:
    """Whether the user's class defines it, rather than Lightning's."""
    function = getattr(type(owner), hook, None)
    return function is not None and function.__module__.partition(".")[0] not in _THEIRS


def _refuse(module: Any, source: Any) -> None:
    name = type(module).__name__
    if not module.automatic_optimization:
        raise TargetError(
            f"{name} optimizes manually: its automatic_optimization is False. Its training_step steps by itself, and "
            f"the loop of autotune would step once more. {BY_ITSELF}."
        )
    refused = [f"{type(one).__name__}.{hook}" for one in (module, source) for hook in REFUSED if _defines(one, hook)]
    if refused:
        raise TargetError(
            f"{name} is trained with {' and '.join(dict.fromkeys(refused))}. A Trainer calls that in every step, and "
            f"the loop of autotune would take another step than yours. {INSTEAD}."
        )


def _loader(source: Any, loaded: Loaded) -> DataLoader[Any]:
    """The user's own training loader, which will be made again with other arguments. Raises `TargetError`."""
    asked = f"{type(source).__name__}.train_dataloader()"
    with blaming(asked, loaded.root):
        loader = source.train_dataloader()
    own = "Write dataloader(batch_size, num_workers) beside it"
    if not isinstance(loader, DataLoader):
        raise TargetError(
            f"{asked} returned a {type(loader).__name__}. autotune makes one DataLoader again, with other batch sizes "
            f"and workers. Return a DataLoader. Or: {own}."
        )
    if type(loader.batch_sampler) is not BatchSampler:  # None: the dataset cuts batches itself
        raise TargetError(
            f"{asked} has a batch_sampler of its own, which cuts batches of a size of its own. autotune tunes that "
            f"size. {own}."
        )
    return loader


def _data(loader: DataLoader[Any]) -> dict[str, Any]:
    """Return what the user's loader says about samples, by agreed name."""
    found: dict[str, Any] = {"dataset": lambda: loader.dataset}
    if loader.collate_fn is not default_collate:
        found["collate"] = loader.collate_fn
    if not isinstance(loader.dataset, IterableDataset) and type(loader.sampler) is not RandomSampler:
        found["sampler"] = lambda: loader.sampler
    return found


def _loss(module: Any, source: Any) -> Callable[[Any, Any], Any]:
    """`training_step` as the loss of a batch, after what the user does to a batch on the device."""
    counts, asked = itertools.count(), len(inspect.signature(module.training_step).parameters)
    name, arrival = type(module).__name__, "on_after_batch_transfer"
    changes = next((one for one in (source, module) if _defines(one, arrival)), None)

    def loss(model: Any, batch: Any) -> Any:
        try:
            if changes is not None:
                batch = (model if changes is module else changes).on_after_batch_transfer(batch, 0)
            output = model.training_step(*(batch, next(counts), 0)[:asked])
        except RuntimeError as error:
            _explain(error, f"{name}.training_step", f"{INSTEAD}.")
            raise
        value = output.get("loss") if isinstance(output, Mapping) else output
        if value is None:
            raise TargetError(
                f"{name}.training_step returned no loss. A Trainer would skip this batch, and a skipped batch cannot "
                f"be timed. Return a loss for every batch."
            )
        return value

    return loss


def _optimizer(model: Any, name: str) -> Any:
    """The one optimizer of `configure_optimizers`, in whatever form it is returned. Raises `TargetError`."""
    asked = f"{name}.configure_optimizers"
    try:
        made = model.configure_optimizers()
    except RuntimeError as error:
        _explain(error, asked, "Write optimizer(model) beside it.")
        raise
    if isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], list | tuple):
        made = made[0]  # the second are schedulers
    found = list(made) if isinstance(made, list | tuple) else [made]
    if len(found) != 1:
        raise TargetError(
            f"{asked} returned {len(found)} optimizers. The loop of autotune steps one in every step, and a Trainer "
            f"leaves it to manual optimization who steps when. {BY_ITSELF}."
        )
    return found[0].get("optimizer") if isinstance(found[0], Mapping) else found[0]


def _explain(error: RuntimeError, asking: str, instead: str) -> None:
    """Raise `TargetError` if the user's code asked for its Trainer (lightning 2.6, `LightningModule.trainer`)."""
    if "not attached to a `Trainer`" in str(error):
        raise TargetError(
            f"{asking} asks for its Trainer, and there is none. autotune trains with a loop of its own, which can "
            f"measure computing and loading apart. {instead}"
        ) from error


def _notes(module: Any, source: Any, *, has_baseline: bool) -> tuple[Finding, ...]:
    hooks = dict.fromkeys(hook for one in (module, source) for hook in LEFT_OUT if _defines(one, hook))
    text = "not run: the loop of autotune trains, without callbacks, loggers, schedulers and clipping"
    left_out = f"; nor are {', '.join(hooks)}" if hooks else ""
    notes = [Finding(name="Trainer", text=text + left_out, needs_attention=bool(hooks))]
    if has_baseline:
        said = "batch and workers of train_dataloader(); accumulation and precision are your Trainer's, not read"
        notes.append(Finding(name="baseline", text=said, inferred=True, override='baseline = {"batch_size": ..., ...}'))
    return tuple(notes)
