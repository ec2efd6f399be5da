"""The first lines of a search can be read before the table of probes is there."""

from autotune.tuning.opening import moving, shown
from tests.worlds import config, study_request


def test_a_mere_number_is_told_with_what_it_counts():
    assert shown(config(batch_size=32, num_workers=2, num_threads=4)) == "32×1, fp32, workers 2, nchw, threads 4"


def test_a_knob_that_nothing_moves_is_not_told_of_the_baseline():
    still = study_request(domains={"num_workers": (0, 2), "channels_last": (False,)})

    assert shown(still.baseline, moving(still)) == "64×1, workers 0"
