"""The queue itself, on a real server: each job to one worker, each result once."""

import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import psycopg
import pytest
from msgspec.structs import replace

from autotune.core import codec
from autotune.core.requests import ProbeRequest
from autotune.errors import StudyError
from autotune.fleet.database import Database
from autotune.fleet.records import Job, QueuedStudy
from autotune.fleet.search_queue import SearchQueue
from autotune.fleet.worker import Worker
from autotune.fleet.worker_queue import WorkerQueue
from autotune.testing.launcher_contract import example
from tests.fleet.fleet import QUICK, until
from tests.worlds import environment

CARD = QueuedStudy(name="study", target="ok", target_digest="")
BODY = codec.encode(example(ProbeRequest, "ok")).decode()


@pytest.fixture
def queue(fleet):
    made = SearchQueue(fleet.url, "study", QUICK)
    made.open(CARD)
    yield made
    made.end(for_good=True)


@pytest.fixture
def joined(fleet, queue):
    """Makes workers that have joined."""
    made = []

    def join(name: str, **changes) -> WorkerQueue:
        worker = WorkerQueue(Database(fleet.url, patience_seconds=5), "study")
        worker.join(uuid4(), name, "here", environment(**changes))
        made.append(worker)
        return worker

    yield join
    for one in made:
        one.leave()


def put(queue, **asked):
    token = uuid4()
    queue.put(token, "probes/0000", BODY, **{"wanted": None, "patience": 600.0, **asked})
    return token


def test_an_order_goes_to_one_worker_alone(queue, joined):
    put(queue)
    one, two = joined("one"), joined("two")

    job = one.take()

    assert job is not None and job.request == BODY
    assert two.take() is None
    assert one.take() == job  # its answer may have been lost on the way


def test_an_order_for_one_worker_is_left_by_the_others(queue, joined):
    one, two = joined("one"), joined("two")
    put(queue, wanted=two.worker)

    assert one.take() is None
    assert two.take() is not None


def test_an_order_that_is_put_twice_is_in_the_queue_once(queue, joined):
    token = put(queue)
    queue.put(token, "probes/0000", BODY, wanted=None, patience=600.0)

    assert len(queue.left_over()) == 1


def test_a_second_result_is_late_and_changes_nothing(queue, joined):
    token = put(queue)
    one, two = joined("one"), joined("two")
    job = one.take()

    told = [one.store(job, BODY, b"first"), two.store(job, BODY, b"second"), one.store(job, BODY, b"first")]
    answer = queue.wait(token)

    assert told == ["stored", "late", "stored"]  # the last is the same once more, after a lost connection
    assert (answer.worker, answer.log) == ("one", b"first")


def test_a_result_that_nobody_waits_for_is_late(queue, joined):
    token = put(queue)
    one = joined("one")
    job = one.take()

    queue.forget(token)

    assert one.store(job, BODY, b"") == "late"
    assert not one.is_mine(job)


def test_a_worker_in_quarantine_is_given_what_is_for_it_alone(queue, joined):
    one = joined("one")
    queue.mark(one.worker, reference=70.0, quarantined="slow")
    put(queue)

    assert one.take() is None
    put(queue, wanted=one.worker)
    assert one.take() is not None


def test_of_two_workers_that_join_at_once_under_one_name_one_does(fleet, queue):
    gate = threading.Barrier(2)

    def join(worker: WorkerQueue) -> str:
        gate.wait()
        return worker.join(uuid4(), "one", "here", environment())

    for _ in range(10):  # a few meet the moment
        both = [WorkerQueue(Database(fleet.url, patience_seconds=5), "study") for _ in range(2)]
        with ThreadPoolExecutor(2) as pool:
            hosts = list(pool.map(join, both))
        for one in both:
            one.leave()

        assert sorted(hosts) == ["", "here"]


def test_two_searches_cannot_share_a_study(fleet, queue):
    with pytest.raises(StudyError, match="Another search goes on under the name study"):
        SearchQueue(fleet.url, "study", QUICK).open(CARD)


def test_tables_of_another_version_are_refused(fleet, queue):
    queue.database.run(lambda cursor: cursor.execute("UPDATE autotune_schema SET version = 99"))

    with pytest.raises(StudyError, match="have version 99"):
        WorkerQueue(Database(fleet.url, patience_seconds=5), "study")


