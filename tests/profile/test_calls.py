"""Which calls within a user's line count for it, and which no line of theirs can leave out."""

import pytest
import torch

from autotune.profile.measuring.calls import CALLS, Calls
from autotune.profile.measuring.stopwatch import Stopwatch
from tests.targets_support import HEAD, write

ADAM = "torch.optim.AdamW(model.parameters(), foreach={foreach})"
PLATEAU = "torch.optim.lr_scheduler.ReduceLROnPlateau(torch.optim.SGD(model.parameters()))"


def lines(folder, before, line):
    """The lines that count, of a model with gradients."""
    made = f"model = nn.Linear(2, 2)\nmodel(torch.ones(1, 2)).sum().backward()\n{before}\n"
    file, known = write(folder, f"{HEAD}{made}def step():\n    {line}\n"), {}
    exec(compile(file.read_text(), str(file), "exec"), known)
    stopwatch = Stopwatch("cpu")
    stopwatch.step()
    counted = Calls([torch.nn.Linear(1, 1)], stopwatch, "cpu", CALLS)
    known["step"]()  # an optimizer makes its state in its first step
    with counted.watched():
        known["step"]()
    counted.step(counts=True)
    return [(one.kind, one.code) for one in counted.result(1, stretch=1.0)]


@pytest.mark.parametrize(
    "optimizer",
    [
        ADAM.format(foreach=False),
        ADAM.format(foreach=True),
        "torch.optim.ASGD(model.parameters(), foreach=True)",
        "torch.optim.Adafactor(model.parameters())",
    ],
)
def test_what_an_optimizer_of_torchs_reads_and_makes_for_itself_is_no_line_of_the_users(tmp_path, optimizer):
    assert lines(tmp_path, f"optimizer = {optimizer}", "optimizer.step()") == []


@pytest.mark.parametrize(
    ("before", "line"),
    [
        (f"optimizer = {ADAM.format(foreach=False)}", "optimizer.step(lambda: model.weight.sum().item())"),
        ("", "nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)"),
        (f"schedule = {PLATEAU}", "schedule.step(model.weight.detach().sum())"),
    ],
)
def test_what_a_line_asks_of_an_optimizer_or_of_other_code_of_torchs_counts_for_it(tmp_path, before, line):
    assert lines(tmp_path, before, line) == [("host read", line)]
