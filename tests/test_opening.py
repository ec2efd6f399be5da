"""The first lines of a search can be read before the table of probes is there."""

from autotune.tuning.opening import shown
from tests.worlds import config


def test_a_mere_number_is_told_with_what_it_counts():
    assert shown(config(batch_size=32, num_workers=2, num_threads=4)) == "32×1, fp32, workers 2, nchw, threads 4"
