"""The source of batches: a DataLoader over the user's dataset, the user's own loader, or one synthetic batch."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from autotune.errors import TargetError
from autotune.knobs import worker_knob
from autotune.knobs.base import Plan
from autotune.machine.host import shared_memory_bytes
from autotune.targets import shared_memory
from autotune.targets.base import without_effect
from autotune.targets.collate import collate, collate_rows, is_hugging_face, prepare_hugging_face
from autotune.targets.contract import Contract
from autotune.targets.named_arguments import takes
from autotune.targets.ranks import data_shares
from autotune.targets.ranks.world import world
from autotune.targets.user_errors import blaming

Source = Callable[[], Iterator[Any]]  # starts an epoch
LOADER_KNOBS = ("pin_memory", "persistent_workers", "prefetch_factor")  # for `**loader` of the user's own loader


class Epochs:
    """The source that is a DataLoader of ours."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self.loader = loader
        self._fits = False  # the batches fit into shared memory, as far as is known
        self._begun = 0  # epochs

    @property
    def batches(self) -> int:
        """The batches of an epoch; 0 if unknown: for a stream, or a sampler without a length."""
        if isinstance(self.loader.dataset, IterableDataset):
            return 0
        try:
            return len(self.loader)
        except Exception:  # whatever the user's sampler raises: training still works
            return 0

    def __call__(self) -> Iterator[Any]:
        """Start an epoch. Raises `SharedMemoryTooSmall` before the first, if workers would need more than is free."""
        if not self._fits:
            shared_memory.check(self.loader, shared_memory_bytes())
            self._fits = True
        if world().size > 1 and hasattr(self.loader.sampler, "set_epoch"):  # they share the data among ranks
            self.loader.sampler.set_epoch(self._begun)
        self._begun += 1
        return iter(self.loader)


@dataclass(frozen=True, kw_only=True)
class Data:
    """The data that the target trains on, before it is divided into batches."""

    kind: Literal["dataset", "iterable", "dataloader", "batch"]
    dataset: Any = None  # None for dataloader and batch
    samples: int | None = None  # None: not known

    @property
    def description(self) -> str:
        """The data in words: `CIFAR10, 50,000 samples`."""
        if self.dataset is None:
            return {"batch": "one synthetic batch, reused", "dataloader": "dataloader()"}[self.kind]
        size = "samples not counted" if self.samples is None else f"{self.samples:,} samples"
        return f"{type(self.dataset).__name__}, {size}"


def find(contract: Contract, offered: Mapping[str, Any]) -> Data:
    """Return the data of the target; calls its `dataset()`, if it has one. Raises `TargetError`."""
    if contract.data != "dataset":
        return Data(kind=cast(Literal["dataloader", "batch"], contract.data))
    return read_dataset(contract, "dataset", offered)


def read_dataset(contract: Contract, name: str, offered: Mapping[str, Any]) -> Data:
    """Return the dataset called `name`, and its kind. Raises `TargetError`."""
    dataset = contract.make(name, offered)
    with blaming(f"{name}()", contract.root):  # __len__ is the user's code too
        return _recognised(dataset, f"{name}()")


def _recognised(dataset: Any, name: str) -> Data:
    """Return map-style or iterable data. Raises `TargetError` for other objects, and for data without samples."""
    if isinstance(dataset, DataLoader):
        raise TargetError(
            f"{name} returned a DataLoader, whose batch size is fixed: return its dataset (autotune sets batch size "
            f"and workers), or call the function dataloader(batch_size, num_workers)."
        )
    if isinstance(dataset, Mapping):
        splits = ", ".join(map(str, dataset))
        raise TargetError(f"{name} returned a {type(dataset).__name__} of {splits}: return one of them.")
    if isinstance(dataset, tuple) and dataset and all(isinstance(part, Tensor) for part in dataset):
        raise TargetError(
            f"{name} returned a tuple of {len(dataset)} tensors, which would be read as {len(dataset)} samples: "
            f"return torch.utils.data.TensorDataset(*tensors)."
        )
    if isinstance(dataset, IterableDataset):
        return Data(kind="iterable", dataset=dataset)
    if isinstance(dataset, Iterator):
        raise TargetError(
            f"{name} returned a {type(dataset).__name__}, which ends after one epoch: return an object whose __iter__ "
            f"starts anew, or a list."
        )
    if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        if len(dataset) == 0:
            raise TargetError(
                f"{name} has 0 samples. The path, the split or a filter probably leaves nothing. "
                f"Print len({name}) in your file."
            )
        return Data(kind="dataset", dataset=dataset, samples=len(dataset))
    if hasattr(dataset, "__iter__"):
        return Data(kind="iterable", dataset=_Stream(dataset))
    raise TargetError(
        f"{name} returned a {type(dataset).__name__}, which is no dataset. A dataset has __getitem__ and __len__, or "
        f"__iter__. Add the missing method."
    )


