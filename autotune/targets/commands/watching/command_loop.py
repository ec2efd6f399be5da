"""A command that trains, run as it is in the probe's own process and watched by hooks in torch.

    words ─► Program ─► run as __main__ in the main thread ─► a Witness reports, and leaves it when there is enough

The script is not changed. These settings are tuned: arguments of the command (`Command`), defaults of the process or of
a DataLoader that are set from outside, and values that the script writes into TrainingArguments, changed when it makes
them (`ScriptArguments`). Other settings are not tuned.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NoReturn

import torch
from msgspec.structs import replace
from torch import Tensor, nn

from autotune.core.records import CheckLine, Config, RankFacts, StepFacts, TargetFacts
from autotune.core.requests import LONG_WINDOW_RATIO, ProbeBudget
from autotune.errors import TargetError
from autotune.knobs import asked_for, plan_of
from autotune.knobs.base import Plan
from autotune.knobs.observed import Observed
from autotune.targets import variables
from autotune.targets.commands.command import Command
from autotune.targets.commands.distributed import world_size
from autotune.targets.commands.program import Program, configured
from autotune.targets.commands.watching import main_thread
from autotune.targets.commands.watching.early_end import why_ended_early
from autotune.targets.commands.watching.loader_defaults import WORKERS, LoaderDefaults
from autotune.targets.commands.watching.main_thread import Guest
from autotune.targets.commands.watching.reachable_knobs import Reachable
from autotune.targets.commands.watching.trained_parameters import modules_with
from autotune.targets.commands.watching.training_arguments import ScriptArguments
from autotune.targets.commands.watching.witness import Witness
from autotune.targets.commands.watching.wrappers import unused_of_script
from autotune.targets.live_modules import class_name
from autotune.targets.model_facts import model_facts
from autotune.targets.own_loop import LoopReport, OwnLoop
from autotune.targets.ranks import rank_check_lines
from autotune.units import counted

_USUAL = ProbeBudget()
# The least: what ends before is measured by no search with time for usual probes; few steps need a longer window.
_LEAST_SECONDS = _USUAL.min_warmup_seconds + _USUAL.min_seconds
_LEAST_STEPS = _USUAL.min_warmup_steps + _USUAL.min_steps
_FEW_STEPS_SECONDS = _USUAL.min_warmup_seconds + LONG_WINDOW_RATIO * _USUAL.min_seconds
NAMED_MODULES = 2  # of modules in the name of a model


class CommandLoop(OwnLoop):
    """A command that trains: one run of it in the probe's process."""

    def __init__(self, command: Command) -> None:
        self.label, self.root, self._command = command.label, Path.cwd(), command
        self._plan: Plan | None = None
        self._program: Program | None = None
        self._witness: Witness | None = None
        self._noted: int | None = None  # parameters that trained when the model was noted
        self._model: nn.Module | None = None
        self._of_model = dict[str, Any]()
        self._script_arguments = ScriptArguments(command, None, None)
        self._loader_defaults = LoaderDefaults()
        self._transforms: list[Callable[[Any], Any]] = []
        self._asked: int | None = None
        self._is_today = True
        self.going_on = ExitStack()  # hooks that stay in a script that runs on until the process is killed

    def build(self, config: Config | None, plan: Plan) -> None:
        """Fill in the command's words. The model is not there before it runs, so return None. Raises `TargetError`."""
        self._program, self._plan, self._is_today = configured(self._command, config), plan, config is None
        own = [] if config is None else plan_of(config.values, plan.device).model_transforms
        self._transforms = plan.model_transforms[len(own) :]  # the script itself changes the model for a knob
        self._script_arguments = ScriptArguments(self._command, config, plan.settable)
        self._check_ranks(self._program, plan)
        asked = self._command.baseline if config is None else config.values
        self._asked = Config(values=dict(asked)).batch_size if "batch_size" in self._command.knobs else None
        variables.show()  # variables that torch.compile sets are no change by the user
        carried = self._command.knobs
        options, defaults = {} if config is None else plan.loader_options, dict[str, Any]()
        if options.get(WORKERS) and WORKERS not in carried:  # without workers is a loader's default
            defaults = {name: value for name, value in options.items() if name != "batch_size"}
        asked = {name: options[name] for name in plan.loader_asked & options.keys() if name not in carried}
        self._loader_defaults = LoaderDefaults(defaults, asked)

    def run(self, report: LoopReport) -> None:
        """Run the command until the watch has enough. Raises what it raises, and `TargetError` if it ends too early.

        A normal end with enough measured steps is not too early.
        """
        assert self._program is not None and self._plan is not None, "built"
        guest, program, plan = Guest(goes_on=world_size() > 1), self._program, self._plan
        self._witness = witness = Witness(
            self.label,
            report,
            guest,
            loader_defaults=self._loader_defaults,
            transforms=self._transforms,
            asked=self._asked,
        )
        witness.exits.advice = rank_check_lines.spawning(program.file)

        def body() -> None:
            # A setting of the thread, like its number of threads. One of several ranks chooses its GPU itself.
            if ":" in plan.device and world_size() == 1:
                torch.accelerator.set_device_index(plan.device)
            for prepare in plan.setup:
                prepare()
            witness.begin()
            program.run()

        with ExitStack() as to_end:
            to_end.enter_context(witness.installed())
            to_end.enter_context(program.shown())
            to_end.enter_context(self._script_arguments.installed())
            status = self._status(lambda: guest.run(body))
            if guest.goes_on:
                self.going_on = to_end.pop_all()  # otherwise the hooks would be removed while the script runs
        if not report.stopped and (status not in (0, None) or not report.ended()):
            raise TargetError(why_ended_early(self.label, witness, status))
        check_device(self.label, witness.trained.device, plan.device)
        if guest.goes_on:
            main_thread.note_going_on(lambda: self._await_end(guest, status))

    def _status(self, until_end: Callable[[], None]) -> object:
        """Return the exit status of the program that ends in `until_end`. Raises what it raises, in words for users."""
        try:
            until_end()
        except SystemExit as error:
            return error.code
        except RuntimeError as error:
            if (told := unused_of_script(error)) is not None:
                raise told from error
            raise
        except EOFError as error:
            raise TargetError(
                f"{self.label} reads the standard input, which is empty in a probe: {error}. It probably asks a "
                f"question. Give the answer as an argument."
            ) from error
        return 0

    def _await_end(self, guest: Guest, status: object) -> NoReturn:
        """Wait for the end of a measured program, if it has not ended with `status`. Raises why that was too early."""
        assert self._witness is not None, "it was measured"
        if guest.is_over:
            status = self._status(guest.wait)
        raise TargetError(why_ended_early(self.label, self._witness, status, others_wait=True))

    def observed(self) -> Observed:
        """The settings that its hooks saw.

        Changes that the command itself makes to its model are left out: they are part of it, and may differ by step.
        """
        seen = self._witness.observed() if self._witness else Observed()
        return seen if self._is_today else asked_for(seen, (*self._command.knobs, *self._script_arguments.asked))

    def note_model(self) -> None:
        """Find the model and its facts: not in `facts`, while ranks go on and `fully_shard` swaps their parameters."""
        witness = self._witness
        assert witness is not None, "called after a step"
        parameters = witness.optimizers.parameters
        if len(parameters) != self._noted:  # a gradient scaler may have left out the first steps
            self._noted = len(parameters)
            self._model, self._of_model = witness.early(lambda: _model_of(parameters, self.label))

    def needs_another_step(self) -> bool:
        """Return whether a second step may show parameters of optimizers that did not step in the first."""
        assert self._witness is not None, "called after a step"
        return world_size() == 1 and self._witness.tally.steps == 1 and self._witness.optimizers.are_awaited

    def lasts(self) -> bool:
        """Return whether it may have trained for long enough. Ranks are not asked: all must end at the same step."""
        assert self._witness is not None, "called after a step"
        tally = self._witness.tally
        least = _LEAST_SECONDS if tally.steps >= _LEAST_STEPS else _FEW_STEPS_SECONDS
        return world_size() > 1 or tally.trained_seconds >= least

    def facts(self) -> TargetFacts:
        """Return the facts that its first step showed: model, data, and which knobs can be set."""
        witness = self._witness
        assert witness is not None and self._program is not None, "asked after a step"
        seen = witness.observed()
        samples = len(witness.batches.data) if hasattr(witness.batches.data, "__len__") else None
        reach = Reachable(self._command, witness, seen, self._script_arguments, self._model)
        facts = TargetFacts(
            **self._of_model,
            data="batch" if witness.batches.data is None else "dataset" if samples is not None else "iterable",
            dataset_samples=samples,
            baseline=reach.baseline(),
            is_program=True,
            settable=reach.settable,
            written=reach.written,
            framework="hf" if reach.written else "torch",
            has_collate=True,
            owns_loop=True,
            of_rank=RankFacts(
                epoch_batches=witness.batches.epoch_batches,
                loader_place=witness.batches.place,
                loader_batch=witness.batches.loader_batch,
                first_batch=witness.batches.first_batch,
                has_trainer="transformers.trainer" in sys.modules,
            )
            if world_size() > 1
            else None,
            step=StepFacts(
                loss=witness.tally.loss(),
                seconds=witness.tally.seconds,
                parameters_with_gradient=len(witness.optimizers.with_gradient),
                trainable_parameters=len(witness.optimizers.parameters),
            ),
        )
        return replace(facts, check_lines=(*self._check_lines(facts, seen), *reach.check_lines))

    def _check_lines(self, facts: TargetFacts, seen: Observed) -> Iterator[CheckLine]:
        known = f"{facts.name}, {facts.parameter_count:,} parameters"
        unseen = "not seen: autotune.step tells its steps"
        yield CheckLine(name="model", text=known if facts.parameter_count else unseen)
        data = None if self._witness is None else self._witness.batches.data
        size = "samples not counted" if facts.dataset_samples is None else f"{facts.dataset_samples:,} samples"
        text = "no DataLoader" if data is None else f"{type(data).__name__}, {size}"
        if seen.guessed_from is not None:
            taken = (
                f"the first dimension of what the model was called with, {seen.micro_batch}, is taken for the batch: "
                f"report samples by autotune.step(samples=...) if that is wrong"
            )
            yield CheckLine(name="data", text=f"{text}; {taken}", needs_attention=True)
        else:
            yield CheckLine(name="data", text=f"{text}; batches of {seen.micro_batch}")
        if self._witness is not None and (counted_by := self._witness.batches.check_line) is not None:
            yield counted_by
        yield CheckLine(name="loop", text=f"{self.label}, run as it is; its steps were watched")
        if {"batch_size", "gradient_accumulation_steps"} <= set(self._command.knobs):
            yield CheckLine(
                name="loss",
                text="not looked at: taken for a mean over samples, so that other micro-batches train the same",
                override=f"if it is none (pairs of a batch, a sum), --fix batch={seen.micro_batch}",
                inferred=True,
            )
        if launch := self._program and self._program.launch:
            yield CheckLine(
                name="ranks",
                text=f"{counted(launch.ranks, 'rank')}, started by {launch.label}; batch_size is that of one",
            )
            yield from rank_check_lines.nccl_variables() if launch.ranks > 1 else ()
        yield from rank_check_lines.untuned_parallelism(self._program.file if self._program else None, is_script=True)
        if not (self._command.takes_output_dir or self._script_arguments.values):
            yield CheckLine(
                name="outputs",
                text="every probe runs the command, and the files that it writes are kept",
                override="to have them deleted, write {output_dir} as its output folder",
                needs_attention=True,
            )

    def _check_ranks(self, program: Program, plan: Plan) -> None:
        launch, started = program.launch, world_size()
        if launch is not None and started > 1 and plan.device.partition(":")[0] not in ("cpu", "cuda"):
            raise TargetError(
                f"{launch.label} trains with {started} ranks on {plan.device}, and ranks are measured on CPUs and CUDA "
                f"devices only. Several devices of other kinds are not supported yet. Tune one rank, "
                f"{launch.distributed.ranks_option} 1, or add --device cpu."
            )


