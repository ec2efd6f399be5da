"""Training without contents: batches of any size from two real ones, a count to the byte, reasons where it fails."""

import itertools
from collections import namedtuple
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode

from autotune.child.lifeline import Progress
from autotune.core.codes import Code
from autotune.core.notices import notice
from autotune.core.results import Outcome
from autotune.memory import child
from autotune.memory.records import ShapeRunRequest
from autotune.memory.tensor_tracker import Ledger
from autotune.targets.checkpointing import checkpoint_blocks
from autotune.targets.fake_batches import CannotPredict, Rebatched
from tests.targets_support import COMPLETE, DATASET, HEAD, MODEL, write
from tests.worlds import config

pytestmark = pytest.mark.slow  # many models on fake tensors

Pair = namedtuple("Pair", "left right")
FP32, BF16 = {"amp_dtype": None}, {"amp_dtype": "bfloat16"}


def _shapes(part):
    if isinstance(part, torch.Tensor):
        return tuple(part.shape)
    if isinstance(part, dict):
        return {key: _shapes(value) for key, value in part.items()}
    return [_shapes(value) for value in part] if isinstance(part, list | tuple) else part


def _batch(size):
    return {
        "image": torch.zeros(size, 3, 3),
        "tokens": torch.zeros(size * 7, dtype=torch.int64),
        "weights": torch.zeros(5),
        "boxes": [torch.zeros(2, 4) for _ in range(size)],
        "pair": Pair(torch.zeros(size), "text"),
    }


def test_a_batch_of_any_size_is_grown_from_two_real_ones():
    grown = Rebatched(smaller=_batch(2), larger=_batch(3)).of(64, FakeTensorMode())

    assert _shapes(grown) == _shapes(_batch(64))
    assert grown["tokens"].dtype is torch.int64
    assert isinstance(grown["pair"], Pair)


@pytest.mark.parametrize(
    ("smaller", "larger", "why", "code"),
    [
        (torch.zeros(2, 4), torch.zeros(3, 4, 1), "different numbers of dimensions", Code.DIMENSIONS_VARY),
        (torch.zeros(3, 4), torch.zeros(2, 4), "shapes vary", Code.SHAPES_VARY),
        (torch.zeros(2, 5), torch.zeros(3, 6), "shapes vary", Code.SHAPES_VARY),
        (torch.zeros(2, 2).to_sparse(), torch.zeros(3, 2).to_sparse(), "sparse", Code.BATCHES_SPARSE),
        (torch.nn.Identity(), torch.nn.Identity(), "a Identity, whose size", Code.BATCH_SIZE_UNKNOWN),
        ([1, 2, 3], [1, 2, 3, 4], "lists of 3 and 4 entries", Code.LENGTH_VARIES),
        (torch.zeros(2), [1.0, 2.0, 3.0], "a Tensor here and a list there", Code.BATCHES_MIXED),
    ],
)
def test_what_cannot_be_grown_says_why(smaller, larger, why, code):
    with pytest.raises(CannotPredict, match=why) as caught:
        Rebatched(smaller=smaller, larger=larger).of(8, FakeTensorMode())

    assert caught.value.reason.code is code


class _Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.head = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 2)

    def forward(self, images):
        return self.head(torch.relu(self.norm(self.first(images))).mean((2, 3)))


class _Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.LSTM(12, 16, batch_first=True), nn.Linear(16, 2)

    def forward(self, images):
        return self.head(self.inner(images.flatten(2).transpose(1, 2).repeat(1, 1, 4))[0][:, -1])


class _Residual(nn.Module):
    """A block whose statistics are copied while it is computed again."""

    def __init__(self):
        super().__init__()
        self.inner, self.norm = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3)

    def forward(self, images):
        return images + torch.relu(self.norm(self.inner(images)))


def _recomputed(**policy):
    return checkpoint_blocks(nn.Sequential(*(_Residual() for _ in range(4)), nn.Flatten(), nn.Linear(192, 2)), **policy)


def _recomputed_in_part():
    return _recomputed(every=2)


def _recomputed_selectively():
    return _recomputed(selective=True)


