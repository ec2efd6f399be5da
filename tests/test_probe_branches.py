"""Trainings that part from the same state: in the child, on models whose course can be told beforehand."""

import pytest
import torch

from autotune import codec
from autotune.branches import BranchesResult
from autotune.launch.base import REQUEST, RESULT
from autotune.noise_scale import learning_rate_factor
from autotune.probe.__main__ import main
from autotune.probe.branches import Carried, train
from autotune.probe.lifeline import Progress
from autotune.requests import BranchesRequest
from autotune.results import Outcome
from tests.targets_support import clean_imports, write
from tests.worlds import config

# All samples are alike and the loss is a parabola or, with POWER 1, a straight line; what is seen is written down.
POINT = """
from pathlib import Path
import torch
from torch import nn

class Point(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.full((4,), 2.0))
    def forward(self, x):
        return (self.w**POWER).sum() + 0 * x.sum()

def model(): return Point()
def dataset():
    return torch.utils.data.TensorDataset(torch.arange(64.0).reshape(64, 1))
def loss(model, batch):
    torch.rand(1)  # a small batch draws more often, as dropout does
    with Path(__file__).with_name("seen").open("a") as file:
        file.write(" ".join(str(int(x)) for x in batch[0][:, 0]) + chr(10))
    return model(batch[0])
def optimizer(params): return torch.optim.OPTIMIZER
"""
SGD, ADAM = "SGD(params, lr=0.01, momentum=0.9)", "Adam(params, lr=0.01)"


@pytest.fixture(autouse=True)
def one_thread():
    """Two threads for tensors of this size only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def request(folder, optimizer=SGD, power=2, batches=(8, 32), **changes):
    target = str(write(folder, POINT.replace("OPTIMIZER", optimizer).replace("POWER", str(power))))
    configs = tuple(config(batch_size=min(size, 16), gradient_accumulation_steps=-(-size // 16)) for size in batches)
    wanted = {"steps": 5, "phi": 32.0, "max_samples": 192, "max_seconds": 60.0, **changes}
    return BranchesRequest(target=target, config=config(batch_size=8), branches=configs, device="cpu", **wanted)


def trained(asked):
    with clean_imports():
        return train(asked, Progress(None)).branches


def test_all_branches_see_as_many_samples_in_the_same_order_over_several_epochs(tmp_path):
    small, large = trained(request(tmp_path))

    lines = (tmp_path / "seen").read_text().splitlines()[5:]
    seen = [int(number) for line in lines for number in line.split()]
    assert sum(small.samples) == sum(large.samples) == 192
    assert (small.global_batch, large.global_batch) == (8, 32)
    assert seen[:192] == seen[192:]
    assert seen[:64] != seen[64:128]  # shuffled anew
    assert sorted(seen[:64]) == list(range(64))


@pytest.mark.parametrize("optimizer", [SGD, ADAM])
def test_a_branch_goes_on_where_training_was_with_all_that_the_optimizer_remembers(tmp_path, optimizer):
    early = trained(request(tmp_path, optimizer, steps=5, batches=(8,)))[0]
    late = trained(request(tmp_path, optimizer, steps=15, batches=(8,)))[0]

    assert early.losses[10:] == pytest.approx(late.losses[:-10], rel=1e-5)
    assert early.losses[0] > 1.1 * early.losses[10] > 0


@pytest.mark.parametrize(
    ("optimizer", "power"), [("SGD(params, lr=0.001)", 1.0), ("Adam(params, lr=0.001)", 0.5)], ids=["sgd", "adam"]
)
def test_the_learning_rate_follows_the_noise_scale_and_for_adam_its_square_root(tmp_path, optimizer, power):
    small, large = trained(request(tmp_path, optimizer, power=1))

    factor = learning_rate_factor(32, 8, 32.0) ** power
    falls = [branch.losses[0] - branch.losses[1] for branch in (small, large)]
    assert (small.learning_rate_factor, large.learning_rate_factor) == (1.0, pytest.approx(factor))
    assert falls[1] / falls[0] == pytest.approx(factor, rel=1e-3)
    assert large.optimizer == optimizer.partition("(")[0]


def test_between_steps_the_optimizer_has_its_own_learning_rate_for_schedules_to_go_on_from():
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.Adam([weight], lr=0.1)
    carried = Carried(None, rate=4.0)

    carried.before(optimizer, (), {})
    during = optimizer.param_groups[0]["lr"]
    carried.after(optimizer, (), {})

    assert during == pytest.approx(0.2)
    assert optimizer.param_groups[0]["lr"] == 0.1


def test_nothing_of_it_stays_in_torch(tmp_path):
    trained(request(tmp_path))

    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    weight.grad = torch.ones(1)
    optimizer.step()
    assert weight.item() == pytest.approx(0.9)


def test_no_time_leaves_a_step_of_each_branch(tmp_path):
    branches = trained(request(tmp_path, max_seconds=1e-9))

    assert [len(branch.losses) for branch in branches] == [1, 1]


def test_a_loss_that_is_not_finite_is_kept_as_such(tmp_path):
    (branch,) = trained(request(tmp_path, "SGD(params, lr=1e30)", power=3, batches=(8,), steps=1))

    assert branch.losses[-1] is None


def test_the_child_leaves_the_branches_or_what_went_wrong(tmp_path):
    asked = request(tmp_path)

    answers = []
    for target in (
        asked.target,
        str(write(tmp_path, "def dataset(): return [1]\ndef model(): raise KeyError(3)\n", "broken.py")),
    ):
        codec.write(tmp_path / REQUEST, BranchesRequest(**{**_fields(asked), "target": target}))
        with clean_imports():
            assert main([str(tmp_path)]) == 0
        answers.append(codec.read(tmp_path / RESULT, BranchesResult))

    assert [answer.outcome for answer in answers] == [Outcome.OK, Outcome.USER_ERROR]
    assert len(answers[0].branches) == 2
    assert {"load", "warm-up", "measure"} <= set(answers[0].phase_seconds)
    assert "KeyError" in answers[1].failure.message


def _fields(record):
    return {name: getattr(record, name) for name in record.__struct_fields__}
