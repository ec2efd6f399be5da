"""The raw trials: copied without a trace, shown by optuna-dashboard where it is installed, never changed."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from optuna.trial import TrialState

from autotune import codec
from autotune import folder as disk
from autotune.objective import judge
from autotune.report.dashboard.copies import Copies
from autotune.results import Trial
from autotune.sampler.optuna import Encoding
from autotune.study import Store
from tests.serving import ask, serving
from tests.worlds import measured, space, study_request

needs_it = pytest.mark.skipif(find_spec("optuna_dashboard") is None, reason="needs the extra [dashboard]")
SPACE, REQUEST = space(), study_request()


def searched(folder: Path, rates: tuple[float, ...]) -> Store:
    """A study whose store is open, as while a search runs."""
    folder.mkdir(parents=True)
    store = Store(folder, REQUEST, Encoding(SPACE), needs_complete=False)
    for number, rate in enumerate(rates):
        add(store, number, rate)
    return store


def add(store: Store, number: int, rate: float) -> None:
    result = measured(rate)
    store.add(Trial(number=number, purpose="search", config=REQUEST.baseline, result=result), judge(result, REQUEST))


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def values(copies: Copies) -> list[list[float | None]]:
    store = copies.store()
    return [[trial.value for trial in store.get_all_trials(study._study_id)] for study in store.get_all_studies()]


def test_a_study_that_is_being_searched_is_copied_as_far_as_it_is_and_again_when_it_grew(tmp_path: Path) -> None:
    store, copies = searched(tmp_path / "one", (100.0,)), Copies()

    first = copies.update([tmp_path / "one"]), values(copies)
    unchanged = copies.update([tmp_path / "one"])
    add(store, 1, 200.0)
    grown = copies.update([tmp_path / "one"]), values(copies)
    store.close()

    assert first == (True, [[100.0]])
    assert not unchanged
    assert grown == (True, [[100.0, 200.0]])


def test_copying_leaves_nothing_beside_a_database_that_nobody_has_open(tmp_path: Path) -> None:
    searched(tmp_path / "one", (100.0,)).close()
    before = names(tmp_path / "one")
    copies = Copies()

    copies.update([tmp_path / "one"])

    assert values(copies) == [[100.0]]
    assert names(tmp_path / "one") == before


def test_a_study_keeps_its_number_when_others_come(tmp_path: Path) -> None:
    searched(tmp_path / "second", (100.0,)).close()
    copies = Copies()
    copies.update([tmp_path / "second"])
    searched(tmp_path / "first", (200.0,)).close()

    copies.update([tmp_path / "first", tmp_path / "second"])

    assert (copies.number(tmp_path / "second"), copies.number(tmp_path / "first")) == (0, 1)
    assert values(copies) == [[100.0], [200.0]]


@pytest.mark.parametrize("content", [None, b"", b"not a database", b"SQLite format 3\x00" + b"?" * 5000])
def test_a_database_that_cannot_be_read_has_no_trials_to_show(tmp_path: Path, content: bytes | None) -> None:
    (tmp_path / "one").mkdir()
    if content is not None:
        (tmp_path / "one" / disk.DATABASE).write_bytes(content)
    copies = Copies()

    copies.update([tmp_path / "one"])

    assert values(copies) == [[]]


def test_a_linked_database_is_not_followed(tmp_path: Path) -> None:
    searched(tmp_path / "elsewhere", (100.0,)).close()
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / disk.DATABASE).symlink_to(tmp_path / "elsewhere" / disk.DATABASE)
    copies = Copies()

    copies.update([tmp_path / "one"])

    assert values(copies) == [[]]


@pytest.mark.skipif(find_spec("optuna_dashboard") is not None, reason="the extra [dashboard] is installed")
def test_without_the_extra_the_page_says_what_to_install(tmp_path: Path) -> None:
    searched(tmp_path / "one", ()).close()
    (tmp_path / "one" / disk.STUDY).write_bytes(b"{}")

    with serving(tmp_path) as server:
        page, raw = ask(server, "/"), ask(server, "/dashboard")

    assert "torch-autotune[dashboard]" in page[2]
    assert "optuna-dashboard</a>" not in page[2]
    assert raw[0] == 404


@pytest.fixture
def studies(tmp_path: Path) -> Path:
    searched(tmp_path / "one", (100.0, 300.0)).close()
    codec.write(tmp_path / "one" / disk.STUDY, REQUEST)
    return tmp_path


@needs_it
def test_the_raw_trials_are_one_click_away_and_the_page_says_what_they_do_not_show(studies: Path) -> None:
    with serving(studies) as server:
        page = ask(server, "/studies/one/")
        link = ask(server, "/studies/one/raw")
        app = ask(server, link[1]["Location"])
        trials = json.loads(ask(server, link[1]["Location"].replace("/dashboard", "/api"))[2])["trials"]

    assert '<a href="raw">' in page[2]
    assert "ignores constraints" in page[2]
    assert (link[0], app[0]) == (302, 200)
    assert [trial["values"] for trial in trials] == [[100.0], [300.0]]


@needs_it
@pytest.mark.parametrize("place", ["/api/studies/0", "/api/studies", "/api/studies/0/rename", "/api/trials/0/tell"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_nothing_that_optuna_dashboard_would_change_reaches_it(studies: Path, place: str, method: str) -> None:
    with serving(studies) as server:
        status = ask(server, place, method, Content_Type="application/json")[0]
        listed = json.loads(ask(server, "/api/studies")[2])["study_summaries"]

    assert status == 405
    assert [study["study_name"] for study in listed] == ["one"]


@needs_it
def test_it_answers_requests_that_accept_no_encoding_and_only_our_hosts(studies: Path) -> None:
    with serving(studies) as server:
        script, foreign = ask(server, "/static/bundle.js", "HEAD"), ask(server, "/api/studies", host="evil.example")

    assert script[0] == 200
    assert "Content-Encoding" not in script[1]
    assert foreign[0] == 421


@needs_it
def test_it_has_no_files_to_upload_or_to_show_and_may_not_be_framed(studies: Path) -> None:
    with serving(studies) as server:
        meta, app = json.loads(ask(server, "/api/meta")[2]), ask(server, "/dashboard")
        artifact = ask(server, "/artifacts/0/0/00000000-0000-0000-0000-000000000000")

    assert not meta["artifact_is_available"]
    assert "frame-ancestors 'none'" in app[1]["Content-Security-Policy"]
    assert artifact[0] == 404


@needs_it
def test_looking_at_raw_trials_leaves_the_study_alone(studies: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in studies.rglob("*")}

    with serving(studies) as server:
        for place in ("/dashboard", "/api/studies", "/api/studies/0", "/csv/0", "/studies/one/raw"):
            assert ask(server, place)[0] in (200, 302)

    assert {path: path.stat().st_mtime_ns for path in studies.rglob("*")} == before


def test_an_infeasible_probe_is_never_what_looks_best_there(tmp_path: Path) -> None:
    store = searched(tmp_path / "one", (100.0,))
    result = measured(900.0, peak=REQUEST.memory_limit_bytes)
    store.add(Trial(number=1, purpose="search", config=REQUEST.baseline, result=result), judge(result, REQUEST))
    store.close()
    copies = Copies()
    copies.update([tmp_path / "one"])

    best = copies.store().get_best_trial(0)

    assert (best.value, best.state) == (100.0, TrialState.COMPLETE)
