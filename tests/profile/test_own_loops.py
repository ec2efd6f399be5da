"""Loops of the user's own: a command's parts and lines, from outside; what an evaluation takes is no step's."""

import os
import re

import pytest

from autotune.core.results import Outcome
from autotune.profile import nsys
from autotune.profile.judge import expensive_lines
from autotune.profile.measuring.own_passes import LEFT_OUT
from autotune.profile.measuring.trace import CAPTURED_STEPS
from autotune.profile.records import ProfileRequest
from tests.worlds import config

pytestmark = pytest.mark.slow

# Each part burns a time that is written down, in milliseconds.
SCRIPT = """
import time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

def burn(milliseconds):
    until = time.perf_counter() + milliseconds / 1000
    while time.perf_counter() < until:
        pass

class Samples(Dataset):
    def __len__(self): return 64
    def __getitem__(self, index):
        burn(12)
        return torch.randn(4), 1

class Slow(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        burn(1)
        return x.clone()
    @staticmethod
    def backward(context, gradient):
        burn(30)
        return gradient

class SlowSGD(torch.optim.SGD):
    def step(self, closure=None):
        burn(5)
        return super().step(closure)

model = nn.Sequential(nn.Linear(4, 2))
optimizer = SlowSGD(model.parameters(), lr=0.1)
"""
LOOP = """
for _ in range(1000):
    for inputs, targets in DataLoader(Samples(), batch_size=8):
        loss = nn.functional.cross_entropy(Slow.apply(model(inputs)), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
CLOSURE = """
for _ in range(1000):
    for inputs, targets in DataLoader(Samples(), batch_size=8):
        def closure():
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(Slow.apply(model(inputs)), targets)
            loss.backward()
            return loss
        optimizer.step(closure)
"""
PLANTED_LINE = "    kept.append(torch.ones(2, 2**18) * loss.detach())  # planted"
FAST = re.sub(r"  burn\(\d+\)", "  pass", SCRIPT)


@pytest.fixture
def profiled(forking_launcher, tmp_path):
    def profile(text, name="train.py", target="-- python train.py", extent="whole", **changes):
        (tmp_path / name).write_text(text)
        asked = ProfileRequest(
            target=target, config=config(num_threads=1, **changes), device="cpu", seconds=0.3, extent=extent
        )
        folder = tmp_path / "profile"
        folder.mkdir()
        return forking_launcher.run(asked, folder)

    return profile


@pytest.fixture(autouse=True)
def _in_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("loop", [LOOP, CLOSURE], ids=["loop", "closure"])
def test_the_time_of_a_commands_step_belongs_to_the_part_that_took_it(profiled, loop):
    result = profiled(SCRIPT + loop)

    assert result.outcome is Outcome.OK, result.failure
    found = {one.part: one.seconds for one in result.parts}
    order = sorted(("data", "forward", "backward", "optimizer"), key=found.__getitem__)
    assert order == ["forward", "optimizer", "backward", "data"], found  # 1, 5, 30 and 8 samples of 12 ms
    assert result.samples == 8
    assert sum(found.values()) == pytest.approx(sum(result.step_seconds) / result.steps)
    assert LEFT_OUT in result.left_out


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("host read", "history = loss.detach().repeat(200000).tolist()"),
        ("python", "squares = sum(number * number for number in range(20000))"),
        ("waiting", "time.sleep(0.005)"),
        ("zeroing", "optimizer.zero_grad(set_to_none=False)"),
        ("loop", "squares = [loss.detach() * number for number in range(400)]"),
    ],
)
def test_a_line_that_costs_time_is_found_in_a_commands_loop(profiled, kind, line):
    text = FAST + LOOP.replace("optimizer.step()", f"optimizer.step()\n        {line}  # planted")
    if kind == "zeroing":
        text = text.replace("nn.Linear(4, 2)", "nn.Linear(4, 400000), nn.Linear(400000, 2)")

    result = profiled(text)

    assert result.outcome is Outcome.OK, result.failure
    first = expensive_lines(result)[0]
    assert first.kind == kind
    assert first.code.endswith("# planted")
    assert "train.py:" in first.place


# Two models and two optimizers: the generator steps first; its samples for the critic need no gradients.
TWO_MODELS = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def note(module, inputs, output):  # planted
    sum(number * number for number in range(20000))

maker, critic = nn.Linear(8, 512), nn.Sequential(nn.Linear(512, 512), nn.Linear(512, 1))
critic.register_forward_hook(note)
{optimizers}
for epoch in range(1000):
    for (real,) in DataLoader(TensorDataset(torch.randn(64, 512)), batch_size=32):
        critic(maker(torch.randn(32, 8))).mean().backward()
        optimizers[0].step()
        optimizers[0].zero_grad()
        with torch.no_grad():
            made = maker(torch.randn(32, 8))  # without gradients
        (critic(real) - critic(made)).mean().backward()
        optimizers[-1].step()
        optimizers[-1].zero_grad()
"""


