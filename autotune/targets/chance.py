"""Random states of the process: a look that draws random numbers puts them back."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import torch


def keep_chance(device: str) -> Callable[[], None]:
    """Return a function that restores the present random states of torch, numpy and Python.

    Not covered: those of accelerators other than CUDA.
    """
    host, python, arrays = torch.get_rng_state(), random.getstate(), np.random.get_state()
    beside = torch.cuda.get_rng_state(device) if device.startswith("cuda") else None

    def back() -> None:
        torch.set_rng_state(host)
        random.setstate(python)
        np.random.set_state(arrays)
        if beside is not None:
            torch.cuda.set_rng_state(beside, device)

    return back