def _peak(model, mode):
    """Of two AdamW steps on a batch of 16."""
    ledger = Ledger("cpu")
    optimizer = torch.optim.AdamW(model.parameters())
    with mode, ledger:
        for tensor in (*model.parameters(), *model.buffers()):
            ledger.hold(tensor)
        for _ in range(2):
            loss = model(torch.randn(16, 3, 8, 8)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            del loss
    return ledger.peak_bytes


@pytest.mark.parametrize(("make", "error"), [
        (_Convolutions, 0), (_Recurrent, 0.01), (_recomputed, 0), (_recomputed_in_part, 0),
        (_recomputed_selectively, 0),
    ],
)  # fmt: skip
def test_fake_tensors_count_what_real_ones_do(make, error):
    mode = FakeTensorMode()
    with mode:
        fake = make()

    assert _peak(fake, mode) == pytest.approx(_peak(make(), nullcontext()), rel=error)


def test_a_restarted_ledger_forgets_what_was_freed_and_keeps_what_lives():
    ledger = Ledger("cpu")
    with ledger:
        kept, freed = torch.empty(100, dtype=torch.uint8), torch.empty(1000, dtype=torch.uint8)
        del freed

    ledger.restart()

    assert ledger.peak_bytes == kept.numel()


def _foretold(folder, text, *arms, batches=(8, 16, 32, 64), **changes):
    target = str(write(folder, text))
    request = ShapeRunRequest(
        target=target, config=config(batch_size=8), arms=arms or (FP32,), batches=batches, device="cpu", **changes
    )
    return child.predict_peaks(request, Progress(None))


IMAGES = HEAD + (
    "def dataset(): return TensorDataset(torch.randn(100, 3, 16, 16), torch.randint(2, (100,)))\n"
    "def model(): return nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 14 * 14, 2))\n"
)


def test_every_arm_climbs_and_ends_at_the_last_batch_that_fits(tmp_path):
    batches = tuple(range(8, 4097, 8))
    unlimited = _foretold(tmp_path, IMAGES, FP32, batches=batches)
    limit = int(unlimited.base_bytes + unlimited.arms[0].peak_bytes(1000))

    found = _foretold(tmp_path, IMAGES, FP32, BF16, batches=batches, limit_bytes=limit)

    full, half = (arm.frontier(limit - found.base_bytes) for arm in found.arms)
    assert found.outcome is Outcome.OK
    assert all(arm.points[0][0] == 8 for arm in found.arms)
    for arm, most in zip(found.arms, (full, half), strict=True):
        assert max(batch for batch in batches if batch <= most) in dict(arm.points)
    assert half > 1.2 * full


def test_a_convolution_s_scratch_is_counted_where_its_kernel_reorders(tmp_path):
    """On a CPU it does so for plain layouts only; measured in `benchmarks/memory.py`."""
    layouts = ({"channels_last": False}, {"channels_last": True})
    deep = IMAGES.replace("nn.ReLU()", "nn.Conv2d(16, 16, 3, padding=1), nn.ReLU()")

    plain, last = (arm.peak_bytes(64) for arm in _foretold(tmp_path, deep, *layouts, batches=(64,)).arms)

    one = 64 * 16 * 14 * 14 * 4  # bytes between the two convolutions
    assert plain - last > one / 2


def test_what_blocks_compute_again_does_not_stay(tmp_path):
    text = HEAD + (
        "def dataset(): return TensorDataset(torch.randn(100, 64), torch.randint(2, (100,)))\n"
        "def block(): return nn.Sequential(*[nn.Linear(64, 64), nn.Tanh()] * 4)\n"
        "def model(): return nn.Sequential(*(block() for _ in range(8)), nn.Linear(64, 2))\n"
    )
    policies = (False, "every_third", "every_second", "selective", True)
    arms = tuple({"activation_checkpointing": one} for one in policies)

    kept, third, second, selective, recomputed = (
        arm.peak_bytes(4096) - arm.peak_bytes(1024)
        for arm in _foretold(tmp_path, text, *arms, batches=(1024, 4096)).arms
    )

    outputs = 3072 * 64 * 4  # bytes of one layer
    assert kept > 32 * outputs  # of four layers in each of eight blocks
    assert recomputed < 16 * outputs  # what goes into each block, and one block
    assert recomputed < second < third < kept
    assert selective > kept > recomputed  # products that tanh has no use for are kept for nothing


def test_the_state_of_the_optimizer_is_counted(tmp_path):
    plain = COMPLETE + "def optimizer(params): return torch.optim.SGD(params, lr=0.1)\n"
    adam = COMPLETE + "def optimizer(params): return torch.optim.AdamW(params)\n"
    wide = "def model(): return nn.Sequential(nn.Linear(4, 5000), nn.Linear(5000, 2))\n"

    less, more = (_foretold(tmp_path, text + wide, batches=(256,)).arms[0].peak_bytes(256) for text in (plain, adam))

    parameters = 4 * (5 * 5000 + 5001 * 2)
    assert more - less >= 2 * parameters


def test_gradients_that_live_while_the_next_micro_batch_is_computed_are_counted(tmp_path):
    wide = COMPLETE + "def model(): return nn.Sequential(nn.Linear(4, 5000), nn.Linear(5000, 2))\n"

    once, twice = (
        _foretold(tmp_path, wide, batches=(64,), micro_batches=count).arms[0].peak_bytes(64) for count in (1, 2)
    )

    assert twice > once


@pytest.mark.parametrize(
    "loss",
    [
        "    loss = nn.functional.cross_entropy(model(batch[0]), batch[1])\n"
        "    assert loss.item() > 0\n"
        "    return loss\n",
        "    loss = nn.functional.cross_entropy(model(batch[0]), batch[1])\n"
        "    return loss if torch.isfinite(loss) else None\n",
        "    loss = nn.functional.cross_entropy(model(batch[0]), batch[1])\n"
        "    read = (loss.detach().repeat(3000, 1000).tolist(), batch[1].tolist(), loss.tolist())\n"
        "    assert (len(read[0]), read[0][-1][-1], read[1][0], read[2]) == (3000, 1.0, 1, 1.0)\n"
        "    return loss\n",
    ],
)
def test_code_that_looks_at_its_loss_goes_on_as_if_all_were_well(tmp_path, loss):
    found = _foretold(tmp_path, COMPLETE + f"def loss(model, batch):\n{loss}", batches=(8,))

    assert found.arms[0].reason is None
    assert found.arms[0].points


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("    output = model(batch[0])\n    return output[output > 0].sum()\n", "depends on the contents of tensors"),
        ("    return torch.from_numpy(model(batch[0]).detach().numpy()).sum()\n", "Error"),
    ],
)
def test_an_arm_that_cannot_be_run_without_contents_says_why(tmp_path, text, why):
    found = _foretold(tmp_path, COMPLETE + f"def loss(model, batch):\n{text}", FP32, BF16)

    assert found.outcome is Outcome.OK
    assert [arm.points for arm in found.arms] == [(), ()]
    assert all(why in arm.why for arm in found.arms)


