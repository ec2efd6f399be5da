"""Clipping, schedules, averaged weights and several optimizers are part of a step, as in the loop that people write."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import nn

from autotune.core.records import Value
from autotune.memory.records import ShapeRunRequest
from autotune.targets.base import Order
from autotune.targets.loop import Training
from autotune.testing.target_contract import clean_imports
from tests.targets_support import COMPLETE, HEAD, Recorder, inspect, refused, start, watch, write

ROWS = (
    "g = torch.Generator().manual_seed(1)\n"
    "def dataset(): return TensorDataset(torch.randn(64, 4, generator=g), torch.randint(2, (64,), generator=g))\n"
    "def sampler(dataset): return torch.utils.data.SequentialSampler(dataset)\n"
)
SEEDED = HEAD + "def model():\n    torch.manual_seed(0)\n    return nn.Linear(4, 2)\n" + ROWS
SGD = "def optimizer(params): return torch.optim.SGD(params, lr=0.5, momentum=0.9)\n"
WHOLE = (
    SEEDED
    + SGD
    + """
clip_grad_norm = 0.1
def scheduler(optimizer): return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
def ema(model):
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
    return AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.5))
"""
)


def trained(folder: Path, text: str, steps: int, **values: Value) -> Training:
    session = cast(Training, start(folder, text, **{"batch_size": 16} | values))
    session.train(watch(steps))
    return session


def rows() -> tuple[torch.Tensor, torch.Tensor]:
    draws = torch.Generator().manual_seed(1)
    return torch.randn(64, 4, generator=draws), torch.randint(2, (64,), generator=draws)


def plain(steps: int) -> tuple[nn.Module, nn.Module, float]:
    """What a loop by hand makes of `WHOLE`: the model, its average and the learning rate."""
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    descent = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    schedule = torch.optim.lr_scheduler.LambdaLR(descent, lambda step: 1 / (1 + step))
    averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.5))
    xs, ys = rows()
    for step in range(steps):
        part = slice(16 * (step % 4), 16 * (step % 4) + 16)
        nn.functional.cross_entropy(model(xs[part]), ys[part]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        descent.step()
        schedule.step()
        averaged.update_parameters(model)
        descent.zero_grad()
    return model, averaged, descent.param_groups[0]["lr"]


def update_of(session: Training) -> Any:
    assert session.update is not None
    return session.update


@pytest.mark.parametrize("accumulation", [1, 4])
def test_clipping_schedule_and_average_are_those_of_a_loop_by_hand(tmp_path: Path, accumulation: int) -> None:
    model, averaged, rate = plain(5)

    found = trained(
        tmp_path, WHOLE, 5, batch_size=16 // accumulation, gradient_accumulation_steps=accumulation
    )  # fmt: skip

    update = update_of(found)
    torch.testing.assert_close(list(found.model.parameters()), list(model.parameters()))
    torch.testing.assert_close(list(update.averaged.parameters()), list(averaged.parameters()))
    assert update.optimizers[0].param_groups[0]["lr"] == pytest.approx(rate)


def test_what_belongs_to_a_step_is_told_and_kept_in_the_facts(tmp_path: Path) -> None:
    facts = inspect(tmp_path, WHOLE)

    told = {one.name: one.text for one in facts.check_lines}
    assert told["clipping"] == "the norm of all gradients together is at most 0.1"
    assert told["schedule"] == "LambdaLR, stepped after every optimizer step"
    assert told["ema"] == "AveragedModel, updated after every optimizer step"
    assert facts.update == ("clip_grad_norm", "scheduler", "ema")
    assert facts.settable is None


OVERFLOWING = (
    HEAD
    + """
def model(): return nn.Linear(4, 2)
def batch(batch_size): return torch.ones(batch_size, 4)
def loss(model, batch): return model(batch).sum() * 1000
def optimizer(params): return torch.optim.SGD(params, lr=1e-9FUSED)
clip_grad_norm = 1.0
rates = []
def scheduler(optimizer):
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rates.append(step) or 1.0)
"""
)


@pytest.mark.parametrize("fused", ["", ", fused=True"])
def test_gradients_are_unscaled_before_they_are_clipped_and_no_schedule_follows_a_skipped_step(
    tmp_path: Path, fused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    norms: list[float] = []
    clip = nn.utils.clip_grad_norm_

    def noted(*arguments: Any) -> Any:
        norm = clip(*arguments)
        norms.append(float(norm))
        return norm

    monkeypatch.setattr(nn.utils, "clip_grad_norm_", noted)
    session = cast(Training, start(tmp_path, OVERFLOWING.replace("FUSED", fused), amp_dtype="float16", batch_size=8))

    session.train(recorder := watch(30))

    skipped = [step.skipped for step in recorder.steps]
    true_norm = 1000 * 8 * (2 * 5) ** 0.5  # of 2 x 4 weights and 2 biases
    assert skipped[0] and not skipped[-1]
    assert norms[-1] == pytest.approx(true_norm, rel=1e-2)
    assert update_of(session).schedulers[0].last_epoch == 30 - sum(skipped)


def test_repeated_steps_leave_the_schedule_where_it_was(tmp_path: Path) -> None:
    session = cast(Training, start(tmp_path, WHOLE, batch_size=16))
    session.train(watch(1))
    weights = [one.detach().clone() for one in session.model.parameters()]

    session.train(Recorder(Order.REPEAT, Order.REPEAT, Order.REPEAT))

    update = update_of(session)
    assert update.schedulers[0].last_epoch == 2  # one step before, and the one that the second training began with
    assert update.optimizers[0].param_groups[0]["lr"] == pytest.approx(0.5 / 3)
    assert not torch.equal(weights[0], next(session.model.parameters()))


def test_a_schedule_of_a_fixed_length_ends_and_the_probe_goes_on(tmp_path: Path) -> None:
    cycle = "def scheduler(optimizer): return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=3)\n"

    session = trained(tmp_path, SEEDED + SGD + cycle, 9)

    assert update_of(session).schedulers[0].last_epoch == 2


TWO = (
    HEAD
    + """
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
def optimizer(model):
    return [torch.optim.SGD(model[0].parameters(), lr=0.5), torch.optim.AdamW(model[1].parameters(), lr=0.1)]
