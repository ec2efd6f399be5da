"""The store behind a search: real SQLite files, real second processes, real full and read-only disks."""

import os
import sqlite3
from types import SimpleNamespace

import pytest
from optuna.trial import TrialState

from autotune.core.results import Outcome, Trial
from autotune.errors import StudyError
from autotune.objectives.verdict import CONSTRAINTS, judge
from autotune.sampler.encoding import Encoding
from autotune.sampler.grid import Hardware
from autotune.sampler.guard import Guard
from autotune.sampler.optuna import GuardedSampler, make_sampler
from autotune.study import disk
from autotune.study.store import NUMBER, Store
from tests.worlds import config, failed, measured, space, study_request

SPACE = space()
ENCODING = Encoding(SPACE)
REQUEST = study_request()
OUTCOMES = [measured(), failed(), failed(Outcome.UNSTABLE), failed(Outcome.TIMEOUT), measured(losses=(None,) * 4)]


def _store(folder, needs_complete=False):
    return Store(folder, REQUEST, ENCODING, needs_complete=needs_complete)


def _sampler():
    guard = Guard(SPACE)
    return GuardedSampler(make_sampler("random", 0, ENCODING, guard, Hardware()), ENCODING, guard)


def _trial(number, result, purpose="search"):
    return Trial(number=number, purpose=purpose, config=SPACE.configs[number], result=result)


def _reconcile(store, *trials):
    store.reconcile(trials, {t.number: judge(t.result, REQUEST) for t in trials})


def _filled(folder, results=OUTCOMES, **options):
    """A closed store in which every result was asked for and told."""
    store, sampler = _store(folder, **options), _sampler()
    for number, result in enumerate(results):
        store.ask(sampler, number)
        store.tell(number, judge(result, REQUEST))
    store.close()


def _numbers(store, *states):
    return [frozen.user_attrs[NUMBER] for frozen in store.trials() if frozen.state in states]


@pytest.fixture
def opened(tmp_path):
    """Open stores that are closed again."""
    stores = []

    def _open(folder=tmp_path, **options):
        stores.append(_store(folder, **options))
        return stores[-1]

    yield _open
    for store in stores:
        store.close()


def test_every_trial_carries_the_same_constraints_in_the_same_order(tmp_path, opened):
    _filled(tmp_path)
    store = opened()
    store.add(_trial(9, failed()), judge(failed(), REQUEST))

    assert {tuple(frozen.constraints) for frozen in store.trials()} == {CONSTRAINTS}
    assert len(store.trials()) == 6


@pytest.mark.parametrize(
    ("needs_complete", "infeasible"), [(False, (TrialState.PRUNED, None)), (True, (TrialState.COMPLETE, 0.0))]
)
def test_an_infeasible_configuration_is_pruned_or_worth_nothing_and_never_failed(
    tmp_path, opened, needs_complete, infeasible
):
    _filled(tmp_path, needs_complete=needs_complete)

    told = [(frozen.state, frozen.value) for frozen in opened().trials()]

    assert told[0] == (TrialState.COMPLETE, pytest.approx(100.0))
    assert told[1:] == [infeasible] * 4


def test_what_is_asked_is_what_is_stored(opened):
    store = opened()

    asked = store.ask(_sampler(), 7)
    store.tell(7, judge(measured(), REQUEST))

    (frozen,) = store.trials()
    assert ENCODING.config(frozen.params) == asked
    assert frozen.user_attrs[NUMBER] == 7


def test_a_repeated_probe_is_stored_under_the_number_that_decided(opened):
    store = opened()
    store.ask(_sampler(), 3)

    store.tell(3, judge(measured(), REQUEST), final=4)
    _reconcile(store, _trial(3, failed(Outcome.CRASHED)), _trial(4, measured()))

    assert _numbers(store, *TrialState) == [4]


def test_an_interrupted_probe_teaches_nothing(opened):
    store = opened()
    store.ask(_sampler(), 0)

    store.abandon(0)

    assert [frozen.state for frozen in store.trials()] == [TrialState.FAIL]


def test_a_configuration_outside_the_space_is_not_stored(opened):
    store = opened()

    outside = Trial(number=0, purpose="baseline", config=config(batch_size=48), result=measured())
    store.add(outside, judge(outside.result, REQUEST))

    assert store.trials() == []