@pytest.mark.parametrize(
    ("optimizers", "evaluated"),
    [
        ("optimizers = [torch.optim.SGD(one.parameters(), lr=0.01) for one in (maker, critic)]", []),
        (
            "optimizers = [torch.optim.SGD([*critic.parameters(), *maker.parameters()], lr=0.01)]",
            ["made = maker(torch.randn(32, 8))  # without gradients"],
        ),
    ],
    ids=["two optimizers", "one optimizer"],
)
def test_all_models_that_train_are_looked_at(profiled, optimizers, evaluated):
    result = profiled(TWO_MODELS.format(optimizers=optimizers))

    assert result.outcome is Outcome.OK, result.failure
    (hook,) = [one for one in result.slow_lines if one.kind == "hook"]
    assert hook.code == "def note(module, inputs, output):  # planted"
    assert [one.code for one in result.slow_lines if one.kind == "evaluating"] == evaluated


def test_what_a_commands_loop_keeps_between_its_steps_is_found(profiled):
    line = "kept.append(loss.detach().repeat(200000))  # planted"
    text = FAST + "kept = []\n" + LOOP.replace("optimizer.step()", f"optimizer.step()\n        {line}")

    (one,) = [one for one in profiled(text).slow_lines if one.kind == "growth"]

    assert (one.code, one.what) == (line, "kept")
    assert one.bytes == pytest.approx(800_000, rel=0.2)


def test_what_a_commands_dataset_does_is_found(profiled):
    first = expensive_lines(profiled(SCRIPT + LOOP))[0]

    assert first.kind == "loading"
    assert first.place.endswith("in burn")


def test_an_evaluation_between_steps_is_no_steps(profiled):
    evaluation = """
    model.eval()
    with torch.no_grad():
        burn(300)
        model(torch.randn(64, 4)).repeat(1, 200000).tolist()
    model.train()
"""
    result = profiled(FAST + LOOP + evaluation)

    assert result.outcome is Outcome.OK, result.failure
    assert max(result.step_seconds) < 0.3
    assert [one for one in expensive_lines(result) if one.kind in ("host read", "evaluating")] == []


def test_a_command_that_ends_early_is_told_as_far_as_it_came(profiled):
    result = profiled(SCRIPT + LOOP.replace("range(1000)", "range(5)"))  # 40 steps: with 30 of them parts are timed

    assert result.outcome is Outcome.OK, result.failure
    assert any("ended before all was looked at" in why for why in result.left_out)


def test_a_command_with_too_few_steps_says_so(profiled):
    result = profiled(FAST + LOOP.replace("range(1000)", "range(1)"))

    assert result.outcome is Outcome.USER_ERROR
    assert "after 8 optimizer steps" in result.failure.message


# Two MiB stay of every step, until one asks for more than there is. An error that the script handles is another one.
RUNS_OUT = """
kept = []
def hold(loss):
    kept.append(torch.ones(2, 2**18) * loss.detach())  # planted
    try:
        torch.linalg.cholesky(torch.zeros(2, 2))
    except RuntimeError:
        pass
    if len(kept) == 12:
        torch.empty(2**45)
"""


def test_lines_whose_tensors_took_the_memory_are_named_for_a_commands_loop(profiled):
    text = FAST + RUNS_OUT + LOOP.replace("optimizer.step()", "optimizer.step()\n        hold(loss)")

    result = profiled(text, extent="sites")

    assert result.outcome is Outcome.OOM_HOST, result.failure
    first = result.failure.sites[0]
    assert first.place == f"train.py:{text.splitlines().index(PLANTED_LINE) + 1}"
    assert (first.bytes, first.count) == (12 * 2**21, 12)


