"""The passes over a real training: what belongs to which part, module and line."""

import json

import pytest
import torch

from autotune.child.lifeline import Progress
from autotune.core.results import Outcome
from autotune.profile.child import measure
from autotune.profile.judge import expensive_lines
from autotune.profile.measuring.trace import TRACE, TRACED_STEPS
from autotune.profile.records import ProfileRequest
from tests.targets_support import COMPLETE, HEAD, clean_imports, write
from tests.worlds import config

pytestmark = pytest.mark.slow

# Each part burns a time that is written down, in milliseconds; the model itself takes next to nothing. A process whose
# core is taken away waits for some 10 ms: what takes less than a millisecond seldom meets that.
BURNING = (
    HEAD
    + """
import time

def burn(milliseconds):
    until = time.perf_counter() + milliseconds / 1000
    while time.perf_counter() < until:
        pass

class Slow(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        burn(4)
        return x.clone()
    @staticmethod
    def backward(context, gradient):
        burn(36)
        return gradient

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 2)
    def forward(self, x):
        return Slow.apply(self.inner(x))

class SlowSGD(torch.optim.SGD):
    def step(self, closure=None):
        burn(12)
        return super().step(closure)

class Samples(Dataset):
    def __len__(self): return 64
    def __getitem__(self, index):
        burn(14)
        return torch.randn(4), 1

def model(): return nn.Sequential(Layer())
def dataset(): return Samples()
def optimizer(params): return SlowSGD(params, lr=0.1)
"""
)
STEP = """
def step(model, batch, optimizers):
    inputs, target = batch
    loss = nn.functional.cross_entropy(model(inputs), target)
    optimizers[0].backward(loss)
    optimizers[0].step()
    optimizers[0].zero_grad()
    return loss.detach()
"""


def profiled(folder, text, **changes):
    values = {"batch_size": 8, **changes.pop("values", {})}
    asked = ProfileRequest(
        target=str(write(folder, text)), config=config(**values), device="cpu", seconds=0.2, **changes
    )
    before = torch.Tensor.item, torch.autograd.backward, torch.optim.Optimizer.__init__
    with clean_imports():
        result = measure(asked, Progress(None))
    assert (torch.Tensor.item, torch.autograd.backward, torch.optim.Optimizer.__init__) == before
    assert result.outcome is Outcome.OK
    return result


def seconds(result):
    return {one.part: one.seconds for one in result.parts}


@pytest.mark.parametrize("more", ["", STEP], ids=["loop", "step"])
def test_the_time_of_a_step_belongs_to_the_part_that_took_it(tmp_path, more):
    result = profiled(tmp_path, BURNING + more)

    found = seconds(result)
    order = sorted(("data", "forward", "backward", "optimizer"), key=found.__getitem__)
    assert order == ["forward", "optimizer", "backward", "data"]  # 4, 12, 36 and 8 samples of 14 ms
    assert found["other"] < found["forward"]
    assert sum(found.values()) == pytest.approx(sum(result.step_seconds) / result.steps)
    assert result.samples == 8


def test_the_time_of_a_pass_belongs_to_the_module_that_took_it(tmp_path):
    result = profiled(tmp_path, BURNING)

    modules = {one.name: one for one in result.modules}
    assert max(modules.values(), key=lambda one: one.forward).name == "0"
    assert max(modules.values(), key=lambda one: one.backward).name == "0"
    assert modules["0"].kind == "Layer"
    assert modules["0.inner"].forward < modules["0"].forward


def test_accumulated_micro_batches_are_one_step(tmp_path):
    result = profiled(tmp_path, COMPLETE, values={"gradient_accumulation_steps": 2})

    assert result.samples == 16


FLOPS = (
    HEAD
    + """
def model(): return nn.Sequential(nn.Linear(64, 32, bias=False), nn.Linear(32, 8, bias=False))
def batch(batch_size): return torch.randn(batch_size, 64), torch.randint(8, (batch_size,))
"""
)


def test_operations_are_those_of_the_formula(tmp_path):
    result = profiled(tmp_path, FLOPS)

    forward = 2 * 8 * (64 * 32 + 32 * 8)
    assert result.work.flops == 3 * forward - 2 * 8 * 64 * 32  # the first layer's input needs no gradient
    assert result.work.dtype == "float32"
    assert result.work.peak_flops > 0
    assert result.bounds.calls > 5
    assert result.bounds.moved_bytes > 4 * (64 * 32 + 32 * 8)  # the weights, at least
    assert result.bounds.bytes_per_second > 1e8
    assert 0 < result.bounds.call_seconds < 1e-2


