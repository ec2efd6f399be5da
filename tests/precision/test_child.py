"""Real paired training, tiny and on the CPU: the ways in which a dtype goes wrong, and those in which it does not."""

import gc
from multiprocessing import active_children

import pytest
import torch

from autotune.child.lifeline import Progress
from autotune.core.codes import Code
from autotune.core.results import Outcome
from autotune.knobs import KNOBS
from autotune.knobs.base import Plan
from autotune.precision.child import compare_losses, train
from autotune.precision.judge import judge
from autotune.precision.records import ROLES, PrecisionCheckRequest, PrecisionCheckResult
from tests.targets_support import clean_imports, write
from tests.worlds import config

pytestmark = pytest.mark.slow  # real paired training

HEAD = """
import random
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

def task():
    draws = torch.Generator().manual_seed(7)
    labels = torch.randint(4, (512,), generator=draws)
    centres = torch.randn(4, 1, 8, 8, generator=draws)
    return 0.3 * centres[labels] + torch.randn(512, 1, 8, 8, generator=draws), labels

def dataset(): return torch.utils.data.TensorDataset(*task())
def optimizer(params): return torch.optim.SGD(params, lr=0.01, momentum=0.9)
def loss(model, batch): return F.cross_entropy(model(batch[0]), batch[1])
"""
MLP = HEAD + """
def model(): return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.GELU(), nn.Linear(32, 4))
"""  # fmt: skip
CNN = HEAD + """
def model():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.GELU(), nn.Conv2d(8, 8, 3, stride=2), nn.GELU(),
        nn.Flatten(), nn.Linear(72, 4),
    )
"""  # fmt: skip
DROPOUT = HEAD + """
def model():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.GELU(), nn.Dropout(0.5), nn.Linear(64, 4))
"""  # fmt: skip
AUGMENTED = MLP + """
class Augmented(torch.utils.data.Dataset):
    def __init__(self): self.inputs, self.labels = task()
    def __len__(self): return len(self.labels)
    def __getitem__(self, index):
        noise = 0.3 * torch.randn(1, 8, 8) + 0.3 * float(np.random.randn()) + 0.3 * random.gauss(0, 1)
        return self.inputs[index] + noise, self.labels[index]

def dataset(): return Augmented()
"""  # fmt: skip
OVERFLOWING = MLP + """
class Loud(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.GELU(), nn.Linear(32, 4))
    def forward(self, x):
        return (self.body(x) * 3e5) / 3e5

def model(): return Loud()
"""  # fmt: skip
FAINT = MLP + """
def loss(model, batch): return 1e-6 * F.cross_entropy(model(batch[0]), batch[1])
def optimizer(params): return torch.optim.SGD(params, lr=1e4, momentum=0.9)
"""  # fmt: skip
WILD = MLP + """
def optimizer(params): return torch.optim.SGD(params, lr=30.0, momentum=0.9)
"""  # fmt: skip
UNREPEATABLE = (  # other draws in every run, which imports the file anew; the same ones in every test
    AUGMENTED.replace("0.3 * torch.randn(1, 8, 8)", "np.float32(3 * DRAWS.normal())")
    + """
from pathlib import Path

RUNS = Path(__file__).with_suffix(".runs")
with RUNS.open("a") as runs:
    runs.write(".")
DRAWS = np.random.default_rng(len(RUNS.read_text()))
"""
)
SLOW = CNN + """
def optimizer(params): return torch.optim.SGD(params, lr=0.002, momentum=0.9)
"""  # fmt: skip


def _request(folder, text, dtype, workers=0, **changes):
    target = str(write(folder, text))
    return PrecisionCheckRequest(
        target=target,
        reference=config(batch_size=32, num_workers=workers),
        candidate=config(batch_size=32, num_workers=workers, amp_dtype=dtype),
        device="cpu",
        **{"max_seconds": 120.0, **changes},
    )


