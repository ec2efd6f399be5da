"""What a request says of its knobs."""

from autotune.core.records import Goal, Limit
from tests.worlds import facts, study_request


def test_limits_of_the_user_count_for_more_than_those_of_the_target():
    small, large, workers = (Limit(values=values) for values in ((8,), (64,), (0, 2)))

    request = study_request(
        goal=Goal(limits={"batch_size": large}), facts=facts(space={"batch_size": small, "num_workers": workers})
    )

    assert request.limits == {"batch_size": large, "num_workers": workers}
