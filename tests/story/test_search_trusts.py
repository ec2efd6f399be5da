"""Stories of dtypes that are fast and learn less: never recommended, and the reason is said."""

import pytest
from msgspec.structs import replace

from autotune.core import codec
from autotune.core.codes import Code
from autotune.core.records import Limit
from autotune.core.results import Outcome
from autotune.errors import NoRecommendation
from autotune.precision.chart import paired_losses
from autotune.precision.records import PrecisionCheckRequest
from autotune.report.losses import losses_phrase
from autotune.study import disk
from autotune.study.recommendation import Recommendation
from autotune.study.view import load_view
from autotune.testing import FakeLauncher
from tests.worlds import Listener, declared, searched

LONG = 1e6
DTYPES = {"amp_dtype": Limit(values=(None, "bfloat16", "float16")), "num_workers": Limit(values=(0, 4))}
SMALL = {"tune": ("amp_dtype", "num_workers"), "limits": DTYPES, "time_budget_seconds": LONG}


def test_a_fast_dtype_that_learns_less_is_not_recommended_and_the_numbers_say_why(tmp_path):
    listener = Listener()
    launcher = FakeLauncher(facts=declared(), bad_dtypes=["bfloat16", "float16"])

    answer = searched(tmp_path, launcher, listener, **SMALL)

    assert answer.params["amp_dtype"] is None
    assert answer.stability.code is Code.LOSSES_FINITE
    lost = {other.config["amp_dtype"]: other.reason for other in answer.runners_up if other.config["amp_dtype"]}
    assert set(lost) == {"bfloat16", "float16"}
    assert {why.code for why in lost.values()} == {Code.LEARNS_LESS}
    assert [why.numbers["difference"] for why in lost.values()] == pytest.approx([0.106] * 2, abs=0.0005)
    assert [verdict.verdict for verdict in answer.loss_verdicts] == ["worse", "worse"]
    assert sum("It is rejected." in note for note in listener.notes) == 2
    told = [one.numbers["why"] for one in answer.warnings if one.code is Code.PRECISION_REFUSED]
    assert sorted(told, key=str) == sorted(lost.values(), key=str)


def test_the_other_dtype_moves_up_and_is_recommended_by_its_own_comparison(tmp_path):
    answer = searched(tmp_path, FakeLauncher(facts=declared(), bad_dtypes=["bfloat16"]), **SMALL)

    assert answer.params["amp_dtype"] == "float16"
    assert (answer.stability.code, answer.stability.numbers["candidate"]) == (Code.LOSSES_MATCH, "fp16")


def test_a_refused_configuration_is_not_even_measured_again(tmp_path):
    searched(tmp_path, FakeLauncher(facts=declared(), bad_dtypes=["bfloat16"]), **SMALL)

    confirmed = {t.config["amp_dtype"] for t in load_view(tmp_path).trials if t.purpose == "confirm"}
    assert "bfloat16" not in confirmed


def test_a_baseline_in_a_refused_dtype_is_compared_with_and_never_kept(tmp_path):
    """It is the fastest by far, and what is run today."""
    launcher = FakeLauncher(facts=declared(amp_dtype="float16", num_workers=4), bad_dtypes=["float16", "bfloat16"])

    answer = searched(tmp_path, launcher, **SMALL)

    assert answer.params["amp_dtype"] is None
    assert answer.speedup < 1
    own = next(other for other in answer.runners_up if other.config["amp_dtype"] == "float16")
    assert own.samples_per_second is not None
    assert own.reason.code is Code.LEARNS_LESS


def test_if_only_refused_dtypes_were_allowed_there_is_no_recommendation(tmp_path):
    launcher = FakeLauncher(facts=declared(amp_dtype="float16"), bad_dtypes=["float16"])
    limits = {**DTYPES, "amp_dtype": Limit(values=("float16",))}

    with pytest.raises(
        NoRecommendation, match=r"fp16 learns less than fp32: its loss decreases 10\.6% less.*--stability off"
    ):
        searched(tmp_path, launcher, **{**SMALL, "limits": limits})


def test_a_comparison_that_cannot_be_made_excludes_nobody_and_is_a_warning(tmp_path):
    launcher = FakeLauncher(facts=declared(), faults={PrecisionCheckRequest: lambda request: Outcome.TIMEOUT})

    answer = searched(tmp_path, launcher, **SMALL)

    assert answer.params["amp_dtype"] == "bfloat16"
    assert answer.stability.code is Code.LOSSES_NOT_CLEARED
    assert "bf16 could not be compared with fp32: a scripted timeout" in answer.warnings[-1].text


def test_a_crash_in_the_comparison_costs_one_repetition(tmp_path):
    crashed = []

    def once(request):
        crashed.append(request)
        return Outcome.CRASHED if len(crashed) == 1 else None

    answer = searched(tmp_path, FakeLauncher(facts=declared(), faults={PrecisionCheckRequest: once}), **SMALL)

    assert answer.stability.code is Code.LOSSES_MATCH
    assert crashed[0] == crashed[1]


