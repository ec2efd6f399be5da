"""The searching process is killed or interrupted while a real target is in any phase: nothing of the probe is left."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from autotune.core.requests import ProbeRequest
from autotune.launch.base import REQUEST, RESULT
from autotune.study import disk
from tests.faults.suffering import LANES, SHORT, carrying, partial_files
from tests.faults.targets import HEALTHY, LONG_WINDOW, in_build, in_sample, in_step, on_import

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="what is left of a probe is looked up in /proc")
MARK = "_AUTOTUNE_TEST_PARENT"
PATIENCE_SECONDS = 60.0
HERE = "(PROBE / 'here').touch(); forever()"
ALONE = "os.setsid() if os.getsid(0) != os.getpid() else None\n" + HERE
PARENT = f"""
import json, sys
from pathlib import Path
from autotune.knobs import defaults
from autotune.launch.subprocess import SubprocessLauncher
from autotune.core.records import Config
from autotune.core.requests import ProbeBudget, ProbeRequest
folder, target, workers, budget = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])
config = Config(values=defaults() | {{"batch_size": 8, "num_workers": workers}})
with SubprocessLauncher(environ={{{MARK!r}: str(folder)}}, isolation=sys.argv[5]) as launcher:
    launcher.run(ProbeRequest(target=target, config=config, device="cpu", budget=ProbeBudget(**budget)), folder)
"""
PHASES = {
    "start": "",
    "load": on_import(HERE),
    "build": in_build(HERE),
    "warm-up": in_step(HERE),
    "measure": in_step(
        "global since\nsince = globals().get('since') or time.monotonic()\n"
        f"if time.monotonic() - since > 3:\n    {HERE}"
    ),
    "validate": "class HeldOut(Dataset):\n    def __len__(self): return 64\n"
    f"    def __getitem__(self, index): {HERE}\ndef validation(): return HeldOut()",
    "worker": in_sample(ALONE),
}
INTERRUPT, TWICE, KILL = (signal.SIGINT,), (signal.SIGINT,) * 5, (signal.SIGKILL,)
Signals = tuple[signal.Signals, ...]
Case = tuple[str, Signals, str]
ENDS: list[Case] = [
    *((phase, INTERRUPT, "fresh") for phase in PHASES),
    *((phase, INTERRUPT, "fork") for phase in ("start", "build", "worker")),
    *((phase, KILL, isolation) for phase in ("start", "measure", "worker") for isolation in ("fresh", "fork")),
    *((phase, TWICE, isolation) for phase in ("build", "worker") for isolation in ("fresh", "fork")),
]


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How it was when the searching process was gone."""

    study: Path
    folder: Path
    returncode: int
    survivors: tuple[str, ...]


def end(study: Path, phase: str, signals: Signals, isolation: str) -> Ended:
    """Start a search of one probe, send it `signals` when the target is in `phase`, and see what is left."""
    _, folder = disk.new_attempt(study, ProbeRequest)
    (study / "model.py").write_text(f"{HEALTHY}\n{PHASES[phase]}\n")
    budget = json.dumps(SHORT | (LONG_WINDOW if phase == "measure" else {}))
    words = [str(folder), str(study / "model.py"), str(2 * (phase == "worker")), budget, isolation]
    search = subprocess.Popen([sys.executable, "-c", PARENT, *words], stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: begun(folder) if phase == "start" else (folder / "here").exists(), search)
        for number in signals:
            search.send_signal(number)
            time.sleep(0.01)
        returncode = search.wait()
        still = carrying(MARK, str(folder))
        if signals != INTERRUPT:  # nobody may be left to see to it but the probe's own guard, which needs a moment
            give_up = time.monotonic() + PATIENCE_SECONDS
            while (still := carrying(MARK, str(folder))) and time.monotonic() < give_up:
                time.sleep(0.05)
        return Ended(study=study, folder=folder, returncode=returncode, survivors=still)
    finally:
        search.kill()
        search.wait()


def begun(folder: Path) -> bool:
    """Whether the probe has been asked for, and some process is there for it."""
    return (folder / REQUEST).exists() and bool(carrying(MARK, str(folder)))


def wait_for(happened: Callable[[], object], search: subprocess.Popen[bytes]) -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert search.poll() is None, "the search ended before the target came so far"
        assert time.monotonic() < give_up, "the target never came so far"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def all_ended(tmp_path_factory: pytest.TempPathFactory) -> dict[Case, Ended]:
    with ThreadPoolExecutor(LANES) as pool:
        begun = {case: pool.submit(end, tmp_path_factory.mktemp("study"), *case) for case in ENDS}
    return {case: future.result() for case, future in begun.items()}


@pytest.mark.parametrize(
    ("phase", "signals", "isolation"),
    ENDS,
    ids=lambda part: part if isinstance(part, str) else f"{len(part)}-{part[0].name}",
)
def test_nothing_outlives_the_searching_process(
    phase: str, signals: Signals, isolation: str, all_ended: dict[Case, Ended]
) -> None:
    ended = all_ended[phase, signals, isolation]

    assert ended.survivors == ()
    # An interrupt that comes while Python prints the traceback of another makes it an ordinary error: 1.
    assert ended.returncode in (-signals[0], 128 + signals[0], *([1] if signals == TWICE else []))
    assert not (ended.folder / RESULT).exists()
    assert (signals == KILL) == (ended.folder / REQUEST).exists()
    assert disk.read_trials(ended.study) == ()
    assert len(disk.read_orphans(ended.study)) == (signals == KILL)
    assert partial_files(ended.study) == []
