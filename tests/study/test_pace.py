"""What one more of a probe takes."""

import pytest
from msgspec.structs import replace

from autotune.core.requests import ProbeBudget
from autotune.study.pace import Pace
from tests.worlds import measured


def _pace(restarts, steps, step=0.1, **more):
    """A probe of so many steps, in which as many epochs ended."""
    ran = measured(640.0)
    seen = replace(
        ran.measurement, loader_restarts=restarts, samples=(64,) * steps, step_seconds=(step,) * steps,
        loader_wait_seconds=(0.0,) * steps, **more,
    )  # fmt: skip
    return Pace.of(replace(ran, measurement=seen, elapsed_seconds=2.0 + steps * step))


@pytest.mark.parametrize(
    ("restarts", "steps", "longest", "window"),
    [(0, 55, 1.0, 1.0), (1, 55, 2.0, 5.5), (1, 55, 1.0, 1.0), (20, 60, 1.0, 1.2)],
    ids=["no epoch", "one", "one that is too long", "many"],
)
def test_a_window_of_whole_epochs_is_one_again(restarts, steps, longest, window):
    asked = ProbeBudget(min_seconds=0.5, max_seconds=longest)

    assert _pace(restarts, steps).again(asked, 0.1) == pytest.approx(2.0 + window)


@pytest.mark.parametrize(
    ("more", "window"),
    [
        ({"cut_short": True, "relative_half_width": 0.1}, 2.0),
        ({"cut_short": True, "relative_half_width": 0.4}, 3.0),
        ({"cut_short": True, "relative_half_width": 0.02}, 0.5),
        ({"cut_short": True, "relative_half_width": None}, 3.0),
        ({"cut_short": False, "relative_half_width": 0.1}, 0.5),
    ],
    ids=["half as precise", "to the longest", "precise enough", "too few blocks", "it ended by itself"],
)
def test_a_window_that_was_cut_short_takes_longer_where_it_is_not(more, window):
    asked = ProbeBudget(min_seconds=0.25, max_seconds=3.0, target_precision=0.05)
    seen = _pace(0, 5, **more)

    assert seen.again(asked, 0.1) == pytest.approx(2.0 + 0.5)
    assert seen.to_its_end(asked).again(asked, 0.1) == pytest.approx(2.0 + window)
