"""The loss of a batch: the user's, or inferred once from a real batch if only one loss fits."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the name that everybody knows it by

from autotune.errors import TargetError
from autotune.targets.batches import dtype_name
from autotune.units import counted

WRITE_IT = "write loss(model, batch)"
NO_PAIR = "and without loss() autotune expects (inputs, target), two tensors. Write loss(model, batch)"
Loss = Callable[[Any, Any], Any]


class InferredLoss:
    """A loss that is chosen on the first batch and then stays; `explanation` says which and why.

    batch               output and target                                loss
    a mapping           model(**batch)                                   its `.loss`
    (inputs, target)    integer target, output with one dimension more   cross entropy; classes in dimension 1 or last
                        target of the output's shape, only 0 and 1       binary cross entropy with logits
                        floating target of the output's shape            mean squared error

    Anything else, and classes that fit in dimension 1 and in the last one, raise `TargetError`: a wrong guess would
    train something else at another speed.
    """

    def __init__(self, instead: str = "") -> None:
        """`instead`: why no loss may be inferred from shapes, as an error text: the file probably has its own."""
        self._choice: Loss | None = None
        self._instead = instead
        self.explanation = ""

    def __call__(self, model: Any, batch: Any) -> Any:
        """Return the loss of `batch`. Raises `TargetError` if no loss, or more than one, fits the first batch."""
        if isinstance(batch, Mapping):
            self.explanation = f"the model's own .loss, inferred from a batch with {', '.join(map(str, batch))}"
            return _own_loss(_output(model, **batch), batch)
        if self._instead:
            raise TargetError(self._instead)
        inputs, target = _pair(batch)
        output = _output(model, inputs)
        if self._choice is None:
            name, self._choice = choose_loss(output, target)
            self.explanation = (
                f"{name}, inferred from output {tuple(output.shape)} "
                f"and target {dtype_name(target)} {tuple(target.shape)}"
            )
        return self._choice(output, target)


def choose_loss(output: Any, target: Tensor) -> tuple[str, Loss]:
    """Return the only loss that fits, with its name. Raises `TargetError` if none or two fit."""
    if not isinstance(output, Tensor):
        raise TargetError(
            f"the model returned a {type(output).__name__}, and a loss can be inferred only for a tensor: {WRITE_IT}."
        )
    shapes = f"output {_shape(output)} and target {_shape(target)}"
    if output.dim() == target.dim() + 1 and not target.is_floating_point() and target.dtype is not torch.bool:
        return _cross_entropy(output, target, shapes)
    if output.shape == target.shape and (target.is_floating_point() or target.dtype is torch.bool):
        if bool(((target == 0) | (target == 1)).all()):
            return "binary_cross_entropy_with_logits", lambda out, t: F.binary_cross_entropy_with_logits(
                out, t.to(out.dtype)
            )
        return "mse_loss", F.mse_loss
    hint = "make dataset() return targets of the output's shape, or " if output.numel() == target.numel() else ""
    raise TargetError(f"no loss fits {shapes} of {dtype_name(target)}: {hint}{WRITE_IT}.")


def checked_loss(loss: Any, *, training: bool, function: str = "loss") -> Tensor:
    """Return the loss that `function` returned, as a tensor without dimensions.

    Raises `TargetError` if it is no scalar, or, in `training`, has no gradient.
    """
    if type(loss) is Tensor and not loss.dim() and (loss.requires_grad or not training):  # as nearly all are: 0.2 us
        return loss
    if isinstance(loss, Mapping | list | tuple):
        total = "sum(losses.values())" if isinstance(loss, Mapping) else "sum(losses)"
        raise TargetError(
            f"{function} returned a {type(loss).__name__} of {len(loss)}. A step follows one loss, and how several "
            f"are weighed is yours to say. Return one scalar tensor: {total} of several losses, or the loss alone."
        )
    if not isinstance(loss, Tensor):
        cuts = " (.item() and float() cut the gradient)" if training else ""
        kind, reason = ("None", " (did you forget return?)") if loss is None else (type(loss).__name__, cuts)
        raise TargetError(f"{function} returned {kind}{reason}: return one scalar tensor.")
    if loss.numel() != 1:
        raise TargetError(
            f"{function} returned Tensor{_shape(loss)}: return one scalar. A criterion probably has "
            f'reduction="none": return the .mean() of its losses.'
        )
    if training and not loss.requires_grad:
        raise TargetError("the loss has no gradient (no trainable parameter, or no_grad / detach).")
    return loss.reshape(()) if loss.dim() else loss  # a view adds a backward operation, which takes 10 us


def _cross_entropy(output: Tensor, target: Tensor, shapes: str) -> tuple[str, Loss]:
    in_second = output.shape[:1] + output.shape[2:] == target.shape
    in_last = output.shape[:-1] == target.shape
    if output.dim() == 2:
        in_last = False  # the second dimension is the last
    if in_second and in_last:
        raise TargetError(f"cross_entropy fits two ways for {shapes}: {WRITE_IT}.")
    if in_second:
        return "cross_entropy", lambda out, t: F.cross_entropy(out, t.long())
    if in_last:
        return "cross_entropy over the last dimension", lambda out, t: F.cross_entropy(
            out.flatten(0, -2), t.flatten().long()
        )
    raise TargetError(f"no loss fits {shapes} of {dtype_name(target)}: {WRITE_IT}.")


def _own_loss(output: Any, batch: Mapping[Any, Any]) -> Any:
    loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if loss is None:
        keys = ", ".join(map(str, batch))
        raise TargetError(f"the model returned no .loss for keys {keys}: add labels, or {WRITE_IT}.")
    return loss


def _output(model: Any, *inputs: Any, **named: Any) -> Any:
    """Return the model's output for a batch. Raises `TargetError` if it does not take the parts of the batch."""
    try:
        return model(*inputs, **named)
    except TypeError as error:
        try:
            inspect.signature(model.forward).bind(*inputs, **named)
        except TypeError as mismatch:
            given = f"model(**batch) with the keys {', '.join(named)}" if named else "model(inputs)"
            raise TargetError(
                f"{type(model).__name__}.forward does not take what a batch holds: {mismatch}. Without a loss of "
                f"yours, autotune calls {given}. Call the model yourself: {WRITE_IT}."
            ) from error
        raise


def _pair(batch: Any) -> tuple[Any, Tensor]:
    if not isinstance(batch, list | tuple):
        raise TargetError(f"A batch is a {type(batch).__name__}, {NO_PAIR}.")
    if len(batch) != 2:
        raise TargetError(f"A batch is a {type(batch).__name__} of {counted(len(batch), 'item')}, {NO_PAIR}.")
    inputs, target = batch
    if not isinstance(inputs, Tensor) or not isinstance(target, Tensor):
        kinds = f"({type(inputs).__name__}, {type(target).__name__})"
        raise TargetError(f"A batch is a {type(batch).__name__} of {kinds}, {NO_PAIR}.")
    return inputs, target


def _shape(tensor: Tensor) -> str:
    return "(" + ", ".join(map(str, tensor.shape)) + ")"
