"""The recipe for libraries in docs/using-the-answer.md, carried out as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commandline import environment

pytestmark = pytest.mark.slow
DOCUMENT = Path(__file__).parents[2] / "docs" / "using-the-answer.md"
LIBRARY = """
import torch
from torch import nn

def model(): return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 2))
def dataset(): return torch.utils.data.TensorDataset(torch.randn(512, 16), torch.randint(2, (512,)))
"""
USER = """
import json
import sys
from mylibrary.tuning import tuned

told = []
found = tuned("studies/mine", told.append, minutes=0.25)
again = tuned("studies/mine", told.append)
json.dump({"found": found, "again": again, "told": told, "torch": "torch" in sys.modules}, open("seen.json", "w"))
"""


def test_a_library_tunes_without_a_word_and_without_torch(tmp_path: Path) -> None:
    import json

    recipe = re.search(r"```python\n(# tuning.py of your library\n.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert recipe is not None
    package = tmp_path / "mylibrary"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "recipes.py").write_text(LIBRARY)
    (package / "tuning.py").write_text(recipe[1])
    (tmp_path / "user.py").write_text(USER)

    done = subprocess.run(
        [sys.executable, "user.py"], cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True,
        check=True,
    )  # fmt: skip

    seen = json.loads((tmp_path / "seen.json").read_text())
    assert (done.stdout, done.stderr) == ("", "")
    assert seen["found"] == seen["again"] and seen["found"]["batch_size"] >= 1
    assert any("samples/s" in text for text in seen["told"])
    assert not seen["torch"]
