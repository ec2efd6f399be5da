"""Real work on real cores: what is the probe's own, and what is that of others."""

from __future__ import annotations

import ast
import math
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from autotune.core.interference_readings import MOST_WAIT_SHARE, HostInterference
from autotune.machine.interference import KernelCounters, interference_between

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's counters are read from /proc")
BUSY = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
print("ready", flush=True)
while True:
    pass
"""
# A process of its own, so that it can be bound to one core. It works for half a second between two looks.
ALONE = """
import os, sys, time
from autotune.machine.interference import interference_between, read_counters
os.sched_setaffinity(0, {int(sys.argv[1])})
before = read_counters()
end = time.perf_counter() + 0.5
while time.perf_counter() < end:
    pass
seen = interference_between(before, read_counters())
print((seen.run_queue_wait_share, seen.foreign_cores))
"""
# A sample that takes 0.2 s of a core: by the clock, and as it is told.
SAMPLE = """
import os, sys, time
from types import SimpleNamespace
from autotune.profile.measuring.samples import Samples
os.sched_setaffinity(0, {int(sys.argv[1])})

class Dataset:
    def __getitem__(self, index):
        end = time.thread_time() + 0.2
        while time.thread_time() < end:
            pass

samples = Samples(SimpleNamespace())
samples._reader = Dataset()
began = time.perf_counter()
told = samples._seconds_of(0)
print((time.perf_counter() - began, told))
"""
# The same with two workers; what all three used by their own account, and what was seen as the probe's own.
WITH_WORKERS = """
import os, signal, sys, time
from autotune.machine.interference import read_counters
os.sched_setaffinity(0, {int(sys.argv[1])})
reports, report = os.pipe()

def work():
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass

def worker(stays):
    identity = os.fork()
    if identity == 0:
        work()
        os.write(report, f"{time.process_time()}\\n".encode())
        time.sleep(60 * stays)
        os._exit(0)
    return identity

before, began = read_counters(), time.process_time()
ended, staying = worker(stays=False), worker(stays=True)
work()
os.waitpid(ended, 0)
lines = b""
while lines.count(b"\\n") < 2:
    lines += os.read(reports, 100)
after, used = read_counters(), time.process_time() - began
os.kill(staying, signal.SIGKILL)
waited = (after.waited - before.waited) / (after.now - before.now)
print((after.own - before.own, used + sum(map(float, lines.split())), waited))
"""
# A thread that works, a main thread that only waits for it: on one core, for half a second between two looks.
BESIDE_A_THREAD = """
import os, sys, threading, time
from autotune.machine.interference import interference_between, read_counters
os.sched_setaffinity(0, {int(sys.argv[1])})
ends = threading.Event()

def work():
    while not ends.is_set():
        sum(range(1000))

