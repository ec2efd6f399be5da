"""Gradients of single micro-batches: in the child, against gradients that are computed here by hand."""

import pytest
import torch

from autotune.child.__main__ import main
from autotune.child.lifeline import Progress
from autotune.core import codec
from autotune.core.results import Outcome
from autotune.gradient_noise.child import AVERAGED_NOISE_LOSSES, FEWEST_MICRO_BATCHES, SKETCH_NUMBERS, Sketches, measure
from autotune.gradient_noise.estimate import estimate
from autotune.gradient_noise.records import NoiseScaleRequest, NoiseScaleResult
from autotune.launch.base import REQUEST, RESULT
from tests.targets_support import clean_imports, write
from tests.worlds import config

# f(w) = |w - x|^2 / 2 with x around 0: the gradient is w - x, tr(Sigma) = 64 and |G|^2 = |w|^2, which is written down.
QUADRATIC = """
from pathlib import Path
import torch
from torch import nn

class Point(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.full((64,), 2.0))
    def forward(self, x):
        return 0.5 * ((self.w - x) ** 2).sum(dim=1)

def model(): return Point()
def dataset():
    draws = torch.Generator().manual_seed(3)
    return torch.utils.data.TensorDataset(torch.randn(4096, 64, generator=draws))
def loss(model, batch):
    Path(__file__).with_name("signal").write_text(str(float(model.w.detach().square().sum())))
    return model(batch[0]).mean()
def optimizer(params): return torch.optim.SGD(params, lr=RATE, momentum=0.9)
"""


def request(folder, text=QUADRATIC, rate=0.005, **changes):
    values = {"batch_size": 8, **changes.pop("values", {})}
    target = str(write(folder, text.replace("RATE", str(rate))))
    return NoiseScaleRequest(target=target, config=config(**values), device="cpu", **{"max_seconds": 120.0, **changes})


def measured(asked):
    with clean_imports():
        return measure(asked, Progress(None)).sample


def true_phi(folder):
    """At the weights of the last micro-batch."""
    return 64 / float((folder / "signal").read_text())


@pytest.mark.slow
def test_the_noise_scale_of_a_quadratic_is_measured_where_the_loss_has_begun_to_fall(tmp_path):
    sample = measured(request(tmp_path))

    found = estimate(sample)
    assert sample.has_fallen
    assert sample.steps >= 30
    assert sample.losses[-1] < 0.9 * sample.losses[0]
    assert found.phi == pytest.approx(true_phi(tmp_path), rel=0.15)
    assert found.low < found.phi < found.high < 1.2 * found.low


def test_training_goes_on_until_the_loss_falls_but_not_for_ever(tmp_path):
    quick = measured(request(tmp_path, rate=0.01, micro_batches=1))
    slow = measured(request(tmp_path, rate=0.0001, micro_batches=1))
    still = measured(request(tmp_path, rate=0.0, micro_batches=1))

    assert (quick.steps, quick.has_fallen) == (30, True)
    assert 30 < slow.steps < 100
    assert slow.has_fallen
    assert (still.steps, still.has_fallen) == (100, False)


def test_the_weights_stand_still_while_gradients_are_taken(tmp_path):
    sample = measured(request(tmp_path, rate=0.02, least_steps=2 * AVERAGED_NOISE_LOSSES, values={"batch_size": 64}))

    squares = sample.squared_norms
    early, late = sum(squares[:8]), sum(squares[-8:])
    assert late == pytest.approx(early, rel=0.05)  # momentum would have taken the weights to their end


def test_no_time_ends_training_where_it_may_and_leaves_a_sample_that_can_be_judged(tmp_path):
    sample = measured(request(tmp_path, rate=0.0, max_seconds=1e-9))

    assert sample.steps == 30
    assert not sample.has_fallen
    assert len(sample.samples) == FEWEST_MICRO_BATCHES


