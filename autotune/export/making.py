"""`python -m autotune.export.making FOLDER`: makes an object of a framework from exported arguments.

The process of its own in which `autotune export --check` imports a framework, and torch with it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from autotune.errors import UsageError

REQUEST, RESULT = "request.json", "result.json"
MOST_MAKING_SECONDS = 300  # importing transformers on a cold disk takes minutes


def check(made: str, arguments: Mapping[str, Any]) -> str:
    """Make `made` ("lightning:Trainer") from `arguments` in another process; return how that went, in a sentence.

    Raises `UsageError` if the installed framework does not take them. Imports nothing of it here.
    """
    package, _, name = made.partition(":")
    if find_spec(package) is None:
        return f"not checked: {package} is not installed here, so no {name} was made"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / REQUEST).write_text(json.dumps([package, name, dict(arguments)]))
        command = [sys.executable, "-m", __name__, folder]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=MOST_MAKING_SECONDS)
        except subprocess.TimeoutExpired:
            return f"not checked: {package} was not imported within {MOST_MAKING_SECONDS} s"
        place = Path(folder) / RESULT
        result = json.loads(place.read_text()) if place.is_file() else {"error": _last_line(ended)}
    if error := result.get("error"):
        raise UsageError(
            f"{package} {result.get('version', '')} does not accept these arguments for {name}: {error}. It is "
            f"another version than they were written for, or this machine lacks the device of the study. Check where "
            f"you train, or install the version that docs/using-the-answer.md names."
        )
    return f"checked: {package} {result['version']} made its {name} from these arguments"


def _last_line(ended: subprocess.CompletedProcess[str]) -> str:
    return (ended.stderr.strip().splitlines() or [f"its process ended with exit status {ended.returncode}"])[-1]


def _make(folder: Path) -> dict[str, str]:
    package, name, arguments = json.loads((folder / REQUEST).read_text())
    result = {"version": version(package)}
    try:
        getattr(import_module(package), name)(**arguments)
    except Exception as error:  # whatever a framework raises is the answer
        result["error"] = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".")
    return result


if __name__ == "__main__":
    os.chdir(sys.argv[1])  # frameworks write folders where they stand
    Path(RESULT).write_text(json.dumps(_make(Path())))
