"""A step of the user's own is measured as it is: GANs, critics, several updates of one batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import nn

from autotune.core.records import Value
from autotune.errors import TargetError
from autotune.targets.base import Order
from autotune.targets.loop import Training
from autotune.testing.target_contract import TargetContract
from tests.targets_support import HEAD, Recorder, inspect, refused, start, watch

GAN = (
    HEAD
    + """
F = nn.functional

def model():
    torch.manual_seed(0)
    return nn.ModuleDict({"critic": nn.Linear(4, 1), "maker": nn.Linear(3, 4)})

def optimizer(model):
    return [torch.optim.Adam(model[name].parameters(), lr=0.01) for name in ("critic", "maker")]

g = torch.Generator().manual_seed(1)
def dataset(): return TensorDataset(torch.randn(64, 4, generator=g))
def sampler(dataset): return torch.utils.data.SequentialSampler(dataset)
"""
)
STEP = """
def step(model, batch, optimizers):
    critic, maker = optimizers
    (real,) = batch
    made = model["maker"](torch.ones(len(real), 3))
    truth = model["critic"](real).mean() - model["critic"](made.detach()).mean()
    critic.backward(-truth)
    critic.step()
    critic.zero_grad()
    fooled = model["critic"](made).mean()
    maker.backward(-fooled)
    maker.step()
    maker.zero_grad()
    return truth
"""
WHOLE = GAN + STEP


def trained(folder: Path, text: str, steps: int, **values: Value) -> tuple[Training, Recorder]:
    session, told = cast(Training, start(folder, text, **{"batch_size": 16} | values)), watch(steps)
    session.train(told)
    return session, told


class TestGan(TargetContract):
    """Everything that any kind of target keeps, as far as a step of its own goes."""

    text = HEAD + (
        "def model(): return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))\n"
        "def dataset(): return TensorDataset(torch.randn(64, 4), torch.randint(2, (64,)))\n"
        "def step(model, batch, optimizers):\n"
        "    loss = nn.functional.cross_entropy(model(batch[0]), batch[1])\n"
        "    optimizers[0].backward(loss)\n    optimizers[0].step()\n    optimizers[0].zero_grad()\n"
        "    return loss\n"
    )

    def test_every_step_has_the_samples_that_were_asked_for(self, tmp_path: Path) -> None:
        for batch in (4, 16):
            steps = self._steps(tmp_path, 3, batch_size=batch)

            assert [(step.samples, step.micro_batches) for step in steps] == [(batch, 1)] * 3

    def test_accumulation_runs_in_cycles_of_two_where_that_will_do_and_in_full_where_it_cannot(
        self, tmp_path: Path
    ) -> None:
        with pytest.raises(TargetError, match="gradient_accumulation_steps is 8, and"):
            self._open(tmp_path, batch_size=4, gradient_accumulation_steps=8)

    def test_a_loss_is_the_mean_of_a_step_as_a_tensor_of_no_dimension(self, tmp_path: Path) -> None:
        step = self._steps(tmp_path, 1, batch_size=4)[0]

        assert step.loss.dim() == 0 and not step.loss.requires_grad
        assert 0.01 < float(step.loss) < 10


def test_a_gan_learns_as_in_a_loop_by_hand(tmp_path: Path) -> None:
    torch.manual_seed(0)
    critic, maker = nn.Linear(4, 1), nn.Linear(3, 4)
    first, second = (torch.optim.Adam(one.parameters(), lr=0.01) for one in (critic, maker))
    data = torch.randn(64, 4, generator=torch.Generator().manual_seed(1))
    losses = []
    for real in data.split(16):
        made = maker(torch.ones(16, 3))
        truth = critic(real).mean() - critic(made.detach()).mean()
        (-truth).backward()
        first.step()
        first.zero_grad()
        (-critic(made).mean()).backward()
        second.step()
        second.zero_grad()
        losses.append(truth.detach())

    session, told = trained(tmp_path, WHOLE, 4)

    torch.testing.assert_close(list(session.model.parameters()), [*critic.parameters(), *maker.parameters()])
    torch.testing.assert_close([step.loss for step in told.steps], losses)


def test_it_is_told_what_is_its_own_and_accumulation_is_not_tuned(tmp_path: Path) -> None:
    facts = inspect(tmp_path, WHOLE + "def validation(): return dataset()\n")

    told = {one.name: one for one in facts.check_lines}
    assert told["loss"].text.startswith("what step() returns")
    assert told["optimizer"].text == "Adam(lr=0.01) and Adam(lr=0.01)"
    assert told["validation"].text.startswith("not run: step() does not define") and told["validation"].needs_attention
    assert facts.update == ("step",)
    assert facts.settable is not None and "gradient_accumulation_steps" not in facts.settable
    assert {"batch_size", "amp_dtype", "num_workers"} <= set(facts.settable)
    assert not facts.has_validation and not facts.owns_loop
    assert facts.step is not None and facts.step.parameters_with_gradient == 4


def test_a_validation_runs_where_a_loss_is_given_for_it(tmp_path: Path) -> None:
    loss = "def loss(model, batch): return model['critic'](batch[0]).mean()\ndef validation(): return dataset()\n"
    session, _ = trained(tmp_path, WHOLE + loss, 1)

    assert session.validate(2) == 2
    assert inspect(tmp_path, WHOLE + loss).has_validation


def test_forward_passes_are_in_half_precision_and_backward_passes_and_steps_are_not(tmp_path: Path) -> None:
    seen = """
