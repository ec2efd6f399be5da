"""Metrics of torchmetrics that are computed in every step."""

import pytest

from tests.profile.test_verify import LOSS, tried_kinds

pytestmark = pytest.mark.slow
pytest.importorskip("torchmetrics")


@pytest.mark.parametrize("made", ["Accuracy('multiclass', num_classes=4)", "MetricCollection([MeanSquaredError()])"])
def test_a_metric_in_every_step_is_one_slow_line_and_left_out(tmp_path, made):
    text = LOSS.replace("seen = {}", f"from torchmetrics import *\nseen = {{}}\nmetric = {made}")
    values = "scores.detach(), target" if "Acc" in made else "scores.detach()[:, 0], target * 1.0"

    one = tried_kinds(tmp_path, text + f"    seen['now'] = metric({values})\n    return value\n")["metric"]

    assert one.code == f"seen['now'] = metric({values})"
    assert (one.count, one.unverified) == (1.0, "")
    assert one.gain.same_losses
