"""The comparison of probes with plain loops, where it goes wrong."""

import sys

import pytest

from benchmarks import fidelity

pytestmark = pytest.mark.slow  # real probes


def test_a_cell_that_dies_is_a_line_of_the_table_and_not_the_end(tmp_path, monkeypatch, capsys):
    broken = tmp_path / "broken.py"
    broken.write_text("raise RuntimeError('of something')")
    monkeypatch.setattr(fidelity, "CELLS", {str(broken): [{"batch_size": 2}, {"batch_size": 4}]})
    monkeypatch.setattr(sys, "argv", ["fidelity"])

    with pytest.raises(SystemExit, match="every cell died"):
        fidelity.main()

    assert "| broken | batch 2 | – | probe: user-error, " in capsys.readouterr().out
