"""`compile_mode`: where it is offered, what frameworks are told, and what is missing where it is not."""

import os

import numpy as np
import pytest
from msgspec.structs import replace

from autotune.core.records import Limit
from autotune.core.results import Inspection
from autotune.knobs import knob, plan_of
from autotune.knobs.wording import Framework
from autotune.machine import compilers
from autotune.machine.compilers import missing_for_compiling
from autotune.report.doctor import examine
from autotune.sampler.grid import Grid
from autotune.targets.commands.argument_meaning import meaning_of
from autotune.testing import ENVIRONMENT
from autotune.testing.knob_contract import CPU, circumstances
from tests.worlds import config, facts

MODE = knob("compile_mode")
WITH_CPU, WITH_GPU = (replace(one, no_compiler="") for one in (CPU, ENVIRONMENT))


@pytest.mark.parametrize(
    ("machine", "blocks", "offered"),
    [
        (WITH_CPU, 0, (None, "default")),
        (WITH_CPU, 12, (None, "default", "regional")),
        (WITH_CPU, 2, (None, "default")),  # two blocks compile no sooner than the whole
        (WITH_GPU, 12, (None, "default", "regional", "reduce-overhead", "max-autotune-no-cudagraphs")),
        (CPU, 12, (None,)),  # an earlier version did not look for a compiler
        (replace(CPU, no_compiler="no C++ compiler is installed"), 12, (None,)),
    ],
)
def test_it_is_offered_where_a_compiler_is_installed(machine, blocks, offered):
    assert MODE.domain(circumstances(machine, facts=facts(checkpointable_blocks=blocks))) == offered


def test_what_the_user_lists_is_searched_whatever_is_offered():
    asked = Limit(values=(None, "max-autotune-no-cudagraphs"))

    assert MODE.domain(circumstances(WITH_CPU, limit=asked)) == asked.values


def test_modes_that_do_the_same_on_a_cpu_are_one():
    here = circumstances(WITH_CPU, facts=facts(checkpointable_blocks=0))

    assert MODE.canonical(config(compile_mode="reduce-overhead").values, here) == "default"  # there are no CUDA graphs
    assert MODE.canonical(config(compile_mode="regional").values, here) == "default"  # there are no blocks
    there = circumstances(WITH_GPU)
    assert MODE.canonical(config(compile_mode="reduce-overhead").values, there) == "reduce-overhead"


@pytest.mark.parametrize(
    ("text", "value"), [("none", None), ("off", None), ("TRUE", "default"), ("graphs", "reduce-overhead")]
)
def test_what_people_type_is_understood(text, value):
    assert MODE.parse(text) == value


@pytest.mark.parametrize("framework", Framework)
def test_frameworks_are_told_a_line_about_the_model(framework):
    whole, regional = (MODE.wording(mode, framework, "cpu") for mode in ("reduce-overhead", "regional"))

    assert regional.model == ('model = autotune.compile_model(model, "regional")',)
    ours = framework in (Framework.HUGGING_FACE, Framework.LIGHTNING)  # whose own arguments do other things besides
    call = (
        'autotune.compile_model(model, "reduce-overhead")' if ours else 'torch.compile(model, mode="reduce-overhead")'
    )
    assert whole.model == (f"model = {call}",)


def test_it_is_applied_after_what_else_changes_the_model():
    plan = plan_of(config(channels_last=True, activation_checkpointing=True, compile_mode="default").values, "cpu")

    assert plan.compiles
    assert plan.model_transforms[-1].keywords == {"mode": "default"}


@pytest.mark.parametrize(
    ("argument", "is_doubtful"), [("--compile-mode", False), ("--torch_compile_mode", False), ("--compile", True),
                                  ("--torch_compile", True), ("--use-compile", True)],
)  # fmt: skip
def test_arguments_of_a_command_are_known_by_their_name(argument, is_doubtful):
    meaning = meaning_of(argument.strip("-"))

    assert (meaning.owner, meaning.is_doubtful) == ("compile_mode", is_doubtful)


@pytest.fixture
def no_compiler(monkeypatch, tmp_path):
    """A machine whose PATH leads nowhere."""
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("CXX", "CC"):
        monkeypatch.delenv(name, raising=False)


def test_without_a_compiler_it_is_said_what_is_missing(no_compiler, monkeypatch):
    assert missing_for_compiling("cpu") == "no C++ compiler is installed"

    monkeypatch.setenv("CXX", "icpx")
    assert missing_for_compiling("cpu") == "no C++ compiler is installed by the name icpx"


def test_a_compiler_needs_pythons_headers(monkeypatch, tmp_path):
    (tmp_path / "g++").write_text("#!/bin/sh\n")
    (tmp_path / "g++").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(compilers.sysconfig, "get_path", lambda name: str(tmp_path))

    assert "Python.h is not installed" in missing_for_compiling("cpu")


def test_a_gpu_needs_triton_and_a_device_that_it_knows(monkeypatch):
    monkeypatch.setattr(compilers.importlib.util, "find_spec", lambda name: None)
    assert missing_for_compiling("cuda", "8.0") == "triton is not installed"

    monkeypatch.setattr(compilers.importlib.util, "find_spec", lambda name: name)
    assert "capability 6.1" in missing_for_compiling("cuda", "6.1")
    assert "mps" in missing_for_compiling("mps")


def test_doctor_says_why_it_is_not_offered():
    here = replace(CPU, no_compiler="no C++ compiler is installed")

    found = {check.name: check for check in examine(Inspection(environment=here), foreign=lambda: 0.0)}

    assert found["compile"].text == "compile_mode is not offered: no C++ compiler is installed"
    assert "apt install g++" in found["compile"].advice


def test_its_prior_is_that_of_the_device():
    domains, codes = {"compile_mode": (None, "default")}, {"compile_mode": np.array([0, 1])}
    rest = {name: (knob(name).default,) for name in ("batch_size", "gradient_accumulation_steps", "num_workers")}
    codes |= {name: np.zeros(2, np.int64) for name in rest}
    gpu, cpu = (Grid(domains | rest, codes, on_cores=on_cores) for on_cores in (False, True))

    there, here = (one.influence("compile_mode", "default") for one in (gpu, cpu))

    assert there.sample_time.center < here.sample_time.center
    assert there.fixed_time.center < 1 < here.fixed_time.center
    assert cpu.influence("channels_last", True) == gpu.influence("channels_last", True)
