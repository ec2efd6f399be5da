"""What is a slow line in a real training, and what looks like one and is none."""

import gc
from itertools import chain, cycle, repeat

import pytest
import torch

from autotune.child.clock import HostClock
from autotune.profile.advice import seen
from autotune.profile.measuring import comparison
from autotune.profile.measuring.comparison import MOST_COMPARISONS, agreed_share
from autotune.profile.measuring.loading import _gain
from tests.profile.test_child import BURNING, FLOPS, profiled, seconds
from tests.targets_support import HEAD

pytestmark = pytest.mark.slow
LOSS = """
def loss(model, batch):
    inputs, target = batch
    {body}
    return nn.functional.cross_entropy(model(inputs), target)
"""
TWO = (
    HEAD
    + """
class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.maker, self.critic = nn.Linear(4, 4), nn.Linear(4, 1)
def model(): return Pair()
def batch(batch_size): return torch.randn(batch_size, 4)
def optimizer(model): return [torch.optim.SGD(one.parameters(), lr=0.01) for one in (model.maker, model.critic)]
def step(model, batch, optimizers):
    maker, critic = optimizers
    made = model.maker(batch)
    critic.zero_grad()
    critic.backward((model.critic(made.detach()) - model.critic(batch)).mean())
    critic.step()
    maker.zero_grad()
    {before}
    loss = model.critic(made).mean()
    maker.backward(loss)
    {after}
    maker.step()
    return loss.detach()
"""
)


def found(folder, text, kind, **changes):
    return [one for one in profiled(folder, text, **changes).slow_lines if one.kind == kind]


def in_loss(*lines):
    return FLOPS + LOSS.format(body="\n    ".join(lines))


def test_a_loop_of_torchs_own_over_parameters_is_none_of_the_users(tmp_path):
    layers = "nn.Sequential(*(nn.Linear(8, 8) for _ in range(20)))"
    text = (
        HEAD
        + f"""
def model(): return {layers}
def batch(batch_size): return torch.randn(batch_size, 8)
def step(model, batch, optimizers):
    loss = model(batch).square().mean()
    optimizers[0].backward(loss)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizers[0].step()
    optimizers[0].zero_grad()
    return loss.detach()
"""
    )

    assert found(tmp_path, text, "loop") == []


def test_a_copy_that_is_changed_in_place_is_needed_and_one_that_nobody_changes_is_not(tmp_path):
    text = in_loss("needed = inputs.clone()", "needed.mul_(2)", "needless = inputs.clone()")

    (one,) = found(tmp_path, text, "clone")
    assert one.code == "needless = inputs.clone()"
    assert one.count == 1


def test_a_copy_of_what_the_optimizer_changes_is_needed(tmp_path):
    assert found(tmp_path, in_loss("before = model[0].weight.clone()"), "clone") == []


def test_a_dtype_and_back_is_a_slow_line_and_one_way_is_none(tmp_path):
    (one,) = found(tmp_path / "both", in_loss("inputs = inputs.bfloat16().float()"), "casting")

    assert {*one.what.split(" to ")} == {"float32", "bfloat16"}
    assert one.count == 2
    assert found(tmp_path / "one", in_loss("half = inputs.bfloat16()"), "casting") == []


def test_what_is_imported_by_name_is_seen(tmp_path):
    text = "from copy import deepcopy\nfrom gc import collect\n" + in_loss("deepcopy(model)", "collect()")

    assert {one.code for one in profiled(tmp_path, text).slow_lines if one.kind in ("copying", "collector")} == {
        "deepcopy(model)",
        "collect()",
    }


def test_a_hook_of_the_users_counts_with_what_it_reads(tmp_path):
    text = FLOPS.replace(
        "def model(): return nn.Sequential(",
        "def note(module, inputs, output): output.sum().item()\n"
        "def hooked(made):\n    made[0].register_forward_hook(note)\n    return made\n"
        "def model(): return hooked(nn.Sequential(",
    ).replace("bias=False))", "bias=False)))")

    (one,) = found(tmp_path, text, "hook")
    assert one.code.startswith("def note(")
    assert found(tmp_path, text, "host read") == []


