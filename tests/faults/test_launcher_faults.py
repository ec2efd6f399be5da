"""Whatever a probe does, the launcher comes back with the right outcome, and nothing is left running."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace

from autotune.core import codec
from autotune.core.probe_tag import TAG
from autotune.core.requests import ProbeRequest
from autotune.core.results import Isolation, Outcome, ProbeResult
from autotune.errors import EnvironmentUnfit
from autotune.launch import processes
from autotune.launch.base import LOG, REQUEST, RESULT
from autotune.launch.subprocess import SubprocessLauncher
from autotune.targets.commands.hygiene import OUTPUT_FOLDER

Suffer = Callable[..., ProbeResult]
Survivors = Callable[[], list[psutil.Process]]

CORE_PATTERN = Path("/proc/sys/kernel/core_pattern")
CORES_LIE_BESIDE = (
    resource.getrlimit(resource.RLIMIT_CORE)[1] != 0
    and CORE_PATTERN.exists()
    and not CORE_PATTERN.read_text().startswith(("|", "/"))
)

SILENT = {"build_deadline_seconds": 1.0}  # the patience with a probe that hangs in this phase
PARENT = """
import sys
from pathlib import Path
from autotune.launch.subprocess import SubprocessLauncher
from autotune.core.records import Config
from autotune.core.requests import ProbeBudget, ProbeRequest
command, folder, mark, fault, isolation = sys.argv[1:3], Path(sys.argv[3]), *sys.argv[4:7]
config = Config(values={"batch_size": 8, "gradient_accumulation_steps": 1})
launcher = SubprocessLauncher(command=command, environ={mark: str(folder)}, isolation=isolation)
launcher.doubted = frozenset()
with launcher:
    launcher.run(ProbeRequest(target=fault, config=config, device="cpu"), folder)