def _plan(values):
    plan = Plan(device="cpu")
    for knob in KNOBS:
        knob.apply(values[knob.name], plan)
    return plan


def _compared(request):
    with clean_imports():
        return compare_losses(request, Progress(None))


def _judged(folder, text, dtype, **changes):
    request = _request(folder, text, dtype, **changes)
    return judge(request, _compared(request))


def _compared_with(request, plan):
    """Run by run, the candidate by a plan of our own making."""
    with clean_imports():
        runs = tuple(
            train(
                request.target, request.reference, plan if role == "candidate" else _plan(request.reference),
                Progress(None), role=role, seed=0, steps=request.steps, seconds=60,
            )
            for role in ROLES
        )  # fmt: skip
    return judge(request, PrecisionCheckResult(outcome=Outcome.OK, runs=runs))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("text", [MLP, CNN, DROPOUT, AUGMENTED], ids=["mlp", "cnn", "dropout", "augmented"])
def test_a_healthy_model_tracks_full_precision(tmp_path, text, dtype):
    verdict = _judged(tmp_path, text, dtype)

    assert verdict.verdict == "ok", verdict.reason
    assert verdict.steps == 50
    assert abs(verdict.difference) < 0.003  # the largest null that was measured: 0.23 %


def test_activations_that_overflow_float16_are_unstable(tmp_path):
    verdict = _judged(tmp_path, OVERFLOWING, "float16")

    assert verdict.verdict == "unstable"
    assert (verdict.reason.code, verdict.reason.numbers["broken"]) == (Code.LOSSES_NOT_FINITE, 50)


def test_the_same_activations_do_not_overflow_bfloat16(tmp_path):
    assert _judged(tmp_path, OVERFLOWING, "bfloat16").verdict == "ok"


@pytest.mark.parametrize(("scaled", "word"), [(False, "unstable"), (True, "ok")])
def test_gradients_underflow_in_float16_unless_the_loss_is_scaled(tmp_path, scaled, word):
    request = _request(tmp_path, FAINT, "float16")
    plan = _plan(request.candidate)
    plan.scale_loss = scaled

    verdict = _compared_with(request, plan)

    assert verdict.verdict == word, verdict.reason
    assert ("exactly zero" in verdict.reason.text) is not scaled


def test_weights_in_bfloat16_that_swallow_small_updates_learn_less(tmp_path):
    request = _request(tmp_path, SLOW, "bfloat16")
    plan = _plan(request.reference)
    plan.model_transforms.append(lambda model: model.to(torch.bfloat16))
    plan.batch_transforms.append(lambda part: part.to(torch.bfloat16) if part.is_floating_point() else part)

    verdict = _compared_with(request, plan)

    assert verdict.verdict == "worse", verdict.reason
    assert verdict.difference > 2 * verdict.allowed
    assert _judged(tmp_path, SLOW, "bfloat16").verdict == "ok"  # autocast keeps the weights in float32


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_learning_rate_that_wrecks_full_precision_too_is_not_blamed_on_the_dtype(tmp_path, dtype):
    verdict = _judged(tmp_path, WILD, dtype)

    assert verdict.verdict == "inconclusive"
    assert "fp32 itself" in verdict.reason.text


def test_a_target_whose_draws_cannot_be_repeated_asks_for_several_seeds(tmp_path):
    verdict = _judged(tmp_path, UNREPEATABLE, "bfloat16")

    assert (verdict.verdict, verdict.remedy) == ("inconclusive", "seeds")


