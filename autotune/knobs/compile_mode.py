"""`compile_mode`: whether and how torch.compile turns the model into generated code."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from autotune.core.codes import Code
from autotune.core.notices import Notice, notice
from autotune.core.records import Environment, TargetFacts, Value
from autotune.harmless import python
from autotune.knobs.base import NOT_DONE, Circumstances, Knob, MemoryEffect, Plan, allowed
from autotune.knobs.compile_modes import DEFAULT, GRAPHS, REGIONAL, TUNED
from autotune.knobs.influence import NEUTRAL, Factor, Influence
from autotune.knobs.wording import NOTHING, Framework, Wording
from autotune.machine.compilers import compiler_of

CHOICES: tuple[Value, ...] = (None, DEFAULT, REGIONAL, GRAPHS, TUNED)
ON_GPUS = ("cuda", "xpu")  # whose code Triton generates
MISSING = {"cpu": Code.CPU_COMPILER_MISSING, "cuda": Code.CUDA_COMPILER_MISSING}  # by kinds of device with an advice
FEWEST_COMPILED_BLOCKS = 4  # of one model: with fewer, compiling each takes about as long as compiling all at once
SPELLINGS: dict[str, Value] = {"none": None, "no": None, "false": None, "off": None, "true": DEFAULT, "yes": DEFAULT}
SHORT: dict[Value, str] = {
    None: NOT_DONE, DEFAULT: "default", REGIONAL: "regional", GRAPHS: "graphs", TUNED: "tuned"
}  # fmt: skip
# A GPU's training becomes 1.43 times as fast in the mean of 163 models (pytorch.org/get-started/pytorch-2-x, A100), and
# slower for some. On two cores of a CPU a step takes 0.81 (residual network), 1.09 (BERT) and 1.54 of its time (a
# perceptron, whose step is mostly its fixed part): docs/notes/compiling.md 1. One probe tells: the spreads are wide.
COMPILED_ON_CORES = Influence(
    fixed_time=Factor(1.3, 0.4),
    sample_time=Factor(0.95, 0.2),
    fixed_memory=Factor(1.0, 0.08),
    sample_memory=Factor(0.9, 0.2),
)
COMPILED = Influence(
    fixed_time=Factor(0.95, 0.4),
    sample_time=Factor(0.85, 0.25),
    fixed_memory=Factor(1.0, 0.08),
    sample_memory=Factor(0.9, 0.2),
    on_cores=COMPILED_ON_CORES,
)
# The seconds of a first probe beyond its steps, before any was seen: compiled C++ on two cores, Triton on a GPU
# (benchmarks/compiling.py; docs/notes/compiling.md 1). What a probe took replaces them (`CompilingSeconds`).
PRIOR_SECONDS: dict[Value, float] = {None: 0.0, DEFAULT: 45.0, REGIONAL: 25.0, GRAPHS: 60.0, TUNED: 180.0}
COMPILED_BY_CODE = "your code compiles the model itself"


def is_compiled_already(facts: TargetFacts) -> bool:
    """Return whether the user's code compiles the model, whatever the knob says; a program asks its argument."""
    return facts.compiles_model and not facts.is_program


