"""Whatever an unmodified script does in a real probe, in the main thread of a forked process: a result, or a reason."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from autotune.core.records import Config, Value
from autotune.core.requests import ProbeBudget, ProbeRequest
from autotune.core.results import Outcome, ProbeResult
from autotune.knobs import defaults
from autotune.launch.base import LOG
from autotune.launch.subprocess import SubprocessLauncher
from tests.faults.conftest import MARK, marked, tag_of
from tests.targets.commands.test_watched_commands import HEAD, TRAIN

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="what is left of a probe is looked up in /proc")
SHORT = ProbeBudget(min_warmup_seconds=0.05, min_seconds=0.1, max_seconds=0.3, max_loader_seconds=0.1)


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SubprocessLauncher]:
    mark = tmp_path_factory.getbasetemp()
    with SubprocessLauncher(isolation="fork", environ={MARK: str(mark), "PYTEST_CURRENT_TEST": ""}) as launcher:
        launcher.doubted = frozenset()  # what a forked process says is believed: half as many processes
        yield launcher
        fork_servers = {fork_server.tag for fork_server in launcher.fork_servers.running}
        assert [process for process in marked(mark) if tag_of(process) not in fork_servers] == []


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script of all tests, each with a text of its own: what is called alike shares a fork server."""
    return tmp_path_factory.mktemp("scripts") / "train.py"


@pytest.fixture
def probe(launcher: SubprocessLauncher, script: Path, tmp_path: Path) -> Callable[..., ProbeResult]:
    """`probe(text, arguments, **values)`: the result of a script with this text."""
    return partial(_probe, launcher, script, tmp_path)


def _probe(
    launcher: SubprocessLauncher, script: Path, folder: Path, text: str, arguments: str = "", **values: Value
) -> ProbeResult:
    place = folder / "probe"
    script.write_text(HEAD + text)
    place.mkdir()
    config = Config(values=defaults() | {"batch_size": 8} | values)
    request = ProbeRequest(target=f"-- python {script} {arguments}", config=config, device="cpu", budget=SHORT)
    return launcher.run(request, place)


SIGNALS = "import signal\nfor number in (2, 10, 15): signal.signal(number, lambda *_: sys.exit(5))\n"
STUBBORN = """
while True:
    try:
        for x, y in batches(): step(x, y)
    except BaseException:
        print("again", flush=True)
    finally:
        print("tidied up", flush=True)
"""


@pytest.mark.parametrize(
    "text",
    [
        TRAIN,
        SIGNALS + "signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)\nsignal.signal(14, lambda *_: None)\n" + TRAIN,
        STUBBORN,
        "import os\nos.chdir('/')\n" + TRAIN,
        "for x, y in batches():\n  step(x, y)\n  print('x' * 100_000)\n",
        "import os, atexit\natexit.register(os._exit, 7)\n" + TRAIN,
        "for x, y in batches(num_workers=1, persistent_workers=True): step(x, y)\n",
        "import gc\ngc.disable()\ntorch.set_grad_enabled(True)\nsys.stdout.close()\nsys.stderr.close()\n" + TRAIN,
    ],
    ids=["plain", "signals", "catches all", "changes folder", "prints much", "exits", "workers", "closes its streams"],
)
def test_a_script_is_measured_whatever_it_would_do_at_its_end(probe, tmp_path, text):
    result = probe(text, num_workers=1 if "num_workers" in text else 0)

    assert result.outcome is Outcome.OK, result.failure
    assert set(result.measurement.samples) == {8 * result.measurement.steps_per_block}
    assert "tidied up" not in (tmp_path / "probe" / LOG).read_text()
    assert (tmp_path / "probe" / LOG).stat().st_size < 2**19


BLAS = """
from threadpoolctl import threadpool_info
import numpy
print([one["num_threads"] for one in threadpool_info() if one["internal_api"] == "openblas"], flush=True)
"""


