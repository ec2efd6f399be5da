"""The memory of a profiled configuration: what real steps hold, beside the shape run and the process's peak."""

import re

import pytest
from msgspec.structs import replace

from autotune.child.lifeline import Progress
from autotune.core.results import Failure, Outcome
from autotune.machine.heap import held_bytes
from autotune.memory.child import predict_peaks
from autotune.memory.records import ShapeRun, ShapeRunRequest
from autotune.profile.child import measure
from autotune.profile.memory_judge import disagreement, peak_bytes, rows, saved_by
from autotune.profile.memory_run import with_shapes
from autotune.profile.records import ProfileRequest
from tests.profile.test_table import lines
from tests.targets_support import COMPLETE, HEAD, clean_imports, write
from tests.worlds import config

pytestmark = pytest.mark.slow

MLP = (
    HEAD
    + """
def model(): return nn.Sequential(nn.Linear(256, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 8))
def dataset(): return TensorDataset(torch.randn(2000, 256), torch.randint(8, (2000,)))
def optimizer(params): return torch.optim.Adam(params)
"""
)
CONVOLUTIONS = (
    HEAD
    + """
def block(i, o): return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU())
def model():
    return nn.Sequential(block(3, 32), block(32, 32), block(32, 64), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(64, 8))
def dataset(): return TensorDataset(torch.randn(256, 3, 32, 32), torch.randint(8, (256,)))
"""
)
TRANSFORMER = (
    HEAD
    + """
class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(1000, 64, padding_idx=0)
        layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.0)
        self.layers = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(64, 8)
    def forward(self, ids): return self.head(self.layers(self.embed(ids)).mean(1))
class Texts(Dataset):
    def __len__(self): return 512
    def __getitem__(self, index):
        ids = torch.randint(1, 1000, (48,))
        ids[36:] = 0
        return ids, index % 8
def model(): return Words()
def dataset(): return Texts()
def optimizer(params): return torch.optim.AdamW(params)
"""
)
CRASH = Failure(phase="load", message="killed by signal 11", evidence="exit status")


def profiled(folder, text, **values):
    values = {"batch_size": 64, **values}
    asked = ProfileRequest(target=str(write(folder, text)), config=config(**values), device="cpu", seconds=0.2)
    with clean_imports():
        result = measure(asked, Progress(None))
    assert result.outcome is Outcome.OK
    return asked, result


def on_shapes(asked, *arms, **changes):
    request = ShapeRunRequest(
        target=asked.target, config=asked.config, arms=({}, *arms), batches=(asked.config.batch_size,), device="cpu",
        by_category=True, **changes,
    )  # fmt: skip
    with clean_imports():
        return predict_peaks(request, Progress(None))


@pytest.mark.parametrize("text", [MLP, CONVOLUTIONS, TRANSFORMER], ids=["mlp", "convolutions", "transformer"])
@pytest.mark.parametrize("accumulation", [1, 2])
def test_what_shapes_say_adds_up_to_the_tensors_of_a_real_step_within_three_percent(tmp_path, text, accumulation):
    asked, result = profiled(tmp_path, text, gradient_accumulation_steps=accumulation)

    found = with_shapes(result, asked, on_shapes(asked, micro_batches=accumulation))

    difference, _ = disagreement(found.memory)
    assert abs(difference) <= 0.03
    assert found.memory.tensors.bytes > 2**20
    assert all(size > 0 for name, size in found.memory.tensors.categories.items() if name != "temporary")


def test_the_rows_add_up_to_the_peak_of_the_process(tmp_path):
    use = profiled(tmp_path, MLP)[1].memory

    found = dict(rows(use))
    assert sum(found.values()) == peak_bytes(use) == use.peak.process_bytes
    assert found["context"] > 100 * 2**20  # torch alone is more
    assert found["optimizer state"] == pytest.approx(2 * found["parameters"], rel=0.01)


