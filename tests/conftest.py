"""What holds for every test."""

import compileall
import functools
import gc
import os
import shutil
import signal
import socket
import sys
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path
from unittest import mock

import alembic.util.pyfiles
import pytest
from optuna.storages import RDBStorage

import autotune
from autotune.study import store
from autotune.targets.commands import hygiene
from tests import commandline
from tests.session_launcher import SessionLauncher

# A shell starts background jobs with Ctrl-C ignored, and every process that a test interrupts would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Before torch is loaded. Small tensors gain nothing by threads, and the tests beside these want the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["CXX"] = "no-compiler-for-tests"  # searches would try torch.compile, which takes a minute a probe


# Files that train, start processes or wait. With the folders below and what bears the mark: not in the quick subset.
SLOW = {
    "test_trainer", "test_lightning_trainer", "test_shared_memory", "test_frames", "test_watched_commands",
    "targets/test_compiling", "machine/test_interference", "test_telemetry", "cli/test_commands", "dashboard/test_live",
    "test_hostile", "test_memory_budget", "profile/test_stage", "test_breakdown", "test_sizes", "test_checkpointing",
}  # fmt: skip
SLOW_FOLDERS = ("faults", "fleet", "end_to_end", "story", "fuzz", "browser")  # the slowest first
# Folders and files that take two thirds of the time: `make test` leaves them to `make test-long`, the gate runs both.
LONG = {
    "profile", "slow", "fleet", "ranks", "browser", "test_profile", "test_profile_faults", "test_real_targets",
    "test_own_ranks", "test_ranks", "test_fork_servers", "test_interruptions", "test_race", "test_compiling",
    "test_declared_knobs", "test_memory_limit", "fuzz", "test_full_collections", "test_gpu_day", "test_isolation",
    "test_free_global_batch", "test_mallocs", "test_bad_studies", "test_parents", "test_drifting_ranks",
}  # fmt: skip
# A slow line is what steps that were timed show, beside tests that want the cores. Elsewhere, processes race for these.
RERUNS = {"profile": 5, "slow": 5}


def pytest_configure(config: pytest.Config) -> None:
    """Leave the order of files to `pytest_collection_modifyitems`: xdist would begin with files of many short tests.

    Compile the package once: probes, and all processes where PYTHONDONTWRITEBYTECODE is set, keep no bytecode.
    """
    config.option.loadscopereorder = False
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(Path(autotune.__file__).parent, quiet=2)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark whole folders, and begin with what is slow: workers that share the tests then end together."""

    def turn(item: pytest.Item) -> int:
        name, last = item.path.parent.name, len(SLOW_FOLDERS)
        return SLOW_FOLDERS.index(name) if name in SLOW_FOLDERS else last + (item.get_closest_marker("slow") is None)

    for item in items:
        folder, name = item.path.parent.name, item.path.stem
        if folder in SLOW_FOLDERS or not SLOW.isdisjoint((name, f"{folder}/{name}")):
            item.add_marker(pytest.mark.slow)
        if not LONG.isdisjoint((folder, name)):
            item.add_marker(pytest.mark.long)
        item.add_marker(pytest.mark.flaky(reruns=RERUNS.get(folder, 1)))
    items.sort(key=turn)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Spare each test under xdist a wait of 40 ms for pytest-rerunfailures, which sends twice and then reads.

    The second message was held back until the first was acknowledged (Nagle's algorithm), which the peer delays.
    """
    if hasattr(session.config, "workerinput"):
        database: socket.socket = session.config.failures_db.sock  # type: ignore[attr-defined]
        database.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage meanwhile, and keep torch and thousands of tests out of every garbage collection from then on.

    Keep the bytecode of the tests, whose assertions pytest writes anew: the first worker does it for all.
    """
    keeps_none, sys.dont_write_bytecode = sys.dont_write_bytecode, False
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        sys.dont_write_bytecode = keeps_none  # tests import what they write, again and again, into one file


@pytest.fixture(autouse=True, scope="session")
def _revisions_once() -> Iterator[None]:
    """Alembic executes every revision of Optuna's tables three times for each new database: once is enough."""
    load = alembic.util.pyfiles.load_module_py
    kept = functools.cache(load)

    def loaded(module_id: str, path: str) -> object:
        return (kept if Path(path).parent.name == "versions" else load)(module_id, path)

    with mock.patch.object(alembic.util.pyfiles, "load_module_py", loaded):
        yield


@pytest.fixture(autouse=True, scope="session")
def _tables_once(tmp_path_factory: pytest.TempPathFactory, _revisions_once: None) -> Iterator[None]:
    """Make Optuna's tables once: a new database begins as a copy of an empty one, in half of the time."""
    open_database, empty = store._storage, tmp_path_factory.mktemp("database") / "empty.db"
    made = open_database(empty)
    made.remove_session()
    made.engine.dispose()

    def opened(path: Path) -> RDBStorage:
        with suppress(OSError):  # where nothing can be written, the database itself says so
            if not path.exists():
                shutil.copyfile(empty, path)
        return open_database(path)

    with mock.patch.object(store, "_storage", opened):
        yield


@pytest.fixture(autouse=True, scope="session")
def _outputs_of_commands(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Have commands that tests run in their own process write where pytest does; a child has a folder of its probe.

    One folder for all tests: there is a fork server for each set of variables.
    """
    os.environ[hygiene.OUTPUT] = str(tmp_path_factory.mktemp("outputs"))


@pytest.fixture(autouse=True)
def _environment_as_before() -> Iterator[None]:
    """What a test or its imports set is not set for the tests after it: importing torch._dynamo sets a variable."""
    os.environ.pop("TORCHINDUCTOR_CACHE_DIR", None)  # set already where pytest collected
    priority = os.nice(0)
    with commandline.variables(dict(os.environ)):
        yield
    assert os.nice(0) == priority, "all later tests of this process would be starved"


@pytest.fixture(autouse=True, scope="session")
def forking_launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SessionLauncher]:
    """One launcher for all tests that need a process of its own for a probe, but not one that was exec'd.

    It starts its fork servers when they are needed. Commands that run in this process are lent it, too.
    """
    place = tmp_path_factory.mktemp("fork-servers")
    with SessionLauncher(place) as launcher, mock.patch.object(commandline, "lent", launcher.lent):
        yield launcher
