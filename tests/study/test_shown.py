"""A configuration is told in one way everywhere."""

from autotune.knobs import KNOBS
from autotune.study.shown import moving, shown_config
from tests.worlds import config, study_request


def test_a_mere_number_is_told_with_what_it_counts():
    values = config(batch_size=32, num_workers=2, num_threads=4).values

    assert shown_config(values) == "32×1 fp32 workers 2 nchw threads 4"


def test_a_value_that_says_nothing_by_itself_is_told_with_its_column():
    assert shown_config(config(batch_size=32, omp_wait_policy="passive").values, ()) == "32×1 omp_wait passive"


def test_a_knob_that_nothing_moves_is_not_told_of_the_baseline():
    still = study_request(domains={"num_workers": (0, 2), "channels_last": (False,)})

    assert shown_config(still.baseline.values, moving(still)) == "64×1 workers 0"


def test_what_one_value_fixes_is_told_where_it_is_not_the_default():
    still = moving(study_request(domains={"num_workers": (0,), "amp_dtype": ("bfloat16",)}))

    assert shown_config(config(batch_size=16, amp_dtype="bfloat16").values, still) == "16×1 bf16"


def test_a_value_of_another_version_is_told_as_it_stands():
    assert shown_config({**config(batch_size=32).values, "amp_dtype": "float8"}, KNOBS[:1]) == "32×1 float8"
