"""One batch and its halves show whether the loss is a mean over samples: micro-batches of others train another loss."""

import pytest
import torch

from autotune.targets.halved_batch import HalvedLosses, halved_losses
from tests.targets_support import COMPLETE, HEAD, inspect, start, watch

FUNCTIONAL = "from torch.nn import functional as F\nbaseline = {'batch_size': 32}\n"
PAIRS = """
def model(): return nn.Linear(16, 16)
def dataset(): return TensorDataset(torch.randn(100, 16), torch.randn(100, 16))
def loss(model, batch):
    one, other = (F.normalize(model(part), dim=1) for part in batch)
    return F.cross_entropy(one @ other.T, torch.arange(len(one)))
"""
OF_CLASSES = "def loss(model, batch): return {}\n"
TOKENS = """
class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Embedding(50, 8), nn.Linear(8, 50))
    def forward(self, input_ids): return 20 * self.net(input_ids)  # losses differ more
class Lines(Dataset):
    def __len__(self): return 64
    def __getitem__(self, at):
        torch.manual_seed(at)
        ids = torch.randint(1, 50 if at % 2 else 5, (20,))
        labels = ids.where(torch.arange(20) < (20 if at % 2 else 2), -100)
        return {"input_ids": ids, "labels": labels}
def sampler(dataset): return [*range(1, 64, 2), *range(0, 64, 2)]
def model(): return Language()
def dataset(): return Lines()
def loss(model, batch):
    return F.cross_entropy(model(batch["input_ids"]).flatten(0, 1), batch["labels"].flatten(), ignore_index=-100)
baseline = {"batch_size": 64}
"""
NORMALISED = """
def model(): return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))
"""
LIGHTNING = """
from lightning import LightningModule
from torch.utils.data import DataLoader
class Net(LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(16, 16)
    def training_step(self, batch, index):
        one, other = (F.normalize(self.net(part), dim=1) for part in batch)
        return F.cross_entropy(one @ other.T, torch.arange(len(one)))
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), lr=0.1)
    def train_dataloader(self): return DataLoader(TensorDataset(torch.randn(64, 16), torch.randn(64, 16)), batch_size=8)
"""
CROSS_ENTROPY = "F.cross_entropy(model(batch[0]), batch[1]"
NOISE = "F.cross_entropy(model(batch[0] + torch.randn_like(batch[0])), batch[1], reduction='sum')"
OF_LIST = "def collate(samples): return [torch.stack([x for x, _ in samples]), [int(y) for _, y in samples]]\n"
LIST_LOSS = OF_CLASSES.format("F.cross_entropy(model(batch[0]), torch.tensor(batch[1]), reduction='sum')")


def _told(facts):
    return [one.text for one in facts.check_lines if "no mean over samples" in one.text]


@pytest.mark.parametrize(
    ("text", "is_mean"),
    [
        (COMPLETE, True),
        (COMPLETE + OF_CLASSES.format(f"{CROSS_ENTROPY})"), True),
        (COMPLETE + OF_CLASSES.format(f"{CROSS_ENTROPY}, reduction='sum')"), False),
        (HEAD + PAIRS, False),
        (HEAD + LIGHTNING, False),
        (HEAD + TOKENS, True),
        (COMPLETE + NORMALISED, True),
    ],
    ids=["inferred", "mean", "sum", "pairs", "lightning", "tokens", "normalised"],
)
def test_a_batch_and_its_halves_show_whether_the_loss_is_a_mean_over_samples(tmp_path, text, is_mean):
    if LIGHTNING in text:
        pytest.importorskip("lightning")
    facts = inspect(tmp_path, text + FUNCTIONAL)

    assert facts.is_mean_loss is is_mean
    assert bool(_told(facts)) is not is_mean


@pytest.mark.parametrize(
    "text",
    [
        COMPLETE + OF_CLASSES.format(NOISE),
        COMPLETE + OF_LIST + LIST_LOSS,
        HEAD + PAIRS + "def samples(batch): return 2 * len(batch[0])\n",
        HEAD + PAIRS.replace("one, other =", "assert len(batch[0]) == 32\n    one, other ="),
        COMPLETE + OF_CLASSES.format(f"{CROSS_ENTROPY}, reduction='sum')") + "baseline = {'batch_size': 1}\n",
        COMPLETE + "def step(model, batch, optimizers):\n    optimizers[0].zero_grad()\n"
        "    loss = F.cross_entropy(model(batch[0]), batch[1], reduction='sum')\n    optimizers[0].backward(loss)\n"
        "    optimizers[0].step()\n    return loss\n",
    ],
    ids=["noise", "list", "samples", "fixed", "one sample", "step"],
)
def test_nothing_is_concluded_where_it_cannot_be_seen(tmp_path, text):
    facts = inspect(tmp_path, FUNCTIONAL + text)

    assert facts.is_mean_loss is None
    assert _told(facts) == []


def test_the_line_says_what_was_measured():
    (line,) = HalvedLosses(samples=64, whole=4.1589, halves=(3.4657, 3.47)).check_lines

    assert line.needs_attention
    assert line.text.startswith("the loss of 64 samples is 4.159, of its halves 3.466 and 3.47: it is no mean over ")


@pytest.mark.parametrize(
    ("whole", "halves", "is_mean"),
    [
        (8.318, (7.625, 7.625), False),  # ln 4096
        (2.0, (1.0, 1.0), False),
        (1.02, (1.0, 1.0), True),  # rounding
        (1.9, (1.0, 2.0), True),  # a mean of unequal weights
        (0.0, (0.0, 0.0), True),
        (-3.0, (-1.5, -1.5), False),
    ],
)
def test_a_mean_lies_between_its_halves_or_near_their_mean(whole, halves, is_mean):
    assert HalvedLosses(samples=64, whole=whole, halves=halves).is_mean is is_mean


def test_looking_leaves_modes_buffers_and_random_states_as_they_were(tmp_path):
    drawing = OF_CLASSES.format(f"{CROSS_ENTROPY}) + 0 * torch.rand(())")
    training = start(tmp_path, COMPLETE + NORMALISED + drawing + FUNCTIONAL, batch_size=32)
    training.train(watch(1))
    training.model[1].eval()  # as a frozen part
    batch, buffers = next(iter(training.source())), [one.clone() for one in training.model.buffers()]
    modes, chance = [one.training for one in training.model.modules()], torch.get_rng_state()

    found = halved_losses(training, batch)

    assert found is not None and found.is_mean
    assert modes == [one.training for one in training.model.modules()]
    assert all(map(torch.equal, buffers, training.model.buffers()))
    assert torch.equal(chance, torch.get_rng_state())
