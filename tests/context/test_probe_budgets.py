"""How long a probe in rounds measures."""

import pytest
from msgspec.structs import replace

from autotune.context.probe_budgets import BRIEF, LEAST, round_budget
from autotune.testing import ENVIRONMENT, FACTS
from tests.worlds import config, study_request

ON_CPU = replace(ENVIRONMENT, device="cpu")
ALONE, HELPED = config(batch_size=64, num_workers=0), config(batch_size=64, num_workers=2)


@pytest.mark.parametrize(
    ("candidates", "environment", "facts", "expected"),
    [
        ([ALONE], ON_CPU, FACTS, LEAST),
        ([ALONE, HELPED], ON_CPU, FACTS, BRIEF),
        ([ALONE], replace(ENVIRONMENT, device="cuda:0"), FACTS, BRIEF),
        ([ALONE], ON_CPU, replace(FACTS, takes_workers=False), BRIEF),
        ([ALONE], ON_CPU, replace(FACTS, owns_loop=True), BRIEF),
        ([ALONE], ON_CPU, replace(FACTS, ranks=2), BRIEF),
    ],
)
def test_rounds_measure_least_where_steps_are_known_to_come_evenly(candidates, environment, facts, expected):
    assert round_budget(study_request(environment=environment, facts=facts), candidates) == expected
