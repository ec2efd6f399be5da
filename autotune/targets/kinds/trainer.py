"""A `transformers.Trainer`: a file whose function `trainer()` returns one, which runs its own loop and is watched.

    TrainingArguments, as they are made ─► with the values of the knobs ─► trainer.train() ─► a callback that reports

The values are set in `TrainingArguments.__post_init__`, which every subclass calls: user code need not change. Not
covered: a knob that adds a forward context and has no argument in `Knob.wording`.
"""

from __future__ import annotations

import inspect
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from autotune.core.records import CheckLine, Config, TargetFacts, Value
from autotune.errors import TargetError
from autotune.knobs.base import Plan
from autotune.knobs.observed import Observed
from autotune.knobs.training_arguments import all_arguments, present
from autotune.targets import optimizer_implementations, switches
from autotune.targets.batches import move
from autotune.targets.contract import DATA, Contract
from autotune.targets.declared_settings import read_settings
from autotune.targets.importing import as_a_script
from autotune.targets.live_modules import class_name
from autotune.targets.loaded import Loaded
from autotune.targets.model_facts import model_facts
from autotune.targets.named_arguments import bind
from autotune.targets.own_loop import LoopReport, OwnLoop
from autotune.targets.user_errors import blaming

NAME = "trainer"
GIVEN = "_given_to_autotune"  # attribute of TrainingArguments, and so of their copies
SINCE = "4.49"  # the first with `Trainer.set_initial_training_values`; its accelerate may be 0.34
ENDLESS_EPOCHS = 10**9  # the watch ends a probe, not the number of epochs
QUIET = {  # a probe writes and reports nothing
    "save_strategy": "no", "eval_strategy": "no", "logging_strategy": "no", "report_to": "none", "disable_tqdm": True,
    "load_best_model_at_end": False, "push_to_hub": False, "eval_on_start": False,
    "output_dir": tempfile.gettempdir(),
    "deepspeed": None, "fsdp": False,  # which cannot start in one process: `REFUSED` says it in our words
}  # fmt: skip
REFUSED = {  # arguments of the user, and why they are refused
    "auto_find_batch_size": "changes the batch size by itself after running out of memory",
    "deepspeed": "trains on several devices by DeepSpeed",
    "fsdp": "trains on several devices",
}
RANKS = ", or tune the command that starts its ranks: autotune search -- torchrun --nproc-per-node 2 train.py"


def read(loaded: Loaded, offered: Mapping[str, Any]) -> HuggingFaceTrainer | None:
    """Return the loop, if the file has a function `trainer` and not the agreed names for our loop; else None."""
    has_names = "model" in loaded.names and any(name in loaded.names for name in DATA)
    function = vars(loaded.module).get(NAME)
    if not loaded.is_whole_module or has_names or not inspect.isfunction(function):
        return None
    return HuggingFaceTrainer(loaded, offered)


