"""Another malloc in real processes: forked and exec'd, there and missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest

from autotune.core.requests import InspectRequest, ProbeBudget, ProbeRequest
from autotune.core.results import Outcome, ProbeResult
from autotune.knobs import environ, malloc
from autotune.launch.subprocess import SubprocessLauncher
from autotune.machine import mallocs
from autotune.targets import allocators
from tests.targets_support import COMPLETE
from tests.worlds import config

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        mallocs.glibc_version() < malloc.LEAST_GLIBC, reason=f"needs Linux with glibc {malloc.LEAST_GLIBC}"
    ),
]
SHORT = ProbeBudget(min_seconds=0.05, max_seconds=0.2, min_warmup_seconds=0.0)
SEEN = "from autotune.targets.allocators import _malloc; print(_malloc())"


def probed(
    tmp_path: Path, value: str | None, isolation: Literal["fork", "fresh"], text: str = COMPLETE,
    budget: ProbeBudget = SHORT,
) -> ProbeResult:  # fmt: skip
    target = tmp_path / "model.py"
    target.write_text(text)
    request = ProbeRequest(target=str(target), config=config(batch_size=8, malloc=value), device="cpu", budget=budget)
    with SubprocessLauncher(isolation=isolation) as launcher:
        return launcher.run(request, tmp_path)


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the kind is set."""
    for name in malloc.VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("value", [None, *malloc.SETTINGS])
def test_each_takes_effect_and_is_recognised(value: str | None) -> None:
    if value not in (None, *allocators.available()):
        pytest.skip(f"{malloc.LIBRARIES[str(value)]} is not installed")
    ended = subprocess.run(
        [sys.executable, "-c", SEEN], env={**os.environ, **environ({"malloc": value})}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip

    assert ended.stdout.strip() == (value or malloc.OWN)
    assert ended.stdout.strip() in (*map(str, malloc.SETTINGS), malloc.OWN)


@pytest.mark.parametrize("isolation", ["fork", "fresh"])
def test_a_probe_has_it_forked_or_fresh(tmp_path: Path, isolation: Literal["fork", "fresh"]) -> None:
    value = allocators.available()[-1]  # a library where one is installed

    result = probed(tmp_path, value, isolation)

    assert result.outcome is Outcome.OK, result.failure
    assert result.isolation == isolation


def test_glibc_that_keeps_memory_is_forked_from_the_same_fork_server(tmp_path: Path) -> None:
    target, seen = tmp_path / "model.py", tmp_path / "seen.txt"
    note = f"import os\nopen({str(seen)!r}, 'a').write(str(os.environ.get('GLIBC_TUNABLES')) + chr(10))\n"
    target.write_text(COMPLETE + note)
    keeping = environ({"malloc": malloc.GLIBC})["GLIBC_TUNABLES"]

    with SubprocessLauncher(isolation="fork") as launcher:
        for way in (None, malloc.GLIBC, None):
            config_ = config(batch_size=8, malloc=way)
            request = ProbeRequest(target=str(target), config=config_, device="cpu", budget=SHORT)
            assert (result := launcher.run(request, tmp_path)).outcome is Outcome.OK, result.failure
            assert result.isolation == "fork"
        assert launcher.fork_servers is not None
        assert len(launcher.fork_servers.running) == 1

    assert seen.read_text().split() == ["None", keeping, "None"]


@pytest.mark.parametrize("isolation", ["fork", "fresh"])
def test_glibc_that_keeps_memory_has_few_page_faults(tmp_path: Path, isolation: Literal["fork", "fresh"]) -> None:
    large = COMPLETE + "def loss(model, batch):\n    return model(batch[0]).mean() + 0 * torch.ones(12 << 20).sum()\n"

    warm = ProbeBudget(min_seconds=0.1, max_seconds=1.0, min_warmup_seconds=0.1)  # the first step has to get its memory
    as_it_is, keeping = (probed(tmp_path, way, isolation, large, warm) for way in (None, malloc.GLIBC))

    assert as_it_is.measurement is not None, as_it_is.failure
    assert keeping.measurement is not None, keeping.failure
    if as_it_is.measurement.page_faults is None:
        pytest.skip("page faults are not counted here")
    faults = [one.measurement.page_faults / one.measurement.steps for one in (as_it_is, keeping)]
    assert faults[0] > 1000  # 48 MiB in pages of 4 KiB
    assert faults[1] < 0.5 * faults[0]


def test_a_library_that_is_missing_when_it_is_needed_is_said_and_never_measured_under_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(malloc.SETTINGS, "jemalloc", {malloc.PRELOAD: "libnone-autotune.so.1"})  # here, not in probes

    result = probed(tmp_path, "jemalloc", "fork")

    assert result.outcome is not Outcome.OK
    assert result.failure is not None
    assert "was given jemalloc and trained with" in result.failure.message


def test_what_is_there_and_what_the_user_set_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.top_pad=131072")

    with SubprocessLauncher() as launcher:
        found = launcher.run(InspectRequest(device="cpu"), tmp_path).environment

    assert found is not None
    assert malloc.GLIBC in found.mallocs
    assert found.variables == ("GLIBC_TUNABLES",)


def test_the_dynamic_loader_is_asked_what_it_can_preload() -> None:
    assert mallocs.can_preload("libc.so.6")
    assert not mallocs.can_preload("libnone-autotune.so.1")