def test_a_script_has_the_threads_of_openblas_that_it_has_without_us(probe, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    alone = subprocess.run([sys.executable, "-c", BLAS], capture_output=True, text=True, check=True).stdout

    assert probe(BLAS + TRAIN).outcome is Outcome.OK
    assert alone.strip() in (tmp_path / "probe" / LOG).read_text()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("raise ValueError('mine')\n", "train.py:18 in <module>: ValueError: mine"),
        ("for n, (x, y) in enumerate(batches()):\n  step(x, y)\n  assert n < 10, 'ten'\n", "AssertionError: ten"),
        (
            "import os\nfor x, y in itertools.islice(batches(), 5): step(x, y)\nos._exit(3)\n",
            "exit status 3 after 5 opt",
        ),
        ("print('the reason')\nsys.exit(2)\n", "the reason"),
        ("input()\n", "reads the standard input"),
        (
            "import os\nos.closerange(3, 256)\n" + TRAIN,
            "train.py closes file descriptors that it did not open, through",
        ),
        (
            "def work():\n  for x, y in batches(): step(x, y)\n"
            "import multiprocessing\nchild = multiprocessing.get_context('fork').Process(target=work)\n"
            "child.start()\nchild.join()\n",
            "train.py trains in processes that it starts itself. A probe watches one process, or those that torchrun",
        ),
        (
            "import torch.multiprocessing as mp\ndef work(rank): pass\n"
            "if __name__ == '__main__': mp.spawn(work, nprocs=2)\n",
            "Start its ranks with one of these, or let it train in its own process, with one device",
        ),
        (
            "import subprocess\nif sys.argv[-1] != 'inner':\n"
            "  subprocess.run([sys.executable, __file__, 'inner'])\n" + TRAIN,
            "train.py inner`, and that process trains. A probe watches the process that it runs, and no",
        ),
        (
            "import os, subprocess\nif 'LOCAL_RANK' not in os.environ:\n"
            "  subprocess.run([sys.executable, *sys.argv], env={**os.environ, 'LOCAL_RANK': '1'})\n" + TRAIN,
            "train.py starts itself once more, and that process trains too. It is probably a further rank, as",
        ),
        (
            "def work():\n  for x, y in batches(): step(x, y)\n"
            "import multiprocessing\nif __name__ == '__main__':\n"
            "  child = multiprocessing.get_context('spawn').Process(target=work)\n  child.start()\n  child.join()\n",
            "train.py trains in processes that it starts itself. A probe watches one process, or those that torchrun",
        ),
        ("for x, y in batches(4): step(x, y)\n", "was given batch_size 8 and trained with batch_size 4"),
        (
            "size = 8\nwhile True:\n  try:\n    for x, y in batches(size):\n      if size > 4: raise MemoryError\n"
            "      step(x, y)\n  except MemoryError: size //= 2\n",
            "was given batch_size 8 and trained with batch_size 4",
        ),
    ],
    ids=[
        "raises",
        "crashes later",
        "exits",
        "last lines",
        "reads stdin",
        "closes descriptors",
        "forks its training",
        "spawns its ranks",
        "starts its training",
        "starts itself",
        "spawns its training",
        "ignores its argument",
        "retries smaller",
    ],
)
def test_what_is_not_measured_is_told_in_a_sentence(probe, text, words):
    result = probe(text)

    assert result.outcome is Outcome.USER_ERROR
    assert result.failure is not None
    assert words in result.failure.message


def test_what_a_script_writes_into_its_folder_is_taken_away(probe, tmp_path):
    text = "for x, y in batches():\n  step(x, y)\n  torch.save(model, f'{sys.argv[1]}/last.pt')\n"

    result = probe(text, "{output_dir}")

    assert result.outcome is Outcome.OK, result.failure
    assert [path.name for path in (tmp_path / "probe").iterdir() if path.is_dir()] == []


def test_nobody_is_told_of_a_probe(probe):
    text = "import os\nassert os.environ['WANDB_MODE'] == 'disabled' and os.environ['CUDA_VISIBLE_DEVICES'] == ''\n"

    assert probe(text + TRAIN).outcome is Outcome.OK
