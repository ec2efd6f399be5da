"""The recommendation as values by name: JSON, YAML, variables of a shell; for files and scripts of one's own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from autotune.core.records import Value
from autotune.harmless import comment, json_text, shell_word
from autotune.knobs import OURS, environ

OWN = "KNOB_"  # before the name of a knob of the user's own, as a variable


def as_json(values: Mapping[str, Any]) -> str:
    """Return the values as one JSON object."""
    return json_text(json.dumps(dict(values), indent=2)) + "\n"


def as_yaml(values: Mapping[str, Any], remarks: tuple[str, ...] = ()) -> str:
    """Return one line per value; JSON's words for them are YAML's too."""
    lines = [f"{name}: {json_text(json.dumps(value))}" for name, value in values.items()]
    return "\n".join([*map(comment, remarks), *lines]) + "\n"


def as_variables(params: Mapping[str, Value], remarks: tuple[str, ...] = ()) -> str:
    """Return lines to be sourced by a shell: the knobs in capitals, and the variables that are read by libraries.

    A knob of the user's own has `KNOB_` before its name: one called `path` would overwrite the shell's.
    What is not set (None) is taken away with `unset`: OpenMP, for one, complains of an empty OMP_WAIT_POLICY.
    """
    ours = {one.name for one in OURS}
    names = {name: name.upper() if name in ours else f"{OWN}{name.upper()}" for name in params}
    own = {names[name]: None if value is None else str(value) for name, value in params.items()}
    lines = [
        f"unset {name}" if text is None else f"export {name}={shell_word(text)}"
        for name, text in (own | environ(params)).items()
    ]
    return "\n".join([*map(comment, remarks), *lines]) + "\n"
