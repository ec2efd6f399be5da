"""Several knobs that change arithmetic at once: one comparison for each combination, against none of them."""

import sys

import pytest

from autotune.core.codes import Code
from autotune.core.notices import notice
from autotune.core.records import Config, Goal, Limit
from autotune.core.results import LossVerdict
from autotune.knobs import KNOBS, defaults
from autotune.knobs.base import MemoryEffect, SwitchKnob
from autotune.precision.arithmetic import full_precision, names, precision_of, reference_phrase
from autotune.precision.records import PrecisionCheckRequest
from autotune.report.losses import _verdict
from autotune.testing import FakeLauncher
from tests.reporting import recommendation
from tests.worlds import config, context, facts, measured, precise_finalists, space, study_request, trial


class Coarse(SwitchKnob):
    """Rounds in another way."""

    name, alias, label, words, memory = "coarse", "coarse", "rounding", "coarse rounding", MemoryEffect.NONE
    option_help, numerics = "Round: true,false.", True

    def is_offered(self, facts):
        return True

    def apply(self, value, plan):
        pass


@pytest.fixture
def ours():
    """Our own knobs are what there is."""


@pytest.fixture(autouse=True)
def registered(request, monkeypatch):
    """A second knob of arithmetic beside the dtype, and no third."""
    if "ours" in request.fixturenames:
        return
    registry = (*(knob for knob in KNOBS if not knob.numerics or knob.name == "amp_dtype"), Coarse())
    for module in [m for name, m in sys.modules.items() if name.startswith("autotune")]:
        if getattr(module, "KNOBS", None) is KNOBS:
            monkeypatch.setattr(module, "KNOBS", registry)


def _config(**values):
    return config(batch_size=64, **values)


def _asked(**values):
    candidate = _config(**values)
    return PrecisionCheckRequest(
        target="model.py", reference=full_precision(candidate, facts()), candidate=candidate, device="cuda:0"
    )


def test_both_are_compared_with_neither():
    request = _asked(amp_dtype="bfloat16", coarse=True)

    assert precision_of(request.reference) == {"amp_dtype": None, "coarse": False}
    assert precision_of(request.candidate) == {"amp_dtype": "bfloat16", "coarse": True}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"amp_dtype": "bfloat16"}, ("bf16", "fp32")),
        ({"amp_dtype": "bfloat16", "coarse": True}, ("bf16 rounding yes", "fp32")),
        ({"coarse": True}, ("rounding yes", "no rounding")),
    ],
)
def test_a_combination_is_named_by_what_it_changes(values, said):
    assert names(_asked(**values)) == said


def _search(folder, *probes, launcher=None):
    trials = [trial(measured(rate), number, **_config(**values).values) for number, (rate, values) in enumerate(probes)]
    return context(folder, launcher, request=study_request(), left=1000.0, trials=trials)


def _verdicts(search):
    return [(*one.values.values(), one.verdict) for one in search.history.loss_verdicts]


def test_every_combination_of_a_finalist_is_compared_for_itself(tmp_path):
    both, one = {"amp_dtype": "bfloat16", "coarse": True}, {"amp_dtype": "bfloat16"}
    search = _search(tmp_path, (300.0, both), (290.0, one), (100.0, {}))

    precise_finalists(search)

    assert sorted(_verdicts(search)) == [("bfloat16", False, "ok"), ("bfloat16", True, "ok")]


def test_what_was_refused_is_refused_with_more_on_top_and_not_compared_again(tmp_path):
    both, one = {"amp_dtype": "bfloat16", "coarse": True}, {"amp_dtype": "bfloat16"}
    search = _search(
        tmp_path, (300.0, one), (299.0, both), (200.0, {"coarse": True}), (100.0, {}),
        launcher=FakeLauncher(bad_dtypes=["bfloat16"]),
    )  # fmt: skip

    finalists = precise_finalists(search)

    assert _verdicts(search) == [("bfloat16", False, "worse"), (None, True, "ok")]
    assert search.history.refusal(_config(**both)) == search.history.refusal(_config(**one)) is not None
    assert search.history.refusal(_config(coarse=True)) is None
    assert "bfloat16" not in [one.config["amp_dtype"] for one in finalists]


def test_a_refused_combination_does_not_speak_against_its_parts(tmp_path):
    both, one = {"amp_dtype": "bfloat16", "coarse": True}, {"amp_dtype": "bfloat16"}
    search = _search(tmp_path, (300.0, both), (100.0, {}), launcher=FakeLauncher(bad_dtypes=["bfloat16"]))

    precise_finalists(search)

    assert search.history.refusal(_config(**both)) is not None
    assert search.history.refusal(_config(**one)) is None


def test_time_is_kept_while_an_arithmetic_that_was_probed_is_open(tmp_path):
    search = _search(tmp_path, (300.0, {"amp_dtype": "bfloat16"}), (100.0, {}))
    before = search.budget.precision_check_seconds

    precise_finalists(search)

    assert before > 0
    assert search.budget.precision_check_seconds == 0.0  # of the combinations that nobody probed none may come


def test_an_answer_of_an_earlier_version_that_knew_fewer_knobs_still_has_its_verdict():
    reason = notice(Code.LOSSES_NOT_CHECKED)
    said = LossVerdict(verdict="ok", values={"amp_dtype": "bfloat16"}, reason=reason, batch_size=64)
    best = recommendation(params=_config(amp_dtype="bfloat16").values, loss_verdicts=(said,), stability=reason)

    assert _verdict(best) is said


def _paired(candidate, **found):
    of = facts(found=found)
    whole = {**defaults(), **candidate}
    return PrecisionCheckRequest(
        target="model.py",
        reference=full_precision(Config(values=whole), of),
        candidate=Config(values=whole),
        device="cpu",
    )


@pytest.mark.usefixtures("ours")
@pytest.mark.parametrize(
    ("candidate", "found", "said", "phrase"),
    [
        ({"tf32": True}, {}, ("tf32", "no tf32"), "full precision"),
        ({"sdpa_backend": "flash"}, {}, ("flash", "auto attention"), "full precision"),
        (
            {"amp_dtype": "bfloat16", "tf32": True}, {"tf32": True}, ("bf16 tf32", "fp32 tf32"),
            "your code's own arithmetic (TF32 products)",
        ),
        (
            {"amp_dtype": "bfloat16", "tf32": True, "sdpa_backend": "flash"}, {"tf32": True, "sdpa_backend": "flash"},
            ("bf16 tf32 flash", "fp32 tf32 flash"), "your code's own arithmetic (TF32 products, flash attention)",
        ),
    ],
)  # fmt: skip
def test_what_the_code_sets_is_in_both_names_and_in_the_words_for_the_reference(candidate, found, said, phrase):
    request = _paired(candidate, **found)

    assert {name: request.reference[name] for name in found} == found
    assert names(request) == said
    assert reference_phrase(facts(found=found)) == phrase


@pytest.mark.usefixtures("ours")
def test_the_arithmetic_of_the_code_alone_is_compared_with_nothing_and_no_time_is_kept_for_it(tmp_path):
    own = facts(found={"tf32": True})
    here = space(Goal(global_batch=64, limits={"amp_dtype": Limit(values=(None,))}), of=own)
    asked = study_request(facts=own, domains=here.domains, baseline=_config(tf32=True))
    search = context(tmp_path, request=asked, trials=[trial(measured(100.0), 0, **asked.baseline.values)])

    assert search.budget.precision_check_seconds == 0.0
    assert full_precision(asked.baseline, own) == asked.baseline
    assert precise_finalists(search)
    assert not search.history.precision_checks