where = {}
def step(model, batch, optimizers):
    (optimizer,) = optimizers
    out = model["critic"](batch[0])
    where["forward"] = str(out.dtype)
    out.register_hook(lambda _: where.update(backward=torch.is_autocast_enabled("cpu")))
    before = optimizer.param_groups[0]["params"][0]
    optimizer.backward(out.float().mean())
    optimizer.step()
    again = model["critic"](batch[0])  # with the weights that it has now, not those that autocast had converted
    where["fresh"] = not torch.equal(again, out)
    optimizer.zero_grad()
    assert where == {"forward": "torch.bfloat16", "backward": False, "step": False, "fresh": True}, where
    return out.float().mean()

class Noted(torch.optim.SGD):
    def step(self, closure=None):
        where["step"] = torch.is_autocast_enabled("cpu")
        return super().step(closure)

def optimizer(model): return Noted(model.parameters(), lr=10.0)
"""
    _, told = trained(tmp_path, GAN + seen, 2, amp_dtype="bfloat16")

    assert len(told.steps) == 2


OVERFLOWING = """
def step(model, batch, optimizers):
    critic, maker = optimizers
    loss = (model["critic"](batch[0]) * 1000).float().sum()
    for _ in range(2):
        critic.backward(loss, retain_graph=True)
        critic.step()
        critic.zero_grad()
    maker.backward(model["maker"](torch.ones(4, 3)).float().sum())
    maker.step()
    maker.zero_grad()
    return loss
clip_grad_norm = 1.0
def scheduler(optimizers):
    return [torch.optim.lr_scheduler.LambdaLR(one, lambda step: 1.0) for one in optimizers]
"""


def test_a_step_that_the_scaler_skips_is_told_and_may_step_an_optimizer_twice(tmp_path: Path) -> None:
    session, told = trained(tmp_path, GAN + OVERFLOWING, 30, amp_dtype="float16")

    skipped = [step.skipped for step in told.steps]
    assert session.update is not None
    assert skipped[0] == 1 and skipped[-1] == 0
    assert {one.last_epoch for one in session.update.schedulers} == {30 - sum(skipped)}


def test_repeated_steps_teach_nothing(tmp_path: Path) -> None:
    session, _ = trained(tmp_path, WHOLE, 1)
    seen: list[Any] = []

    class Looking(Recorder):
        def step(self, step: Any) -> Order:
            seen.append([one.detach().clone() for one in session.model.parameters()])
            return super().step(step)

    session.train(Looking(Order.REPEAT, Order.REPEAT, Order.STOP))

    torch.testing.assert_close(seen[0], seen[2])


def test_it_runs_on_shapes_and_on_the_worst_batch(tmp_path: Path) -> None:
    from contextlib import nullcontext

    from autotune.targets import resolve
    from autotune.testing.target_contract import clean_imports
    from tests.targets_support import write

    worst = "def worst_batch(batch_size): return [torch.ones(batch_size, 4)]\n"
    path = write(tmp_path, WHOLE + worst)
    session, _ = trained(tmp_path, WHOLE + worst, 1)
    held: list[torch.Tensor] = []

    with clean_imports():
        from autotune.core.records import Config
        from autotune.knobs import defaults

        target = resolve(str(path)).shape_run(Config(values=defaults()), "cpu", lambda name: None, shapes_vary=False)
        target.training({}, 1).step(64, nullcontext(), held.append)

    assert session.train_worst() == 1
    assert held[0].shape == (64, 4)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def step(model, batch): ...\n", "step() stepped no optimizer."),
        ("def step(model, batch, optimizers, state): ...\n", 'step() asks for "state"'),
        ("def step(batch, net, optimizers): ...\n", 'step() asks for "net"'),
        ("step = nn.Linear(4, 2)\n", "step is a Linear object, and autotune calls step(model, batch, optimizers)"),
        ("step = 3\n", "step is a int, and autotune calls step(model, batch, optimizers)"),
        (
            "def step(model, batch, optimizers): return model['critic'](batch[0]).mean()\n",
            "step() stepped no optimizer.",
        ),
        (STEP.replace("return truth", ""), "step() returned None (did you forget return?)"),
        (STEP.replace("return truth", "return truth.item()"), "step() returned float: return one scalar tensor."),
        (STEP.replace("return truth", "return {'truth': truth}"), "step() returned a dict of 1."),
        (STEP.replace("return truth", "return made"), "step() returned Tensor(32, 4): return one scalar."),
        (STEP.replace("maker.step()", "maker.step(); maker.step()"), "Adam was stepped in step() without a backward"),
        (STEP.replace("critic.backward(-truth)", "(-truth).backward()"), "Call optimizer.backward(loss) before every"),
        (STEP.replace("critic.backward(-truth)", "critic.backward(truth.item())"), "was given a float without a gradi"),
        (STEP.replace("critic.backward(-truth)", "critic.backward(truth.detach())"), "a Tensor without a gradient"),
        (STEP.replace("critic, maker = optimizers", "critic, = optimizers"), "too many values to unpack"),
        (STEP + "baseline = {'gradient_accumulation_steps': 4}\n", "and model.py has step()."),
    ],
)
def test_what_cannot_be_meant_has_its_message(tmp_path: Path, text: str, words: str) -> None:
    error = refused(tmp_path, GAN + text)

    assert words in str(error)
