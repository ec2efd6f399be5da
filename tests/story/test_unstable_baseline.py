"""Stories of trainings whose losses are not finite: what no other setting can mend ends the search at once."""

import pytest
from msgspec.structs import replace

from autotune.answer.no_answer import unanswered
from autotune.core.records import Limit
from autotune.core.requests import ProbeRequest
from autotune.core.results import Outcome
from autotune.errors import NoRecommendation, TargetError
from autotune.launch.base import RESULT
from autotune.launch.files import store
from autotune.study import disk
from autotune.study.recommendation import load_result
from autotune.study.view import load_view
from autotune.testing import FakeLauncher
from tests.worlds import Listener, declared, searched

PAIR = {"amp_dtype": Limit(values=(None, "bfloat16")), "num_workers": Limit(values=(0, 1, 2, 4))}
SMALL = {"tune": ("amp_dtype", "num_workers"), "limits": PAIR, "time_budget_seconds": 1e6}


class Breaking(FakeLauncher):
    """After their first steps, the losses of the probes that `breaks` selects are not finite."""

    def __init__(self, breaks):
        super().__init__(facts=declared())
        self.breaks = breaks

    def run(self, request, folder):
        result = super().run(request, folder)
        if isinstance(request, ProbeRequest) and result.outcome is Outcome.OK and self.breaks(request):
            losses = (2.0, 1.9, *[None] * (len(result.measurement.losses) - 2))
            result = replace(result, measurement=replace(result.measurement, losses=losses))
            store(folder, RESULT, result)
        return result


def test_a_baseline_whose_losses_are_not_finite_stops_the_search_after_one_repeat(tmp_path):
    listener = Listener()

    with pytest.raises(
        TargetError, match=r"does not learn: in probe 0, .* step 3; probe 1 repeated it.*learning"
    ) as it:
        searched(tmp_path, Breaking(lambda request: True), listener, **SMALL)

    assert [one.purpose for one in listener.trials] == ["baseline", "baseline"]
    assert unanswered(load_view(tmp_path)) == str(it.value) and not (tmp_path / disk.BEST).exists()
    with pytest.raises(NoRecommendation, match="The baseline does not learn: in probe 0, "):
        load_result(tmp_path)


def test_a_mended_learning_rate_is_measured_by_the_same_command(tmp_path):
    with pytest.raises(TargetError):
        searched(tmp_path, Breaking(lambda request: True), **SMALL)
    listener = Listener()

    answer = searched(tmp_path, FakeLauncher(facts=declared()), listener, **SMALL)

    assert listener.trials[0].purpose == "baseline" and answer.speedup > 1


def test_a_single_accident_of_the_baseline_does_not_stop_the_search(tmp_path):
    answer = searched(tmp_path, Breaking(lambda request: request.number == 0), **SMALL)

    assert answer.speedup > 1


def test_a_search_for_speed_alone_does_not_look_at_the_losses_of_the_baseline(tmp_path):
    answer = searched(tmp_path, Breaking(lambda request: True), stability="off", **SMALL)

    assert answer.speedup > 1


def test_a_baseline_in_a_precision_that_breaks_gives_way_to_full_precision(tmp_path):
    breaking = Breaking(lambda request: request.config["amp_dtype"] == "bfloat16")

    answer = searched(tmp_path, breaking, baseline={"amp_dtype": "bfloat16"}, **SMALL)

    assert answer.params["amp_dtype"] is None


def test_there_is_nothing_to_search_where_only_the_precision_that_breaks_is_allowed(tmp_path):
    limits = {**PAIR, "amp_dtype": Limit(values=("bfloat16",))}

    with pytest.raises(TargetError, match="does not learn"):
        searched(
            tmp_path, Breaking(lambda request: True), baseline={"amp_dtype": "bfloat16"}, **{**SMALL, "limits": limits}
        )


def test_a_precision_that_broke_twice_is_not_tried_again(tmp_path):
    listener = Listener()

    answer = searched(tmp_path, Breaking(lambda request: request.config["amp_dtype"] == "bfloat16"), listener, **SMALL)

    assert sum(one.config["amp_dtype"] == "bfloat16" for one in listener.trials) == 2
    assert "No more probes with bf16: it was unstable more than once." in listener.notes
    assert answer.params["amp_dtype"] is None


def test_nothing_is_tried_for_long_where_no_precision_learns(tmp_path):
    listener = Listener()

    with pytest.raises(NoRecommendation, match=r"None of 4 probes was usable.*a lower learning rate"):
        searched(tmp_path, Breaking(lambda request: True), listener, baseline={"amp_dtype": "bfloat16"}, **SMALL)