def test_what_no_worker_wrote_is_no_worker(queue, joined):
    joined("one")
    queue.database.run(lambda cursor: cursor.execute("UPDATE autotune_worker SET environment = '{}'"))

    assert queue.workers() == ()


def test_a_worker_that_holds_its_lease_keeps_a_job_of_any_length_and_one_that_does_not_loses_it(fleet, joined):
    timing = replace(QUICK, fence=0.1, grace=0.2, restarted=0.0)
    queue = SearchQueue(fleet.url, "study", timing)
    put(queue)
    one, two = joined("one"), joined("two")
    job = one.take()

    def pass_time() -> None:
        for _ in range(4):
            time.sleep(timing.grace)
            queue.workers()

    pass_time()
    assert two.take() is None
    assert one.is_mine(job)

    one.database.close()
    pass_time()
    taken = two.take()
    assert taken is not None and taken.request == BODY
    assert not one.is_mine(job)
    queue.database.close()


def test_hands_tell_what_each_measures(queue, joined):
    put(queue)
    one = joined("one")
    one.take()

    (worker,) = queue.workers()

    assert (worker.name, worker.host, worker.job) == ("one", "here", "probes/0000")


IS_WAITING = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'autotune_job'::regclass)"
GOES = "UPDATE autotune_worker SET left_at = now() WHERE name = 'two'"


@pytest.fixture
def look(fleet, queue):
    """Returns the names that one look for workers returns, what it said, and lets something happen during the look."""
    other, said = Database(fleet.url, patience_seconds=5), []
    seeing = SearchQueue(fleet.url, "study", QUICK, said.append)

    def begin(cursor, meanwhile, pool):
        cursor.execute("LOCK TABLE autotune_job IN EXCLUSIVE MODE")  # others read it, and wait before they change it
        found = pool.submit(seeing.workers)
        until(lambda: queue.database.run(lambda now: now.execute(IS_WAITING).fetchone())[0])
        meanwhile()
        return found

    def look(meanwhile=lambda: None):
        with ThreadPoolExecutor(1) as pool:
            found = other.run(lambda cursor: begin(cursor, meanwhile, pool)).result()
        return [one.name for one in found], said

    yield look
    for one in (other, seeing.database):
        one.close()


def test_a_worker_that_comes_during_a_look_is_there_from_the_next_one_on(queue, joined, look):
    joined("one")

    first, _ = look(lambda: joined("two"))
    second, _ = look()
    queue.database.run(lambda cursor: cursor.execute(GOES))
    third, said = look()

    assert [first, second, third] == [["one"], ["one", "two"], ["one"]]
    assert said == ["Worker two has left: 1 of 2 workers are there."]


def test_a_worker_that_goes_during_a_look_is_named_before_it_is_missed(queue, joined, look):
    joined("one"), joined("two")
    look()

    first, said_first = look(lambda: queue.database.run(lambda cursor: cursor.execute(GOES)))
    is_silent = not said_first
    second, said = look()

    assert [first, second] == [["one", "two"], ["one"]]
    assert is_silent and said == ["Worker two has left: 1 of 2 workers are there."]


def test_an_interrupt_as_a_transaction_begins_swallows_no_later_one(fleet, queue):
    database = Database(fleet.url, patience_seconds=60)

    def interrupt(frame, event, _):
        """As a signal's handler would: it runs after any instruction of Python's."""
        if event == "return" and frame.f_code is psycopg.Transaction.__enter__.__code__:
            sys.setprofile(None)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sys.setprofile(interrupt)
        database.run(lambda cursor: None)
    database.run(lambda cursor: cursor.execute("CREATE TABLE kept ()"))
    database.close()

    assert queue.database.run(lambda cursor: cursor.execute("SELECT to_regclass('kept')").fetchone()) == ("kept",)


def test_an_answer_about_a_job_that_is_done_does_not_stop_the_next_one(fleet, queue):
    worker, done = Worker(fleet.url, "study", name="one", timing=QUICK), threading.Event()
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    gone = Job(id=99, place="probes/0000", request=BODY)  # its result is stored, and the search has taken it

    with worker._queue.database._mutex:  # the answer has to wait, as behind the storing of the result
        watch = threading.Thread(target=worker._watch_job, args=(gone, done))
        watch.start()
        time.sleep(3 * QUICK.beat)
        done.set()
        worker._running = True  # the next job
    watch.join()
    signal.signal(signal.SIGUSR1, before)
    worker._queue.database.close()

    assert worker._why_stopped == ""
