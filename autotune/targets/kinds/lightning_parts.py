"""The LightningModule and the LightningDataModule of a file: finds and makes them, and finds the hooks they define."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass
from types import CodeType, ModuleType
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from autotune.errors import TargetError
from autotune.knobs import declared_values
from autotune.knobs.declared import TAKEN
from autotune.targets.loaded import Loaded
from autotune.targets.named_arguments import bind, takes, takes_nothing
from autotune.targets.user_errors import blaming

PACKAGES = ("lightning.pytorch", "pytorch_lightning")  # one library under two names, each with classes of its own
OF_WORKERS = ("worker_init_fn", "multiprocessing_context", "timeout")  # of a loader, kept where there are workers
_THEIRS = ("lightning", "pytorch_lightning", "lightning_fabric", "torch")  # packages whose hooks are not the user's
# Attributes by which a module reads its Trainer (lightning 2.6, `LightningModule`): without one the first two raise an
# error, and the others stay 0 or raise one.
_OF_A_TRAINER = {"trainer", "optimizers", "lr_schedulers", "global_step", "current_epoch"}
_NOT_OF_A_STEP = (  # name prefixes of methods that no training step calls
    "validation_", "test_", "predict_", "val_dataloader", "on_validation_", "on_test_", "on_predict_",
    "on_train_epoch_end", "on_train_end", "on_fit_end", "on_save_", "on_load_",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The module that is trained, and the object that gives its data."""

    loaded: Loaded
    kind: Any  # the class, or the object that the user named
    data_kind: Any  # the same of the LightningDataModule; None: there is none
    module: Any
    source: Any  # gives `train_dataloader`: the data module, or the module
    library: ModuleType  # the package that the module's class comes from

    @property
    def name(self) -> str:
        """The name of the module's class."""
        return type(self.module).__name__

    @property
    def data_module(self) -> Any:
        """The LightningDataModule; None if there is none."""
        return None if self.source is self.module else self.source

    @property
    def has_own_sizes(self) -> bool:
        """Whether batch size and workers of its loader are the user's of today, not arguments that autotune gave."""
        return not any(
            isinstance(kind, type) and not takes_nothing(kind) and takes(kind, "batch_size")
            for kind in (self.kind, self.data_kind)
        )

    def defined(self, hooks: Iterable[str]) -> list[str]:
        """Return those of `hooks` that the user defines, each with its class: `Net.backward`."""
        owners = (self.module, self.source)
        found = [f"{type(one).__name__}.{hook}" for hook in hooks for one in owners if defines(one, hook)]
        return list(dict.fromkeys(found))

    def reading_trainer(self) -> list[str]:
        """Return the user's methods that read from a Trainer and may be called in a training step.

        Not covered: other classes and functions that get the module.
        """
        return list(dict.fromkeys(name for one in (self.module, self.source) for name in _reading(type(one))))


def find(loaded: Loaded, offered: Mapping[str, Any]) -> Parts | None:
    """Return the only LightningModule, and its data; None if there is none. Raises `TargetError`."""
    kind = _only("LightningModule", loaded)
    if kind is None:
        return None
    data_kind = _only("LightningDataModule", loaded)
    module = made(kind, loaded, offered)
    source = made(data_kind, loaded, offered) if data_kind else module
    known = (sys.modules[package] for package in PACKAGES if package in sys.modules)
    library = next(one for one in known if isinstance(module, one.LightningModule))
    return Parts(loaded=loaded, kind=kind, data_kind=data_kind, module=module, source=source, library=library)


def made(kind: Any, loaded: Loaded, offered: Mapping[str, Any]) -> Any:
    """Return the object, made if it is a class: with the class's own defaults, or arguments that autotune offers."""
    if not isinstance(kind, type):
        return kind
    with blaming(f"{kind.__name__}()", loaded.root):
        # The class's own defaults have precedence, except for knobs that the user declares.
        asked = {name: value for name, value in declared_values(offered).items() if name not in TAKEN}
        return bind(kind, kind.__name__, asked if takes_nothing(kind) else offered)(**offered)


def defines(owner: Any, hook: str) -> bool:
    """Return whether the user's class defines the hook, and not only Lightning's."""
    function = getattr(type(owner), hook, None)
    return function is not None and not _is_theirs(function)


def checked_loader(loader: Any, asked: str, instead: str) -> DataLoader[Any]:
    """Return the loader that the user's method `asked` gave, if it can be made again with other arguments.

    Raises `TargetError` otherwise; the message ends with `instead`.
    """
    if not isinstance(loader, DataLoader):
        raise TargetError(
            f"{asked} returned a {type(loader).__name__}. autotune makes one DataLoader again, with other batch sizes "
            f"and workers. Return one DataLoader, or {instead}"
        )
    if type(loader.batch_sampler) is not BatchSampler:  # None: the dataset cuts batches itself
        raise TargetError(
            f"{asked} has a batch_sampler of its own, which cuts batches of a size of its own. autotune tunes that "
            f"size. Give the loader a batch_size, or {instead}"
        )
    return loader


def _only(kind: str, loaded: Loaded) -> Any:
    """Return the only class of Lightning's `kind` in the file, or the one that the user named. Raises `TargetError`."""
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


def _is_theirs(thing: Any) -> bool:
    """Return whether a class or function belongs to Lightning or torch."""
    return thing.__module__.partition(".")[0] in _THEIRS


def _reading(kind: type) -> Iterator[str]:
    for one in kind.__mro__:
        if _is_theirs(one):
            continue
        for name, value in vars(one).items():
            function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            is_of_a_step = not name.startswith(_NOT_OF_A_STEP)
            if is_of_a_step and inspect.isfunction(function) and _OF_A_TRAINER & set(_names(function.__code__)):
                yield f"{kind.__name__}.{name}"


def _names(code: CodeType) -> Iterator[str]:
    """Yield the attributes and globals that a function reads, also in functions inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def count_samples(loader: DataLoader[Any]) -> int | None:
    """Return the number of samples that the sampler draws in an epoch; None if it is unknown before reading them."""
    if isinstance(loader.dataset, IterableDataset):
        return None
    drawn = (loader.sampler, loader.dataset)
    return next((len(one) for one in drawn if isinstance(one, Sized)), None)
