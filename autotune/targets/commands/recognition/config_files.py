"""Finds files that set arguments of a command, so that the defaults in its script may not be in effect."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from autotune.targets.commands.distributed import Launch
from autotune.targets.commands.recognition.given_arguments import Given
from autotune.targets.commands.script.argument_names import normal

_ENDINGS = (".yaml", ".yml", ".json", ".toml", ".ini", ".cfg")
_OPTION = re.compile(r"(\w+_)?(config|cfg|conf|recipe|hparams|settings)(_(file|path|name|yaml))?|c|yaml|fname")


def config_file(words: Sequence[str], start: int, given: Sequence[Given]) -> str:
    """Return the first word from position `start` on that names a file of arguments; empty: there is none."""
    values = {one.at + (not one.inline): one for one in given if one.value is not None}
    for at in range(start, len(words)):
        option = values.get(at)
        word = words[at] if option is None else option.value or ""
        if word.startswith("@") and Path(word[1:]).is_file():  # argparse's fromfile_prefix_chars
            return word
        if word.startswith("-") or not word.endswith(_ENDINGS):
            continue
        if option is None or _OPTION.fullmatch(normal(option.name)):
            return word
    return ""


def launch_file(words: Sequence[str], launch: Launch, given: Sequence[Given]) -> str:
    """Return the file that sets options of the distributed launcher; empty: there is none.

    Accelerate 1.15 reads its default file even if it is not named (`accelerate.commands.config.config_args`).
    """
    named = config_file(words[: launch.options_at + len(launch.options)], launch.options_at, given)
    cache = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    own = [Path(cache).expanduser() / "accelerate" / f"default_config.{kind}" for kind in ("yaml", "json")]
    return named or next((str(one) for one in own if launch.distributed.script_call and one.is_file()), "")