@pytest.mark.parametrize(
    ("text", "workers"), [(DROPOUT, 0), (AUGMENTED, 0), (AUGMENTED, 2)], ids=["dropout", "augmented", "by-workers"]
)
def test_runs_of_one_seed_see_the_same_weights_batches_and_draws_and_another_seed_others(tmp_path, text, workers):
    request = _request(tmp_path, text, "bfloat16", workers=workers, seeds=(0, 1), steps=18)  # an epoch has 16

    runs = {(run.role, run.seed): run for run in _compared(request).runs}

    for seed in (0, 1):
        reference = runs["reference", seed]
        assert runs["perturbed", seed].losses == pytest.approx(reference.losses, abs=1e-4)
        assert runs["candidate", seed].losses == pytest.approx(reference.losses, abs=0.02)
    assert runs["reference", 0].losses != pytest.approx(runs["reference", 1].losses, abs=0.02)


def test_the_workers_of_a_run_end_with_it_and_are_not_left_to_garbage_collection(tmp_path, monkeypatch):
    """Which closes their queues first, so that each is waited for in vain, 5 s long."""
    others = {one.pid for one in active_children()}  # of tests before this one
    monkeypatch.setattr(gc, "collect", lambda: 0)
    gc.disable()
    try:
        _compared(_request(tmp_path, MLP, "bfloat16", workers=2, seeds=(0,), steps=3))

        assert {one.pid for one in active_children()} <= others
    finally:
        gc.enable()


def test_a_run_that_draws_more_is_not_off_for_good(tmp_path):
    drawing = AUGMENTED + """
def loss(model, batch):
    torch.rand(3 if torch.is_autocast_enabled("cpu") else 1)
    return F.cross_entropy(model(batch[0]), batch[1])
"""  # fmt: skip

    runs = {run.role: run for run in _compared(_request(tmp_path, drawing, "bfloat16", steps=12)).runs}

    assert runs["candidate"].losses == pytest.approx(runs["reference"].losses, abs=0.008)


def test_the_perturbed_run_starts_from_other_weights(tmp_path):
    runs = {run.role: run for run in _compared(_request(tmp_path, MLP, "bfloat16", steps=3)).runs}

    assert runs["perturbed"].losses != runs["reference"].losses


def test_every_step_is_written_down_with_the_gradient_as_if_the_loss_were_not_scaled(tmp_path):
    runs = {run.role: run for run in _compared(_request(tmp_path, MLP, "float16", steps=7)).runs}

    reference, candidate = runs["reference"], runs["candidate"]
    assert {len(run.losses) for run in runs.values()} == {7}
    assert len(candidate.gradient_norms) == len(candidate.zero_gradient_shares) == 7
    assert candidate.gradient_norms == pytest.approx(reference.gradient_norms, rel=0.02)
    assert (candidate.loss_scale, reference.loss_scale) == (65536.0, None)


def test_skipped_steps_and_the_falling_scale_are_written_down(tmp_path):
    loud_gradients = MLP + "def loss(model, batch): return 1e4 * F.cross_entropy(model(batch[0]), batch[1])\n"

    runs = {run.role: run for run in _compared(_request(tmp_path, loud_gradients, "float16", steps=20)).runs}

    skipped = runs["candidate"].skipped_steps
    assert len(skipped) >= 3
    assert runs["candidate"].loss_scale == 65536.0 / 2 ** len(skipped)
    assert runs["candidate"].gradient_norms[skipped[0]] is None
    assert runs["reference"].skipped_steps == ()


def test_when_the_time_is_up_all_runs_are_equally_short(tmp_path):
    slow_in_full_precision = MLP + """
def loss(model, batch):
    if not torch.is_autocast_enabled("cpu"):
        __import__("time").sleep(0.02)
    return F.cross_entropy(model(batch[0]), batch[1])
"""  # fmt: skip
    result = _compared(_request(tmp_path, slow_in_full_precision, "bfloat16", steps=10**6, max_seconds=1.5))

    lengths = [len(run.losses) for run in result.runs]
    assert lengths == sorted(lengths, reverse=True)  # none is longer than the one before it
    assert lengths[0] < 10**6