def test_the_model_without_gradients_is_a_slow_line_and_another_model_is_a_teacher(tmp_path):
    (one,) = found(
        tmp_path / "same", in_loss("with torch.no_grad():", "    scores = model(inputs)", "inputs + 1"), "evaluating"
    )

    assert one.code == "scores = model(inputs)"
    teacher = "teacher = nn.Linear(64, 8)\n"
    text = in_loss("with torch.no_grad():", "    teacher(inputs)", "inputs + 1").replace(
        "def model", f"{teacher}def model"
    )
    assert found(tmp_path / "other", text, "evaluating") == []
    (one,) = found(tmp_path / "teacher", text, "teacher")
    assert (one.code, one.what) == ("teacher(inputs)", "Linear")


def test_gradients_that_another_optimizer_forgets_are_found_and_toggled_ones_are_none(tmp_path):
    (one,) = found(tmp_path / "all", TWO.format(before="", after=""), "unused")

    assert one.code == "maker.backward(loss)"
    assert one.what == "2 parameters of another SGD"
    toggled = TWO.format(before="model.critic.requires_grad_(False)", after="model.critic.requires_grad_(True)")
    assert found(tmp_path / "toggled", toggled, "unused") == []


@pytest.mark.parametrize(
    ("call", "is_on"),
    [
        ("torch.autograd.set_detect_anomaly(True)", torch.is_anomaly_enabled),
        ("torch.use_deterministic_algorithms(True, warn_only=True)", torch.are_deterministic_algorithms_enabled),
    ],
)
def test_a_setting_that_was_left_on_is_found_with_its_line_and_is_on_afterwards(tmp_path, call, is_on):
    off = call.replace("True", "False", 1)
    try:
        (one,) = found(tmp_path, FLOPS.replace("def model", f"{call}\ndef model"), "switch")
        assert is_on()
    finally:
        eval(off)

    assert one.code == call


def test_a_setting_within_the_step_is_found(tmp_path):
    text = (
        FLOPS
        + LOSS.format(body="torch.autograd.set_detect_anomaly(True)").replace("    return", "    value =")
        + "    torch.autograd.set_detect_anomaly(False)\n    return value\n"
    )

    (one,) = found(tmp_path, text, "switch")
    assert one.code == "torch.autograd.set_detect_anomaly(True)"
    assert not torch.is_anomaly_enabled()


def test_what_works_on_more_in_every_step_is_found_and_other_sizes_are_not(tmp_path):
    text = "pool, sizes = [], []\n" + in_loss(
        "pool.append(inputs)", "torch.cat(pool)", "torch.cat([inputs] * (1 + len(pool) % 3))"
    )

    (one,) = found(tmp_path, text, "growing")
    assert one.code == "torch.cat(pool)"


def test_many_small_operations_of_one_line_are_a_loop_and_layers_are_none(tmp_path):
    deep = "nn.Sequential(*(nn.ReLU() for _ in range(40)), "

    (one,) = found(
        tmp_path / "loop", in_loss("for row in range(40):", "    inputs[row % 8].sum()", "inputs + 1"), "loop"
    )
    assert one.code == "inputs[row % 8].sum()"
    chain = in_loss("for row in range(40):", "    inputs = inputs + 1", "inputs + 1")
    assert found(tmp_path / "chain", chain, "loop") == []
    assert found(tmp_path / "deep", FLOPS.replace("nn.Sequential(", deep), "loop") == []


def test_sixteen_operations_of_one_line_are_a_loop_and_micro_batches_are_none(tmp_path):
    (one,) = found(
        tmp_path / "loop", in_loss("for row in range(16):", "    inputs[row % 8].sum()", "inputs + 1"), "loop"
    )
    assert one.count >= 16
    micro = {"gradient_accumulation_steps": 32}
    assert found(tmp_path / "micro", in_loss("inputs + 1"), "loop", values=micro) == []


def test_what_torch_does_to_each_parameter_is_no_loop_of_the_users(tmp_path):
    layers = "nn.Sequential(*(nn.Linear(8, 8) for _ in range(20)))"
    text = HEAD + (
        f"""
def model(): return {layers}
def batch(batch_size): return torch.randn(batch_size, 8)
def loss(model, batch):
    model.state_dict()
    return model(batch).square().mean()
"""
    )

    assert found(tmp_path, text, "loop") == []


def test_a_loop_without_gradients_has_no_share_of_the_backward_pass(tmp_path):
    loop = "for row in range(400):\n        inputs[row % 8].sum()"

    result = profiled(tmp_path, BURNING + LOSS.format(body=loop))

    (one,) = [one for one in result.slow_lines if one.kind == "loop"]
    assert 0 < one.seconds <= seconds(result)["forward"]  # a ninth of what the backward pass takes


