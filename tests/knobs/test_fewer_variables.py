"""A configuration with fewer environment variables."""

from autotune.knobs.changes import with_fewer_variables
from tests.worlds import config

BASE = config(batch_size=64)


def test_each_combination_of_its_variables_is_taken_back():
    full = config(64, channels_last=True, malloc="glibc", omp_wait_policy="passive")

    fewer = with_fewer_variables(full, BASE)

    assert fewer == {
        config(64, channels_last=True, malloc="glibc"),
        config(64, channels_last=True, omp_wait_policy="passive"),
        config(64, channels_last=True),
    }


def test_without_variables_there_is_nothing_to_take_back():
    assert with_fewer_variables(config(64, channels_last=True), BASE) == set()
