"""Several ranks: what they wait for one another is told apart, by the rank that the others wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import distributed

from autotune.child.ranks.rank_results import merged, request_of_rank
from autotune.core.results import Outcome
from autotune.profile.judge import expensive_lines, late_rank
from autotune.profile.measuring import communication
from autotune.profile.measuring.communication import exchange_told_apart, who_waits
from autotune.profile.measuring.passes import OF_RANKS
from autotune.profile.measuring.stopwatch import Stopwatch
from autotune.profile.measuring.trace import TRACE
from autotune.profile.page import render
from autotune.profile.profile import Profile
from autotune.profile.records import PARTS, PartSeconds, ProfileExtent, ProfileRequest, ProfileResult, SlowLine
from autotune.profile.table import profile_block
from tests.session_launcher import SessionLauncher
from tests.targets_support import COMPLETE, HEAD
from tests.worlds import config

LAUNCH = "-- python -m torch.distributed.run --nproc-per-node 2 train.py"
SCRIPT = """
import sys, time
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

distributed.init_process_group("gloo")
is_late = distributed.get_rank() == 1
model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 2)){options})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = [(torch.randn(64), 1) for _ in range(256)]
total = torch.zeros(200000)
for _ in range(1000):
    for inputs, targets in torch.utils.data.DataLoader(data, batch_size=8):
        output = model(inputs)
        {in_forward}
        optimizer.zero_grad()
        nn.functional.cross_entropy(output, targets).backward()
        optimizer.step()
        {after}
"""
ACCUMULATING = """
import contextlib, torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

distributed.init_process_group("gloo")
model = DistributedDataParallel(nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 2)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = [(torch.randn(256), 1) for _ in range(256)]
for _ in range(1000):
    for number, (inputs, targets) in enumerate(torch.utils.data.DataLoader(data, batch_size=8)):
        with {context}:
            loss = nn.functional.cross_entropy(model(inputs), targets) / 4
            loss.backward()  # planted
        if number % 4 == 3:
            optimizer.step()
            optimizer.zero_grad(set_to_none={is_set})
            with torch.no_grad():
                model(inputs)  # as an evaluation would
"""
IN_CLOSURE = """
        def passes():
            loss = nn.functional.cross_entropy(model(inputs), targets) / 4
            if number % 4 == 0:
                optimizer.zero_grad()
            loss.backward()
            return loss
        if number % 4 == 3:
            optimizer.step(passes)
        else:
            with model.no_sync():
                passes()
"""
Profiled = Callable[..., ProfileResult]


@pytest.fixture
def profiled(forking_launcher: SessionLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Profiled:
    """Profiles a file that is called as the target is, or by its command."""
    monkeypatch.chdir(tmp_path)

    def profile(
        text: str, *, target: str = "model.py", ranks: int = 2, output: str | None = None,
        extent: ProfileExtent = "whole",
    ) -> ProfileResult:  # fmt: skip
        (tmp_path / target.rpartition(" ")[2]).write_text(text)
        asked = ProfileRequest(
            target=target, config=config(num_threads=1), device="cpu", seconds=0.3, ranks=ranks, output=output,
            extent=extent,
        )  # fmt: skip
        (folder := tmp_path / "profile").mkdir()
        return forking_launcher.run(asked, folder)

    return profile


def script(options: str = "", in_forward: str = "", after: str = "") -> str:
    return SCRIPT.format(options=options, in_forward=in_forward or "pass", after=after or "pass")


def seconds_of(result: ProfileResult, rank: int) -> dict[str, float]:
    return {one.part: one.seconds for one in result.ranks[rank]}


RUNS_OUT = """
kept = []
def loss(model, batch):
    inputs, targets = batch
    kept.append(inputs.mean() * torch.ones(2, 2**18))  # planted
    if len(kept) == 8:
        torch.empty(2**45)
    return nn.functional.cross_entropy(model(inputs), targets)
