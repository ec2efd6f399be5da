"""What a request says of its knobs, and a result of its failure."""

from autotune.core.records import Goal, Limit
from autotune.core.results import Failure, Inspection, Outcome
from tests.worlds import facts, study_request


def test_limits_of_the_user_count_for_more_than_those_of_the_target():
    small, large, workers = (Limit(values=values) for values in ((8,), (64,), (0, 2)))

    request = study_request(
        goal=Goal(limits={"batch_size": large}), facts=facts(space={"batch_size": small, "num_workers": workers})
    )

    assert request.limits == {"batch_size": large, "num_workers": workers}


def test_the_reason_of_a_result_is_the_first_line_of_its_failure_as_part_of_a_sentence():
    failure = Failure(phase="load", message="No such file: data.bin.\nIt was moved.", evidence="FileNotFoundError")

    assert Inspection(outcome=Outcome.USER_ERROR, failure=failure).why == "No such file: data.bin"
    assert Inspection().why == ""