def training_source(contract: Contract, data: Data, plan: Plan, offered: Mapping[str, Any], model: Any) -> Source:
    """Return the source of training batches. Only `plan.loader_options` decides about batch size and workers."""
    if data.kind == "batch":
        batch = contract.make("batch", offered)
        return lambda: itertools.repeat(batch)
    if data.kind == "dataloader":
        return _own_loader(contract, plan, offered)
    _check_size(data, int(plan.loader_options["batch_size"]))
    options = dict(plan.loader_options)
    own = contract.loader if options["num_workers"] else {}  # arguments for a loader with workers only
    sampler = _sampler(contract, {**offered, "dataset": data.dataset}) if "sampler" in contract else None
    if sampler is not None or data.kind == "dataset":
        options |= data_shares.loader_options(data.dataset, sampler)
    # The last batch of an epoch may be smaller: dropped, so that every optimizer step has the held global batch.
    return Epochs(_loader(contract, data.dataset, model, {**own, **options, "drop_last": True}))


def validation_source(contract: Contract, data: Data, plan: Plan, model: Any) -> Source:
    """Return the source for validation: in order, with the last partial batch, loaded in this process."""
    options = {"batch_size": plan.loader_options["batch_size"], "num_workers": 0}
    return Epochs(_loader(contract, data.dataset, model, options))


def _loader(contract: Contract, dataset: Any, model: Any, options: dict[str, Any]) -> DataLoader[Any]:
    if meant := contract.unread.get("collate"):
        harm = "samples would be joined in another way than yours"
        raise TargetError(contract.left_out("collate", harm, f"collate = {meant.name}"))
    join: Any = contract.names.get("collate", collate if "loss" in contract else collate_rows)
    if is_hugging_face(dataset):
        keep = "loss" in contract or "collate" in contract
        dataset, fitting = prepare_hugging_face(dataset, model, keep_columns=keep)
        join = contract.names.get("collate", fitting)
    return DataLoader(dataset, collate_fn=join, **options)


def _sampler(contract: Contract, offered: Mapping[str, Any]) -> Any:
    sampler = contract.make("sampler", offered, sole="dataset")
    if isinstance(sampler, BatchSampler):
        raise TargetError(
            "sampler() returned a BatchSampler, which cuts batches of a size of its own. autotune tunes that size. "
            "Return the sampler of single samples that is in it, or write dataloader(batch_size, num_workers)."
        )
    return sampler


def _own_loader(contract: Contract, plan: Plan, offered: Mapping[str, Any]) -> Source:
    options = {name: value for name, value in plan.loader_options.items() if name in LOADER_KNOBS}

    def make() -> Any:
        return contract.make("dataloader", {**offered, **options}, spread=tuple(options))

    first = make()
    if not hasattr(first, "__iter__"):
        raise TargetError(f"dataloader() returned a {type(first).__name__}: return an iterable of batches.")
    told = takes(contract.names["dataloader"], "num_workers")
    if isinstance(first, DataLoader) and told and first.num_workers != plan.loader_workers:
        asked, seen = (worker_knob().phrase(count) for count in (plan.loader_workers, first.num_workers))
        raise without_effect("dataloader()", asked, seen)
    if isinstance(first, DataLoader):
        _check_asked(first, plan)
    if not isinstance(first, Iterator):
        return lambda: iter(first)
    unused = [first]  # a generator can be used once; every later epoch needs a new one
    return lambda: unused.pop() if unused else iter(make())


def _check_asked(loader: DataLoader[Any], plan: Plan) -> None:
    """Raise `TargetError` unless the user's own loader has the options that it was given for knobs."""
    for name in sorted(plan.loader_asked):
        asked, seen = plan.loader_options[name], getattr(loader, name)
        if asked != seen:
            raise without_effect("dataloader()", f"{name} {asked}", f"{name} {seen}")


def _check_size(data: Data, batch_size: int) -> None:
    ranks = world().size
    if data.samples is not None and data.samples // ranks < batch_size:
        shared = f" and {ranks} ranks share them" if ranks > 1 else ""
        raise TargetError(
            f"dataset has {data.samples} samples{shared}, one batch needs {batch_size}. The last partial batch is left "
            f"out, so there would be none at all. Lower batch_size in the baseline or --global-batch."
        )


class _Stream(IterableDataset[Any]):
    """An iterable dataset for DataLoader around any object that can be iterated repeatedly."""

    def __init__(self, samples: Any) -> None:
        self.samples = samples

    def __iter__(self) -> Iterator[Any]:
        return iter(self.samples)