"""
KEEPS = "(kept := globals().setdefault('held', [])).append(torch.ones(2, 2**18)); len(kept) < 8 or torch.empty(2**45)"


@pytest.mark.slow
@pytest.mark.parametrize("is_command", [False, True], ids=["file", "command"])
def test_lines_whose_tensors_took_the_memory_of_a_rank_are_named(profiled, is_command):
    text = script(after=KEEPS) if is_command else COMPLETE + RUNS_OUT
    target, ranks = (LAUNCH, 1) if is_command else ("model.py", 2)

    result = profiled(text, target=target, ranks=ranks, extent="sites")

    assert result.outcome is Outcome.OOM_HOST, result.failure
    first = result.failure.sites[0]
    line = next(at for at, one in enumerate(text.splitlines(), 1) if "torch.ones(2, 2**18)" in one)
    assert first.place == f"{target.rpartition(' ')[2]}:{line}"
    assert first.bytes >= 8 * 2**21


@pytest.mark.slow
def test_the_ranks_of_a_file_take_the_same_steps_and_lines_of_it_are_found(profiled, tmp_path):
    result = profiled(COMPLETE + PLANTED, output=str(tmp_path))

    assert result.outcome is Outcome.OK, result.failure
    assert [list(seconds_of(result, rank)) for rank in (0, 1)] == [list(PARTS)] * 2
    found = seconds_of(result, result.rank)
    assert found["communication"] > 0
    assert sum(found.values()) == pytest.approx(sum(result.step_seconds) / result.steps)
    assert result.samples == 2 * 32  # of both ranks
    assert OF_RANKS in result.left_out
    assert result.memory is None and result.work is None
    assert (tmp_path / TRACE).is_file()
    first = expensive_lines(result)[0]
    assert (first.kind, first.code.endswith("# planted")) == ("host read", True)
    assert not [one for one in result.slow_lines if one.kind == "full collection"], "they are part of that line"
    (search,) = (one for one in result.slow_lines if one.kind == "graph search")
    assert search.count == pytest.approx(1)
    assert search.seconds > 0


PLANTED = """
find_unused_parameters = True
def loss(model, batch):
    history = batch[0].repeat(2000, 1).tolist()  # planted
    return nn.functional.cross_entropy(model(batch[0]), batch[1])
"""


@pytest.mark.slow
@pytest.mark.parametrize("is_set", [True, False])
def test_gradients_that_are_exchanged_in_every_micro_batch_are_found_with_the_line(profiled, is_set):
    text = ACCUMULATING.format(context="contextlib.nullcontext()", is_set=is_set)

    result = profiled(text, target=LAUNCH)

    assert result.outcome is Outcome.OK, result.failure
    (early,) = (one for one in result.slow_lines if one.kind == "early exchange")
    assert early.code.endswith("# planted")
    assert early.count == pytest.approx(3)
    assert early.seconds > 0


@pytest.mark.slow
@pytest.mark.parametrize("is_set", [True, False])
def test_an_exchange_that_is_left_to_the_last_micro_batch_is_none_too_many(profiled, is_set):
    last = "model.no_sync() if number % 4 != 3 else contextlib.nullcontext()"

    result = profiled(ACCUMULATING.format(context=last, is_set=is_set), target=LAUNCH)

    assert result.outcome is Outcome.OK, result.failure
    assert [one for one in result.slow_lines if one.kind == "early exchange"] == []


@pytest.mark.slow
def test_an_exchange_in_the_closure_of_a_step_is_none_too_many(profiled):
    text = ACCUMULATING.partition("        with {context}")[0] + IN_CLOSURE

    result = profiled(text, target=LAUNCH)

    assert result.outcome is Outcome.OK, result.failure
    assert [one for one in result.slow_lines if one.kind == "early exchange"] == []


@pytest.mark.slow
def test_a_line_that_waits_for_other_ranks_is_told_once_however_it_calls(profiled):
    result = profiled(COMPLETE + EXCHANGED)

    assert result.outcome is Outcome.OK, result.failure
    found = [one for one in result.slow_lines if one.code.startswith("all_reduce(total")]
    assert [(one.kind, one.code.partition("# ")[2]) for one in found] == [
        ("collective", "by name"),
        ("collective", "at once"),
    ]


EXCHANGED = """
from torch.distributed import all_reduce
def loss(model, batch):
    total = torch.zeros(400000)
    all_reduce(total)  # by name
    all_reduce(total, async_op=True).wait()  # at once
    return nn.functional.cross_entropy(model(batch[0]), batch[1])
"""


@pytest.mark.slow
def test_what_shares_out_weights_is_no_line_of_the_users(profiled, forking_launcher, tmp_path):
    (tmp_path / "model.py").write_text(HEAD + SHARED_OUT)
    asked = ProfileRequest(
        target="model.py", config=config(num_threads=1, strategy="fsdp"), device="cpu", seconds=0.3, ranks=2
    )
    (folder := tmp_path / "profile").mkdir()

    result = forking_launcher.run(asked, folder)

    assert result.outcome is Outcome.OK, result.failure
    assert [one for one in result.slow_lines if one.kind == "loop"] == []


SHARED_OUT = """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(16, 16) for _ in range(8))
    def forward(self, x):
        for part in self.parts:
            x = part(x)
        return x

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks, self.head = nn.Sequential(*[Block() for _ in range(12)]), nn.Linear(16, 2)
    def forward(self, x):
        return self.head(self.blocks(x))

