"""Slow lines that are tried: what is left out gives what it gives, and only where losses stay the same, bit for bit."""

from pathlib import Path

import pytest

from autotune.profile.advice import tried
from autotune.profile.judge import expensive_lines
from autotune.profile.measuring.comparison import median_interval
from autotune.profile.measuring.verify import CHANGES, NOT_REPEATED
from autotune.profile.records import MeasuredGain
from tests.profile.test_child import profiled
from tests.profile.test_table import slow_line
from tests.targets_support import HEAD

pytestmark = pytest.mark.slow

LOSS = (
    HEAD
    + """
import copy, io
seen = {}
def model(): return nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 4))
def dataset(): return TensorDataset(torch.randn(256, 8), torch.randint(4, (256,)))
def loss(model, batch):
    inputs, target = batch
    scores = model(inputs)
    value = nn.functional.cross_entropy(scores, target)
"""
)
ZOO = Path(__file__).parent.parent / "slow" / "trainings"
READS = "    read = scores.detach().repeat(200, 1).tolist()\n"


def tried_kinds(folder, text, **changes):
    result = profiled(folder, text, verify=True, **changes)
    return {one.kind: one for one in expensive_lines(result)}


METRIC = "def metric(scores):\n    first = scores[0, 0].item()\n    return sum(n * first for n in range(5000))\n\n"
CALLS = """    seen["model"] = copy.deepcopy(model)
    torch.save(model.state_dict(), io.BytesIO())
    print(scores.detach())
    seen["metric"] = metric(scores)
    return value
"""


def test_what_no_loss_needs_is_left_out_and_measured(tmp_path):
    found = tried_kinds(tmp_path, METRIC + LOSS + CALLS)

    assert {"python", "copying", "saving", "printing"} <= {*found}
    assert {one.unverified for one in found.values()} == {""}
    assert all(one.gain.same_losses for one in found.values())


def test_a_value_that_the_loss_needs_is_not_left_out(tmp_path):
    found = tried_kinds(tmp_path, LOSS + READS + "    return value * (1 + abs(read[0][0]))\n")

    assert found["host read"].unverified == CHANGES
    assert found["host read"].gain is None


def test_a_value_that_never_changes_proves_nothing(tmp_path):
    reads = READS.replace("scores.detach()", "torch.zeros_like(scores)")

    found = tried_kinds(tmp_path, LOSS + reads + "    return value + read[0][0]\n")

    assert "the same in every step" in found["host read"].unverified


def test_losses_that_do_not_repeat_say_nothing(tmp_path):
    counts = "    seen['steps'] = seen.get('steps', 0) + 1\n    return value * (1 + seen['steps'] / 1000)\n"

    found = tried_kinds(tmp_path, LOSS + READS + counts)

    assert found["host read"].unverified == NOT_REPEATED


def test_a_step_that_ends_without_it_ends_only_the_trying(tmp_path):
    # No second read of a tensor: that took 0.6 to 0.8 % of a step beside other work, and from 1 % on it is told, too.
    checks = "    if read == seen.get('read'): raise RuntimeError('stale')\n    seen['read'] = read\n    return value\n"

    found = tried_kinds(tmp_path, LOSS + READS.replace("200", "4000") + checks)

    assert found["host read"].unverified == "steps end without it: RuntimeError: stale"


def test_batches_that_cannot_be_copied_cost_the_trying_and_not_the_profile(tmp_path):
    locked = (
        HEAD + "import threading\nclass Locked(list):\n    def __init__(self, held):\n        super().__init__(held)\n"
    )
    locked += "        self.lock = threading.Lock()\n    def to(self, *_, **__): return self\n"
    joins = "def collate(samples): return Locked(torch.utils.data.default_collate(samples))\n"

    found = tried_kinds(
        tmp_path, LOSS.replace(HEAD, locked + joins) + READS.replace("200", "4000") + "    return value\n"
    )

    assert found["host read"].unverified.startswith("steps cannot be taken again: TypeError: cannot pickle")


def test_weights_that_overlap_in_memory_cost_the_trying_and_not_the_profile(tmp_path):
    overlapping = "    made = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 4))\n"
    overlapping += "    made.register_buffer('mask', torch.ones(1, 1).expand(4, 4))\n    return made\n"
    text = LOSS.replace("def model(): return", "def model():\n" + overlapping + "def unused(): return")

    found = tried_kinds(tmp_path, text + READS.replace("200", "4000") + "    return value\n")

    assert found["host read"].unverified.startswith("steps cannot be taken again: RuntimeError: unsupported operation")


def test_what_a_backward_pass_goes_through_is_not_handed_out_again(tmp_path):
    function = (
        "def outputs(model, inputs):\n    sum(n * n for n in range(50000))\n    return {'scores': model(inputs)}\n\n"
    )

    found = tried_kinds(
        tmp_path, function + LOSS.replace("model(inputs)", "outputs(model, inputs)['scores']") + "    return value\n"
    )

    assert found["python"].unverified == "the backward pass needs what it gives"