"""


@pytest.mark.parametrize(
    ("fault", "outcome", "evidence"),
    [
        ("segfault", Outcome.CRASHED, "killed by SIGSEGV"),
        ("abort", Outcome.CRASHED, "killed by SIGABRT"),
        ("abort-without-memory", Outcome.OOM_HOST, "killed by SIGABRT; log: std::bad_alloc"),
        ("vanish", Outcome.CRASHED, "exit status 0 without a result"),
        ("kill", Outcome.CRASHED, "killed by SIGKILL, not by autotune"),
        ("terminate", Outcome.CRASHED, "killed by SIGTERM"),
        ("bus-error", Outcome.OOM_SHM, "killed by SIGBUS"),
        ("exit-3", Outcome.CRASHED, "exit status 3 without a result"),
        ("raise", Outcome.CRASHED, "exit status 1 without a result"),
        ("garbage", Outcome.CRASHED, "killed by SIGKILL"),
        ("half-a-result", Outcome.CRASHED, "exit status 0 without a result; its result.json cannot be used"),
        ("cannot-write", Outcome.ENVIRONMENT, "exit status 74 without a result: the probe could not write it"),
    ],
)
def test_a_dead_probe_is_a_result_with_evidence(
    fault: str, outcome: Outcome, evidence: str, suffer: Suffer, tmp_path: Path, survivors: Survivors,
    isolation: Isolation,
) -> None:  # fmt: skip
    result = suffer(fault)

    assert result.failure is not None
    assert (outcome, "load") == (result.outcome, result.failure.phase)
    assert result.failure.evidence.startswith(evidence)
    assert result == codec.read(tmp_path / RESULT, ProbeResult)
    assert result.isolation == isolation
    assert survivors() == []


@pytest.mark.skipif(sys.platform != "linux", reason="no other kernel tells what a process cannot give back")
def test_a_probe_that_outgrows_its_limit_is_ended_as_out_of_memory(
    launcher: SubprocessLauncher, request_for: Callable[..., ProbeRequest], tmp_path: Path, survivors: Survivors
) -> None:
    limited = replace(request_for("creep"), memory_limit_bytes=200 * 2**20)

    result = launcher.run(limited, tmp_path)

    assert result.failure is not None
    assert (result.outcome, result.failure.phase) == (Outcome.OOM_HOST, "load")
    assert "of 200 MiB" in result.failure.message
    assert survivors() == []


@pytest.mark.skipif(sys.platform != "linux", reason="no other kernel tells what a process cannot give back")
def test_the_limit_of_a_gpu_is_not_held_against_the_host(
    launcher: SubprocessLauncher, request_for: Callable[..., ProbeRequest], tmp_path: Path
) -> None:
    on_a_gpu = replace(request_for("measure"), device="cuda:0", memory_limit_bytes=2**20)

    assert launcher.run(on_a_gpu, tmp_path).outcome is Outcome.OK


@pytest.mark.parametrize("fault", ["hang", "hang-after-setsid"])
def test_a_silent_probe_is_given_up_with_all_that_it_started(
    fault: str, suffer: Suffer, tmp_path: Path, survivors: Survivors
) -> None:
    result = suffer(fault, **SILENT)

    assert result.failure is not None
    assert (result.outcome, result.failure.phase) == (Outcome.TIMEOUT, "build")
    assert result.failure.evidence == "given up in phase build: no sign of life for 1 s"
    assert result == codec.read(tmp_path / RESULT, ProbeResult)
    assert survivors() == []


def test_a_silent_probe_shows_where_it_hung(suffer: Suffer) -> None:
    result = suffer("hang", **SILENT)

    assert result.failure is not None
    assert "in waiting_for_a_lock" in result.failure.traceback


def test_a_stray_without_our_tag_is_ended_by_its_group(suffer: Suffer, tmp_path: Path) -> None:
    suffer("hang-after-a-clean-start", **SILENT)

    assert _wait_until(lambda: not _is_running(int((tmp_path / "stray").read_text())))


def test_the_time_of_the_whole_probe_is_limited(suffer: Suffer, survivors: Survivors) -> None:
    result = suffer("hang", total_deadline_seconds=0.5)

    assert result.failure is not None
    assert (result.outcome, survivors()) == (Outcome.TIMEOUT, [])
    assert "the probe took more than 0.5 s in all" in result.failure.message


def test_a_message_of_a_crash_names_the_signal_that_faulthandler_saw(suffer: Suffer) -> None:
    result = suffer("segfault")

    assert result.failure is not None
    assert result.failure.message == "Fatal Python error: Segmentation fault"


@pytest.mark.skipif(
    not CORES_LIE_BESIDE, reason="no core file would lie in the working folder: the kernel or the hard limit forbids it"
)
def test_a_crash_leaves_no_core_file(suffer: Suffer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (limits[1], limits[1]))
    try:
        result = suffer("segfault")
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, limits)

    assert result.outcome is Outcome.CRASHED
    assert list(tmp_path.glob("core*")) == []


def test_a_message_of_an_exit_is_the_exception_in_the_log(suffer: Suffer) -> None:
    result = suffer("raise")

    assert result.failure is not None
    assert result.failure.message == "ZeroDivisionError: division by zero"


def test_a_probe_that_closes_all_descriptors_is_only_bound_by_the_total(suffer: Suffer, survivors: Survivors) -> None:
    result = suffer("drop-descriptors", load_deadline_seconds=1.0, step_deadline_seconds=1.0)

    assert (result.outcome, survivors()) == (Outcome.OK, [])


def test_a_flood_of_prints_neither_blocks_the_probe_nor_fills_the_study(suffer: Suffer, tmp_path: Path) -> None:
    result = suffer("spam")

    log = (tmp_path / LOG).read_bytes()
    assert result.outcome is Outcome.OK
    assert len(log) < 2**19
    assert b"[autotune left out " in log
    assert log.endswith(b"the last words\n")


def test_garbage_in_the_log_is_shown_as_text(suffer: Suffer) -> None:
    result = suffer("garbage")

    assert result.failure is not None
    assert all(letter.isprintable() or letter in "\n\t" for letter in result.failure.traceback)


def test_what_a_good_probe_leaves_running_is_ended(suffer: Suffer, survivors: Survivors) -> None:
    result = suffer("linger")

    assert (result.outcome, survivors()) == (Outcome.OK, [])


def test_a_process_with_a_thousand_open_files_can_search(suffer: Suffer, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip("needs a limit on open files (ulimit -Hn) of 2048")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    try:
        with ExitStack() as kept:
            for _ in range(1100):  # FD_SETSIZE, beyond which select() cannot look, is 1024
                kept.enter_context(Path(os.devnull).open())
            result = suffer("measure")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert result.outcome is Outcome.OK


def test_as_the_first_process_of_a_container_a_search_collects_no_zombies(
    tmp_path: Path, child_command: tuple[str, ...], isolation: Isolation
) -> None:
    first = ("unshare", "--pid", "--fork", "--mount-proc")
    if subprocess.run((*first, "true"), capture_output=True, check=False).returncode:
        pytest.skip("to be the first process needs Linux and the right to unshare process numbers")
    count = (
        "import os, psutil\nassert os.getpid() == 1\n"
        "print([child.pid for child in psutil.Process().children() if child.status() == psutil.STATUS_ZOMBIE])\n"
    )

    ended = subprocess.run(
        (*first, sys.executable, "-c", PARENT + count, *child_command, str(tmp_path), "MARK", "leave-workers",
         isolation), capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert ended.stdout == "[]\n", ended.stderr


@pytest.fixture
def searching(
    tmp_path: Path, child_command: tuple[str, ...], survivors: Survivors, isolation: Isolation
) -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    """`searching(fault)`: another process, in the midst of a probe that hangs with three processes and their guard."""
    started: list[subprocess.Popen[bytes]] = []

    def start(fault: str) -> subprocess.Popen[bytes]:
        arguments = [*child_command, str(tmp_path), "_AUTOTUNE_TEST_FOLDER", fault, isolation]
        process = subprocess.Popen([sys.executable, "-c", PARENT, *arguments], stderr=subprocess.DEVNULL)
        started.append(process)
        expected = (4 if fault == "hang-after-setsid" else 3) + 2 * (isolation == "fork")  # a fork server and its guard
        _wait_until(lambda: len(survivors()) >= expected or process.poll() is not None)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.parametrize("fault", ["hang", "hang-after-setsid"])
def test_no_process_outlives_a_search_that_was_killed(
    fault: str, searching: Callable[[str], subprocess.Popen[bytes]], survivors: Survivors
) -> None:
    search = searching(fault)
    assert search.poll() is None

    search.kill()
    search.wait()

    assert _wait_until(lambda: not survivors())


def test_an_interrupt_leaves_no_process_and_no_result(
    searching: Callable[[str], subprocess.Popen[bytes]], survivors: Survivors, tmp_path: Path
) -> None:
    search = searching("hang-after-setsid")
    (tmp_path / OUTPUT_FOLDER).mkdir()

    search.send_signal(signal.SIGINT)

    assert search.wait() in (-signal.SIGINT, 130)
    assert survivors() == []
    assert not (tmp_path / RESULT).exists()
    assert not (tmp_path / OUTPUT_FOLDER).exists()
    assert not (tmp_path / REQUEST).exists()  # or the next search would hold it against the configuration


def test_an_impatient_second_interrupt_leaves_no_process_either(
    searching: Callable[[str], subprocess.Popen[bytes]], survivors: Survivors
) -> None:
    search = searching("hang-after-setsid")

    for _ in range(5):
        search.send_signal(signal.SIGINT)
        time.sleep(0.01)

    search.wait()
    assert _wait_until(lambda: not survivors())  # one that comes before any tidying up leaves that to the guard


def test_what_shows_no_variables_while_it_starts_a_program_is_found_by_a_second_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environ = {**os.environ, TAG: "of this test"}
    leader, stray = (subprocess.Popen(["sleep", "60"], env=environ, start_new_session=True) for _ in range(2))
    blind, look = iter([True]), processes.tagged
    monkeypatch.setattr(processes, "tagged", lambda tag: [] if next(blind, False) else look(tag))

    processes.kill_all(leader, "of this test")

    assert not psutil.pid_exists(stray.pid)
    stray.wait()


def test_a_disk_that_fills_up_during_a_probe_stops_the_search(
    small_disk: Path, launcher: SubprocessLauncher, request_for: Callable[..., object], survivors: Survivors
) -> None:
    with pytest.raises(EnvironmentUnfit, match=r"cannot be written: No space left on device \(0 MiB free there\)"):
        launcher.run(request_for("fill-the-disk"), small_disk)  # type: ignore[arg-type]

    assert survivors() == []


def test_a_file_size_limit_is_no_reason_for_a_traceback(
    tmp_path: Path, child_command: tuple[str, ...], isolation: Isolation
) -> None:
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n" + PARENT
    arguments = [*child_command, str(tmp_path), "_AUTOTUNE_TEST_FOLDER", "ok", isolation]

    search = subprocess.run([sys.executable, "-c", limited, *arguments], capture_output=True, text=True)

    assert f"EnvironmentUnfit: {tmp_path} cannot be written: File too large" in search.stderr


def test_a_program_that_does_not_exist_is_an_unfit_environment(
    tmp_path: Path, request_for: Callable[..., object]
) -> None:
    launcher = SubprocessLauncher(command=["no-such-python"])

    with pytest.raises(EnvironmentUnfit, match="no-such-python: No such file"):
        launcher.run(request_for("ok"), tmp_path)  # type: ignore[arg-type]


def _wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Whether the condition came true in time."""
    give_up = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > give_up:
            return False
        time.sleep(0.05)
    return True


def _is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
