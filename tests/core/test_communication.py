"""Two kinds of micro-steps say what an exchange takes, and what accumulation gives."""

from __future__ import annotations

import pytest

from autotune.answer.exposed_communication import exposed_communication
from autotune.child.exchange import MOST_EXCHANGE_PAIRS, Exchange
from autotune.core.codes import Code
from autotune.core.communication import Communication
from autotune.core.memory_peak import MemoryPeak
from autotune.core.requests import ProbeBudget
from autotune.core.results import Measurement

HALF = Communication(without_seconds=(0.1, 0.1, 0.5), with_seconds=(0.2, 0.2, 0.2))


def _measured(communication: Communication | None) -> Measurement:
    return Measurement(
        samples=(8,), step_seconds=(0.2,), loader_wait_seconds=(0.0,), losses=(1.0,), warmup_seconds=(),
        memory=MemoryPeak(process_bytes=1), communication=communication,
    )  # fmt: skip


def test_the_exposed_share_and_every_accumulation_follow_from_medians() -> None:
    assert HALF.exposed_share == pytest.approx(0.5)
    assert HALF.step_seconds(1, 0.01) == pytest.approx(0.21)
    assert HALF.step_seconds(4, 0.01) == pytest.approx(0.51)


def test_an_exchange_that_seems_to_save_time_is_hidden() -> None:
    assert Communication(without_seconds=(0.2,), with_seconds=(0.1,)).exposed_share == 0.0


def test_an_exchange_that_shows_is_a_warning_and_a_hidden_one_is_not() -> None:
    hidden = Communication(without_seconds=(0.19,), with_seconds=(0.2,))

    assert [one.code for one in exposed_communication([_measured(HALF)])] == [Code.COMMUNICATION_EXPOSED]
    assert not list(exposed_communication([_measured(hidden), _measured(None)]))


def test_pairs_end_with_an_exchange_when_there_was_time_for_three_or_fifty_are_done() -> None:
    for seconds, pairs in ((0.1, 3), (1e-6, MOST_EXCHANGE_PAIRS), (1.0, 1)):
        exchange, enough = Exchange(ProbeBudget()), False
        while not enough:
            assert not exchange.micro_step(seconds, exchanges=False)
            enough = exchange.micro_step(seconds, exchanges=True)

        assert exchange.result is not None
        assert len(exchange.result.with_seconds) == len(exchange.result.without_seconds) == pairs


def test_nothing_is_told_where_no_gradients_were_exchanged() -> None:
    assert Exchange(ProbeBudget()).result is None