def test_a_first_step_that_compiles_does_not_use_up_the_time_of_the_others(tmp_path):
    slow_at_first = MLP + """
SEEN = set()
def loss(model, batch):
    if torch.is_autocast_enabled("cpu") and not SEEN:
        __import__("time").sleep(2.0)
        SEEN.add(1)
    return F.cross_entropy(model(batch[0]), batch[1])
"""  # fmt: skip
    result = _compared(_request(tmp_path, slow_at_first, "bfloat16", steps=5, max_seconds=2.0))

    assert [len(run.losses) for run in result.runs] == [5, 5, 5]


def test_sparse_gradients_are_read_too(tmp_path):
    embedding = HEAD + """
def model(): return nn.Sequential(nn.Embedding(40, 8, sparse=True), nn.Flatten(), nn.Linear(32, 4))
def dataset():
    draws = torch.Generator().manual_seed(7)
    tokens = torch.randint(20, (512, 4), generator=draws)
    return torch.utils.data.TensorDataset(tokens, tokens[:, 0] % 4)
"""  # fmt: skip

    runs = {run.role: run for run in _compared(_request(tmp_path, embedding, "bfloat16", steps=3)).runs}

    assert all(norm > 0 for norm in runs["reference"].gradient_norms)
    unused = 20 * 8 / 452  # entries of words that never occur
    assert runs["reference"].zero_gradient_shares[0] == pytest.approx(unused, abs=1e-6)


@pytest.fixture
def launched(forking_launcher, tmp_path):
    """`launched(text)`: the request for a comparison of a target with this text, and the answer of its own process."""

    def run(text):
        request = _request(tmp_path, text, "bfloat16", steps=25)
        (place := tmp_path / "0000").mkdir()
        return request, forking_launcher.run(request, place)

    return run


def test_a_comparison_in_its_own_process_is_judged_like_one_in_ours(launched):
    request, result = launched(MLP)

    verdict = judge(request, result)

    assert (verdict.verdict, verdict.steps) == ("ok", 25), verdict.reason
    assert {"start", "load", "build", "measure", "done"} <= set(result.phase_seconds)


def test_an_error_in_the_comparison_is_a_result_that_names_the_users_line(launched):
    broken = MLP + "def loss(model, batch): return 1 / 0\n"

    request, result = launched(broken)

    assert (result.outcome, result.runs) == (Outcome.USER_ERROR, ())
    assert result.failure.phase == "measure"
    assert "ZeroDivisionError" in judge(request, result).reason.text


@pytest.mark.parametrize("reference", ["pkg.train", "script.py"])
def test_objects_of_an_imported_module_are_new_in_every_run(tmp_path, monkeypatch, reference):
    """A probe imports the target once; paired runs must not go on with the weights of the run before."""
    body = MLP.replace("def model(): return ", "model = ")
    write(tmp_path, "", "pkg/__init__.py")
    write(tmp_path, body, "pkg/train.py")
    write(tmp_path, "from pkg.train import dataset, loss, model, optimizer\n", "script.py")
    monkeypatch.chdir(tmp_path)
    target = reference if reference == "pkg.train" else str(tmp_path / "script.py")
    request = PrecisionCheckRequest(
        target=target, reference=config(batch_size=32), candidate=config(batch_size=32, amp_dtype="bfloat16"),
        device="cpu", max_seconds=60.0, steps=5, seeds=(0,),
    )  # fmt: skip

    firsts = [run.losses[0] for run in _compared(request).runs]

    assert firsts == pytest.approx([firsts[0]] * 3, rel=0.01)


def test_code_that_can_be_run_once_only_is_compared_all_the_same(tmp_path):
    write(tmp_path, 'import torch\ntorch.library.define("autotune_test::once", "(Tensor x) -> Tensor")\n', "once.py")
    text = "import once\n" + MLP

    runs = _compared(_request(tmp_path, text, "bfloat16", steps=3, seeds=(0,))).runs

    assert [len(run.losses) for run in runs] == [3, 3, 3]
