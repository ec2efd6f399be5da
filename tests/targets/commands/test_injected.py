"""Processes that a watched program starts: they run as they would alone, but for what they say of their training."""

import json
import os
import subprocess
import sys

import pytest

from autotune.targets.commands.hygiene import INJECTED
from autotune.targets.commands.injected.autotune_hooks import ARGUMENTS_VARIABLE
from autotune.targets.commands.watching.exits import TRAINS
from tests.commandline import stub_training_arguments

TRAINING = """
import sys, torch
parameter = torch.nn.Parameter(torch.ones(1))
optimizer = torch.optim.SGD([parameter], lr=1.0)
for _ in range(3): parameter.sum().backward(); optimizer.step()
print("nobody" if any("injected" in place for place in sys.path) else "itself")
"""


def started(code, *arguments, **variables):
    """What a Python prints that was started with this code."""
    command = [sys.executable, "-W", "error", "-c", code, *arguments]
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.slow  # imports torch
def test_its_first_step_is_told_once_with_its_words():
    read, write = os.pipe()

    said = started(TRAINING, "--epochs", "3", PYTHONPATH=INJECTED, **{TRAINS: f"/proc/{os.getpid()}/fd/{write}"})

    os.close(write)
    assert os.read(read, 2**16).decode().split("\0")[-2:] == ["--epochs", "3"]
    assert os.read(read, 1) == b""
    assert said == "itself\n"
    os.close(read)


@pytest.mark.slow  # and this
def test_nobody_who_listens_is_no_error():
    assert started(TRAINING, PYTHONPATH=INJECTED, **{TRAINS: "/proc/0/fd/0"}) == "itself\n"


def test_what_the_environment_itself_loads_is_loaded(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("print('mine')")

    assert started("", PYTHONPATH=os.pathsep.join([INJECTED, str(tmp_path)])) == "mine\n"


def test_training_arguments_are_made_with_what_the_environment_says(tmp_path):
    stub_training_arguments(
        tmp_path,
        "seed = bf16 = None\n"
        "def __init__(self, **given): vars(self).update(given); self.__post_init__()\n"
        "def __post_init__(self): print(vars(self))\n",
    )
    code = (
        "from transformers.training_args import TrainingArguments as Base\n"
        "class Own(Base):\n"
        "    def __post_init__(self): self.bf16 = False; super().__post_init__()\n"
        "Own(bf16=None, seed=3)\n"
    )
    told = json.dumps({"bf16": True, "of_another_version": 1})

    said = started(code, PYTHONPATH=os.pathsep.join([INJECTED, str(tmp_path)]), **{ARGUMENTS_VARIABLE: told})

    assert said == "{'bf16': True, 'seed': 3}\n"