def _left_running(folder):
    """A probe that never ended, as earlier versions left it."""
    store = _store(folder)
    store._kept.ask(ENCODING.distributions).set_user_attr(NUMBER, 0)
    store.close()


def test_a_probe_that_never_ended_is_not_in_the_database(opened):
    opened().ask(_sampler(), 0)

    assert opened().trials() == []


def test_a_probe_that_never_ended_is_told_as_failed_on_reopening(tmp_path, opened):
    _left_running(tmp_path)

    again = opened()
    _reconcile(again)

    assert [frozen.state for frozen in again.trials()] == [TrialState.FAIL]


@pytest.mark.parametrize("killed", [False, True])
def test_a_result_that_was_written_but_not_told_is_told_on_reopening(tmp_path, opened, killed):
    _left_running(tmp_path)
    if killed:  # the last reopening told FAIL, and was killed before the result was added
        _reconcile(opened())

    again = opened()
    _reconcile(again, _trial(0, measured()))

    assert _numbers(again, TrialState.COMPLETE) == [0]
    assert _numbers(again, TrialState.RUNNING) == []


def test_a_lost_database_is_rebuilt_from_the_probes_without_accidents_and_confirmations(opened):
    store = opened()

    _reconcile(
        store, _trial(0, measured(), "baseline"), _trial(1, failed()), _trial(2, failed(Outcome.CRASHED)),
        _trial(3, measured(), "confirm"), _trial(4, measured()),
    )  # fmt: skip

    assert _numbers(store, TrialState.COMPLETE) == [0, 4]
    assert _numbers(store, TrialState.PRUNED) == [1]
    assert len(store.trials()) == 3


def test_reopening_twice_tells_nothing_twice(opened):
    trials = (_trial(0, measured(), "baseline"), _trial(1, failed()))

    _reconcile(opened(), *trials)
    again = opened()
    _reconcile(again, *trials)

    assert _numbers(again, *TrialState) == [0, 1]


def _random(path):
    path.write_bytes(os.urandom(8192))


def _text(path):
    path.write_text("this is a note, not a database\n" * 100)


def _truncated(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])


def _undecodable(path):
    whole = path.read_bytes()
    assert b'"low": 0' in whole
    path.write_bytes(whole.replace(b'"low": 0', b'"l\xc3w": 0'))


def _unknown_state(path):
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE trials SET state = 'NAPPING'")
    connection.close()


def _other_version(path):
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'v99.0.0'")
    connection.close()


@pytest.mark.parametrize("damage", [_random, _text, _truncated, _undecodable, _unknown_state, _other_version])
def test_a_damaged_database_is_said_and_can_be_moved_away(tmp_path, opened, damage, monkeypatch):
    monkeypatch.setattr(
        "optuna.storages._rdb.storage.time", SimpleNamespace(sleep=lambda seconds: None)
    )  # between tries
    trials = [_trial(number, result) for number, result in enumerate(OUTCOMES)]
    _filled(tmp_path)
    damage(tmp_path / disk.DATABASE)

    with pytest.raises(StudyError, match=r"study\.db is damaged: .*\. .*\. .* move study\.db away and run the same"):
        _reconcile(_store(tmp_path), *trials)
    (tmp_path / disk.DATABASE).rename(tmp_path / "damaged.db")
    again = opened()
    _reconcile(again, *trials)

    assert _numbers(again, *TrialState) == [0, 1, 2, 3, 4]


def test_the_database_writes_ahead(tmp_path, opened):
    opened()

    connection = sqlite3.connect(tmp_path / disk.DATABASE)
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    connection.close()

    assert mode == "wal"


def test_closing_leaves_one_file(tmp_path):
    _filled(tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == [disk.DATABASE]


@pytest.mark.parametrize(
    "name", ["with space", "what?x=1", "no#1", "100%20", "größe-мир", "{SCHEMA_VERSION}", "a@b:c", "quo'te\"", "\\"]
)
def test_any_folder_name_works(tmp_path, opened, name):
    folder = disk.make(tmp_path / name)

    store = opened(folder)
    store.ask(_sampler(), 0)

    assert (folder / disk.DATABASE).is_file()
    assert [path.name for path in tmp_path.iterdir()] == [name]