def test_attention_is_counted_on_a_cpu_and_recurrent_layers_are_said_not_to_be(tmp_path):
    attention = (
        HEAD
        + """
class Attend(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(16))
    def forward(self, x):
        x = x * self.scale
        return nn.functional.scaled_dot_product_attention(x, x, x)
def model(): return Attend()
def batch(batch_size): return torch.randn(batch_size, 2, 32, 16), torch.randn(batch_size, 2, 32, 16)
"""
    )
    recurrent = FLOPS.replace("nn.Sequential(", "nn.Sequential(nn.GRU(64, 64), First(), ").replace(
        "def model", "class First(nn.Module):\n    def forward(self, both): return both[0]\ndef model"
    )

    forward = 8 * 2 * 2 * (2 * 32 * 32 * 16)  # batch, heads, two products
    assert profiled(tmp_path / "attention", attention).work.flops == 3 * forward
    work = profiled(tmp_path / "recurrent", recurrent).work
    assert work.flops is None
    assert work.why == "recurrent layers are not counted on a CPU"


def test_the_dtype_of_the_peak_is_that_of_autocast(tmp_path):
    assert profiled(tmp_path, FLOPS, values={"amp_dtype": "bfloat16"}).work.dtype == "bfloat16"


def test_reading_a_number_costs_nothing_on_a_cpu_and_is_no_slow_line(tmp_path):
    text = (
        FLOPS.replace("64, 32", "64, 100000").replace("32, 8", "100000, 8")
        + """
def loss(model, batch):
    value = nn.functional.cross_entropy(model(batch[0]), batch[1])
    print(float(value.detach()), value.item())
    return value
"""
    )

    result = profiled(tmp_path, text)

    assert {one.what for one in result.slow_lines if one.kind == "host read"} == {"float(tensor)", ".item()"}
    assert [one for one in expensive_lines(result) if one.kind == "host read"] == []


def test_reading_in_the_dataset_and_in_torch_itself_is_no_reading_of_the_step(tmp_path):
    text = (
        HEAD
        + """
class Samples(Dataset):
    def __len__(self): return 64
    def __getitem__(self, index): return torch.tensor([1.0] * 4), torch.tensor(1).item()
def model(): return nn.Linear(4, 2)
def dataset(): return Samples()
"""
    )

    assert [one for one in profiled(tmp_path, text).slow_lines if one.kind in ("host read", "host tensor")] == []


def test_the_slow_samples_of_loader_workers_are_read_beside_the_training(tmp_path):
    text = BURNING.replace("burn(14)", "burn(30 if index % 16 == 0 else 1)")
    text = text.replace("perf_counter", "thread_time")  # what others take of its core is no sample's

    found = profiled(tmp_path, text, values={"num_workers": 1}).slow_lines

    tail = next(one for one in found if one.kind == "tail")
    assert int(tail.what) % 16 == 0
    assert tail.code == "def __getitem__(self, index):"


def test_a_brief_profile_finds_the_line_and_leaves_out_what_takes_time(tmp_path):
    text = (
        FLOPS
        + """
def loss(model, batch):
    scores = model(batch[0])
    history[:] = scores.detach().repeat(2000, 1).tolist()
    return nn.functional.cross_entropy(scores, batch[1])
history = []
"""
    )

    result = profiled(tmp_path, text, extent="brief")

    (first, *_) = expensive_lines(result)
    assert first.what == ".tolist()"
    assert first.place.endswith(" in loss")
    assert result.parts
    assert result.modules == ()
    assert result.work is None


def test_a_brief_profile_sees_what_stays_though_it_takes_too_few_steps_to_know_whether_memory_grows(tmp_path):
    text = (
        FLOPS
        + """
def loss(model, batch):
    time.sleep(0.1)
    scores = model(batch[0])
    history.append(scores.detach())
    return nn.functional.cross_entropy(scores, batch[1])
history = []
"""
    )

    result = profiled(tmp_path, f"import time\n{text}", extent="brief")

    assert any(one.startswith("Whether memory grows is not known") for one in result.left_out)
    (kept,) = [one for one in result.slow_lines if one.kind == "growth"]
    assert (kept.bytes, kept.what) == (0, "history")
    assert kept not in expensive_lines(result)


# Every step notes whether a profiler is open.
WATCHED = """
def loss(model, batch):
    with open(PLACE, "a") as notes:
        notes.write("y" if torch.autograd._profiler_enabled() else "n")
    return nn.functional.cross_entropy(model(batch[0]), batch[1])
"""


def test_a_trace_is_made_behind_all_that_is_timed_and_only_where_it_is_asked_for(tmp_path):
    text, notes = FLOPS + WATCHED, tmp_path / "notes"

    profiled(tmp_path / "without", f"PLACE = {str(notes)!r}\n{text}")
    assert set(notes.read_text()) == {"n"}
    notes.unlink()
    result = profiled(tmp_path / "with", f"PLACE = {str(notes)!r}\n{text}", output=str(tmp_path))

    assert notes.read_text().endswith("n" + TRACED_STEPS * "y")
    assert notes.read_text().count("y") == TRACED_STEPS
    assert result.modules
    events = json.loads((tmp_path / TRACE).read_text())["traceEvents"]
    assert {"autotune::forward", "autotune::backward", "autotune::optimizer"} <= {one.get("name") for one in events}


def test_a_trace_that_cannot_be_written_is_said_and_costs_nothing_else(tmp_path):
    result = profiled(tmp_path, FLOPS, output=str(tmp_path / "not" / "there"))

    assert result.parts
    assert any("trace.json was not written" in one for one in result.left_out)
