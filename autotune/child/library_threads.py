"""The threads that OpenBLAS and pyarrow start when they are loaded: none in a fork server, all in its probes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

_BLAS_VARIABLES = ("OPENBLAS_NUM_THREADS", "OPENBLAS_DEFAULT_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS")
# Variables of OpenBLAS, and of jemalloc in pyarrow, which transformers imports through scikit-learn and pandas.
_STARTS_NO_THREADS = {_BLAS_VARIABLES[0]: "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
_OF_THE_USER = ("JE_ARROW_MALLOC_CONF",)


@contextmanager
def no_library_threads() -> Iterator[None]:
    """Let no library start threads when it is loaded. The user's own setting of pyarrow's allocator stays."""
    before = {name: os.environ.get(name) for name in _STARTS_NO_THREADS}
    os.environ.update(_STARTS_NO_THREADS, **{name: own for name in _OF_THE_USER if (own := before[name]) is not None})
    try:
        yield
    finally:
        for name, own in before.items():
            os.environ.pop(name, None)
            if own is not None:
                os.environ[name] = own


def give_threads_back() -> None:
    """Give OpenBLAS the threads that it would have started when it was loaded."""
    if "numpy" not in sys.modules:
        return
    asked = (os.environ.get(name, "") for name in _BLAS_VARIABLES)  # the first that is set counts (driver/others)
    count = next((int(text) for text in asked if text.isdigit() and int(text)), len(os.sched_getaffinity(0)))
    for library in openblas_libraries():
        library.set_num_threads(count)


@cache
def openblas_libraries() -> list[Any]:
    """Return the controllers of every OpenBLAS that is loaded.

    A fork server finds them for its probes, because looking through all libraries takes 12 ms.
    """
    from threadpoolctl import ThreadpoolController

    found = ThreadpoolController().lib_controllers
    return [one for one in found if one.internal_api == "openblas" and one.threading_layer == "pthreads"]