# What `nsys profile` does but for watching: it runs the command that stands behind its options.
NSYS = """#!/bin/sh
printf '%s\\n' "$@" > arguments
shift
while [ "${1#--}" != "$1" ]; do
    case $1 in --output=*) touch "${1#--output=}.nsys-rep";; esac
    shift
done
exec "$@"
"""
# A device that writes down what it is told: no GPU is needed to see which steps Nsight Systems would capture.
WRITES_DOWN = """
import contextlib
from pathlib import Path
events = Path("events").open("w", buffering=1)

@contextlib.contextmanager
def named(name):
    print(name, file=events)
    yield

torch.cuda.synchronize = lambda *_: None
torch.cuda.profiler.start = lambda: print("start", file=events)
torch.cuda.profiler.stop = lambda: print("stop", file=events)
torch.cuda.nvtx.range = named
"""


def test_nsight_systems_captures_ten_steps_of_a_commands_loop_with_a_range_for_each_part(tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text(FAST + WRITES_DOWN + LOOP)
    (programs := tmp_path / "programs").mkdir()
    (programs / "nsys").write_text(NSYS)
    (programs / "nsys").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    asked = ProfileRequest(target="-- python train.py", config=config(num_threads=1), device="cpu", seconds=0.3)
    words = nsys.prepared(tmp_path, asked)

    said = nsys.run(words, tmp_path)

    assert "report.nsys-rep: open it with Nsight Systems" in said
    assert "--capture-range=cudaProfilerApi" in (tmp_path / "arguments").read_text().splitlines()
    before, *steps, after = (tmp_path / "events").read_text().split("autotune::backward\n")
    assert before.splitlines()[0] == "start"
    assert len(steps) == CAPTURED_STEPS - 1
    ranges = [one for one in steps[0].splitlines() if one != "autotune::other"]
    assert ranges == ["autotune::optimizer", "autotune::data", "autotune::forward", "autotune::optimizer"]  # zero_grad
    assert after.splitlines()[-1] == "stop"


TRAINER = """
import torch
from torch import nn
from transformers import Trainer, TrainingArguments

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 2)
    def forward(self, x, labels):
        loss = nn.functional.cross_entropy(self.net(x), labels)
        history = loss.detach().repeat(400000).tolist()  # planted
        return {"loss": loss}

rows = [{"x": torch.randn(4), "labels": torch.tensor(i % 2)} for i in range(64)]

def trainer():
    return Trainer(Net(), TrainingArguments("out", per_device_train_batch_size=8), train_dataset=rows)
"""
LIGHTNING = """
import torch
from lightning import LightningModule, Trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Net(LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(1, 1)
    def training_step(self, batch, batch_idx):
        loss = (self.net(batch[0]) - batch[1]).square().mean()
        history = loss.detach().repeat(400000).tolist()  # planted
        return loss
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), lr=0.1)
    def train_dataloader(self):
        return DataLoader(TensorDataset(torch.zeros(64, 1), torch.zeros(64, 1)), batch_size=16)

def trainer(): return Trainer(max_epochs=3, logger=False, enable_checkpointing=False)
"""


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(("library", "text"), [("transformers", TRAINER), ("lightning", LIGHTNING)])
def test_a_trainer_is_profiled_by_the_same_passes(profiled, library, text):
    pytest.importorskip(library)

    result = profiled(text, name="model.py", target="model.py", batch_size=16)

    assert result.outcome is Outcome.OK, result.failure
    assert {one.part for one in result.parts if one.seconds} >= {"data", "forward", "backward", "optimizer"}
    assert expensive_lines(result)[0].kind == "host read"
    assert expensive_lines(result)[0].code.endswith("# planted")


DISTILLED = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Teacher(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(64, 2048), nn.Linear(2048, 8)
    def forward(self, inputs): return self.head(self.body(inputs).relu())

student, teacher = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 8)), Teacher().eval()
optimizer, criterion = torch.optim.Adam(student.parameters()), nn.MSELoss()
never_called = nn.Linear(64, 4096)
data = TensorDataset(torch.randn(512, 64))
for epoch in range(1000):
    for (inputs,) in DataLoader(data, batch_size=32):
        with torch.no_grad():
            wanted = teacher(inputs)  # planted
        loss = criterion(student(inputs), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
STUDENT_BYTES = 4 * (64 * 512 + 512 + 512 * 8 + 8)
TEACHER_BYTES = 4 * (64 * 2048 + 2048 + 2048 * 8 + 8)


def test_a_commands_modules_operations_and_memory_are_looked_at(profiled):
    result = profiled(DISTILLED)

    assert result.outcome is Outcome.OK, result.failure
    named = {one.name: one for one in result.modules}
    assert {"0", "2", "(Teacher)", "(MSELoss)"} <= named.keys()
    assert named["0"].backward > 0
    assert named["(Teacher)"].backward == 0
    forward_only, first, second = 2 * 32 * (64 * 2048 + 2048 * 8), 2 * 32 * 64 * 512, 2 * 32 * 512 * 8
    # The first layer's inputs need no gradient.
    assert result.work.flops == forward_only + 2 * first + 3 * second
    assert result.bounds.moved_bytes > TEACHER_BYTES
    tensors = result.memory.tensors.categories
    assert tensors["parameters"] == STUDENT_BYTES + TEACHER_BYTES
    assert tensors["optimizer state"] == 2 * STUDENT_BYTES + 4 * 4  # and the counts of steps
    assert result.memory.shapes is None


def test_a_teacher_that_a_command_calls_without_gradients_is_found(profiled):
    (teacher,) = [one for one in profiled(DISTILLED).slow_lines if one.kind == "teacher"]

    assert (teacher.code, teacher.what, teacher.count) == ("wanted = teacher(inputs)  # planted", "Teacher", 1)


def test_modules_of_several_models_are_named_after_them(profiled):
    result = profiled(TWO_MODELS.format(optimizers="optimizers = [torch.optim.SGD([*critic.parameters(), "
        "*maker.parameters()], lr=0.01)]"))  # fmt: skip

    assert {"Sequential.0", "Sequential.1", "Linear"} <= {one.name for one in result.modules}


FITTED = """
import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 8)
    def training_step(self, batch, index):
        sum(number * number for number in range(20000))  # planted
        return self.layer(batch[0]).square().mean()
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), lr=0.01)

data = DataLoader(TensorDataset(torch.randn(4096, 64)), batch_size=32)
lightning.Trainer(
    max_epochs=100, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False
).fit(Net(), data)
"""


def test_what_a_library_takes_for_a_step_is_no_cost_of_the_line_that_called_it(profiled):
    pytest.importorskip("lightning")

    result = profiled(FITTED)

    assert result.outcome is Outcome.OK, result.failure
    python = [one for one in result.slow_lines if one.kind in ("python", "waiting")]
    assert {one.place.partition(" in ")[2] for one in python} == {"Net.training_step"}
    assert any(one.code.endswith("# planted") for one in python)
    assert "layer" in {one.name for one in result.modules}


ODD = DISTILLED.replace(
    "optimizer, criterion",
    """lazy = nn.LazyLinear(5)
with torch.device("meta"):
    ghost = nn.Linear(5000, 5000)
student, teacher = torch.jit.script(student), torch.jit.trace(teacher, torch.randn(2, 64))
optimizer, criterion""",
)


@pytest.mark.filterwarnings("ignore:.torch.jit")
def test_modules_that_are_scripted_or_take_no_memory_do_not_end_the_training(profiled):
    result = profiled(ODD)

    assert result.outcome is Outcome.OK, result.failure
    assert "(Sequential)" in {
        one.name for one in result.modules
    }  # its Python form has the same weights, and lives, too
    assert "Teacher" in {one.what for one in result.slow_lines if one.kind == "teacher"}
    assert result.memory.tensors.categories["parameters"] == STUDENT_BYTES + TEACHER_BYTES


STEPS_INSIDE = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Meta(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 8)
        self.optimizer = torch.optim.SGD(self.layer.parameters(), lr=0.01)
    def forward(self, inputs):
        self.optimizer.zero_grad()
        self.layer(inputs).square().mean().backward()
        self.optimizer.step()

meta = Meta()
for epoch in range(1000):
    for (inputs,) in DataLoader(TensorDataset(torch.randn(512, 64)), batch_size=32):
        meta(inputs)
"""


def test_a_module_that_steps_in_its_own_forward_pass_trains_on(profiled):
    result = profiled(STEPS_INSIDE)

    assert result.outcome is Outcome.OK, result.failure
    assert "layer" in {one.name for one in result.modules}


def test_what_follows_a_model_without_gradients_is_no_forward_pass(profiled):
    acts = """        with torch.no_grad():
            model(inputs)
        burn(20)
        optimizer.zero_grad()
"""
    result = profiled(
        FAST + LOOP.replace("        optimizer.zero_grad()\n", "").replace("        loss =", f"{acts}        loss =")
    )

    assert result.outcome is Outcome.OK, result.failure
    found = {one.part: one.seconds for one in result.parts}
    assert found["other"] > 0.02 > found["forward"], found
