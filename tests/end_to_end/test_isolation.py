"""How the probes of a real search start is the user's to say."""

import json

import pytest

from autotune.launch.fork_servers import unsupported
from tests.commandline import TWO_ROUNDS, briefly, run_here

pytestmark = pytest.mark.skipif(bool(unsupported()), reason=unsupported())


def _started(study):
    """How each process of the study that was timed began, and why."""
    results = [json.loads(path.read_text()) for path in sorted((study / "probes").glob("*/result.json"))]
    assert results
    return {(result["isolation"], result["isolation_reason"]) for result in results}


def test_the_probes_of_a_search_are_forked_where_nothing_is_said(recorded):
    assert _started(recorded.study) == {("fork", "")}


def test_with_isolation_fresh_no_probe_is_forked(home):
    with briefly(TWO_ROUNDS):
        ended = run_here(home, "search", "model.py", "-t", "5m", "--probes", "1", "--isolation", "fresh")

    assert ended.returncode == 0, ended.stderr
    assert _started(home / "studies" / "model") == {("fresh", "")}


def test_another_isolation_is_one_error(home):
    ended = run_here(home, "search", "model.py", "--isolation", "spawn")

    assert ended.returncode == 2
    assert "spawn" in ended.stderr and "fork" in ended.stderr and "fresh" in ended.stderr