@pytest.mark.parametrize("text", [MLP, CONVOLUTIONS, TRANSFORMER], ids=["mlp", "convolutions", "transformer"])
def test_all_but_three_percent_of_the_peak_is_explained(tmp_path, text):
    if held_bytes() is None:
        pytest.skip("malloc does not tell what it holds: not glibc 2.33 or later")

    use = profiled(tmp_path, text)[1].memory

    assert abs(dict(rows(use))["not explained"]) <= 0.03 * peak_bytes(use)
    assert use.heap.kept_bytes > 0


def test_a_step_of_the_users_own_is_told_apart_and_numbers_that_it_reads_are_true(tmp_path):
    step = """
seen = []
def step(model, batch, optimizers):
    loss = nn.functional.cross_entropy(model(batch[0]), batch[1])
    optimizers[0].backward(loss)
    optimizers[0].step()
    optimizers[0].zero_grad()
    if loss.item() == 1.0: raise RuntimeError("a number that is not true")
    return loss.detach()
"""

    use = profiled(tmp_path, MLP + step)[1].memory

    assert use.tensors.categories["optimizer state"] == pytest.approx(
        2 * use.tensors.categories["parameters"], rel=0.01
    )
    assert use.tensors.categories["gradients"] > 0


def test_the_state_is_that_of_all_optimizers_and_each_class_is_named_once(tmp_path):
    optimizers = """
def optimizer(model):
    heavy = torch.optim.SGD(model[0].parameters(), lr=0.1, momentum=0.9)
    return heavy, torch.optim.Adam(model[2].parameters()), torch.optim.Adam(model[4].parameters())
"""

    use = profiled(tmp_path, MLP + optimizers)[1].memory

    first, second, third = (4 * (i + 1) * o for i, o in ((256, 2048), (2048, 2048), (2048, 8)))
    assert use.optimizer == "SGD and Adam"
    assert use.tensors.categories["optimizer state"] == pytest.approx(first + 2 * (second + third), rel=0.01)


def test_recomputing_is_told_with_what_it_saves_and_costs(tmp_path):
    asked, result = profiled(tmp_path, TRANSFORMER)

    found = with_shapes(result, asked, on_shapes(asked, {"activation_checkpointing": True}))

    assert [one.name for one in found.memory.tensors.blocks] == [f"layers.layers.{number}" for number in range(3)]
    ((name, value, saved),) = saved_by(found.memory)
    assert (name, value) == ("activation_checkpointing", True)
    assert 0 < saved < sum(one.bytes for one in found.memory.tensors.blocks)
    told = " ".join(one.strip() for one in lines(found))
    assert "checkpointing saves all 3: " in told
    for number in range(3):
        assert re.search(rf"layers\.layers\.{number} \w+ [\d.]+ for [\d.]+ ms", told.partition("; blocks hold ")[2])


def test_the_padding_of_batches_is_told_with_what_leaving_it_out_gives_at_most(tmp_path):
    result = profiled(tmp_path, TRANSFORMER)[1]

    assert result.memory.padding == 0.25
    (line,) = (one for one in lines(result) if "padding" in one)
    assert line.startswith("  padding: 25% of the tokens; batches of like lengths, or packing, give at most 1.")


def test_a_compiled_model_has_the_tensors_of_shapes_only(tmp_path, monkeypatch):
    asked, result = profiled(tmp_path, MLP)
    found = with_shapes(result, asked, on_shapes(asked))

    compiled = replace(found, memory=replace(found.memory, tensors=None))

    assert any("by shapes alone; those of a compiled model are not counted" in one for one in lines(compiled))


def test_what_shapes_cannot_say_is_said_with_its_reason(tmp_path):
    text = COMPLETE + "def loss(model, batch): return model(batch[0][batch[1] > 0]).square().mean()\n"
    asked, result = profiled(tmp_path, text)

    found = with_shapes(result, asked, on_shapes(asked))

    assert found.memory.tensors.bytes > 0
    assert any("by shapes alone unknown, because" in one for one in lines(found))


def test_a_run_on_shapes_that_failed_is_said_with_its_outcome(tmp_path):
    asked, result = profiled(tmp_path, COMPLETE)

    found = with_shapes(result, asked, ShapeRun(outcome=Outcome.CRASHED, failure=CRASH))

    assert found.memory.shapes.why == "killed by signal 11"
