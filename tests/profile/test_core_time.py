"""Other work on the machine makes no line look cheaper or dearer."""

import types

import pytest
from torch.utils.data import DataLoader

from autotune.profile.measuring import calls, samples
from autotune.profile.measuring.calls import CALLS, Calls
from autotune.profile.measuring.core_time import ThreadMoment, spent, stretch_of
from autotune.profile.measuring.samples import FEWEST_SAMPLES, Samples
from autotune.profile.measuring.stopwatch import Stopwatch
from autotune.targets.data import Epochs
from tests.targets_support import HEAD, write

BEGAN = ThreadMoment(passed=10.0, computed=4.0, waits=7)


def test_time_without_a_core_is_a_wait_only_where_the_thread_gave_it_up():
    assert spent(BEGAN, ThreadMoment(11.0, 4.25, 7)) == (0.25, 0.0)
    assert spent(BEGAN, ThreadMoment(11.0, 4.25, 8)) == (0.25, 0.75)


def test_steps_for_whose_half_others_had_the_core_computed_twice_as_long():
    assert stretch_of(BEGAN, ThreadMoment(12.0, 5.0, 7), 0.5) == 2.0
    assert stretch_of(BEGAN, ThreadMoment(12.0, 5.0, 7), 0.0) == 1.0
    assert stretch_of(BEGAN, ThreadMoment(12.0, 5.0, 7), None) == 1.0  # a kernel that does not tell


@pytest.mark.parametrize(
    ("passed", "waits", "seconds"), [(0.25, 0, 0.75), (9.0, 0, 0.75), (1.25, 1, 1.75)], ids=["alone", "late", "waits"]
)
def test_a_call_takes_the_same_share_of_a_step_whether_its_core_was_taken_away_or_not(
    tmp_path, monkeypatch, passed, waits, seconds
):
    monkeypatch.syspath_prepend(tmp_path)
    file = write(tmp_path, HEAD + "def step(loss):\n    return loss.item()  # planted\n")
    known = {}
    exec(compile(file.read_text(), str(file), "exec"), known)
    moments = iter([BEGAN, ThreadMoment(BEGAN.passed + passed, BEGAN.computed + 0.25, BEGAN.waits + waits)])
    monkeypatch.setattr(calls, "moment", lambda: next(moments))
    stopwatch = Stopwatch("cpu")
    stopwatch.step()
    counted = Calls([known["nn"].Linear(1, 1)], stopwatch, "cpu", CALLS)

    with counted.watched():
        known["step"](known["torch"].ones(()))
    counted.step(counts=True)

    (one,) = counted.result(1, stretch=3.0)
    assert one.code.endswith("# planted")
    assert one.seconds == pytest.approx(seconds)


def test_samples_of_workers_are_read_until_there_are_enough_while_others_have_the_core(monkeypatch):
    clock = types.SimpleNamespace(now=0.0, waited=0.0)
    monkeypatch.setattr(samples, "time", types.SimpleNamespace(perf_counter=lambda: clock.now))
    monkeypatch.setattr(samples, "run_queue_wait", lambda: clock.waited)

    class Late:
        def __len__(self):
            return 2 * FEWEST_SAMPLES

        def __getitem__(self, index):
            clock.now, clock.waited = clock.now + 0.1, clock.waited + 0.1 - (0.02 if index == 7 else 0.001)
            return index

    read = Samples(Epochs(DataLoader(Late(), num_workers=1)))  # 6.4 seconds, of which 0.08 are its own
    read.read_beside()

    tail = read.result(samples=8, waiting=1.0, step=1.0)
    assert tail.what == "7"
    assert tail.ratio == pytest.approx(20)