worker = threading.Thread(target=work)
worker.start()
before = read_counters()
time.sleep(0.5)
seen = interference_between(before, read_counters())
ends.set()
worker.join()
ended = interference_between(before, read_counters())
print((seen.run_queue_wait_share, seen.threads_wait_share, ended.threads_wait_share))
"""
CORE = """import os; print(max(os.sched_getaffinity(0)))"""


def python(program: str, *arguments: object) -> list[str]:
    return [sys.executable, "-c", program, *map(str, arguments)]


@pytest.fixture
def core() -> str:
    return subprocess.run(python(CORE), check=True, capture_output=True, text=True).stdout.strip()


@contextmanager
def competitors(count: int, core: str) -> Iterator[None]:
    """Processes that keep `core` busy and do not belong to who looks."""
    started = [subprocess.Popen(python(BUSY, core), stdout=subprocess.PIPE) for _ in range(count)]
    try:
        for process in started:
            assert process.stdout is not None
            process.stdout.readline()
        yield
    finally:
        for process in started:
            process.kill()
            process.communicate()


def answer(program: str, core: str) -> tuple[float, ...]:
    output = subprocess.run(python(program, core), check=True, capture_output=True, text=True).stdout
    return tuple(ast.literal_eval(output))


def test_others_on_the_same_core_contaminate_a_measurement(core: str) -> None:
    with competitors(2, core):
        wait, foreign = answer(ALONE, core)

    found = HostInterference(run_queue_wait_share=wait, foreign_cores=foreign)
    assert found.is_noticeable
    assert wait > 0.4  # two thirds, if the three share evenly
    assert 0.3 < foreign < 1.1
    assert found.slowdown > 1.6


def test_the_wait_of_every_thread_counts_until_one_of_them_has_ended(core: str) -> None:
    with competitors(2, core):
        main, together, after = answer(BESIDE_A_THREAD, core)

    assert together > 0.4  # two thirds, if the three share evenly
    assert together > main + 0.2
    assert after is None  # what it waited is gone with it


def test_the_time_of_a_sample_is_without_that_in_which_others_had_its_core(core: str) -> None:
    with competitors(1, core):
        passed, told = answer(SAMPLE, core)

    assert passed > 0.3  # half of the core was somebody else's
    assert told == pytest.approx(0.2, abs=0.06)  # by the tick


def test_workers_of_the_probe_are_its_own_while_they_run_and_when_they_have_ended(core: str) -> None:
    own, used, waited = answer(WITH_WORKERS, core)

    assert own == pytest.approx(used, abs=0.06)  # three processes, told in ticks of 10 ms
    assert used > 0.5
    assert waited > MOST_WAIT_SHARE  # for its own workers


def test_what_is_not_the_probes_own_is_foreign() -> None:
    before = KernelCounters(now=10.0, waited=1.0, busy=100.0, own=50.0)
    after = KernelCounters(now=12.0, waited=1.5, busy=103.0, own=52.0)

    found = interference_between(before, after)

    assert found == HostInterference(run_queue_wait_share=0.25, foreign_cores=0.5, own_cores=1.0)


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (KernelCounters(now=2.0, waited=0.5, busy=3, own=2, threads={"a": 0.6, "b": 1.1, "c": 0.2}), 0.8),
        (KernelCounters(now=2.0, waited=0.5, busy=3, own=2, threads={"a": 0.6, "c": 0.2}), None),  # b has ended
        (KernelCounters(now=2.0, waited=0.5, busy=3, own=2, threads={"a": 0.6, "b": 1.1}, ended=0.1), None),
        (KernelCounters(now=2.0, waited=None, busy=3, own=2), None),
        (KernelCounters(now=2.0, waited=2.5, busy=3, own=2, threads={"a": 0.6, "b": 1.1}), 1.25),  # the main one's
    ],
)
def test_waits_of_threads_are_summed_unless_one_of_them_or_a_process_has_ended(
    after: KernelCounters, expected: float | None
) -> None:
    before = KernelCounters(now=0.0, waited=0.0, busy=1, own=1, threads={"a": 0.1, "b": 0.2})

    assert interference_between(before, after).threads_wait_share == (
        None if expected is None else pytest.approx(expected)
    )


def test_what_others_cost_at_most_follows_from_the_waits_of_all_threads() -> None:
    assert HostInterference(run_queue_wait_share=0.1, threads_wait_share=0.5).most_slowdown == pytest.approx(2.0)
    assert HostInterference(run_queue_wait_share=0.1, threads_wait_share=1.3).most_slowdown == math.inf
    assert HostInterference(run_queue_wait_share=0.1).most_slowdown == math.inf


def test_counters_that_disagree_by_a_tick_are_no_negative_work() -> None:
    before = KernelCounters(now=0.0, waited=None, busy=1.0, own=1.0)

    found = interference_between(before, KernelCounters(now=1.0, waited=None, busy=1.99, own=2.0))

    assert found == HostInterference(run_queue_wait_share=None, foreign_cores=0.0, own_cores=1.0)


@pytest.mark.parametrize(
    ("wait", "foreign", "is_noticeable"),
    [
        (0.5, 0.5, True),
        (0.5, 0.0, False),  # its own workers
        (0.01, 3.0, False),  # others, on cores that were idle
        (0.5, None, False),
        (None, 3.0, False),
        (None, None, False),
    ],
)
def test_waiting_and_others_together_make_a_contamination(
    wait: float | None, foreign: float | None, is_noticeable: bool
) -> None:
    assert HostInterference(run_queue_wait_share=wait, foreign_cores=foreign).is_noticeable is is_noticeable


def test_the_slowdown_follows_from_the_wait() -> None:
    assert HostInterference(run_queue_wait_share=0.67).slowdown == pytest.approx(3.0, rel=0.02)
    assert HostInterference().slowdown == 1.0