class HuggingFaceTrainer(OwnLoop):
    """The user's own Trainer, made anew for every configuration."""

    def __init__(self, loaded: Loaded, offered: Mapping[str, Any]) -> None:
        self.label, self.root, self._loaded, self._offered = loaded.label, loaded.root, loaded, offered
        self._trainer: Any = None
        self._baseline: dict[str, Value] = {}

    def build(self, config: Config | None, plan: Plan) -> nn.Module:
        """Make the Trainer with the user's arguments, or those of `config`. Raises `TargetError`."""
        _require_new_enough()
        asked: dict[str, Any] = {"dataloader_drop_last": True}
        if plan.device == "cpu":
            asked["use_cpu"] = True
        if config is not None:
            asked |= all_arguments(config.values, plan)
        os.environ["ACCELERATE_TORCH_DEVICE"] = plan.device  # otherwise it takes the first device of its kind
        function = bind(getattr(self._loaded.module, NAME), NAME, self._offered)
        blamed = blaming(f"{NAME}()", self._loaded.root)
        with blamed, as_a_script(self.label, f"{NAME}() ran"), _overriding({**QUIET, **asked}):
            self._trainer = trainer = function(**self._offered)
        own = self._check(asked)
        self._baseline = present(vars(trainer.args) if config is None else own)
        for callback in list(trainer.callback_handler.callbacks):  # trackers, progress bars, and what ends by max_steps
            if type(callback).__module__.startswith("transformers."):
                trainer.remove_callback(callback)
        for transform in plan.model_transforms:
            trainer.model = trainer.model_wrapped = transform(trainer.model)
        if plan.batch_transforms:
            _change_batches(trainer, plan)
        if plan.optimizer_options:
            _change_optimizer(trainer, plan)
        model: nn.Module = trainer.model
        return model

    def run(self, report: LoopReport) -> None:
        """Train until the watch stops it."""
        from transformers import TrainerCallback

        trainer = self._trainer
        fetch, step, begin = trainer.get_batch_samples, trainer.training_step, trainer.set_initial_training_values

        def fetched(*arguments: Any, **named: Any) -> Any:
            asked = time.perf_counter()
            batches, items = fetch(*arguments, **named)
            if len(batches) < trainer.args.gradient_accumulation_steps:  # at the end of the data: an incomplete step
                batches = []
            report.fetched(batches, trainer.args.per_device_train_batch_size, time.perf_counter() - asked)
            return batches, items

        def stepped(*arguments: Any, **named: Any) -> Tensor:
            share: Tensor = step(*arguments, **named)
            report.micro_batch(share)
            return share

        class Telling(TrainerCallback):  # type: ignore[misc]  # transformers may be absent
            def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                if state.global_step:
                    report.epoch()

            def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                if not report.step(skipped=trainer.accelerator.optimizer_step_was_skipped):
                    control.should_training_stop = True

        trainer.get_batch_samples, trainer.training_step = fetched, stepped
        # The user's own number of steps determines the learning-rate schedule; epochs go on until the watch has enough.
        trainer.set_initial_training_values = lambda *given, **named: (ENDLESS_EPOCHS, *begin(*given, **named)[1:])
        trainer.add_callback(Telling())
        trainer.train()

    def observed(self) -> Observed:
        """Return torch's switches and its optimizer's settings; its arguments were checked when it was built."""
        made = self._trainer.optimizer
        return Observed(**switches.standing([_unwrapped(made)] if made is not None else []))

    def loss_scale(self) -> float | None:
        """Return the loss scale of Accelerate's gradient scaler; None without one."""
        scaler = self._trainer.accelerator.scaler
        return float(scaler.get_scale()) if scaler is not None and scaler.is_enabled() else None

    def facts(self) -> TargetFacts:
        """Return the facts of its model, its data and its arguments."""
        trainer, loaded = self._trainer, self._loaded
        settings = read_settings(Contract(label=loaded.label, root=loaded.root, names=loaded.names))
        of_model = model_facts(trainer.model)
        name, dataset = class_name(trainer.model), trainer.train_dataset
        samples = _count(dataset)
        size = "samples not counted" if samples is None else f"{samples:,} samples"
        found = {
            "model": f"{name}, {of_model['parameter_count']:,} parameters",
            "data": f"{type(dataset).__name__}, {size}",
            "loop": f"{type(trainer).__name__}.train() with the arguments of {NAME}()",
        }
        return TargetFacts(
            **of_model,
            name=name,
            data="iterable" if samples is None else "dataset",
            dataset_samples=samples,
            baseline=self._baseline | (settings.baseline or {}),
            space=settings.space,
            global_batch_size=settings.global_batch_size,
            batch_layout="dict",
            has_collate=True,
            owns_loop=True,
            framework="hf",
            check_lines=tuple(CheckLine(name=part, text=text) for part, text in found.items()),
        )

    def _check(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values that the user gave its TrainingArguments.

        Raises `TargetError` unless the Trainer will use the arguments that were asked for.
        """
        from transformers import Trainer

        trainer = self._trainer
        if not isinstance(trainer, Trainer):
            raise TargetError(
                f"{NAME}() returned a {type(trainer).__name__}. The function of that name is called for a "
                f"transformers.Trainer, which is then timed. Return one, or rename the function."
            )
        own: dict[str, Any] = vars(trainer.args).get(GIVEN, {})
        lost = [name for name, value in asked.items() if getattr(trainer.args, name) != value]
        if lost or not own:
            what = ", ".join(lost) if own else "none arrived"
            raise TargetError(
                f"{NAME}() trains with other TrainingArguments than it was given: {what}. "
                f"They were made before {NAME}() was called, or changed after. Make them in {NAME}(), and leave them."
            )
        for name, why in REFUSED.items():
            if own.get(name):
                raise TargetError(
                    f"TrainingArguments have {name}, which {why}. A probe needs one device and a batch size that "
                    f"stays. Leave {name} out{RANKS if name == 'fsdp' else '.'}"
                )
        samples, size = _count(trainer.train_dataset), trainer.args.per_device_train_batch_size
        accumulated = trainer.args.gradient_accumulation_steps
        if samples is not None and samples < size * accumulated:
            needed = f"{size} samples" if accumulated == 1 else f"{accumulated} batches of {size}"
            raise TargetError(
                f"train_dataset has {samples} samples, one step needs {needed}. A last partial step is left out, so "
                f"there would be none at all. Lower the batch or its accumulation, or give more samples."
            )
        return own


def _require_new_enough() -> None:
    """Raise `TargetError` if transformers is older than `SINCE`: its loop cannot be watched."""
    import transformers

    if not hasattr(transformers.Trainer, "set_initial_training_values"):
        raise TargetError(
            f"A probe of a Trainer needs transformers {SINCE} or later, and {transformers.__version__} is installed. "
            f"Its loop sets the number of epochs where no probe can. Install a later one, or tune the command that "
            f"runs your Trainer: autotune search -- python train.py"
        )


def _count(dataset: Any) -> int | None:
    return len(dataset) if hasattr(dataset, "__len__") else None


@contextmanager
def _overriding(values: Mapping[str, Any]) -> Iterator[None]:
    """Make all `TrainingArguments` with `values` until the end; their `GIVEN` keeps the user's values."""
    from transformers import TrainingArguments

    original = TrainingArguments.__post_init__

    def changed(self: Any) -> None:
        given = {name: value for name, value in vars(self).items() if name != GIVEN}
        vars(self).update({GIVEN: given, **values})
        original(self)
        if self.n_gpu > 1:  # it would train on all GPUs, by DataParallel
            self._n_gpu = 1

    TrainingArguments.__post_init__ = changed
    try:
        yield
    finally:
        TrainingArguments.__post_init__ = original


def _unwrapped(optimizer: Any) -> Any:
    """Return torch's optimizer; Accelerate wraps it when training begins."""
    return getattr(optimizer, "optimizer", optimizer)


def _change_optimizer(trainer: Any, plan: Plan) -> None:
    """Make the optimizer compute as the plan says, as soon as the Trainer has it."""
    create = trainer.create_optimizer

    def created(*arguments: Any, **named: Any) -> Any:
        made = create(*arguments, **named)
        optimizer_implementations.choose([_unwrapped(trainer.optimizer)], plan.optimizer_options)
        return made

    trainer.create_optimizer = created


def _change_batches(trainer: Any, plan: Plan) -> None:
    """Apply the plan's transforms to every tensor of a batch on the device."""
    prepare = trainer._prepare_inputs

    def change(tensor: Tensor) -> Tensor:
        for transform in plan.batch_transforms:
            tensor = transform(tensor)
        return tensor

    trainer._prepare_inputs = lambda inputs: move(prepare(inputs), change, plan.device)
