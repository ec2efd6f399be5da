"""The compilers that torch.compile needs, and whether they are installed. Imports no torch."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import sysconfig
from pathlib import Path

TRITON_CAPABILITY = (7, 0)  # of an NVIDIA GPU: below it Triton generates nothing (torch 2.13, `has_triton`)


def compiler_of(device_kind: str) -> str:
    """Return the path of the compiler that would be used on such a device; empty if there is none."""
    if device_kind == "cpu":
        named = os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")
        return shutil.which(named) or ""
    names = [os.environ["CC"]] if os.environ.get("CC") else ["gcc", "clang", "cc"]
    return next(filter(None, map(shutil.which, names)), "")


def missing_for_compiling(device_kind: str, capability: str | None = None) -> str:
    """Return what torch.compile lacks on such a device, in words; empty if nothing is missing.

    On a CPU it compiles C++ (torch 2.13, `_inductor/cpp_builder.py`); on a GPU it uses Triton, whose launcher is in C.
    """
    if sys.platform == "win32":
        return "autotune does not look for compilers under Windows"
    if device_kind not in ("cpu", "cuda", "xpu"):
        return f"autotune has not been run with torch.compile on {device_kind}"
    if device_kind != "cpu":
        if importlib.util.find_spec("triton") is None:
            return "triton is not installed"
        if capability and tuple(map(int, capability.split("."))) < TRITON_CAPABILITY:
            return f"the GPU has compute capability {capability}, and Triton needs 7.0"
    if not compiler_of(device_kind):
        named = os.environ.get("CXX" if device_kind == "cpu" else "CC")
        language = "C++" if device_kind == "cpu" else "C"
        return f"no {language} compiler is installed" + (f" by the name {named}" if named else "")
    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        return "Python.h is not installed, which the generated code includes"
    return ""
