"""Joins samples into a batch if the user wrote no `collate`, and explains why some samples cannot be joined."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils.data import default_collate

from autotune.errors import TargetError
from autotune.targets.batches import tensors

WRITE_IT = "write collate(samples)"
_LABELS = frozenset({"label", "label_ids", "labels"})  # what a transformers.Trainer keeps besides forward's own


def collate(samples: list[Any]) -> Any:
    """Return `default_collate(samples)`. Raises `TargetError` with advice for different shapes or unknown types."""
    try:
        return default_collate(samples)
    except (RuntimeError, TypeError, KeyError, ValueError) as error:
        shapes = [_shapes(sample) for sample in samples]
        odd = next((index for index, shape in enumerate(shapes) if shape != shapes[0]), None)
        if odd is not None:
            raise TargetError(
                f"samples 0 and {odd} have shapes {shapes[0]} and {shapes[odd]}: {WRITE_IT}, or pad."
            ) from error
        if isinstance(error, TypeError):
            raise TargetError(f"samples cannot be joined into a batch ({error}): {WRITE_IT}.") from error
        raise  # running out of memory, for example


def collate_rows(samples: list[Any]) -> Any:
    """Return a batch for `model(**batch)`: a list of numbers in a sample's dict (token ids) is one row of a tensor.

    transformers expects this; `default_collate` would make a tensor of every position.
    """
    return collate([_with_rows(sample) for sample in samples])


def is_hugging_face(dataset: Any) -> bool:
    """Return whether it is, or behaves like, a `datasets.Dataset`; the library need not be installed."""
    return hasattr(dataset, "column_names") and hasattr(dataset, "with_format")


def prepare_hugging_face(dataset: Any, model: Any, *, keep_columns: bool) -> tuple[Any, Any]:
    """Return the dataset with the columns that `model.forward` takes, as in `transformers.Trainer`, and its collate.

    `keep_columns` keeps all columns, for a loss or a collate of the user's own, which may use any.
    """
    if not keep_columns:
        dataset = _fitting_columns(dataset, model)
    try:
        transformers = importlib.import_module("transformers")
    except ImportError:
        return dataset.with_format("torch"), collate
    return dataset, transformers.default_data_collator


def _fitting_columns(dataset: Any, model: Any) -> Any:
    parameters = inspect.signature(model.forward).parameters
    columns = list(dataset.column_names or ())  # None for a stream whose columns are not known yet
    if "label" in columns and "labels" in parameters and "labels" not in columns:
        dataset = dataset.rename_column("label", "labels")
        columns[columns.index("label")] = "labels"
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return dataset
    kept = [column for column in columns if column in parameters]
    if columns and not set(kept) - _LABELS:
        raise TargetError(
            f"the dataset has the columns {', '.join(columns)}, of which {type(model).__name__}.forward takes none but "
            f"labels. It is probably not tokenized yet. Map it to {', '.join(parameters)}, or write "
            f"loss(model, batch)."
        )
    unused = [column for column in columns if column not in parameters]
    return dataset.remove_columns(unused) if unused else dataset


def _with_rows(sample: Any) -> Any:
    if not isinstance(sample, Mapping):
        return sample
    return {key: torch.tensor(part) if _is_row(part) else part for key, part in sample.items()}


def _is_row(part: Any) -> bool:
    return isinstance(part, list) and bool(part) and {*map(type, part)} <= {int, float, bool}


def _shapes(sample: Any) -> Any:
    """Return the shape of a sample's only tensor, or a tuple of all shapes; the length for a plain list of numbers."""
    if _is_row(sample):
        return (len(sample),)
    found = [tuple(tensor.shape) for tensor in tensors(sample)]
    if found:
        return found[0] if len(found) == 1 else tuple(found)
    parts = list(sample.values()) if isinstance(sample, Mapping) else sample
    if isinstance(parts, list | tuple):
        return tuple(_shapes(part) for part in parts)
    return tuple(getattr(sample, "shape", ()))
