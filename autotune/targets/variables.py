"""The environment variables that torch and its libraries read when imported, which in a fork server was early."""

from __future__ import annotations

import os
import re

from autotune.core.records import CheckLine
from autotune.errors import EnvironmentUnfit

_READ = re.compile(r"TORCH|PYTORCH|(OMP|MKL|KMP|GOMP|OPENBLAS|CUDA|NCCL|TRITON)_")
_READ_LATER = {  # or set after torch is imported in a fresh process, too
    "CUDA_VISIBLE_DEVICES",  # read when a device is first used
    "KMP_DUPLICATE_LIB_OK",  # set by scikit-learn
    "KMP_INIT_AT_FORK",
    "PYTORCH_NVML_BASED_CUDA_CHECK",  # set by lightning; `torch.cuda.is_available` reads it at each call
}
_SET_BY_TORCH = "TORCHINDUCTOR_CACHE_DIR"  # when torch._dynamo is imported

_THREADS = re.compile(r"(OMP|MKL|OPENBLAS)_NUM_THREADS$")

_with_torch: dict[str, str] | None = None  # numbers of threads, as torch found them; None: it was not imported by us
_at_fork: dict[str, str] | None = None  # None: nothing was imported early
_later: dict[str, str] = {}


def is_read_early(name: str) -> bool:
    """Return whether torch or a library of its reads the variable when it is imported."""
    return bool(_READ.match(name)) and name not in _READ_LATER


def read_early() -> dict[str, str]:
    """Return the variables that are set now and that libraries read when they are imported."""
    return {name: os.environ[name] for name in os.environ if is_read_early(name)}


def changed_variable(before: dict[str, str]) -> str:
    """Return the first of those variables that differs from `before`; empty if none does."""
    now = read_early()
    return min((name for name in before.keys() | now.keys() if before.get(name) != now.get(name)), default="")


def note_threads() -> None:
    """Note the numbers of threads that torch has just read."""
    global _with_torch
    _with_torch = _threads()


def late_threads() -> list[CheckLine]:
    """Return a line if the target has set a number of threads since, which torch ignores then; else none."""
    before = _threads() if _with_torch is None else _with_torch
    late = [f"{name}={text}" for name, text in _threads().items() if before.get(name) != text]
    if not late:
        return []
    text = f"{' and '.join(late)}, set by your code, has no effect in a probe, where torch is imported before it"
    shell = f"if your training sets it before it imports torch, set it in the shell: {' '.join(late)} autotune ..."
    return [CheckLine(name="threads", text=text, override=shell, needs_attention=True)]


def _threads() -> dict[str, str]:
    return {name: os.environ[name] for name in sorted(os.environ) if _THREADS.match(name)}


def hide(before: dict[str, str]) -> None:
    """Take back what importing torch._dynamo set; `show` gives it again, once a fresh process would have it."""
    if _SET_BY_TORCH not in before and _SET_BY_TORCH in os.environ:
        _later[_SET_BY_TORCH] = os.environ.pop(_SET_BY_TORCH)


def show() -> None:
    """Set the variables that importing torch._dynamo would set; they do not count as changes."""
    for name, value in _later.items():
        os.environ.setdefault(name, value)
        if _at_fork is not None:
            _at_fork.setdefault(name, os.environ[name])


def _given_again() -> dict[str, str]:
    """Return the variables that torch itself has set again, for example if the target compiles before `show`."""
    return {name: value for name, value in _later.items() if os.environ.get(name) == value}


def hold() -> None:
    """Note the present variables: from now on, changes come too late in this process and its forks."""
    global _at_fork
    _at_fork = read_early()


def set_ours(name: str, value: str) -> None:
    """Set a variable that libraries read late, unless the user has set it; it does not count as the user's change."""
    os.environ.setdefault(name, value)
    if _at_fork is not None:
        _at_fork[name] = os.environ[name]
    _later.pop(name, None)


def check() -> None:
    """Raise `EnvironmentUnfit` if the target set a variable that libraries have read already."""
    if _at_fork is not None and (name := changed_variable(_at_fork | _given_again())):
        raise EnvironmentUnfit(f"the target sets {name}, which a library that is imported already has read")
