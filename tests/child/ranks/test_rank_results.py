"""What several ranks say together."""

import pytest
from msgspec.structs import replace

from autotune.child.ranks.rank_results import (
    failed_to_start,
    failure_that_caused_the_others,
    hung,
    merged,
    request_of_rank,
)
from autotune.core.requests import ProbeRequest
from autotune.core.results import Failure, MemoryPeak, Outcome, ProbeResult, Result
from autotune.precision.records import LossRun, PrecisionCheckResult
from tests.worlds import config, failed, measured

MIB = 2**20
REQUEST = ProbeRequest(target="-- torchrun train.py", config=config(), device="cpu")
GONE = "RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:21087"
STACK = """Thread 0x00007f89 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 320 in wait

Current thread 0x00007f88 (most recent call first):
{frames}
  File "<frozen runpy>", line 198 in _run_module_as_main
"""
SLEEPS = STACK.format(frames='  File "/me/train.py", line 12 in load\n  File "/me/train.py", line 40 in <module>')
WAITS = STACK.format(
    frames='  File "/x/site-packages/torch/autograd/graph.py", line 869 in _engine_run_backward\n'
    '  File "/home/me/train.py", line 30 in <module>'
)


def _result(rate, samples=64, peak=500 * MIB, workers=0):
    found = measured(rate, samples=samples)
    memory = MemoryPeak(process_bytes=peak, workers_bytes=workers)
    return replace(found, measurement=replace(found.measurement, memory=memory))


def _error(message, outcome=Outcome.USER_ERROR):
    return ProbeResult(outcome=outcome, failure=Failure(phase="warm-up", message=message, evidence=message))


def test_the_slowest_sets_the_pace_and_the_samples_are_of_all():
    slow, fast = _result(100.0, peak=500 * MIB, workers=10 * MIB), _result(110.0, peak=400 * MIB)

    found = merged([fast, slow], 200 * MIB).measurement

    assert found.samples_per_second == pytest.approx(200.0)
    assert found.step_seconds == slow.measurement.step_seconds
    assert set(found.samples) == {2 * count for count in slow.measurement.samples}
    assert (found.memory.process_bytes, found.memory.workers_bytes) == (1100 * MIB, 10 * MIB)


def test_of_a_kind_of_its_own_the_result_of_rank_0_counts():
    first, second = Result(outcome=Outcome.OK), Result(outcome=Outcome.OK, phase_seconds={"measure": 1.0})

    assert merged([first, second], 0) is first


def _compared(losses, norms, skipped=()):
    run = LossRun(
        role="candidate", seed=0, losses=losses, gradient_norms=norms, zero_gradient_shares=(0.1,) * len(norms),
        skipped_steps=skipped, loss_scale=512.0,
    )  # fmt: skip
    return PrecisionCheckResult(outcome=Outcome.OK, runs=(run,))


def test_losses_are_means_over_the_ranks_as_far_as_all_came():
    first = _compared((2.0, 1.0, None, 0.5), (9.0, 8.0, 7.0, 6.0), skipped=(1, 3))
    second = _compared((4.0, None, 1.0), (5.0, 4.0, 3.0))

    (found,) = merged([first, second], 200 * MIB).runs

    assert found.losses == (3.0, None, None)
    assert (found.gradient_norms, found.zero_gradient_shares) == ((9.0, 8.0, 7.0), (0.1, 0.1, 0.1))
    assert (found.role, found.skipped_steps, found.loss_scale) == ("candidate", (1,), 512.0)


def test_ranks_share_the_memory_and_the_rate_to_beat():
    asked = replace(REQUEST, memory_limit_bytes=1000, incumbent_samples_per_second=300.0)

    of_one = request_of_rank(asked, 1, 2)

    assert (of_one.memory_limit_bytes, of_one.incumbent_samples_per_second) == (500, 150.0)
    assert request_of_rank(REQUEST, 1, 2) == REQUEST