READING = (
    HEAD
    + """
class Samples(Dataset):
    def __len__(self): return 64
    def __getitem__(self, index):
        {how}
        return torch.tensor([float(one) for one in [index] * 20000][:4]), 1
def model(): return nn.Linear(4, 2)
def dataset(): return Samples()
"""
)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_line_that_samples_are_waited_for_is_found_also_where_workers_read(tmp_path, workers):
    lines = found(tmp_path, READING.format(how="pass"), "loading", values={"num_workers": workers})

    one = max(lines, key=lambda one: one.seconds)
    assert one.place.endswith(" in Samples.__getitem__")
    assert one.seconds > 0


def test_a_file_that_is_read_for_every_sample_is_named(tmp_path):
    (one,) = found(tmp_path, READING.format(how="[open(__file__).close() for _ in range(9)]"), "rereading")

    assert one.what == "model.py"


def test_workers_that_keep_up_cost_a_step_nothing():
    assert _gain(0.5, 0.4, computing=1.0) == 0
    assert _gain(1.5, 0.4, computing=1.0) == pytest.approx(0.4)
    assert _gain(1.5, 1.4, computing=1.0) == pytest.approx(0.5)


SHORTER, LONGER = [2.0, 1.0], [1.0, 2.0]  # seconds with something, and without it


def test_what_few_rounds_show_is_no_gain():
    assert agreed_share(SHORTER * 3) == 0.5
    assert agreed_share(SHORTER * 3 + LONGER) == 0.0
    assert agreed_share(SHORTER * 10 + LONGER * 2) == 0.5
    assert agreed_share(SHORTER * 9 + LONGER * 3) == 0.0


@pytest.mark.parametrize(
    ("rounds", "count"), [([SHORTER], 12), ([SHORTER] * 3 + [LONGER], 24), ([SHORTER, LONGER], MOST_COMPARISONS)]
)
def test_rounds_go_on_while_it_is_unsure_which_is_shorter(rounds, count, monkeypatch):
    seconds = chain.from_iterable(cycle(rounds))

    class Passing(HostClock):
        def mark(self):
            before = self._marks[-1] if self._marks else 0.0
            self._marks.append(before + (next(seconds) if len(self._marks) % 2 else 0.0))

    monkeypatch.setattr(comparison, "clock_for", lambda device: Passing())
    comparing = comparison.compare(lambda is_without: None, "cpu", most_seconds=60.0)

    with pytest.raises(StopIteration) as ended:
        for step in repeat(None):
            comparing.send(step)

    assert len(ended.value.value.seconds) == 2 * count


MANY_SAMPLES = (
    "import gc\n"
    + HEAD
    + """
begun = []
def model(): return nn.Linear(16, 4)
def dataset(): return torch.utils.data.TensorDataset(torch.randn(16_384, 16), torch.randint(4, (16_384,)))
def loss(model, batch):
    {body}
    return nn.functional.cross_entropy(model(batch[0]), batch[1])
"""
)


@pytest.fixture
def unfreezing():
    yield
    gc.unfreeze()


def test_full_collections_that_lists_of_samples_bring_about_are_told_with_their_time(tmp_path, unfreezing):
    # Of few objects, as a quarter of these brings the next one about: those of the tests would take seconds.
    text = MANY_SAMPLES.format(body="begun or (begun.append(1), gc.freeze(), gc.collect())")

    (one,) = found(tmp_path, text, "full collection", values={"batch_size": 4096})

    assert 0 < one.count < 1
    assert one.seconds > 0
    assert one.place == ""
    assert "0." in seen(one)


def test_full_collections_within_a_call_that_is_told_are_told_once(tmp_path, unfreezing):
    first = "begun or (begun.append(1), gc.freeze(), gc.collect())"
    text = MANY_SAMPLES.format(body=f"{first}\n    rows = batch[0].repeat(500, 1).tolist()")

    kinds = [one.kind for one in profiled(tmp_path, text, values={"batch_size": 64}).slow_lines]

    assert "host read" in kinds
    assert "full collection" not in kinds


def test_full_collections_that_the_user_asks_for_are_none_of_pythons(tmp_path):
    text = MANY_SAMPLES.format(body="gc.collect()")

    kinds = {one.kind for one in profiled(tmp_path, text, values={"batch_size": 64}).slow_lines}

    assert "collector" in kinds
    assert "full collection" not in kinds