def test_off_recommends_the_fastest_unseen(tmp_path):
    launcher = FakeLauncher(facts=declared(), bad_dtypes=["bfloat16", "float16"])

    answer = searched(tmp_path, launcher, stability="off", **SMALL)

    assert answer.params["amp_dtype"] == "bfloat16"
    assert (answer.stability.code, answer.loss_verdicts) == (Code.LOSSES_NOT_CHECKED, ())


def test_a_wider_tolerance_lets_it_pass(tmp_path):
    launcher = FakeLauncher(facts=declared(), bad_dtypes=["bfloat16"])

    answer = searched(tmp_path, launcher, loss_tolerance=0.2, **SMALL)

    assert answer.params["amp_dtype"] == "bfloat16"
    assert answer.stability.numbers["allowed"] == pytest.approx(0.2)


def test_a_resumed_search_compares_nothing_twice_and_remembers_the_refusal(tmp_path):
    searched(tmp_path, FakeLauncher(facts=declared(), bad_dtypes=["bfloat16", "float16"]), **SMALL)
    before = disk.attempts(tmp_path, PrecisionCheckRequest.kind())

    answer = searched(tmp_path, FakeLauncher(facts=declared()), **SMALL)

    assert disk.attempts(tmp_path, PrecisionCheckRequest.kind()) == before
    assert answer.params["amp_dtype"] is None
    assert any(other.reason.code is Code.LEARNS_LESS for other in answer.runners_up)


def test_the_study_shows_its_comparisons(tmp_path):
    answer = searched(tmp_path, FakeLauncher(facts=declared(), bad_dtypes=["bfloat16"]), **SMALL)

    view = load_view(tmp_path)
    assert view.loss_verdicts == answer.loss_verdicts
    assert len(view.precision_checks) == 2
    assert (tmp_path / "stability" / "0000" / "log.txt").is_file()


def test_a_recommendation_of_an_older_version_still_loads(tmp_path):
    searched(tmp_path, FakeLauncher(facts=declared()), **SMALL)
    best = tmp_path / disk.BEST
    text = best.read_text()
    start, end = text.index(' "loss_verdicts"'), text.index(' "reasons"')
    best.write_text(text[:start] + text[end:])

    assert codec.read(best, Recommendation).loss_verdicts == ()


OWN = "your code's own arithmetic (TF32 products)"


def test_where_the_code_sets_tf32_that_is_the_reference_and_named_so(tmp_path):
    """It cannot be undone from outside, so that nothing can be compared with full precision."""
    launcher, listener = FakeLauncher(facts=replace(declared(), found={"tf32": True})), Listener()

    answer = searched(tmp_path, launcher, listener, **SMALL)

    assert answer.baseline["tf32"] is answer.params["tf32"] is True
    assert (answer.stability.code, answer.params["amp_dtype"]) == (Code.LOSSES_MATCH, "bfloat16")
    assert answer.stability.text.startswith("bf16 tf32 loss matches fp32 tf32: ")
    assert losses_phrase(answer).startswith("bf16 tf32 matches fp32 tf32: ")
    checks = load_view(tmp_path).precision_checks
    assert {asked.reference["tf32"] for asked, _ in checks} == {True}
    assert "loss minus that of fp32 tf32, one line" in paired_losses(checks, 0.02).note
    assert not any(
        "full precision" in text for text in (*listener.lines, *listener.notes, codec.encode(answer).decode())
    )


def test_a_kept_baseline_with_its_codes_own_arithmetic_is_not_said_to_be_compared_with_anything(tmp_path):
    launcher = FakeLauncher(facts=replace(declared(), found={"tf32": True}), bad_dtypes=["bfloat16", "float16"])

    answer = searched(tmp_path, launcher, **SMALL)

    assert answer.params["amp_dtype"] is None
    assert answer.stability.code is Code.LOSSES_FINITE
    assert answer.stability.text.startswith(f"{OWN}; losses finite over ")
    assert {it.values["amp_dtype"] for it in answer.loss_verdicts} == {"bfloat16", "float16"}
    assert {why.reason.text.partition(":")[0] for why in answer.runners_up if why.config["amp_dtype"]} == {
        "bf16 tf32 learns less than fp32 tf32", "fp16 tf32 learns less than fp32 tf32"
    }  # fmt: skip


def test_without_time_to_compare_the_doubt_names_the_reference(tmp_path):
    facts = replace(declared(), found={"tf32": True})
    alone = {**SMALL, "limits": {"amp_dtype": Limit(values=("bfloat16",)), "num_workers": Limit(values=(4,))}}
    launcher = FakeLauncher(facts=facts, faults={PrecisionCheckRequest: lambda request: Outcome.CRASHED})

    answer = searched(tmp_path, launcher, **alone)

    assert answer.stability.text.endswith(f"; not shown to match {OWN}")
    assert answer.warnings[0].text.startswith(f"Whether this learns as {OWN} does is undecided: ")