class CompileMode(Knob):
    """The mode of torch.compile, or None for none; "regional" compiles each repeated block, and the same code once.

    Compiled code computes the same up to the order of rounding; dropout draws other numbers.
    """

    name = "compile_mode"
    alias = "compile"
    option_help = "torch.compile: none,default,regional,reduce-overhead,max-autotune-no-cudagraphs."
    label = "compile"
    ordered = False
    default: Value = None
    memory = MemoryEffect.UNSEEN
    only_computes = True
    compiles = True
    arguments = r"(torch_)?compile_mode"
    doubtful = r"(use_|enable_|torch_)*(compile|compiled|compile_model|torch_compile|dynamo)"
    formats: Mapping[str, Mapping[Value, str]] = {"": {value: str(value or "none") for value in CHOICES}}

    def domain(self, circumstances: Circumstances) -> tuple[Value, ...]:
        """Return the modes that differ here; only None without a compiler, or if the code compiles the model itself."""
        environment = circumstances.environment
        offered: tuple[Value, ...] = (None,)
        if environment.no_compiler == "" and not is_compiled_already(circumstances.facts):
            offered += (DEFAULT,)
            offered += (REGIONAL,) * (circumstances.facts.checkpointable_blocks >= FEWEST_COMPILED_BLOCKS)
            offered += (GRAPHS, TUNED) * (environment.device_kind in ON_GPUS)
        return allowed(offered, circumstances.limit)

    def idle(self, values: Mapping[str, Value], circumstances: Circumstances) -> str:
        """Return why a mode adds nothing to the code's own, or to the default mode."""
        value = values[self.name]
        if is_compiled_already(circumstances.facts):
            return COMPILED_BY_CODE
        if value == GRAPHS and circumstances.environment.device_kind != "cuda":
            return "there are no graphs of launches without CUDA"
        no_regions = value == REGIONAL and not circumstances.facts.checkpointable_blocks
        return "the model has no repeated blocks" if no_regions else ""

    def instead(self, value: Value, circumstances: Circumstances) -> Value:
        """Return the default mode, which an idle mode is equivalent to; None if the user's code compiles the model."""
        return None if is_compiled_already(circumstances.facts) else DEFAULT

    def lacking(self, value: Value, circumstances: Circumstances) -> str:
        """Return what torch.compile lacks on this machine; empty: nothing."""
        return circumstances.environment.no_compiler or ""

    def offer(self, environment: Environment) -> Notice | None:
        """Return the compiler that torch.compile would use, or what it lacks and how to install it."""
        kind, lacking = environment.device_kind, environment.no_compiler
        if not lacking:
            return notice(Code.COMPILER_FOUND, compiler=compiler_of(kind))
        return notice(MISSING.get(kind, Code.COMPILER_MISSING), knob=self.name, lacking=lacking)

    def check(self, value: Value) -> None:
        """Raise `ValueError` unless it is None or a mode."""
        if value not in CHOICES or isinstance(value, bool):
            names = ", ".join(f'"{one}"' for one in CHOICES if one)
            raise ValueError(f"{self.name} must be None or one of {names}, got {value!r}")

    def parse(self, text: str) -> Value:
        """Read a mode or `none`; `true` is the default mode, `graphs` and `tuned` are short."""
        short = {word: value for value, word in SHORT.items()}
        value = (short | SPELLINGS).get(text.lower(), text.lower())
        self.check(value)
        return value

    def show(self, value: Value) -> str:
        """Return the value as shown in tables, one of `SHORT`."""
        return SHORT[value]

    def phrase(self, value: Value) -> str:
        """Return the value in words, such as `torch.compile (default)`; empty for none."""
        return f"torch.compile ({value})" if value else ""

    def caution(self, value: Value) -> float:
        """Return the rank of caution: none, regional, other modes, because a change of shapes compiles again."""
        return (0.0, 2.0, 1.0, 3.0, 4.0)[CHOICES.index(value)]

    def influence(self, value: Value) -> Influence:
        """Return the prior effect of compiling; the effect is learned from probes."""
        return NEUTRAL if value is None else COMPILED

    def compiling_seconds(self, value: Value) -> float:
        """Return the expected seconds of compiling, before any probe has shown them."""
        return PRIOR_SECONDS[value]

    def wording(self, value: Value, framework: Framework, device: str) -> Wording:
        """Return the functions that the probes used, or torch's own where that is the same.

        The arguments of Trainers have further effects: that of transformers switches TF32 on (5.23,
        `TrainingArguments.torch_compile`), and Lightning compiles hooks around the step.
        """
        if value is None:
            return NOTHING
        ours = framework in (Framework.HUGGING_FACE, Framework.LIGHTNING)
        if value != REGIONAL and not ours:
            mode = "" if value == DEFAULT else f", mode={python(value)}"
            return Wording(model=(f"model = torch.compile(model{mode})",))
        return Wording(setup=("import autotune",), model=(f"model = autotune.compile_model(model, {python(value)})",))

    def apply(self, value: Value, plan: Plan) -> None:
        """Compile the model, as changed by the knobs before this one."""
        if value is None:
            return

        def compiled(model: Any, mode: Value) -> Any:
            from autotune.targets.compiling import compile_model  # torch

            return compile_model(model, str(mode))

        plan.compiles = True
        plan.model_transforms.append(partial(compiled, mode=value))