def test_averaged_weights_that_change_are_a_reason_to_leave_it(tmp_path):
    averages = """
def decay(number):
    sum([n * n for n in range(20000)])
    return (1 + number) / (10 + number)
def average(averaged, current, number):
    share = decay(int(number))
    return share * averaged + (1 - share) * current
def ema(model): return torch.optim.swa_utils.AveragedModel(model, avg_fn=average)
"""

    found = expensive_lines(profiled(tmp_path, LOSS + "    return value\n" + averages, verify=True))

    assert CHANGES in {one.unverified for one in found}
    assert not any(one.gain for one in found if one.kind == "python")


def test_chance_that_is_drawn_in_a_call_is_a_reason_to_leave_it(tmp_path):
    draws = "    with torch.no_grad():\n        seen['again'] = model(inputs.repeat(64, 1))\n    return value\n"
    noisy = LOSS.replace("nn.ReLU()", "nn.Dropout(0.1)")

    assert tried_kinds(tmp_path, noisy + draws)["evaluating"].unverified == CHANGES


def test_chance_that_a_loader_draws_between_steps_is_none_of_theirs(tmp_path):
    """An epoch of three steps: each epoch begins with draws for the order of samples and the seeds of workers."""
    noisy = LOSS.replace("nn.ReLU()", "nn.Dropout(0.1)").replace("256", "24")

    assert tried_kinds(tmp_path, noisy + READS + "    return value\n")["host read"].unverified == ""


def test_slow_samples_are_tried_out_of_order_with_workers(tmp_path):
    text = (
        HEAD
        + """
import time
class Samples(Dataset):
    def __len__(self): return 512
    def __getitem__(self, index):
        time.sleep(0.1 if index % 64 == 0 else 0.001)
        return torch.randn(4), index % 2
def model(): return nn.Linear(4, 2)
def dataset(): return Samples()
"""
    )

    found = tried_kinds(tmp_path, text, values={"num_workers": 2})

    assert found["tail"].gain.gives_up == "the order of samples"
    assert not found["tail"].gain.same_losses


@pytest.mark.filterwarnings("ignore:This DataLoader will create 4 worker processes")  # more than it has cores
def test_batches_that_wait_for_their_turn_are_tried_out_of_order(tmp_path):
    training = (ZOO / "waits_in_order.py").read_text()
    (tmp_path / "usual.py").write_text((ZOO / "usual.py").read_text())

    found = tried_kinds(tmp_path, training, values={"batch_size": 8, "num_workers": 4})

    assert found["order"].gain.gives_up == "the order of samples"


def test_samples_are_tried_at_once_in_this_process_and_not_in_workers(tmp_path):
    text = (
        HEAD
        + """
def model(): return nn.Linear(4, 1)
def dataset(): return torch.utils.data.TensorDataset(torch.randn(4096, 4), torch.randn(4096, 1))
def loss(model, batch): return nn.functional.mse_loss(model(batch[0]), batch[1])
"""
    )

    here = tried_kinds(tmp_path, text, values={"batch_size": 512})
    in_workers = tried_kinds(tmp_path, text, values={"batch_size": 512, "num_workers": 1})

    assert here["one by one"].gain.same_losses
    assert here["one by one"].gain.low > 0
    assert in_workers["one by one"].unverified == "loader workers, which are other processes, take the samples"


def test_what_was_measured_is_one_clause():
    gain = MeasuredGain(seconds=0.0341, low=0.033, high=0.0352, same_losses=True)

    assert tried(slow_line(gain=gain)) == (
        "without it 34.1 ms faster a step (measured, 33.0 to 35.2); the same losses in 4 steps"
    )
    assert tried(
        slow_line(gain=MeasuredGain(seconds=0.001, low=-0.001, high=0.002, same_losses=False, gives_up="order"))
    ) == ("without it no faster for sure (measured, -1.00 to 2.00 ms a step); gives up order")
    spoiled = MeasuredGain(seconds=-1.0, low=-14.4, high=0.1, same_losses=True)
    assert tried(slow_line(gain=spoiled)) == (
        "not verified: steps with and without it differ too much, probably because of other work"
    )
    assert tried(slow_line(unverified=CHANGES)) == f"not verified: {CHANGES}"
    assert tried(slow_line()) == ""


@pytest.mark.parametrize(("count", "outside"), [(3, 0), (6, 0), (9, 1), (12, 2), (20, 5)])
def test_the_interval_of_a_median_leaves_out_as_many_from_either_end(count, outside):
    """Tables of the sign test, 95 %: 9 values leave 1 out, 12 leave 2, 20 leave 5."""
    assert median_interval([float(one) for one in range(count)]) == (outside, count - 1 - outside)