"""
    + ROWS
)


def test_several_optimizers_of_one_loss_step_together(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
    descents = [torch.optim.SGD(model[0].parameters(), lr=0.5), torch.optim.AdamW(model[1].parameters(), lr=0.1)]
    (xs, ys), norm = rows(), 0.2
    for step in range(4):
        part = slice(16 * step, 16 * step + 16)
        nn.functional.cross_entropy(model(xs[part]), ys[part]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), norm)
        for one in descents:
            one.step()
            one.zero_grad()

    found = trained(tmp_path, TWO + f"clip_grad_norm = {norm}\n", 4, batch_size=8, gradient_accumulation_steps=2)

    torch.testing.assert_close(list(found.model.parameters()), list(model.parameters()))
    told = {one.name: one.text for one in inspect(tmp_path, TWO).check_lines}
    assert told["optimizer"] == "SGD(lr=0.5, momentum=0) and AdamW(lr=0.1)"


def test_averaged_weights_count_in_the_memory_that_is_predicted(tmp_path: Path) -> None:
    from autotune.child.lifeline import Progress
    from autotune.core.records import Config
    from autotune.knobs import defaults
    from autotune.memory.child import predict_peaks

    big = SEEDED.replace("nn.Linear(4, 2)", "nn.Sequential(nn.Linear(4, 500_000), nn.Linear(500_000, 2))") + SGD
    peaks = []
    for text in (big, big + WHOLE[WHOLE.index("def ema") :]):
        path = write(tmp_path, text)
        request = ShapeRunRequest(
            target=str(path), config=Config(values=defaults()), device="cpu", arms=({},), batches=(8,),
            micro_batches=1, limit_bytes=None, max_seconds=60, shapes_vary=False,
        )  # fmt: skip
        with clean_imports():
            (arm,) = predict_peaks(request, Progress(None)).arms
        assert arm.reason is None
        peaks.append(arm.points[0][1])

    averaged = 4 * (4 * 500_000 + 500_000 + 500_000 * 2 + 2)
    assert peaks[1] - peaks[0] == pytest.approx(averaged, rel=0.01)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("clip_grad_norm = '1.0'\n", "clip_grad_norm is '1.0'. It is the largest norm"),
        ("clip_grad_norm = True\n", "clip_grad_norm is True."),
        ("clip_grad_norm = 0\n", "Write a number above 0, such as clip_grad_norm = 1.0."),
        ("clip_grad_norm = float('nan')\n", "clip_grad_norm is nan."),
        ("def scheduler(): ...\n", "scheduler() returned None (did you forget return?)"),
        ("def scheduler(optimizer, warmup): ...\n", 'scheduler() asks for "warmup"'),
        ("def scheduler(optimizer): return optimizer\n", "scheduler() returned a SGD. It is stepped after every"),
        (
            "def scheduler(optimizer): return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)\n",
            "scheduler() returned a ReduceLROnPlateau. It follows a metric of your evaluation",
        ),
        (
            "def scheduler(optimizer):\n    other = torch.optim.SGD(model().parameters())\n"
            "    return torch.optim.lr_scheduler.StepLR(other, 9)\n",
            "scheduler() returned a StepLR of another optimizer than optimizer() returned.",
        ),
        ("scheduler = torch.optim.lr_scheduler.StepLR(optimizer(model().parameters()), 9)\n", "scheduler is a StepLR"),
        ("def ema(model): ...\n", "ema() returned None (did you forget return?)"),
        ("def ema(model): return nn.Linear(4, 2)\n", "ema() returned a Linear, which has no update_parameters(model)."),
        (
            "def ema(model):\n    model.update_parameters = print\n    return model\n",
            "ema() returned the model itself.",
        ),
        ("def ema(decay, rate): ...\n", 'ema() asks for "decay"'),
        ("def optimizer(params): return []\n", "optimizer() returned a list. autotune steps optimizers"),
        (
            "def optimizer(params): return {'a': torch.optim.SGD(params)}\n",
            "optimizer() returned a dict. autotune steps optimizers of torch.optim",
        ),
        (
            "def optimizer(params): return torch.optim.SGD(nn.Linear(4, 2).parameters())\n",
            "optimizer() returned SGD with no parameter of the model that model() returned.",
        ),
        (
            "def optimizer(params): return [torch.optim.SGD(params), torch.optim.Adam(params[:1])]\n",
            "optimizer() returned Adam (number 2) with parameters that another of them has too.",
        ),
    ],
)
def test_what_cannot_be_meant_has_its_message(tmp_path: Path, text: str, words: str) -> None:
    error = refused(tmp_path, COMPLETE + SGD + text)

    assert words in str(error)
