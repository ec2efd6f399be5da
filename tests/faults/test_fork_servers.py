"""Whatever becomes of a fork server costs one probe at most, and leaves nothing running."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import psutil
import pytest

from autotune.core import codec
from autotune.core.forking import Imports, Ready
from autotune.core.records import Config
from autotune.core.requests import InspectRequest, ProbeBudget, ProbeRequest
from autotune.core.results import Outcome, ProbeResult
from autotune.knobs import defaults
from autotune.launch import fork_servers
from autotune.launch.imports import WITH_OPTIMIZERS, imports_of, variables_of
from autotune.launch.subprocess import SubprocessLauncher
from autotune.targets.commands import hygiene
from tests.faults.conftest import MARK, marked

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="fork servers need Linux")
SHORT = ProbeBudget(
    min_seconds=0.05, max_seconds=0.2, min_warmup_seconds=0.0, max_compute_seconds=0.05, max_loader_seconds=0.05
)
SCRIPT = """
import os
import torch
from torch import nn

model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters())
dataset = torch.utils.data.TensorDataset(torch.randn(512, 8), torch.randint(2, (512,)))
open("gpus.txt", "w").write(repr(os.environ.get("CUDA_VISIBLE_DEVICES")))
for _ in range(1000):
    for images, labels in torch.utils.data.DataLoader(dataset, batch_size=8):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
"""
PROCESS_MADVISE, MADV_PAGEOUT = 440, 21  # asm-generic/unistd.h, asm-generic/mman-common.h: Linux 5.10
TARGET = """
import torch
from torch import nn
from torch.utils.data import TensorDataset

