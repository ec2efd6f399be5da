"""torch.compile on a real CUDA device: Triton generates code, and no compile worker outlives its probe."""

from __future__ import annotations

import copy
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import torch
from torch import nn

from autotune.core.requests import ProbeRequest
from autotune.core.results import Outcome
from autotune.launch.subprocess import SubprocessLauncher
from autotune.targets.compiling import compile_model
from tests.child.test_compiling import TARGETS
from tests.worlds import config


# Compiling in this process, torch 2.11 warns of TorchScript, of TF32, and of empty graphs of a backward pass.
@pytest.mark.filterwarnings("default::DeprecationWarning", "default::UserWarning")
@pytest.mark.parametrize("mode", ["default", "regional", "reduce-overhead"])
def test_what_is_compiled_computes_the_same(mode: str) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
    plain = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).cuda()
    compiled = compile_model(copy.deepcopy(plain), mode)
    batch = torch.randn(8, 16, 64, device="cuda")

    for model in (plain, compiled):
        model(batch).square().mean().backward()

    for one, other in zip(plain.parameters(), compiled.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("isolation", ["fork", "fresh"])
def test_no_compile_worker_is_left(isolation: str, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(TARGETS["plain"])
    place = tmp_path / "probes" / "0000"
    place.mkdir(parents=True)
    asked = ProbeRequest(
        target=str(tmp_path / "model.py"), config=config(batch_size=16, compile_mode="default"), device="cuda:0"
    )

    with SubprocessLauncher(isolation=isolation) as launcher:
        found = launcher.run(asked, place)

    assert found.outcome is Outcome.OK, found.failure
    assert found.measurement is not None and found.measurement.compilation is not None
    assert found.measurement.compilation.graphs == 1
    assert [one for one in _compile_workers() if not _is_of_a_test(one)] == []


def _compile_workers() -> list[psutil.Process]:
    return [one for one in psutil.process_iter(["cmdline"]) if "compile_worker" in " ".join(one.info["cmdline"] or ())]


def _is_of_a_test(worker: psutil.Process) -> bool:
    """Whether a process that runs tests has started it: some compile in their own."""
    with suppress(psutil.NoSuchProcess):
        return any(
            "pytest" in " ".join(one.cmdline()) or "execnet" in " ".join(one.cmdline()) for one in worker.parents()
        )
    return True  # it is gone
