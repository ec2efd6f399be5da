"""Of what was not measured, no more is said than is known."""

import pytest

from autotune.core.codes import Code
from autotune.core.records import Limit
from autotune.core.requests import ProbeRequest
from autotune.core.results import Outcome
from autotune.report.answer import answer_block
from autotune.report.phrases import headline
from autotune.testing import FakeLauncher
from autotune.tuning.exploration import bound
from tests.reporting import recommendation
from tests.worlds import Listener, declared, searched

TWO = {"tune": ("amp_dtype",), "limits": {"amp_dtype": Limit(values=(None, "bfloat16"))}, "time_budget_seconds": 1e6}


def test_where_nothing_is_left_all_were_measured():
    found = bound(1234, 0, 0.3)

    assert (found.code, found.numbers) == (Code.ALL_MEASURED, {"measured": 1234, "better": "faster"})


def test_what_a_rule_excludes_is_not_counted_as_measured():
    found = bound(9, 0, None, space=18)

    assert found.text.startswith(
        "all candidates measured: 9 configurations; 9 more were ruled out without a probe; no other"
    )


def test_what_hung_is_not_counted_as_measured(tmp_path):
    hangs = {ProbeRequest: lambda request: Outcome.TIMEOUT if request.config["amp_dtype"] else None}

    answer = searched(tmp_path, FakeLauncher(facts=declared(), faults=hangs), **TWO)

    assert answer.certificate.text == "1 of 2 configurations measured, 1 hung"
    assert headline(answer) == "undecided: nothing else could be compared with your baseline, which is kept"
    told = next(one.text for one in answer.warnings if one.code is Code.CONFIGURATIONS_FAILED)
    assert told.startswith("1 configuration hung: ") and "`autotune explain STUDY --measure`" in told
    shown = " ".join(answer_block(answer).plain.split())
    assert told[:20] in shown and "--time-budget" not in shown
    assert f"`autotune explain {tmp_path} --measure`" in shown


def test_what_crashed_once_and_then_ran_is_no_failure(tmp_path):
    crashes = iter((Outcome.CRASHED,))
    once = {ProbeRequest: lambda request: next(crashes, None) if request.config["amp_dtype"] else None}

    answer = searched(tmp_path, FakeLauncher(facts=declared(), faults=once), **TWO)

    assert answer.certificate.code is Code.ALL_MEASURED
    assert Code.CONFIGURATIONS_FAILED not in {one.code for one in answer.warnings}


def test_configurations_that_only_the_rounds_probed_are_counted_as_tried(tmp_path):
    listener = Listener()

    answer = searched(tmp_path, FakeLauncher(facts=declared()), listener, probes=3, time_budget_seconds=1e6)

    explored = {one.config for one in listener.trials if one.purpose in ("baseline", "search")}
    tried = {one.config for one in listener.trials}
    assert tried > explored
    assert (answer.certificate.code, answer.certificate.numbers["measured"]) == (Code.SAMPLED, len(tried))


def test_a_believable_bound_is_given_with_its_share():
    found = bound(9, 100, 0.042)

    assert (found.code, found.numbers) == (Code.BOUNDED, {"rest": 0.042, "better": "faster"})


@pytest.mark.parametrize("rest", [None, 1.0, float("inf")])
def test_without_one_the_rest_is_only_sampled(rest):
    found = bound(9, 1191, rest)

    assert (found.code, found.numbers) == (Code.SAMPLED, {"measured": 9, "total": 1200})


def test_the_rest_is_counted_as_at_the_beginning_of_the_search(tmp_path):
    full = {ProbeRequest: lambda request: Outcome.OOM_DEVICE if request.purpose == "search" else None}

    answer = searched(tmp_path, FakeLauncher(facts=declared(), faults=full), listener := Listener(), probes=2)

    told = answer.certificate
    assert told.code is Code.SAMPLED
    assert f" · {told.numbers['total']:,} configurations" in listener.lines[3]


def test_a_bound_is_no_finer_than_one_probe():
    assert bound(9, 100, 0.0001, "leaner").numbers == {"rest": 0.01, "better": "leaner"}


def test_the_answer_shows_it():
    found = bound(9, 1191, None)

    assert found.text in answer_block(recommendation(certificate=found), verbose=True).plain