def test_the_loss_is_inferred_from_real_targets(tmp_path, monkeypatch):
    regression = MODEL + "def dataset(): return TensorDataset(torch.randn(100, 4), torch.randn(100, 2))\n"
    monkeypatch.setattr(nn.functional, "binary_cross_entropy_with_logits", None)  # what a fake target would pass for

    assert _foretold(tmp_path, regression, batches=(8,)).arms[0].reason is None


@pytest.mark.parametrize("seen", [False, True])
def test_where_shapes_vary_the_longest_samples_are_taken(tmp_path, seen):
    text = HEAD + (
        "def model(): return nn.Embedding(10, 64)\n"
        "def dataset(): return [torch.ones(length, dtype=torch.int64) for length in [5, 6, 7] * 10 + [50]]\n"
        "def collate(samples): return nn.utils.rnn.pad_sequence(samples, batch_first=True)\n"
        "def loss(model, batch): return model(batch).square().mean()\n"
    )

    found = _foretold(tmp_path, text, batches=(8,), shapes_vary=seen)

    assert found.arms[0].peak_bytes(8) == pytest.approx(5 * 8 * 50 * 64 * 4, rel=0.05)  # five tensors like the output


@pytest.mark.parametrize(
    "own",
    [
        "def batch(batch_size): return torch.randn(batch_size, 4), torch.randint(2, (batch_size,))\n",
        "def dataloader(batch_size):\n"
        "    while True: yield torch.randn(batch_size, 4), torch.randint(2, (batch_size,))\n",
    ],
)
def test_a_target_that_cuts_its_own_batches_is_foretold_at_sizes_that_it_was_not_asked_for(tmp_path, own):
    text = HEAD + "def model(): return nn.Linear(4, 2)\n" + own

    (arm,) = _foretold(tmp_path, text, batches=(16, 32, 64)).arms

    assert not arm.reason
    assert arm.peak_bytes(64) > arm.peak_bytes(16)