def test_a_scaled_loss_gives_the_gradients_of_the_loss(tmp_path):
    head = QUADRATIC.replace("self.w - x", "self.w.to(x.dtype) - x")

    half = measured(request(tmp_path, head, values={"amp_dtype": "float16"}))
    full = measured(request(tmp_path, head))

    assert half.squared_norms == pytest.approx(full.squared_norms, rel=0.02)


def test_gradients_that_are_not_finite_are_left_out_and_counted(tmp_path):
    broken = QUADRATIC.replace(
        "return model(batch[0]).mean()",
        "SEEN.append(batch); return model(batch[0]).mean() * (float('inf') if len(SEEN) in (40, 45) else 1)",
    )

    sample = measured(request(tmp_path, "SEEN = []\n" + broken, least_steps=30, least_fall=0.0))

    assert sample.dropped == 2
    assert len(sample.samples) == 62
    assert estimate(sample).phi == pytest.approx(true_phi(tmp_path), rel=0.35)


def test_the_products_of_sketches_are_those_of_the_gradients():
    model = torch.nn.Linear(3 * SKETCH_NUMBERS + 7, 1, bias=False)  # three and a bit fall on each other
    sketches = Sketches(0)
    sketches.watching(model)
    sketches.is_taking = True
    draws = torch.Generator().manual_seed(0)
    gradients = [torch.rand(3 * SKETCH_NUMBERS + 7, generator=draws) for _ in range(2)]  # all of one sign

    taken = []
    for gradient in gradients:
        model(gradient).sum().backward()
        taken.append(sketches.take())

    (norm, row), (other, column) = taken
    assert (norm, other) == pytest.approx([float(one @ one) for one in gradients], rel=1e-4)
    scatter = (norm * other / SKETCH_NUMBERS) ** 0.5
    assert abs(float(row @ column) - float(gradients[0] @ gradients[1])) < 5 * scatter


def test_a_small_model_is_sketched_without_loss():
    model = torch.nn.Linear(20, 5)
    sketches = Sketches(0)
    sketches.watching(model)
    sketches.is_taking = True

    rows, exact = [], []
    for size in (1.0, 2.0):
        model(torch.full((4, 20), size)).square().mean().backward()
        exact.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))
        rows.append(sketches.take()[1])
        model.zero_grad()

    assert float(rows[0] @ rows[1]) == pytest.approx(float(exact[0] @ exact[1]), rel=1e-5)


def test_sparse_gradients_are_read_too(tmp_path):
    embedding = """
import torch
from torch import nn
from torch.nn import functional as F
def model(): return nn.Sequential(nn.Embedding(40, 8, sparse=True), nn.Flatten(), nn.Linear(32, 4))
def optimizer(params): return torch.optim.SGD(params, lr=0.1)
def dataset():
    tokens = torch.randint(20, (512, 4), generator=torch.Generator().manual_seed(7))
    return torch.utils.data.TensorDataset(tokens, tokens[:, 0] % 4)
"""

    sample = measured(request(tmp_path, embedding, micro_batches=16))

    assert min(sample.squared_norms) > 0


def answered(folder, text):
    """What the child's own main leaves in its folder."""
    codec.write(folder / REQUEST, request(folder, text))
    with clean_imports():
        assert main([str(folder)]) == 0
    return codec.read(folder / RESULT, NoiseScaleResult)


def test_the_child_leaves_the_sample_with_the_time_of_each_phase(tmp_path):
    result = answered(tmp_path, QUADRATIC)

    assert result.outcome is Outcome.OK
    assert len(result.sample.samples) == 64
    assert {"load", "warm-up", "measure"} <= set(result.phase_seconds)


def test_an_error_of_the_user_is_a_result_too(tmp_path):
    result = answered(tmp_path, QUADRATIC.replace("model(batch[0])", "model(batch[7])"))

    assert (result.outcome, result.sample) == (Outcome.USER_ERROR, None)
    assert "model.py" in result.failure.message
