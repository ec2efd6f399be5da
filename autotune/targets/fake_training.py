"""Training without contents: the user's own model, loss and optimizer on tensors that have shapes only.

    real model ─► knobs edit it ─► its tensors are swapped for fake ones ─► optimizer ─► steps on fake batches

Fake tensors are on the device of the real ones, take no memory, and run the same operations on shapes only
(torch._subclasses.FakeTensorMode, as torch.compile uses it).
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import torch
from msgspec.structs import replace
from torch._subclasses import FakeTensorMode

from autotune.core.codes import Code
from autotune.core.records import Config, Value
from autotune.errors import TargetError
from autotune.knobs import completed, plan_of, worker_knob
from autotune.knobs.base import Plan
from autotune.targets import data as sources
from autotune.targets import kinds
from autotune.targets.batches import tensors
from autotune.targets.build import assemble, common_arguments, run_setup
from autotune.targets.data import Epochs
from autotune.targets.fake_batches import FAKE_SIZES, CannotPredict, Rebatched
from autotune.targets.loop import Training
from autotune.targets.loss import InferredLoss
from autotune.targets.own_loop import OwnLoop
from autotune.targets.peek import random_state_kept
from autotune.targets.reference import TargetPlace
from autotune.targets.update import Update
from autotune.targets.worst_batch import longest


class FakeTraining:
    """One arm: a model, a loss and an optimizer whose tensors are fake."""

    def __init__(self, training: Training, batches: Rebatched, mode: FakeTensorMode) -> None:
        self.training, self._batches, self._mode = training, batches, mode
        assert training.update is not None, "begun"
        # Averaging reads its count, which a fake tensor does not know; it needs only the memory of the averages.
        self._averaged, training.update.averaged = training.update.averaged, None

    def tensors(self) -> Iterator[torch.Tensor]:
        """Yield parameters and buffers, also of averaged weights, which live as long as this object."""
        for one in (self.training.model, self._averaged):
            if isinstance(one, torch.nn.Module):
                yield from (*one.parameters(), *one.buffers())

    def step(
        self, batch_size: int, watching: AbstractContextManager[Any], hold: Callable[[torch.Tensor], None]
    ) -> None:
        """Take one optimizer step on micro-batches of `batch_size`; `hold` is called with the batch's tensors.

        `watching` is entered inside the fake tensor mode. Raises what the user's code and torch raise.
        """
        batch = self._batches.of(batch_size, self._mode)
        self.training.worst = lambda shapes_vary: batch
        with self._mode, watching:
            for tensor in tensors(batch):
                hold(tensor)
            self.training.train_worst()


class ShapeRunFunctions:
    """The user's parts, loaded once; every arm builds its own model from them."""

    def __init__(
        self, reference: TargetPlace, config: Config, device: str, phase: Callable[[str], None], *, shapes_vary: bool
    ) -> None:
        """Load the target and its data. Raises `TargetError`."""
        self._config, self._device, self._shapes_vary = completed(config), device, shapes_vary
        offered = common_arguments(self._config, device)
        found, _ = kinds.load(reference, offered, phase)
        if isinstance(found, OwnLoop):
            raise TargetError(
                f"{found.label} trains by a loop of its own, which takes real batches. A prediction of memory needs "
                f"model, loss and optimizer apart. Search without it: every probe measures its memory."
            )
        self._contract = found
        run_setup(self._contract, offered)
        self._data = sources.find(self._contract, offered)
        self._batches: Rebatched | None = None

    def training(self, values: dict[str, Value], micro_batches: int) -> FakeTraining:
        """Return the arm with these values of knobs. Raises `TargetError` and `CannotPredict`."""
        mode = FakeTensorMode(allow_non_fake_inputs=True)  # constants that modules keep for themselves stay real
        config = replace(self._config, values=self._config.values | values)
        plan = self._plan(config)
        plan.accumulation_steps = micro_batches
        plan.scale_loss = False  # it would skip steps: whether fake gradients are finite is unknown
        for prepare in plan.setup:
            prepare()
        if isinstance(self._contract.names["model"], torch.nn.Module):  # an object: every arm needs its own copy
            plan.model_transforms.insert(0, copy.deepcopy)
        plan.model_transforms.append(lambda model: _swapped(model, mode))
        offered = common_arguments(config, self._device)
        training = assemble(self._contract, self._data, plan, offered)
        if self._batches is None:
            self._batches = self._real_batches(training.model)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about copies of fake tensors: averaged weights are such copies
            training.begin(self._batches.smaller)
        _choose_loss(training, self._batches.larger, mode)
        if self._device.startswith("cuda"):
            _launch_together(training.update)
        return FakeTraining(training, self._batches, mode)

    def _plan(self, config: Config, batch_size: int = FAKE_SIZES[-1]) -> Plan:
        """Return the plan of the knobs, without workers and with small batches, of which the loader gives two."""
        return plan_of({**config.values, "batch_size": batch_size, worker_knob().name: 0}, self._device)

    def _real_batches(self, model: torch.nn.Module) -> Rebatched:
        with random_state_kept():
            found = self._pair(model, longest_samples=self._shapes_vary)
            return found if found.alike or self._shapes_vary else self._pair(model, longest_samples=True)

    def _pair(self, model: torch.nn.Module, *, longest_samples: bool) -> Rebatched:
        smaller, larger = (self._real_batch(size, model, longest_samples=longest_samples) for size in FAKE_SIZES)
        return Rebatched(smaller=smaller, larger=larger)

    def _real_batch(self, size: int, model: torch.nn.Module, *, longest_samples: bool) -> Any:
        offered = common_arguments(self._config, self._device) | {"batch_size": size}
        if "worst_batch" in self._contract:
            return self._contract.make("worst_batch", offered, sole="batch_size")
        source = sources.training_source(self._contract, self._data, self._plan(self._config, size), offered, model)
        if longest_samples and isinstance(source, Epochs) and self._data.kind == "dataset":
            return longest(source.loader)
        batch = next(iter(source()), None)
        if batch is None:
            raise CannotPredict(Code.NO_SUCH_BATCH, size=size)
        return batch


def _swapped(model: torch.nn.Module, mode: FakeTensorMode) -> torch.nn.Module:
    """Return the model with fake parameters and buffers; the mode keeps shared ones shared.

    They are set by `setattr`, because recurrent modules then update their second list of weights.
    """
    for module in model.modules():
        for name, tensor in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
            setattr(module, name, mode.from_tensor(tensor))
    return model


def _choose_loss(training: Training, batch: Any, mode: FakeTensorMode) -> None:
    """Run an inferred loss once on real tensors: it is inferred from their contents."""
    is_inferred = isinstance(training.loss, InferredLoss) and training.own_step is None
    if not is_inferred or not isinstance(batch, list | tuple):
        return
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        for make in training.plan.forward_contexts:
            stack.enter_context(make())
        inputs, *rest = batch
        device = training.plan.device
        faked = mode.from_tensor(inputs.to(device)) if isinstance(inputs, torch.Tensor) else inputs
        on_device = [part.to(device) if isinstance(part, torch.Tensor) else part for part in rest]
        training.loss(training.model, (faked, *on_device))


def _launch_together(update: Update | None) -> None:
    """Make optimizers update all parameters at once, with temporaries for all, as with real tensors on CUDA."""
    for group in (group for one in (update.optimizers if update else ()) for group in one.param_groups):
        if group.get("foreach", True) is None and not group.get("fused") and not group.get("differentiable"):
            group["foreach"] = True
