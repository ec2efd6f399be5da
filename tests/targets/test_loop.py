"""The training loop does what a plain one does, with the edits of the plan."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import cast

import pytest
import torch

from autotune.core.records import Config
from autotune.knobs import defaults
from autotune.targets.base import Order
from autotune.targets.loop import Training
from tests.targets_support import COMPLETE, HEAD, MODEL, Recorder, inspect, start, watch

SEEDED = HEAD + (
    "def model():\n    torch.manual_seed(0)\n    return nn.Linear(4, 2)\n"
    "g = torch.Generator().manual_seed(1)\n"
    "def dataset(): return TensorDataset(torch.randn(64, 4, generator=g), torch.randint(2, (64,), generator=g))\n"
    "def sampler(dataset): return torch.utils.data.SequentialSampler(dataset)\n"
)
OVERFLOWING = HEAD + (
    "def model(): return nn.Linear(4, 2)\n"
    "def batch(batch_size): return torch.ones(batch_size, 4)\n"
    "def loss(model, batch): return model(batch).sum() * 1000\n"
)


def trained(session: object, steps: int) -> tuple[list[torch.Tensor], torch.Tensor]:
    training = cast(Training, session)
    training.train(recorder := watch(steps))
    return [parameter.detach() for parameter in training.model.parameters()], recorder.steps[-1].loss


def test_accumulation_learns_the_same_as_the_large_batch(tmp_path: Path) -> None:
    large, large_loss = trained(start(tmp_path, SEEDED, batch_size=32), 3)
    small, small_loss = trained(
        start(tmp_path, SEEDED, batch_size=8, gradient_accumulation_steps=4),
        3,
    )

    torch.testing.assert_close(small, large)
    torch.testing.assert_close(small_loss, large_loss)


def test_a_step_counts_all_its_micro_batches(tmp_path: Path) -> None:
    session = start(tmp_path, SEEDED, batch_size=8, gradient_accumulation_steps=4)

    session.train(recorder := watch(2))

    assert [(step.samples, step.micro_batches) for step in recorder.steps] == [(32, 4), (32, 4)]
    assert all(step.loader_wait_seconds > 0 for step in recorder.steps)
    assert all(step.loss.shape == () and not step.loss.requires_grad for step in recorder.steps)


def test_short_cycles_add_up_two_micro_batches_each_divided_as_asked(tmp_path: Path) -> None:
    training = cast(Training, start(tmp_path, SEEDED, batch_size=8, gradient_accumulation_steps=8))
    training.plan.short_cycles = True
    shares = list[torch.Tensor]()
    whole = training.parallel.loss

    def watched(batch: object) -> torch.Tensor:
        loss = whole(batch)
        loss.register_hook(shares.append)
        return loss

    training.parallel.loss = watched
    training.train(recorder := watch(2))

    assert [(step.samples, step.micro_batches) for step in recorder.steps] == [(16, 2), (16, 2)]
    assert [float(share) for share in shares] == [1 / 8] * 4


def test_steps_that_the_gradient_scaler_skips_are_counted_until_the_scale_fits(tmp_path: Path) -> None:
    session = cast(Training, start(tmp_path, OVERFLOWING, amp_dtype="float16"))
    before = [parameter.detach().clone() for parameter in session.model.parameters()]

    session.train(first := watch(1))
    after = [parameter.detach().clone() for parameter in session.model.parameters()]
    session.train(later := watch(30))

    assert first.steps[0].skipped
    torch.testing.assert_close(after, before)
    skipped = [step.skipped for step in later.steps]
    assert skipped == sorted(skipped, reverse=True)  # the scale is halved until it fits
    assert not skipped[-1]


def test_a_fused_optimizer_that_skips_by_itself_is_noticed_too(tmp_path: Path) -> None:
    fused = OVERFLOWING + "def optimizer(params): return torch.optim.SGD(params, lr=1e-9, fused=True)\n"
    session = start(tmp_path, fused, amp_dtype="float16")

    session.train(recorder := watch(30))

    assert recorder.steps[0].skipped
    assert not recorder.steps[-1].skipped


def test_without_a_scaler_no_step_is_skipped(tmp_path: Path) -> None:
    session = start(tmp_path, OVERFLOWING, amp_dtype="bfloat16")

    session.train(recorder := watch(3))

    assert not any(step.skipped for step in recorder.steps)


FORGETFUL = SEEDED.replace("return nn.Linear(4, 2)", "return nn.Sequential(nn.Linear(4, 2), nn.Dropout())") + (
    "def optimizer(params): return torch.optim.SGD(params, lr=0.1)\n"
)


@pytest.mark.parametrize("accumulation", [1, 2])
def test_a_repeated_step_is_a_whole_one_on_the_batch_seen_last(tmp_path: Path, accumulation: int) -> None:
    training = cast(Training, start(tmp_path, SEEDED, batch_size=8, gradient_accumulation_steps=accumulation))
    batches: list[torch.Tensor] = []
    training.model.register_forward_pre_hook(lambda model, inputs: batches.append(inputs[0]))

    training.train(recorder := Recorder(Order.CONTINUE, Order.REPEAT, Order.REPEAT, Order.CONTINUE))

    last = batches[2 * accumulation - 1]
    repeated = batches[2 * accumulation : 4 * accumulation]
    assert len(batches) == 5 * accumulation
    assert all(batch is last for batch in repeated)
    assert not any(torch.equal(batch, last) for batch in batches[4 * accumulation :])
    assert [step.samples for step in recorder.steps] == [8 * accumulation] * 5
    assert [step.loader_wait_seconds for step in recorder.steps[2:4]] == [0.0, 0.0]


def test_repeated_steps_leave_no_trace_in_the_steps_after_them(tmp_path: Path) -> None:
    once = start(tmp_path, FORGETFUL, batch_size=8)
    often = start(tmp_path, FORGETFUL, batch_size=8)
    repeats = [Order.CONTINUE, *[Order.REPEAT] * 20, *[Order.CONTINUE] * 3]

    torch.manual_seed(0)
    once.train(expected := watch(5))
    torch.manual_seed(0)
    often.train(found := Recorder(*repeats))

    assert len({float(step.loss) for step in found.steps[2:22]}) > 1  # dropout draws anew
    torch.testing.assert_close([step.loss for step in found.steps[22:]], [step.loss for step in expected.steps[2:]])
    parameters = [list(cast(Training, session).model.parameters()) for session in (once, often)]
    torch.testing.assert_close(*parameters)


def test_a_learning_rate_in_a_tensor_comes_back_too(tmp_path: Path) -> None:
    text = SEEDED + "def optimizer(params): return torch.optim.Adam(params, lr=torch.tensor(0.01))\n"
    training = cast(Training, start(tmp_path, text, batch_size=8))

    training.train(watch(1))
    weights = training.model.weight.detach().clone()
    training.train(Recorder(*[Order.REPEAT] * 3))

    assert training.update is not None
    assert float(training.update.optimizers[0].param_groups[0]["lr"]) == pytest.approx(0.01)
    assert not torch.equal(training.model.weight, weights)  # one step before it repeated


def test_forward_and_loss_run_in_the_autocast_of_the_plan(tmp_path: Path) -> None:
    text = COMPLETE + (
        "def loss(model, batch):\n    x, y = batch\n    out = model(x)\n"
        "    assert out.dtype is torch.bfloat16 and torch.is_autocast_enabled('cpu')\n"
        "    return nn.functional.cross_entropy(out, y)\n"
    )
    session = start(tmp_path, text, amp_dtype="bfloat16")

    session.train(recorder := watch(1))

    assert recorder.steps[0].loss.dtype is torch.float32


def test_channels_last_reaches_model_and_images(tmp_path: Path) -> None:
    text = HEAD + (
        "def model(): return nn.Conv2d(3, 2, 3)\n"
        "def batch(batch_size): return {'image': (torch.randn(batch_size, 3, 8, 8), torch.randn(batch_size, 3))}\n"
        "def loss(model, batch):\n    x = batch['image'][0]\n"
        "    assert x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()\n"
        "    assert model.weight.is_contiguous(memory_format=torch.channels_last)\n"
        "    return model(x).mean()\n"
    )

    session = start(tmp_path, text, channels_last=True)

    session.train(recorder := watch(1))
    assert recorder.steps[0].samples == 32


def test_containers_of_a_batch_keep_their_types(tmp_path: Path) -> None:
    text = MODEL + (
        "from collections import UserDict, namedtuple\nPair = namedtuple('Pair', 'x y')\n"
        "class Graph:\n    moved = None\n    def to(self, device):\n        self.moved = device\n        return self\n"
        "def batch(batch_size): return UserDict(pair=Pair(torch.randn(batch_size, 4), 'name'), graph=Graph())\n"
        "def loss(model, batch):\n    assert type(batch) is UserDict and batch['graph'].moved == 'cpu'\n"
        "    assert batch['pair'].y == 'name'\n    return model(batch['pair'].x).mean()\n"
    )
    session = start(tmp_path, text)

    session.train(recorder := watch(1))

    assert recorder.steps[0].samples == 32


VALIDATED = HEAD + (
    "class Net(nn.Linear):\n    seen = ()\n"
    "    def forward(self, x):\n"
    "        self.seen += ((self.training, torch.is_grad_enabled(), torch.is_autocast_enabled('cpu'), len(x)),)\n"
    "        return super().forward(x)\n"
    "def model(): return Net(4, 2)\n"
    "def dataset(): return TensorDataset(torch.randn(100, 4), torch.randint(2, (100,)))\n"
    "def validation(): return TensorDataset(torch.randn(40, 4), torch.randint(2, (40,)))\n"
)


def test_validation_runs_without_gradients_in_eval_mode_and_goes_back(tmp_path: Path) -> None:
    session = cast(Training, start(tmp_path, VALIDATED, batch_size=32, amp_dtype="bfloat16"))

    validated = session.validate(2)
    session.train(watch(1))

    assert validated == 2
    assert session.model.seen == ((False, False, True, 32), (False, False, True, 8), (True, True, True, 32))


def test_there_may_be_less_validation_data_than_asked_for_or_none(tmp_path: Path) -> None:
    assert start(tmp_path, VALIDATED, batch_size=64).validate(5) == 1
    assert start(tmp_path, COMPLETE).validate(5) == 0


def test_validation_is_tried_when_the_target_is_inspected(tmp_path: Path) -> None:
    facts = inspect(tmp_path, VALIDATED)

    assert facts.has_validation
    assert "validation" in [one.name for one in facts.check_lines]


@pytest.mark.parametrize(
    ("layers", "has_convolution", "has_batch_norm"),
    [
        ("nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)", True, True),
        ("nn.ConvTranspose2d(1, 2, 3)", True, False),
        ("nn.Conv1d(8, 2, 3)", False, False),
    ],
)
def test_what_knobs_depend_on_is_found_in_the_model(
    tmp_path: Path, layers: str, has_convolution: bool, has_batch_norm: bool
) -> None:
    text = HEAD + f"def model(): return nn.Sequential({layers})\n"
    shape = "8, 8" if "1d" in layers else "1, 8, 8"
    text += f"def batch(batch_size): return torch.randn(batch_size, {shape})\n"

    facts = inspect(tmp_path, text + "def loss(model, batch): return model(batch).mean()\n")

    assert (facts.has_convolution, facts.has_batch_norm) == (has_convolution, has_batch_norm)


def test_parameters_that_the_loss_does_not_reach_are_told(tmp_path: Path) -> None:
    text = HEAD + "def model(): return nn.ModuleList([nn.Linear(4, 2), nn.Linear(4, 2)])\n"
    text += "def batch(batch_size): return torch.randn(batch_size, 4)\n"

    facts = inspect(tmp_path, text + "def loss(model, batch): return model[0](batch).mean()\n")

    assert facts.step is not None
    assert (facts.step.parameters_with_gradient, facts.step.trainable_parameters) == (2, 4)
    assert "2 of 4 parameter tensors got a gradient" in facts.check_lines[-1].text


def test_a_loss_that_is_not_finite_is_recorded(tmp_path: Path) -> None:
    facts = inspect(tmp_path, COMPLETE + "def loss(model, batch): return model(batch[0]).mean() * float('inf')\n")

    assert facts.step is not None
    assert facts.step.loss is None
    assert "loss not finite" in facts.check_lines[-1].text


def test_a_configuration_can_be_inspected_instead_of_the_baseline(tmp_path: Path) -> None:
    config = Config(values=defaults() | {"batch_size": 4, "amp_dtype": "bfloat16", "num_workers": 2})

    facts = inspect(tmp_path, COMPLETE + "baseline = {'batch_size': 50}\n", config)

    assert "float32 (4, 4)" in {one.name: one.text for one in facts.check_lines}["data"]


@pytest.mark.parametrize("accumulation", [1, 3])
def test_what_watching_costs_is_told_with_every_step(tmp_path: Path, accumulation: int) -> None:
    session = start(tmp_path, SEEDED, batch_size=8, gradient_accumulation_steps=accumulation)

    session.train(recorder := watch(4))

    assert all(step.watching_seconds > 0 for step in recorder.steps)


def test_the_graph_of_a_single_micro_batch_is_the_user_s_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = cast(Training, start(tmp_path, SEEDED, batch_size=8))
    losses: list[torch.Tensor] = []
    starts: list[torch.Tensor] = []
    loss, backward = training.parallel.loss, torch.Tensor.backward
    training.parallel.loss = lambda batch: losses.append(value := loss(batch)) or value
    monkeypatch.setattr(torch.Tensor, "backward", lambda tensor: starts.append(tensor) or backward(tensor))

    training.train(watch(2))

    assert all(one is other for one, other in zip(losses, starts, strict=True))


def test_every_one_of_several_micro_batches_is_a_sign_of_life(tmp_path: Path) -> None:
    session = start(tmp_path, SEEDED, batch_size=8, gradient_accumulation_steps=4)

    session.train(recorder := watch(2))

    assert recorder.micro_batches == 8


def test_steps_that_are_asked_for_at_once_are_those_that_come_one_by_one(tmp_path: Path) -> None:
    one_by_one, at_once = watch(6), watch(2)
    at_once.steps_at_once = 3
    for recorder in (one_by_one, at_once):
        torch.manual_seed(0)
        start(tmp_path, COMPLETE, gradient_accumulation_steps=2, batch_size=10).train(recorder)

    assert [step.steps for step in at_once.steps] == [3, 3]
    assert [step.samples for step in at_once.steps] == [60, 60]
    assert [step.micro_batches for step in at_once.steps] == [6, 6]
    assert one_by_one.epochs == at_once.epochs == 1
    assert (one_by_one.micro_batches, at_once.micro_batches) == (12, 0)  # a block is a sign of life itself
    assert [step.loss for step in at_once.steps] == [one_by_one.steps[2].loss, one_by_one.steps[5].loss]


def test_a_batch_that_is_a_list_is_the_users_own_every_time(tmp_path: Path) -> None:
    text = COMPLETE + (
        "def loss(model, batch):\n    y = batch.pop()\n    x = batch.pop()\n"
        "    return nn.functional.cross_entropy(model(x), y)\n"
    )
    session = start(tmp_path, text, batch_size=10)

    session.train(recorder := Recorder(Order.REPEAT, Order.REPEAT, Order.CONTINUE))

    assert len(recorder.steps) == 4


def test_every_micro_batch_is_looked_at_for_its_shape(tmp_path: Path) -> None:
    text = COMPLETE.replace("TensorDataset(", "Alternating(") + (
        "class Alternating(Dataset):\n"
        "    def __init__(self, *parts): pass\n    def __len__(self): return 64\n"
        "    def __getitem__(self, index): return index\n"
        "def sampler(dataset): return torch.utils.data.SequentialSampler(dataset)\n"
        "def collate(rows):\n    length = 8 if rows[0] // 4 % 2 else 4\n"
        "    return torch.randn(len(rows), length, 4), torch.zeros(len(rows), dtype=torch.long)\n"
        "def loss(model, batch): return nn.functional.cross_entropy(model(batch[0].mean(1)), batch[1])\n"
    )
    session = start(tmp_path, text, batch_size=4, gradient_accumulation_steps=2)

    session.train(watch(2))

    assert session.shapes_vary


def test_what_was_copied_for_a_batch_lives_until_its_gradients_are_there(tmp_path: Path) -> None:
    session = start(tmp_path, COMPLETE, batch_size=10)
    alive, copies = [], []
    session.to_device = lambda batch: [copies.append(weakref.ref(part := tensor.clone())) or part for tensor in batch]
    loss = session.parallel.loss

    def watched(batch):
        value = loss(batch)
        value.register_hook(lambda gradient: alive.append(copies[-1]() is not None))
        return value

    session.parallel.loss = watched
    session.train(watch(2))

    assert alive == [True, True]


def test_a_block_that_takes_long_gives_signs_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.targets.loop.BEAT_SECONDS", 0.0)
    recorder = watch(1)
    recorder.steps_at_once = 5

    start(tmp_path, COMPLETE, batch_size=10).train(recorder)

    assert recorder.micro_batches >= 4


def test_a_layer_that_calls_conv2d_with_a_weight_of_its_own_is_a_convolution(tmp_path: Path) -> None:
    text = HEAD + (
        "class Own(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.weight = nn.Parameter(torch.randn(2, 1, 3, 3))\n"
        "    def forward(self, images): return nn.functional.conv2d(images, self.weight)\n"
        "def model(): return Own()\n"
        "def batch(batch_size): return torch.randn(batch_size, 1, 8, 8)\n"
        "def loss(model, batch): return model(batch).mean()\n"
    )

    assert inspect(tmp_path, text).has_convolution
