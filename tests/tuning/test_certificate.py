"""Of what was not measured, no more is said than is known."""

import pytest

from autotune.core.codes import Code
from autotune.core.requests import ProbeRequest
from autotune.core.results import Outcome
from autotune.report.answer import answer_block
from autotune.testing import FakeLauncher
from autotune.tuning.exploration import bound
from tests.reporting import recommendation
from tests.worlds import Listener, declared, searched


def test_where_nothing_is_left_all_were_measured():
    found = bound(1234, 0, 0.3)

    assert (found.code, found.numbers) == (Code.ALL_MEASURED, {"measured": 1234, "better": "faster"})


def test_what_a_rule_excludes_is_not_counted_as_measured():
    found = bound(9, 0, None, space=18)

    assert found.text.startswith(
        "all candidates measured: 9 configurations; 9 more were ruled out without a probe; no other"
    )


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
