"""Of what was not measured, no more is said than is known."""

import pytest

from autotune.core.codes import Code
from autotune.core.records import Limit
from autotune.core.requests import ProbeRequest
from autotune.core.results import Failure, Outcome, ProbeResult
from autotune.report.answer import answer_block
from autotune.report.phrases import headline
from autotune.study.history import History
from autotune.testing import FakeLauncher
from autotune.tuning.exploration import bound
from autotune.tuning.failed_configurations import FailedConfigurations
from tests.reporting import recommendation
from tests.worlds import Listener, declared, searched, study_request, trial

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


class Asserting(FakeLauncher):
    """The user's code refuses half precision."""

    def run(self, request, folder):
        result = super().run(request, folder)
        if isinstance(request, ProbeRequest) and request.config["amp_dtype"]:
            return request.failed(Outcome.USER_ERROR, _error("model.py:12 in loss: AssertionError: float32 is needed"))
        return result


def _error(message, frame="model.py:12 in loss"):
    return Failure(phase="warm-up", message=message, evidence="builtins.AssertionError", user_frame=frame)


def test_the_error_of_the_user_s_code_that_ended_all_others_is_named_once_with_its_line(tmp_path):
    answer = searched(tmp_path, Asserting(facts=declared()), **TWO)

    (told,) = (one.text for one in answer.warnings if one.code is Code.CONFIGURATIONS_FAILED)
    shown = " ".join(answer_block(answer).plain.split())
    assert answer.certificate.text == "1 of 2 configurations measured, 1 failed in your code"
    assert told == (
        "1 configuration failed in your code (model.py:12 in loss: AssertionError: float32 is needed): their speed "
        "is not known. Mend model.py:12, or hold what it needs with --fix."
    )
    assert shown.count("model.py:12 in loss: AssertionError") == 1
    assert f"`autotune show {tmp_path} --failed`" in shown
    assert "--measure" not in shown  # it tries again what hung or crashed only


def test_errors_of_one_line_are_one_and_the_most_frequent_is_named():
    errors = [_error(f"model.py:12 in loss: AssertionError: {number}\nmore") for number in range(2)]
    other = _error("data.py:3 in collate: KeyError", "data.py:3 in collate")

    known = FailedConfigurations(total=2, errors=tuple(errors)).warning(lambda failure: "amp=none").text
    assert known.endswith("speed is not known. Mend model.py:12, or leave that setting out: --fix amp=none.")
    alone, mixed = (
        FailedConfigurations(total=len(some), errors=tuple(some)).warning().text for some in (errors, [other, *errors])
    )
    both = FailedConfigurations(total=4, hung=2, crashed=1, errors=(other,)).warning().text
    unplaced = FailedConfigurations(total=1, errors=(_error("x" * 500, ""),)).warning().text

    assert alone.startswith("2 configurations failed in your code (model.py:12 in loss: AssertionError: 0): their")
    assert mixed.startswith(alone.replace("2 c", "3 c").partition("):")[0] + "), 1 with another error: their speed ")
    assert both == (
        "1 configuration failed in your code (data.py:3 in collate: KeyError), 2 hung, and 1 crashed: their speed "
        "is not known. Mend data.py:3, or hold what it needs with --fix. `autotune explain STUDY --measure` tries "
        "again the settings of 3 configurations that only hung or crashed."
    )
    assert len(unplaced) < 250
    assert unplaced.endswith("Mend it, or hold what it needs with --fix.")


def test_a_training_that_ends_well_and_early_is_no_error():
    early = _error("train.py ended with exit status 0 after 9 optimizer steps, before it was measured.", "")
    result = ProbeResult(outcome=Outcome.USER_ERROR, failure=early)

    found = FailedConfigurations.of(History(study_request(), [trial(result)]))

    assert (found.total, found.unknown, found.warning()) == (1, 0, None)


def test_of_a_sample_is_said_how_many_did_not_run(tmp_path):
    hangs = {ProbeRequest: lambda request: Outcome.TIMEOUT if request.config["amp_dtype"] else None}

    answer = searched(
        tmp_path, FakeLauncher(facts=declared(), faults=hangs), told := Listener(), probes=6, time_budget_seconds=1e6
    )

    tried = {one.config for one in told.trials}
    failed = len(tried - {one.config for one in told.trials if one.result.measurement})
    assert failed
    assert answer.certificate.code is Code.SAMPLED
    assert f"{len(tried)} of " in answer.certificate.text
    assert f" tried, {failed} of which did not run; no estimate" in answer.certificate.text


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
