"""The grammars in which programs take arguments: one row for each, in the order in which they are tried."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from autotune.targets.commands.script.declared_arguments import UNKNOWN, Argument, Script


@dataclass(frozen=True, kw_only=True)
class Grammar:
    """The form in which one family of programs takes arguments that the command does not contain yet."""

    marks: frozenset[str] = frozenset()  # one of them in the script, or as the program's name, shows this grammar
    written: tuple[str, ...] = ("{option}", "{value}")  # the words of one argument
    truth: str = "true/false"  # how it writes a truth value that is no flag
    has_flags: bool = True  # a truth value is a word that is there or not
    reads_files: bool = False  # a word without an equals sign is a file of globals, which replace the defaults
    known: Mapping[str, Any] = field(default_factory=dict)  # its own arguments with their defaults, or `UNKNOWN`
    # Its own further arguments that set knobs where they are typed; with `known` they are all that do. Empty: the
    # script may declare others that are not read.
    if_typed: tuple[str, ...] = ()

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """Its own arguments, as if the script had declared them."""
        return tuple(
            Argument(names=(name,), default=default, is_flag=self.has_flags and isinstance(default, bool))
            for name, default in self.known.items()
        )


GRAMMARS = (
    # transformers 5.23, `TrainingArguments`; TRL's and others' are subclasses of it
    Grammar(
        marks=frozenset({"HfArgumentParser", "TrlParser"}),
        truth="True/False",
        has_flags=False,
        known={
            "--per_device_train_batch_size": 8, "--gradient_accumulation_steps": 1, "--dataloader_num_workers": 0,
            "--bf16": False, "--fp16": False, "--output_dir": "trainer_output",
            "--gradient_checkpointing": UNKNOWN,  # on by default in TRL; `--activation_checkpointing` from 5.22 on
        },
        # not `--torch_compile_mode`, which has no word for today's value where nothing is compiled
        if_typed=(
            "--tf32", "--dataloader_pin_memory", "--dataloader_persistent_workers", "--dataloader_prefetch_factor",
        ),
    ),
    # lightning 2.6, `LightningCLI`: arguments of the Trainer; those of a DataModule are the user's own
    Grammar(
        marks=frozenset({"LightningCLI"}),
        written=("{option}={value}",),
        has_flags=False,
        known={"--trainer.precision": "32-true", "--trainer.accumulate_grad_batches": 1},
    ),
    # nanoGPT's configurator
    Grammar(
        marks=frozenset({"configurator.py"}), written=("{option}={value}",),
        truth="True/False", has_flags=False, reads_files=True,
    ),
    # Hydra 1.3, OmegaConf 2.3, Ultralytics, LLaMA-Factory, torchtune: the last word of a key wins
    Grammar(
        written=("{option}={value}",), has_flags=False,
        marks=frozenset({"hydra", "OmegaConf", "from_cli", "from_dotlist", "yolo", "llamafactory-cli", "tune"}),
    ),
    Grammar(),  # argparse and click
)  # fmt: skip


def grammar_of(script: Script, program: str) -> Grammar:
    """Return the grammar of a program; arguments that the script declares itself are argparse's."""
    return next(one for one in GRAMMARS if not one.marks or one.marks & {*script.marks, program})
