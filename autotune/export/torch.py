"""A recommendation as a dict that also knows how to apply itself in a plain PyTorch loop (docs/using-the-answer.md).

The same loop serves every dtype. Everything goes through the knobs' own `apply`, as in a probe: what was measured is
what is used. It is not a trainer and will not become one. torch is imported inside functions only.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from autotune.core.records import Value
from autotune.errors import EnvironmentMismatch, EnvironmentUnfit, UsageError
from autotune.export.recipe import planned
from autotune.knobs import defaults, environ
from autotune.knobs.declared import declaring
from autotune.study.recommendation import at_global_batch, declared_in, load_result, warn_of_mismatches

if TYPE_CHECKING:
    import torch

Module = TypeVar("Module", bound="torch.nn.Module")
Updating = TypeVar("Updating", bound="torch.optim.Optimizer")


def apply(
    study: str | Path | None = None, *, global_batch: int | None = None, check: bool = True, device: str | None = None
) -> Tuned:
    """The recommendation of a study (its folder, its name, or the newest), ready for a training loop.

    `global_batch` is that of `load_best`.
    `device` None means the kind of device that was measured. `check` warns with `EnvironmentMismatch` where this
    machine differs from the one of the measurement, or where this process was started without an environment variable
    that belongs to the recommendation. Raises `StudyNotFound`, `NoRecommendation`, and `EnvironmentUnfit` if the
    device is not there: training on the CPU instead is not what was recommended.
    """
    if not isinstance(study, str | Path | None):
        raise UsageError(
            f"apply() takes the folder or the name of a study, got an object of type {type(study).__name__}. The dict "
            f"of load_best() does not say on which device it was measured. Write autotune.apply('studies/NAME')."
        )
    result = at_global_batch(load_result(study), global_batch)
    if check:
        warn_of_mismatches(result)
    for name, text in environ(result.params).items() if check else ():
        if os.environ.get(name, "").lower() != text.lower():
            warnings.warn(
                f"{name}={text} belongs to the recommendation, and this process was started without it. It is read "
                f"when torch is imported, so it cannot be set from here. Run `export {name}={text}` before Python "
                f"starts, or pass check=False.",
                EnvironmentMismatch,
                stacklevel=2,
            )
    with declaring(*declared_in(result)):
        return Tuned(result.params, device=device or result.environment.device_kind)


class Tuned(dict[str, Any]):
    """The settings by name (a dict in every respect: `json.dumps`, `**tuned`), and their application on one device."""

    def __init__(self, values: dict[str, Value], *, device: str) -> None:
        """Raises `UsageError` for a setting that is unknown or has an impossible value, `EnvironmentUnfit`."""
        super().__init__(defaults() | values)
        self._plan = planned(self, device)
        _require(device)
        self._is_set_up = False

    @property
    def device(self) -> torch.device:
        """The device of model and batches."""
        import torch

        return torch.device(self._plan.device)

    def dataloader_kwargs(self) -> dict[str, Any]:
        """Keyword arguments of `torch.utils.data.DataLoader`; yours are the dataset, the order and the collation.

        The last batch of an epoch is dropped if it is short, as it was when measured: every optimizer step then takes
        exactly the global batch.
        """
        return {**self._plan.loader_options, "drop_last": True}

    def prepare_optimizer(self, optimizer: Updating) -> Updating:
        """Return this optimizer, which from now on computes its update as it was measured (`fused_optimizer`).

        Call it after `optimizer.load_state_dict`: a checkpoint restores the options with which it was saved.
        """
        from autotune.targets.optimizer_implementations import choose  # torch

        choose([optimizer], self._plan.optimizer_options)
        return optimizer

    def prepare(self, model: Module) -> Module:
        """The model on the device and in the tuned form. Create the optimizer from what this returns."""
        self._set_up()
        prepared = model.to(self.device)
        for transform in self._plan.model_transforms:
            prepared = transform(prepared)
        return prepared

    def to_device(self, batch: Any) -> Any:
        """The batch with all its tensors on the device, in containers of the same types; other things stay."""
        from autotune.targets.batches import move  # torch

        return move(batch, self._arrive, self._plan.device)

    @contextlib.contextmanager
    def autocast(self) -> Iterator[None]:
        """The context of forward pass and loss; does nothing where nothing was found to gain."""
        self._set_up()
        with contextlib.ExitStack() as stack:
            for context in self._plan.forward_contexts:
                stack.enter_context(context())
            yield

    def grad_scaler(self) -> torch.amp.GradScaler:
        """The scaler that float16 needs; disabled, and then transparent, for every other dtype."""
        import torch

        return torch.amp.GradScaler(self.device.type, enabled=self._plan.scale_loss)

    def _arrive(self, tensor: torch.Tensor) -> torch.Tensor:
        """One tensor, copied to the device and brought into the tuned form."""
        # Without waiting only from pinned memory: MPS loses data whose source is freed meanwhile (pytorch#139550).
        moved = tensor.to(self.device, non_blocking=bool(self._plan.loader_options["pin_memory"]))
        for transform in self._plan.batch_transforms:
            moved = transform(moved)
        return moved

    def _set_up(self) -> None:
        if not self._is_set_up:
            for switch in self._plan.setup:
                switch()
            self._is_set_up = True


def _require(device: str) -> None:
    """Raise `EnvironmentUnfit` unless torch sees such a device."""
    import torch

    kind = torch.device(device).type
    present = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if kind != "cpu" and (present is None or present.type != kind):
        raise EnvironmentUnfit(
            f"The settings are for {device}, but torch {torch.__version__} sees "
            f"{'no accelerator' if present is None else f'only {present.type}'} here. The driver, the build of torch "
            f"or CUDA_VISIBLE_DEVICES probably hides it. Search again on this machine, or pass device='cpu' to apply()."
        )
