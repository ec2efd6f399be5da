"""The tensors of one step by what they are for: sums that are known, the allocator's own count, and no contents."""

import gc
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode

from autotune.memory.breakdown import StepLedger
from autotune.memory.tensor_tracker import Ledger
from autotune.targets.checkpointing import checkpoint_blocks

FLOAT = 4  # bytes
BATCH = 64


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(500, 32)
        self.layers = nn.Sequential(*(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True) for _ in range(2)))
        self.head = nn.Linear(32, 500)

    def forward(self, x):
        return self.head(self.layers(self.embed(x)))


def mlp():
    return nn.Sequential(nn.Linear(100, 200), nn.ReLU(), nn.Linear(200, 10))


def convolutions():
    parts = [nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1)]
    return nn.Sequential(
        *parts, nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)
    )


def blocks():
    return nn.Sequential(nn.Linear(100, 32), *(Block(32) for _ in range(4)), nn.Linear(32, 10))


def vectors():
    return torch.randn(BATCH, 100)


def images():
    return torch.randn(BATCH, 3, 24, 24)


def tokens():
    return torch.randint(500, (BATCH, 24))


def steps(model, optimizer, make, ledger, count=3):
    """Steps of which the last is counted."""
    for number in range(count):
        last = number == count - 1
        watching = ledger.watched([model], [optimizer]) if last and ledger else nullcontext()
        batch = make()
        with watching:
            if last and ledger:
                ledger.note("batch", (batch,), whole=False)
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        del loss
    return ledger.breakdown() if ledger else None


def taken_apart(model, make, optimizer=torch.optim.Adam):
    model = model()
    return steps(model, optimizer(model.parameters()), make, StepLedger("cpu", contents=True))


def test_every_category_of_an_mlp_with_adam_is_what_the_formula_says():
    found = taken_apart(mlp, vectors).categories

    numbers = 100 * 200 + 200 + 200 * 10 + 10
    assert found["parameters"] == FLOAT * numbers
    assert found["optimizer state"] == 2 * FLOAT * numbers + 4 * FLOAT  # a counter for each of four parameters
    assert found["batch"] == FLOAT * BATCH * 100


def test_activations_are_those_that_wait_for_the_backward_pass_by_the_module_that_made_them():
    wide = nn.Sequential(nn.Linear(100, 500), nn.Tanh(), nn.Linear(500, 3000, bias=False), nn.Linear(3000, 1))

    found = taken_apart(lambda: wide.requires_grad_(True), lambda: torch.randn(4096, 100), torch.optim.SGD)

    by_module = {one.name: one.bytes for one in found.modules}
    assert by_module["1"] == FLOAT * 4096 * 500
    assert by_module["2"] == FLOAT * 4096 * 3000
    assert "0" not in by_module  # what tanh was given is not needed again: freed before the backward pass
    assert sum(by_module.values()) == found.categories["activations"]


def test_gradients_are_told_from_other_tensors_of_the_backward_pass():
    model = nn.Sequential(nn.Linear(1000, 1000), nn.Linear(1000, 1000))

    found = taken_apart(lambda: model, lambda: torch.randn(2, 1000), torch.optim.SGD).categories

    assert found["gradients"] == found["parameters"]
    assert found["temporary"] < found["gradients"] / 10


CASES = [(mlp, vectors), (convolutions, images), (Attending, tokens), (blocks, vectors)]


@pytest.mark.parametrize(("make_model", "make_batch"), [CASES[0], *CASES[2:]])
def test_the_categories_add_up_to_the_peak_of_the_plain_count(make_model, make_batch):
    torch.manual_seed(0)
    model = make_model()
    optimizer, plain = torch.optim.Adam(model.parameters()), Ledger("cpu", contents=True)
    steps(model, optimizer, make_batch, None, 2)
    batch = make_batch()
    with plain:
        for one in (*model.parameters(), *model.buffers(), batch):
            plain.hold(one)
        for state in optimizer.state.values():
            for one in state.values():
                plain.hold(one)
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    assert taken_apart(lambda: model, make_batch).bytes == pytest.approx(plain.peak_bytes, abs=8)  # the loss


@pytest.mark.parametrize(("make_model", "make_batch"), CASES)
def test_without_contents_the_categories_are_the_same_within_three_percent(make_model, make_batch):
    with FakeTensorMode():
        fake = make_model()
        shapes = steps(fake, torch.optim.Adam(fake.parameters()), make_batch, StepLedger("cpu"))

    real = taken_apart(make_model, make_batch)

    assert shapes.bytes == pytest.approx(real.bytes, rel=0.03)
    for name, size in real.categories.items():
        assert shapes.categories[name] == pytest.approx(size, abs=0.03 * real.bytes), name


def _allocated(events):
    """When torch's CPU allocator handed something out or took it back, how much, and the total then."""
    for event in events:
        if hasattr(event.extra_fields, "total_allocated"):
            yield event.start_time_ns, event.extra_fields.alloc_size, event.extra_fields.total_allocated
        yield from _allocated(event.children)


@pytest.mark.parametrize(("make_model", "make_batch"), CASES)
def test_the_categories_add_up_to_what_the_allocator_of_torch_handed_out(make_model, make_batch):
    """An independent count of all but the kernels' own buffers."""
    gc.collect()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as trace:
        model = make_model()
        steps(model, torch.optim.Adam(model.parameters()), make_batch, None)

    told = sorted(_allocated(trace.profiler.kineto_results.experimental_event_tree()))
    _, first, total = told[0]  # totals go on from profile to profile
    peak = max(one[2] for one in told) - (total - first)
    found = taken_apart(lambda: model, make_batch)
    assert found.bytes == pytest.approx(peak, rel=0.03)


def test_recomputing_a_block_would_free_what_it_made_but_for_what_it_hands_on():
    found = taken_apart(blocks, lambda: torch.randn(4096, 100), torch.optim.SGD)

    (first, *others) = found.blocks
    assert [one.name for one in found.blocks] == ["1", "2", "3", "4"]
    assert first.kind == "Block"
    inside = 4096 * (32 + 128) * FLOAT  # of the norm, and of relu
    assert first.bytes == pytest.approx(inside, rel=0.05)
    assert others[0].bytes == first.bytes


def test_recomputed_activations_belong_to_the_activations_and_blocks_that_recompute_are_not_offered():
    recomputing = taken_apart(lambda: checkpoint_blocks(blocks()), lambda: torch.randn(4096, 100), torch.optim.SGD)
    plain = taken_apart(blocks, lambda: torch.randn(4096, 100), torch.optim.SGD)

    assert recomputing.blocks == ()
    assert recomputing.bytes < plain.bytes
    assert recomputing.categories["activations"] > 4096 * (32 + 128) * FLOAT


def test_a_view_of_the_data_set_counts_with_the_bytes_of_the_batch():
    data = torch.randn(100_000, 100)

    found = taken_apart(mlp, lambda: data[:BATCH])

    assert found.categories["batch"] == FLOAT * BATCH * 100


def test_what_loading_makes_is_not_counted():
    ledger, loading = StepLedger("cpu", contents=True, paused=lambda: True), mlp()

    with ledger.watched([loading], ()):
        torch.randn(10_000)

    found = ledger.breakdown()
    assert found.bytes == found.categories["parameters"]


def test_a_number_that_is_read_is_true():
    ledger = StepLedger("cpu", contents=True)

    with ledger.watched([mlp()], ()):
        assert torch.tensor(5.0).item() == 5.0
