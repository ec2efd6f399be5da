"""The benchmark of one model in five forms goes on where it was stopped; nothing is measured here."""

from pathlib import Path

import pytest

from benchmarks.same_model import __main__ as same_model
from benchmarks.surfaces.plain import Trained


@pytest.fixture
def calls(monkeypatch, tmp_path):
    """What would have been measured."""
    made: list[str] = []

    def searched(form, seconds):
        made.append(form)
        if form == "bare" and made.count("bare") == 1:
            raise KeyboardInterrupt
        return same_model.Searched(params={"batch_size": 16}, promised=100.0, probes=5, seconds=seconds)

    def in_turn(task, configs, seconds, rounds):
        made.append(f"round of {' '.join(configs)}")
        if made.count("round of baseline bare functions") == 1 and next(iter(configs)) == "baseline":
            raise KeyboardInterrupt
        return {form: Trained(rates=[100.0]) for form in configs}

    monkeypatch.setattr(same_model, "STUDIES", Path(tmp_path))
    monkeypatch.setattr(same_model, "searched", searched)
    monkeypatch.setattr(same_model.plain, "in_turn", in_turn)
    return made


def test_it_goes_on_where_it_was_stopped_and_prints_the_table_again(calls, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["same_model", "--only", "functions,bare", "--rounds", "2"])

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            same_model.main()
    same_model.main()
    same_model.main()

    assert calls == [
        "functions", "bare", "bare",
        "round of functions bare baseline", "round of baseline bare functions", "round of baseline bare functions",
    ]  # fmt: skip
    assert capsys.readouterr().out.count("1 recommendation of 2 forms") == 2


def test_other_options_begin_anew(calls, monkeypatch):
    for seconds in ("30", "60"):
        monkeypatch.setattr("sys.argv", ["same_model", "--only", "functions", "--rounds", "1", "--seconds", seconds])
        same_model.main()

    assert calls.count("functions") == 2