def check_device(label: str, trained: str, measured: str) -> None:
    """Raise `TargetError` if a command trained on another device than the measured one. `trained`: empty if unknown."""
    own, expected = torch.device(trained or measured), torch.device(measured)
    if own.type != expected.type:
        raise TargetError(
            f"{label} trained on {own}, and {expected} is measured. It probably chooses its device itself. Choose the "
            f"same one: --device {own.type}."
        )
    if world_size() > 1 and own.index != expected.index:
        raise TargetError(
            f"Rank {os.environ['RANK']} of {label} trained on {own}, and the GPU of its number is {expected}. The "
            f"script probably does not choose a GPU for each rank, so that several share one. Write "
            f"torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before it moves the model."
        )


def _model_of(parameters: Sequence[Tensor], label: str) -> tuple[nn.Module | None, dict[str, Any]]:
    """Return the module with most of the trained parameters, None: no module has them, and fields of `TargetFacts`."""
    if models := modules_with(parameters):
        names = [class_name(one) for one in models]
        name = " and ".join(names)
        if (more := len(names) - NAMED_MODULES) > 0:
            name = f"{', '.join(names[:NAMED_MODULES])} and {counted(more, 'more module')}"
        return models[0], {"name": name, **model_facts(*models)}
    count = sum(one.numel() for one in parameters)
    name = label.removesuffix(".py")
    return None, {"name": name, "parameter_count": count, "has_convolution": False, "has_batch_norm": False}