def model(): return Net()
def dataset(): return [(torch.randn(16), 1) for _ in range(256)]
"""


@pytest.mark.slow
def test_what_a_command_s_ranks_wait_for_is_found_by_its_lines(profiled):
    text = script(
        options=", find_unused_parameters=True",
        after=f"distributed.all_reduce(total)  # planted\n        {ASYNCHRONOUS}",
    )

    result = profiled(text, target=LAUNCH, ranks=1)

    assert result.outcome is Outcome.OK, result.failure
    one, asynchronous, objects = (one for one in result.slow_lines if one.kind == "collective")
    assert one.code.endswith("# planted")
    assert one.what == "torch.distributed.all_reduce()"
    assert asynchronous.what == ".wait() of an asynchronous exchange"
    assert objects.what == "torch.distributed.all_gather_object()"
    assert asynchronous.place == objects.place
    others = [other for other in result.slow_lines if other.place == objects.place and other.kind != "collective"]
    # A script's own Python, of microseconds, is listed at the line that a timer met most often: it may be this one.
    assert {other.kind for other in others} <= {"python"}
    assert not [other for other in expensive_lines(result) if other in others]
    assert one.count == pytest.approx(1)
    assert 0 < one.seconds <= seconds_of(result, result.rank)["communication"]
    (search,) = (one for one in result.slow_lines if one.kind == "graph search")
    assert "find_unused_parameters=True" in search.code
    assert search.count == pytest.approx(1)


ASYNCHRONOUS = "distributed.all_reduce(total, async_op=True).wait(); distributed.all_gather_object([None] * 2, None)"


@pytest.mark.slow
def test_the_rank_that_the_others_wait_for_is_the_one_that_is_told_of(profiled):
    text = script(options=", find_unused_parameters=True", in_forward="time.sleep(0.05 * is_late)  # planted")
    text = text.replace("nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 2))", "Net()")

    result = profiled(text.replace("is_late =", f"{NOW_AND_THEN}\nis_late ="), target=LAUNCH, ranks=1)

    assert result.rank == 1
    assert "Rank 0 waits " in late_rank(result)
    assert "where `forward` takes " in late_rank(result)
    assert seconds_of(result, 0)["communication"] > seconds_of(result, 1)["communication"]
    assert expensive_lines(result)[0].code.endswith("# planted")
    assert not [one for one in result.slow_lines if one.kind == "graph search"], "it is needed now and then"


@pytest.mark.slow
def test_waiting_before_a_forward_pass_is_no_forward_pass_and_any_loss_ends_a_backward_pass(profiled):
    text = script(after="time.sleep(0.05 * is_late)").replace("nn.Linear(64, 64)", "nn.BatchNorm1d(64)")
    backward = "torch.autograd.backward([before, loss])"
    text = text.replace("output = model(inputs)", "before = (spare * spare).sum(); output = model(inputs)")
    text = text.replace("nn.functional.cross_entropy(output, targets).backward()",
        f"loss = nn.functional.cross_entropy(output, targets); {backward}")  # fmt: skip
    text = text.replace("total =", "spare = nn.Parameter(torch.ones(4)); total =")

    result = profiled(text, target=LAUNCH, ranks=1)

    assert result.outcome is Outcome.OK, result.failure
    waiting, late = seconds_of(result, 0), seconds_of(result, 1)
    assert result.rank == 1
    assert late["other"] > 0.05
    assert waiting["communication"] > late["communication"] + 0.025
    assert waiting["forward"] < 0.025
    assert waiting["backward"] < 0.025


NOW_AND_THEN = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.usual, self.other, self.steps = nn.Linear(64, 2), nn.Linear(64, 2), 0
    def forward(self, x):
        self.steps += 1
        return self.usual(x) if self.steps % 3 else self.usual(x) + self.other(x)
"""


def _rank(communication: float, **seconds: float) -> ProfileResult:
    parts = {"communication": communication, **seconds}
    return ProfileResult(
        outcome=Outcome.OK, steps=4, step_seconds=(0.1,) * 4, samples=8.0,
        parts=tuple(PartSeconds(part=part, seconds=parts.get(part, 0.0)) for part in PARTS),
    )  # fmt: skip