def model(): return nn.Linear(8, 2)
def dataset(): return TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
"""


@pytest.fixture
def forking(tmp_path: Path, child_command: tuple[str, ...]) -> Iterator[SubprocessLauncher]:
    """A launcher whose probes go wrong on demand, as a search has it: it doubts what a forked probe dies of."""
    with SubprocessLauncher(command=child_command, environ={MARK: str(tmp_path)}, isolation="fork") as launcher:
        yield launcher


def ask(
    launcher: SubprocessLauncher, folder: Path, fault: str = "ok", policy: str | None = None, **budget: float
) -> ProbeResult:
    config = Config(values={"batch_size": 8, "omp_wait_policy": policy})
    return launcher.run(ProbeRequest(target=fault, config=config, device="cpu", budget=ProbeBudget(**budget)), folder)


def fork_server_of(launcher: SubprocessLauncher) -> psutil.Process:
    assert launcher.fork_servers is not None
    (running,) = launcher.fork_servers.running
    assert running._process is not None
    return psutil.Process(running._process.pid)


def test_a_killed_fork_server_costs_nothing_between_probes_and_is_started_again(
    forking: SubprocessLauncher, tmp_path: Path
) -> None:
    ask(forking, tmp_path)
    fork_server_of(forking).kill()

    during, after = ask(forking, tmp_path), ask(forking, tmp_path)

    assert (during.outcome, during.isolation) == (Outcome.OK, "fresh")
    assert during.isolation_reason == "the fork server died"
    assert (after.outcome, after.isolation) == (Outcome.OK, "fork")


def test_a_fork_server_that_is_killed_during_a_probe_costs_that_probe(
    forking: SubprocessLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(forking, tmp_path)
    _while_forking(monkeypatch, lambda: fork_server_of(forking).kill())

    result = ask(forking, tmp_path, "measure")

    assert (result.outcome, result.isolation) == (Outcome.OK, "fresh")
    assert result.isolation_reason in ("its fork server died", "the fork server died")


def test_a_fork_server_that_is_stopped_is_replaced(
    forking: SubprocessLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_servers, "ANSWER_SECONDS", 1.0)
    ask(forking, tmp_path)
    fork_server_of(forking).suspend()

    stopped, after = ask(forking, tmp_path), ask(forking, tmp_path)

    assert (stopped.outcome, stopped.isolation) == (Outcome.OK, "fresh")
    assert stopped.isolation_reason == "the fork server did not answer within 1 s"
    assert after.isolation == "fork"


def test_the_end_of_a_probe_is_seen_although_its_fork_server_is_stopped(
    forking: SubprocessLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_servers, "STATUS_SECONDS", 0.5)
    ask(forking, tmp_path)
    _while_forking(monkeypatch, lambda: fork_server_of(forking).suspend())

    result = ask(forking, tmp_path, "measure")

    assert (result.outcome, result.isolation) == (Outcome.OK, "fork")  # it had left its result


def test_fork_servers_that_are_lost_again_and_again_are_not_started_for_ever(
    forking: SubprocessLauncher, tmp_path: Path
) -> None:
    for _ in range(fork_servers.MOST_LOST_SERVERS):
        ask(forking, tmp_path)
        fork_server_of(forking).kill()
        ask(forking, tmp_path)

    result = ask(forking, tmp_path)

    assert result.isolation == "fresh"
    assert result.isolation_reason == "3 fork servers were lost, the last because the fork server died"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_fork_server_that_is_killed_while_it_imports_is_started_again(
    number: int, probing: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _import_at_first(f"os.kill(os.getpid(), {number:d})", tmp_path, monkeypatch)

    during, after = probing.of(TARGET), probing.of(TARGET)

    assert (during.outcome, during.isolation) == (Outcome.OK, "fresh")
    assert during.isolation_reason == f"the fork server died while it imported: exit status {-number}"
    assert (after.outcome, after.isolation, after.isolation_reason) == (Outcome.OK, "fork", "")


def test_a_trial_fork_that_is_killed_is_tried_again_for_the_next_probe(
    probing: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill = "os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), 9))"
    _import_at_first(kill, tmp_path, monkeypatch)

    during, after = probing.of(TARGET), probing.of(TARGET)

    assert (during.outcome, during.isolation) == (Outcome.OK, "fresh")
    assert during.isolation_reason == "a forked process could not compute: -9"
    assert (after.outcome, after.isolation) == (Outcome.OK, "fork")


def test_a_fork_server_that_several_probes_lose_counts_once() -> None:
    owner = fork_servers.ForkServers(("true",))
    lost = SimpleNamespace(close=lambda: None)
    owner._started = {"one": lost}  # type: ignore[dict-item]

    for _ in range(fork_servers.MOST_LOST_SERVERS):
        owner.lose(lost, "the fork server died")  # type: ignore[arg-type]

    assert owner.unused_because == ""


def test_a_fork_server_that_dies_of_an_import_is_not_started_again(
    probing: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_servers, "imports_of", lambda target: Imports(statements=("import os; os.abort()",)))

    result = probing.of(TARGET)

    assert (result.outcome, result.isolation) == (Outcome.OK, "fresh")
    told = "the fork server died while it imported: exit status -6"
    assert result.isolation_reason == probing.fork_servers.unused_because == told


def test_a_fork_server_that_runs_out_of_memory_while_it_forks_costs_that_probe(
    forking: SubprocessLauncher, tmp_path: Path, little_memory: Callable[[int], None]
) -> None:
    ask(forking, tmp_path)
    little_memory(fork_server_of(forking).pid)

    during, after = ask(forking, tmp_path), ask(forking, tmp_path)

    assert (during.outcome, during.isolation) == (Outcome.OK, "fresh")
    assert during.isolation_reason in (
        "the fork server died", "its fork server died", "the forked process died at once",
        "no process could be forked: Cannot allocate memory",
    )  # fmt: skip
    assert (after.outcome, after.isolation) == (Outcome.OK, "fork")


def test_a_fork_server_whose_memory_is_paged_out_forks_the_same_probes(
    probing: SimpleNamespace,
) -> None:
    before = probing.of(TARGET)
    (running,) = probing.fork_servers.running
    resident = running.resident_bytes
    _page_out(running._process.pid)
    if running.resident_bytes > 0.9 * resident:
        pytest.skip("it cannot be paged out: there is no swap, and others have its files mapped")

    after = probing.of(TARGET)

    assert (after.outcome, after.isolation) == (Outcome.OK, "fork")
    assert after.measurement.memory.host_bytes == pytest.approx(before.measurement.memory.host_bytes, rel=0.04)


def test_a_log_in_shared_memory_is_the_probe_s_own(forking: SubprocessLauncher) -> None:
    with TemporaryDirectory(dir="/dev/shm") as folder:
        result = ask(forking, Path(folder))

    assert (result.outcome, result.isolation) == (Outcome.OK, "fork")


def test_a_fork_server_that_cannot_fork_for_want_of_processes_costs_that_probe(
    forking: SubprocessLauncher, tmp_path: Path
) -> None:
    ask(forking, tmp_path)
    fork_server = fork_server_of(forking)
    if psutil.Process().uids().real == 0:
        pytest.skip("the kernel exempts the user root from the limit on processes")
    fork_server.rlimit(psutil.RLIMIT_NPROC, (1, 1))

    result = ask(forking, tmp_path)

    assert (result.outcome, result.isolation) == (Outcome.OK, "fresh")
    assert result.isolation_reason.startswith("no process could be forked")


@pytest.mark.parametrize("fault", ["segfault", "hang"])
def test_a_death_before_the_first_step_is_believed_of_a_fresh_process_only(
    fault: str, forking: SubprocessLauncher, tmp_path: Path
) -> None:
    deadlines = {"build_deadline_seconds": 1.0, "load_deadline_seconds": 5.0}
    result = ask(forking, tmp_path, fault, **deadlines)

    again, after = ask(forking, tmp_path, fault, **deadlines), ask(forking, tmp_path)

    assert result.outcome is (Outcome.CRASHED if fault == "segfault" else Outcome.TIMEOUT)
    assert (result.isolation, after.isolation) == ("fresh", "fork")  # a fresh process ended so, too
    assert (again.outcome, again.isolation) == (result.outcome, "fork"), "which is not asked once more"
    assert result.isolation_reason.startswith("a forked process ended before its first step: ")


@pytest.mark.parametrize(("within", "isolation"), [(0.0, "fork"), (600.0, "fresh")])
def test_a_death_before_the_first_step_is_doubted_only_where_a_fresh_process_would_end_in_time(
    within: float, isolation: str, forking: SubprocessLauncher, tmp_path: Path
) -> None:
    config = Config(values={"batch_size": 8, "omp_wait_policy": None})
    request = ProbeRequest(target="segfault", config=config, device="cpu", repeat_within_seconds=within)

    result = forking.run(request, tmp_path)

    assert (result.outcome, result.isolation) == (Outcome.CRASHED, isolation)


def test_a_failure_that_only_a_forked_process_has_is_not_told_and_the_next_probes_are_fresh(
    forking: SubprocessLauncher, tmp_path: Path
) -> None:
    result, after = ask(forking, tmp_path, "bound-to-its-process"), ask(forking, tmp_path)

    assert (result.outcome, result.isolation) == (Outcome.OK, "fresh")
    assert (after.outcome, after.isolation) == (Outcome.OK, "fresh")
    told = "a forked process ended before its first step: user-error: not where I was imported"
    assert result.isolation_reason == after.isolation_reason == told
    assert forking.fork_servers is not None
    assert forking.fork_servers.running == ()


def test_a_crash_after_the_first_step_is_the_configuration_s_and_probes_are_forked_on(
    forking: SubprocessLauncher, tmp_path: Path
) -> None:
    result = ask(forking, tmp_path, "late-crash")

    assert (result.outcome, result.isolation) == (Outcome.CRASHED, "fork")
    assert ask(forking, tmp_path).isolation == "fork"


def test_each_set_of_variables_that_are_read_at_start_has_its_fork_server(
    forking: SubprocessLauncher, tmp_path: Path
) -> None:
    results = [ask(forking, tmp_path, policy=policy) for policy in (None, "passive", None, "passive")]

    assert [(result.outcome, result.isolation) for result in results] == [(Outcome.OK, "fork")] * 4
    assert forking.fork_servers is not None
    assert len(forking.fork_servers.running) == 2


@pytest.mark.parametrize(("gpus", "count"), [((), 1), (("a GPU",), 2)])
def test_a_command_s_inspection_and_its_probes_on_the_cpu_share_a_fork_server_where_there_is_no_gpu_to_hide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpus: tuple[str, ...], count: int
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(hygiene, "gpus", lambda: gpus)
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(SCRIPT)
    target, config = "-- python train.py", Config(values=defaults() | {"batch_size": 8})
    requests = InspectRequest(target=target), ProbeRequest(target=target, config=config, device="cpu", budget=SHORT)
    with SubprocessLauncher(isolation="fork") as launcher:
        seen = []
        for request in requests:
            result = launcher.run(request, tmp_path)
            seen.append((result.outcome, result.isolation, Path("gpus.txt").read_text()))

        assert launcher.fork_servers is not None
        assert len(launcher.fork_servers.running) == count
    assert seen == [(Outcome.OK, "fork", "None"), (Outcome.OK, "fork", "''")]


def test_the_fork_server_is_gone_with_its_launcher(child_command: tuple[str, ...], tmp_path: Path) -> None:
    with SubprocessLauncher(command=child_command, environ={MARK: str(tmp_path)}, isolation="fork") as launcher:
        ask(launcher, tmp_path)
        assert marked(tmp_path)

    give_up = time.monotonic() + 20.0  # far later than it takes: its guard looks around for a second
    while marked(tmp_path) and time.monotonic() < give_up:
        time.sleep(0.02)
    assert marked(tmp_path) == []


@pytest.fixture
def probing(tmp_path: Path) -> Iterator[SimpleNamespace]:
    """`probing.of(text, isolation)`: the result of a real target; its fork servers live as long as the test."""
    launchers = {isolation: SubprocessLauncher(isolation=isolation) for isolation in ("fork", "fresh")}

    def of(text: str, isolation: str = "fork", seed: int = 0, **values: object) -> ProbeResult:
        (tmp_path / "model.py").write_text(text)
        request = ProbeRequest(
            target=str(tmp_path / "model.py"),
            config=Config(values=defaults() | {"batch_size": 8} | values),
            device="cpu",
            budget=SHORT,
            seed=seed,
        )
        return launchers[isolation].run(request, tmp_path)

    yield SimpleNamespace(of=of, fork_servers=launchers["fork"].fork_servers)
    for launcher in launchers.values():
        launcher.close()


def test_forked_and_fresh_probes_learn_the_same_and_need_the_same_memory(probing: SimpleNamespace) -> None:
    pairs = [
        [probing.of(TARGET, isolation, num_workers=workers).measurement for isolation in ("fork", "fresh")]
        for workers in (0, 2)
    ]

    for forked, fresh in pairs:
        common = min(len(forked.warmup_seconds), len(fresh.warmup_seconds))  # after that batches are loaded alone
        assert common >= 2
        assert forked.losses[:common] == fresh.losses[:common]
        assert forked.memory.host_bytes == pytest.approx(fresh.memory.host_bytes, rel=0.04)


def test_a_target_s_own_files_are_imported_afresh_by_every_probe(probing: SimpleNamespace, tmp_path: Path) -> None:
    text = "import torch\nimport mine\nfrom torch import nn\n" + TARGET.replace("nn.Linear(8, 2)", "mine.model()")
    results = []
    for body in ("nn.Linear(8, 2)", "1 / 0"):
        (tmp_path / "mine.py").write_text(f"from torch import nn\ndef model(): return {body}\n")
        results.append(probing.of(text))

    assert [result.isolation for result in results] == ["fork", "fresh"]  # a failure is asked again
    assert [result.outcome for result in results] == [Outcome.OK, Outcome.USER_ERROR]
    assert results[1].isolation_reason.startswith("a forked process ended before its first step: user-error: ")


def test_a_target_that_sets_a_variable_of_torch_is_believed_of_fresh_processes_only(
    probing: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)  # another test may have compiled
    ours = "import os\nassert os.environ['TORCHINDUCTOR_CACHE_DIR'].endswith('compiled')\n"
    (tmp_path / "settings.py").write_text(ours)
    same = probing.of(f"import settings\n{TARGET}")
    (tmp_path / "settings.py").write_text("import os\nos.environ['TORCH_COMPILE_DISABLE'] = '1'\n")

    results = [probing.of(f"import settings\n{TARGET}") for _ in range(2)]

    assert (same.outcome, same.isolation) == (Outcome.OK, "fork")
    assert [(result.outcome, result.isolation) for result in results] == [(Outcome.OK, "fresh")] * 2
    assert "the target sets TORCH_COMPILE_DISABLE" in results[1].isolation_reason


@pytest.mark.parametrize("isolation", ["fork", "fresh"])
def test_threads_that_a_file_asks_for_before_it_imports_torch_are_those_of_its_training(
    probing: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolation: str
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    seen = f"open({str(tmp_path / 'threads.txt')!r}, 'w').write(str(torch.get_num_threads()))"

    result = probing.of(f"import os\nos.environ['OMP_NUM_THREADS'] = '1'\n{TARGET}\n{seen}\n", isolation)

    assert (result.outcome, result.isolation) == (Outcome.OK, isolation)
    assert (tmp_path / "threads.txt").read_text() == "1"  # of one core or more


@pytest.mark.parametrize(
    "statement",
    ["from lightning import Trainer", "from transformers import Trainer", "from accelerate import Accelerator"],
)
def test_frameworks_are_imported_once_for_all_probes(probing: SimpleNamespace, statement: str) -> None:
    pytest.importorskip(statement.split()[1])

    result = probing.of(f"{statement}\n{TARGET}")

    assert (result.outcome, result.isolation, result.isolation_reason) == (Outcome.OK, "fork", "")


def test_an_import_that_makes_forks_unsafe_is_left_to_the_probes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "site-packages"
    place.mkdir()
    (place / "unsafe.py").write_text("import socket; kept = socket.socket()")
    monkeypatch.setenv("PYTHONPATH", str(place))
    monkeypatch.syspath_prepend(place)
    (tmp_path / "model.py").write_text(f"import unsafe\n{TARGET}")
    asked = Imports(statements=("import json", "import unsafe", "import html"))
    answers: list[Ready] = []
    start = fork_servers.ForkServer._exec

    def seen(self: fork_servers.ForkServer, *arguments: object) -> Ready:
        answers.append(start(self, *arguments))  # type: ignore[arg-type]
        return answers[-1]

    monkeypatch.setattr(fork_servers.ForkServer, "_exec", seen)

    with SubprocessLauncher(isolation="fork") as launcher:
        monkeypatch.setattr(fork_servers, "imports_of", lambda target: asked)
        request = ProbeRequest(
            target=str(tmp_path / "model.py"), config=Config(values=defaults()), device="cpu", budget=SHORT
        )
        result = launcher.run(request, tmp_path)

    assert (result.outcome, result.isolation) == (Outcome.OK, "fork")
    assert [answer.safe_statements for answer in answers] == [1, None]
    assert answers[0].unsafe.startswith("after `import unsafe` the fork server has opened socket:")
    assert answers[1].unsafe == ""
    assert result.isolation_reason == f"each imports the rest anew, for {answers[0].unsafe}"


def test_only_imports_that_come_before_anything_else_are_made_by_the_fork_server(tmp_path: Path) -> None:
    (tmp_path / "beside.py").touch()
    file = tmp_path / "model.py"
    tops = {
        '"""Doc."""\nfrom __future__ import annotations\nimport os, torch\nfrom torch import nn\n': 2,
        "import torch\nimport os\nos.umask(0)\nimport numpy\n": 1,
        "import torch\nimport beside\nimport numpy\n": 1,
        "import torch\nfrom . import other\nimport numpy\n": 1,
        "import torch\nimport no_such_module_anywhere\nimport numpy\n": 1,
        "x = 1\nimport torch\n": 0,
        "def broken(": -1,
        "import torch\nimport os\nos.environ['TORCH_LOGS'] = str('all')\n": -1,
        "import os\nos.environ['OMP_NUM_THREADS'] = '1'\nos.environ['PYTORCH_ALLOC_CONF'] = ''\nimport torch\n": 1,
        "import os\nimport torch\nos.environ['HF_HUB_OFFLINE'] = '1'\nimport numpy\n": 3,
        "import os\nos.environ['HF_HUB_OFFLINE'] = str(1)\nimport torch\n": 0,
        "import warnings\nwarnings.filterwarnings('ignore', category=UserWarning)\nimport torch\n": 1,
        "import warnings\nwarnings.simplefilter('error')\nimport torch\n": 0,
    }

    found = {}
    for text in tops:
        file.write_text(text)
        found[text] = len(imports_of(str(file)).statements) - 1

    assert found == tops


def test_what_a_file_sets_before_its_first_import_of_an_installed_module_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MKL_NUM_THREADS", "8")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    file = tmp_path / "model.py"
    tops = {
        "import os, sys\nsys.path.append('x')\nos.environ['OMP_NUM_THREADS'] = '1'\nimport torch\n": ["1"],
        "import os\nos.environ['OMP_NUM_THREADS'] = '1'\nos.environ['OMP_NUM_THREADS'] = '2'\nimport torch\n": ["2"],
        "import os\nos.environ.setdefault('OMP_NUM_THREADS', '1')\nimport torch\n": ["1"],
        "import os\nos.environ.setdefault('MKL_NUM_THREADS', '1')\nimport torch\n": [],
        "import os, torch\nos.environ['OMP_NUM_THREADS'] = '1'\n": [],
        "import os\ntry:\n    import torch\nfinally:\n    pass\nos.environ['OMP_NUM_THREADS'] = '1'\n": [],
        "import os\nif os.getpid() == 1:\n    os.environ['OMP_NUM_THREADS'] = '1'\nimport torch\n": [],
        "import os\nos.environ['HF_HUB_OFFLINE'] = '1'\nimport torch\n": [],  # the file sets it in time
        "import os\nos.environ['PYTHONHASHSEED'] = '1'\nimport torch\n": [],  # too late, in the user's run, too
        "def broken(": [],
    }

    found = {}
    for text in tops:
        file.write_text(text)
        found[text] = list(variables_of(str(file)).values())

    assert found == tops
    assert variables_of(None) == variables_of(str(tmp_path / "absent.py")) == {}


def test_what_the_first_module_of_the_user_s_imports_at_its_top_is_imported_once_too(tmp_path: Path) -> None:
    files = {
        "mine/__init__.py": '"""Doc."""\n',
        "mine/net.py": "import numpy\nimport loop\n",
        "loop.py": "import psutil\nfrom mine.net import Net\nimport pytest\n",  # they import one another
        "with_code.py": "import numpy\nprint()\nimport psutil\n",
        "setting.py": "import os, numpy\nos.environ['A'] = '1'\n",
        "wide/__init__.py": "import numpy\nprint()\n",
        "wide/net.py": "import psutil\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    tops = {
        "from mine.net import Net": ["numpy", "psutil"],
        "import mine.net": ["numpy", "psutil"],
        "import with_code": ["numpy"],
        "import setting": [],
        "from wide.net import Net": ["numpy"],
        "import mine": [],
        "from . import net": [],
        "import with_code, loop": [],
    }

    found = {}
    for text in tops:
        (tmp_path / "model.py").write_text(f"import torch\n{text}\nimport pytest\n")
        _, *more = imports_of(str(tmp_path / "model.py")).statements
        found[text] = [statement.removeprefix("import ") for statement in more][1:]

    assert found == tops


@pytest.mark.parametrize("text", ["x = " + "-" * 20000 + "1", "x = " + "+".join("1" * 50000), "(" * 1000, "\0"])
def test_a_target_that_cannot_be_parsed_is_left_to_the_probes(text: str, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(text)

    assert imports_of(str(tmp_path / "model.py")).statements in ((), (WITH_OPTIMIZERS,))


def test_all_that_a_probe_would_find_beside_the_target_goes_first(tmp_path: Path) -> None:
    names = (
        "numpy.py",
        "msgspec.abi3.so",
        "psutil.pyc",
        "pytest/__init__.py",
        "broken\udcff.py",
        "not-a-name.py",
        "a.txt",
    )
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "model.py").write_text("import torch\nimport msgspec\n")

    found = imports_of(str(tmp_path / "model.py"))

    assert found.statements == (WITH_OPTIMIZERS, "import torch")
    assert found.beside == ("model", "msgspec", "numpy", "psutil", "pytest")
    assert codec.decode(codec.encode(found), Imports) == found


def test_more_modules_beside_the_target_than_a_message_holds_leave_all_imports_to_the_probes(tmp_path: Path) -> None:
    for number in range(400):
        (tmp_path / f"{'m' * 200}{number}.py").touch()
    (tmp_path / "model.py").write_text("import torch\n")

    assert imports_of(str(tmp_path / "model.py")) == Imports()


def test_an_interrupt_leaves_no_fork_server(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []

    def close(number: int) -> None:
        ended.append(number)
        if len(ended) == 1:
            raise KeyboardInterrupt

    owner = fork_servers.ForkServers(("true",))
    owner._started = {key: SimpleNamespace(close=partial(close, key)) for key in (1, 2)}  # type: ignore[misc]

    with pytest.raises(KeyboardInterrupt):
        owner.close()

    assert ended == [1, 1, 2]
    assert owner.running == ()


def test_a_module_in_a_package_with_code_of_its_own_is_not_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "train.py").write_text("import torch\n")

    assert imports_of("package.train").statements == (WITH_OPTIMIZERS, "import torch")
    (tmp_path / "package" / "__init__.py").write_text("import os\nos.umask(0)\n")
    assert imports_of("package.train").statements == (WITH_OPTIMIZERS,)


def test_elsewhere_than_on_linux_every_probe_is_fresh_and_says_why(
    child_command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_servers, "unsupported", lambda: "forked probes need Linux")

    with SubprocessLauncher(command=child_command, isolation="fork") as launcher:
        result = ask(launcher, tmp_path)

    assert (result.isolation, result.isolation_reason) == ("fresh", "forked probes need Linux")


@pytest.fixture
def little_memory() -> Iterator[Callable[[int], None]]:
    """`little_memory(pid)`: leave the process 64 KiB to grow by, and what it forks with it."""
    version_1, version_2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    place, limit = (version_1, "memory.limit_in_bytes") if version_1.is_dir() else (version_2, "memory.max")
    group = place / f"autotune-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / limit).write_text(str(2**30))
    except OSError as error:
        with suppress(OSError):
            group.rmdir()
        pytest.skip(f"no group of processes with a memory limit can be made: {error}")

    def narrow(pid: int) -> None:
        (group / "cgroup.procs").write_text(str(pid))
        (group / limit).write_text(str(2**16))

    yield narrow
    for process in (group / "cgroup.procs").read_text().split():
        with suppress(ProcessLookupError):
            os.kill(int(process), signal.SIGKILL)
    give_up = time.monotonic() + 20.0
    while (group / "cgroup.procs").read_text() and time.monotonic() < give_up:
        time.sleep(0.02)
    group.rmdir()


def _import_at_first(code: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the first fork server run this when it imports, and no other one."""
    statement = f"import os, pathlib; p = pathlib.Path({str(folder / 'began')!r}); p.exists() or p.touch() or {code}"
    monkeypatch.setattr(fork_servers, "imports_of", lambda target: Imports(statements=(statement,)))


def _page_out(pid: int) -> None:
    """Take all memory from a process that can be read again: without swap, what is mapped from files."""
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd = os.pidfd_open(pid)
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        first, end = (int(part, 16) for part in line.split()[0].split("-"))
        span = (ctypes.c_size_t * 2)(first, end - first)  # struct iovec
        paged = libc.syscall(PROCESS_MADVISE, pidfd, ctypes.byref(span), 1, MADV_PAGEOUT, 0)
        if paged < 0 and ctypes.get_errno() in (errno.EPERM, errno.ENOSYS):
            pytest.skip(f"memory of another process cannot be paged out: {os.strerror(ctypes.get_errno())}")
    os.close(pidfd)


def _while_forking(monkeypatch: pytest.MonkeyPatch, then: Callable[[], object]) -> None:
    """Do something once, as soon as a probe has been forked."""
    fork = fork_servers.ForkServer.fork

    def forked(self: fork_servers.ForkServer, *arguments: object) -> fork_servers.Forked:
        born = fork(self, *arguments)
        monkeypatch.setattr(fork_servers.ForkServer, "fork", fork)
        then()
        return born

    monkeypatch.setattr(fork_servers.ForkServer, "fork", forked)