def test_the_batch_that_the_target_names_the_worst_is_the_one(tmp_path):
    worst = (
        COMPLETE + "def worst_batch(batch_size): return torch.ones(batch_size, 900, 4), torch.ones(batch_size, 900)\n"
    )
    text = worst + "def loss(model, batch): return model(batch[0]).square().mean()\n"

    assert _foretold(tmp_path, text, batches=(8,)).arms[0].peak_bytes(8) > 8 * 900 * (4 + 2) * 4


def test_the_target_s_own_tensors_stay_real_and_its_shared_weights_shared(tmp_path):
    text = HEAD + DATASET + (
        "class Tied(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.one, self.other = nn.Linear(4, 4), nn.Linear(4, 4)\n"
        "        self.other.weight = self.one.weight\n"
        "        self.scale = torch.ones(2, 4)\n"
        "    def forward(self, x):\n"
        "        assert self.other.weight is self.one.weight\n"
        "        return nn.functional.linear(self.other(self.one(x)), self.scale)\n"
        "def model(): return Tied()\n"
    )  # fmt: skip

    assert _foretold(tmp_path, text, batches=(8,)).arms[0].reason is None


def test_arms_that_trade_time_for_memory_are_run_where_it_is_scarce_without(tmp_path):
    plain, trade = (FP32 | {"activation_checkpointing": one} for one in (False, True))
    found = _foretold(tmp_path, IMAGES, plain)
    needed = 2 * (found.base_bytes + 2.6 * found.arms[0].peak_bytes(64))

    def asked(limit, *arms, **changes):
        return [one.values for one in _foretold(tmp_path, IMAGES, *arms, limit_bytes=int(limit), **changes).arms]

    assert asked(1.2 * needed, plain, trade, spares_trades=True) == [plain]
    assert asked(0.8 * needed, plain, trade, spares_trades=True) == [plain, trade]
    assert asked(1.2 * needed, trade, spares_trades=True) == [trade]  # nothing is known without
    assert asked(1.2 * needed, plain, trade) == [plain, trade]


def test_an_arm_that_broke_off_says_nothing_of_larger_batches(tmp_path):
    refuses = IMAGES.replace("nn.ReLU()", "Refuses()").replace(
        "def dataset", "class Refuses(nn.Module):\n"
        "    def forward(self, x):\n"
        "        if len(x) > 8: raise ValueError('odd')\n"
        "        return x\n"
        "def dataset", 1,
    )  # fmt: skip
    arms = tuple(FP32 | {"activation_checkpointing": one} for one in (False, True))

    found = _foretold(tmp_path, refuses, *arms, limit_bytes=2**40, spares_trades=True)

    assert [len(arm.points) for arm in found.arms] == [1, 1]


def test_arms_that_there_is_no_time_for_are_left_out(tmp_path):
    found = _foretold(tmp_path, COMPLETE, FP32, BF16, max_seconds=0.0)

    assert [(arm.points, arm.reason) for arm in found.arms] == [((), notice(Code.NOT_PREDICTED_IN_TIME))] * 2


def test_an_arm_whose_time_ends_on_the_way_says_so_and_keeps_what_it_has(tmp_path, monkeypatch):
    readings = SimpleNamespace(monotonic=itertools.count().__next__)  # begin, arm, first batch, second batch
    monkeypatch.setattr(child, "time", readings)

    found = _foretold(tmp_path, COMPLETE, FP32, batches=(8, 32), limit_bytes=2**30, max_seconds=2.5)

    assert [batch for batch, _ in found.arms[0].points] == [8]
    assert found.arms[0].reason == notice(Code.NOT_PREDICTED_IN_TIME)


def test_a_model_that_is_an_object_is_predicted_in_every_arm(tmp_path):
    found = _foretold(tmp_path, IMAGES.replace("def model(): return ", "model = "), FP32, BF16, batches=(8, 16))

    assert [len(arm.points) for arm in found.arms] == [2, 2]
