"""What needs a CUDA device: everything here, skipped with the reason where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent
NVIDIA = ("test_gpu_environment.py", "test_gpu_telemetry.py")  # ask NVML, which ROCm's builds of torch do not have


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder; pytest asks it of those of all folders."""
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.gpu)
            if not torch.cuda.is_available() or (item.path.name in NVIDIA and torch.version.cuda is None):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device, and torch sees none"))