def test_of_ranks_the_one_that_waits_least_is_told_with_the_samples_of_all():
    found = merged([_rank(0.05, forward=0.05), _rank(0.01, forward=0.09)], 0)

    assert (found.rank, found.samples) == (1, 16.0)
    assert [sum(one.seconds for one in parts) for parts in found.ranks] == pytest.approx([0.1, 0.1])
    assert late_rank(found) == "Rank 0 waits 40.0 ms a step longer than rank 1, where `forward` takes 40.0 ms more."


@pytest.mark.parametrize(
    ("file", "options", "is_told"),
    [("train.py", {}, True), ("train.py", {"async_op": True}, False), (pytest.__file__, {}, False)],
    ids=["the user's", "asynchronous", "a library's"],
)
def test_a_call_of_a_collective_is_told_where_the_user_s_code_waits_in_it(tmp_path, file, options, is_told):
    known = dict[str, Any]()
    exec(compile("import sys; frame = sys._getframe()", str(tmp_path / file), "exec"), known)

    assert (who_waits(known["frame"], options) == "user") is is_told


def test_what_another_thread_exchanges_meanwhile_is_no_part_of_a_step(tmp_path, monkeypatch):
    stopwatch, seen = Stopwatch("cpu"), list[str]()
    monkeypatch.setattr(communication, "world_size", lambda: 2)
    monkeypatch.setattr(distributed, "barrier", lambda: seen.append(stopwatch.current))
    call = compile("from torch import distributed; distributed.barrier()", str(tmp_path / "train.py"), "exec")
    stopwatch.start()

    with exchange_told_apart(stopwatch):
        exec(call, {})
        (other := threading.Thread(target=exec, args=(call, {}))).start()
        other.join()

    assert seen == ["communication", "other"]


def test_a_part_that_does_not_explain_the_waiting_is_not_named():
    found = merged([_rank(0.05, forward=0.05), _rank(0.01, forward=0.055)], 0)

    assert late_rank(found) == "Rank 0 waits 40.0 ms a step longer than rank 1."


def test_a_search_of_graphs_that_another_rank_needs_is_no_slow_line():
    needless = SlowLine(kind="graph search", place="train.py:3", code="", what="DDP", count=1.0, seconds=0.01)
    other = replace(needless, kind="host read")
    some, none = (replace(_rank(0.01), slow_lines=found) for found in ((needless, other), (other,)))

    assert merged([some, none], 0).slow_lines == (other,)
    assert merged([some, some], 0).slow_lines == (needless, other)


def test_of_ranks_that_are_as_fast_as_another_it_is_rank_0():
    found = merged([_rank(0.015, forward=0.085), _rank(0.01, forward=0.09)], 0)

    assert (found.rank, late_rank(found)) == (0, "")


def test_the_profile_of_one_rank_is_its_own():
    alone = _rank(0.0, forward=0.1)

    assert merged([alone], 0) == alone
    assert late_rank(alone) == ""


def test_only_rank_0_writes_files():
    asked = ProfileRequest(target="model.py", config=config(), device="cuda", output="/there", ranks=2)

    assert [request_of_rank(asked, rank, 2).output for rank in (0, 1)] == ["/there", None]


def test_the_first_line_says_which_rank_it_is_and_the_answer_who_waits():
    found = merged([_rank(0.05, forward=0.05), _rank(0.01, forward=0.09)], 0)

    shown = profile_block("model.py", config(), "cpu", found).plain

    assert "on cpu, rank 1 of 2: 100 ms a step of 16 samples" in shown.splitlines()[0]
    assert "Rank 0 waits 40.0 ms a step longer than rank 1" in shown
    assert not profile_block("model.py", config(), "cpu", replace(found, rank=0, ranks=())).plain.count("rank")


def test_the_page_says_the_same():
    found = merged([_rank(0.05, forward=0.05), _rank(0.01, forward=0.09)], 0)

    page = render(Profile(
        label="model.py", machine="Example CPU", memory_limit_bytes=2**30, result=found,
        asked=ProfileRequest(target="model.py", config=config(), device="cpu", ranks=2),
    ))  # fmt: skip

    assert "rank 1 of 2" in page
    assert late_rank(found).replace("`", "&#96;") in page or late_rank(found) in page


def test_a_pause_is_part_of_no_step():
    stopwatch = Stopwatch("cpu")
    stopwatch.start()
    for _ in range(2):
        with stopwatch.paused():
            torch.randn(300, 300) @ torch.randn(300, 300)
        stopwatch.step()

    seconds, steps = stopwatch.stop()

    marks = stopwatch._clock.intervals()
    assert sum(steps) == pytest.approx(sum(seconds.values()))
    assert sum(steps) == pytest.approx(sum(marks[0::3]) + sum(marks[2::3]))