@pytest.mark.parametrize(
    ("results", "cause"),
    [
        ({0: _error(GONE), 1: _error("ValueError: mine")}, "rank 1 of 2: ValueError: mine"),
        ({0: _error("ValueError: mine"), 1: _error("MemoryError", Outcome.OOM_HOST)}, "rank 1 of 2: MemoryError"),
        ({0: _error(GONE), 1: _result(100.0)}, f"rank 0 of 2: {GONE}"),
        ({0: _error("ValueError: both"), 1: _error("ValueError: both")}, "ValueError: both"),
    ],
)
def test_the_first_cause_is_told(results, cause):
    assert failure_that_caused_the_others(results, 2, has_died=False).failure.message == cause


@pytest.mark.parametrize("other", [{}, {0: _error(GONE)}], ids=["waits", "misses it"])
def test_of_a_rank_that_ends_before_another_it_is_told_that_the_other_has_not_ended(other):
    ended = "train.py ended with exit status 0 after 29 optimizer steps, before it was measured. Let it train for 340."

    failure = failure_that_caused_the_others({**other, 1: _error(f"{ended}\nlast line")}, 2, has_died=False).failure

    said, last = failure.message.splitlines()
    assert said.startswith(f"rank 1 of 2: {ended} Rank 0 has not ended: if it takes more steps, give all ranks as many")
    assert last == "last line"


def test_of_ranks_that_end_together_none_is_told_to_take_more_steps():
    ended = "train.py ended with exit status 0 after 29 optimizer steps, before it was measured. It took {} s."

    both = {number: _error(ended.format(number)) for number in range(2)}

    assert failure_that_caused_the_others(both, 2, has_died=False).failure.message == f"rank 0 of 2: {ended.format(0)}"


def test_a_death_explains_all_but_lack_of_memory():
    assert failure_that_caused_the_others({0: _error(GONE)}, 2, has_died=True) is None
    assert failure_that_caused_the_others({0: failed(Outcome.OOM_HOST)}, 2, has_died=True).outcome is Outcome.OOM_HOST


@pytest.mark.parametrize(
    ("stacks", "message"),
    [
        ({0: WAITS, 1: SLEEPS}, "rank 1 in train.py:12 (load) gave no sign of life; rank 0 waits for it"),
        ({0: WAITS, 1: WAITS},
         "rank 0 in train.py:30 (<module>) and rank 1 in train.py:30 (<module>) gave no sign of life"),
        ({1: WAITS}, "rank 1 in train.py:30 (<module>) gave no sign of life"),
        ({0: WAITS, 1: ""}, "rank 1 gave no sign of life; rank 0 waits for it"),
        ({0: WAITS, 1: SLEEPS, 2: WAITS},
         "rank 1 in train.py:12 (load) gave no sign of life; 2 other ranks wait for it"),
        ({0: WAITS, 1: SLEEPS, 2: SLEEPS},
         "rank 1 in train.py:12 (load) and rank 2 in train.py:12 (load) gave no sign of life; rank 0 waits for them"),
        ({1: SLEEPS}, "rank 1 in train.py:12 (load) gave no sign of life"),
    ],
)  # fmt: skip
def test_who_waits_for_another_does_not_hang(stacks, message):
    result = hung(REQUEST, stacks, "measure")

    assert (result.outcome, result.failure.message) == (Outcome.TIMEOUT, message)


def test_a_port_in_use_is_told_as_such_and_nothing_else_is(monkeypatch):
    said = "The server socket has failed to listen on any local network address. port: 29533, useIpv6: false, "
    log = f"{said}code: -98, name: EADDRINUSE, message: address already in use"

    monkeypatch.setattr("autotune.child.ranks.rank_results.own_log_tail", lambda: log)
    told = str(failed_to_start("torchrun", 1))
    monkeypatch.setattr("autotune.child.ranks.rank_results.own_log_tail", lambda: "unrecognized arguments: --nprocs")
    other = str(failed_to_start("torchrun", 2))

    assert told.startswith("torchrun started no rank, because port 29533 is in use. Another training")
    assert "Its options are probably not what it takes." in other
