"""Every fault that a user's training code can bring into a probe: a small real target, and what must come of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from textwrap import indent
from typing import Any

from autotune.core.records import Value
from autotune.core.results import Outcome

MIB = 2**20
HEALTHY = """\
import ctypes, multiprocessing, os, resource, signal, socket, subprocess, sys, threading, time
from pathlib import Path
import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset, TensorDataset, get_worker_info

PROBE = Path(next(word for word in sys.orig_argv if "/probes/" in word))
(PROBE / "tag").write_text(os.environ["_AUTOTUNE_PROBE"])

def forever():
    while True:
        time.sleep(0.01)

def plain_loss(model, batch):
    return nn.functional.cross_entropy(model(batch[0]), batch[1])

def model(): return nn.Linear(8, 2)
def dataset(): return TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
"""
UNPRIVILEGED = """
def obey_limits():  # the kernel exempts the user root, and two of its capabilities, from the limit on processes
    if os.geteuid() == 0:
        os.setresuid(54321, 0, 0)
        libc, header, sets = ctypes.CDLL(None), (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
        libc.capget(header, sets)
        sets[0] &= ~(1 << 21 | 1 << 24)  # CAP_SYS_ADMIN, CAP_SYS_RESOURCE
        libc.capset(header, sets)
    resource.setrlimit(resource.RLIMIT_NPROC, (6, 6))
"""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One way to go wrong: the code that does it, and what the search must be told."""

    name: str
    code: str  # after HEALTHY; what it defines again counts
    outcome: Outcome
    phase: str = ""  # of the failure
    words: str = ""  # a pattern of the failure's evidence or message
    config: dict[str, Value] = field(default_factory=dict)
    patience: dict[str, float] = field(default_factory=dict)  # deadlines of the phases
    memory_limit_bytes: int | None = None
    little_shared_memory: bool = False  # a /dev/shm of its own, of 2 MiB

    @property
    def text(self) -> str:
        """The target file."""
        return f"{HEALTHY}\n{self.code}\n"


def on_import(code: str) -> str:
    return code


def in_build(code: str) -> str:
    return f"def model():\n{indent(code, '    ')}\n    return nn.Linear(8, 2)"


def in_step(code: str) -> str:
    return f"def loss(model, batch):\n{indent(code, '    ')}\n    return plain_loss(model, batch)"


def in_sample(code: str, *, only_worker: bool = True) -> str:
    condition = "if get_worker_info() is not None:\n" if only_worker else "if True:\n"
    body = indent(f"{condition}{indent(code, '    ')}\nreturn torch.randn(8), index % 2", " " * 8)
    return (
        f"class Faulty(Dataset):\n    def __len__(self): return 64\n    def __getitem__(self, index):\n{body}\n"
        f"def dataset(): return Faulty()"
    )


def case(name: str, outcome: Outcome, phase: str, words: str, code: str, **more: Any) -> Fault:
    return Fault(name=name, outcome=outcome, phase=phase, words=words, code=code, **more)


def survived(name: str, code: str, **more: Any) -> Fault:
    """A target that does something unusual and trains nevertheless."""
    return Fault(name=name, outcome=Outcome.OK, code=code, **more)


ONE_WORKER, TWO_WORKERS = {"num_workers": 1}, {"num_workers": 2}
# Only the phase that hangs is given up soon: on a full machine those before it take as long as that.
IN_LOAD, IN_BUILD = {"load_deadline_seconds": 2.0}, {"build_deadline_seconds": 4.0}
IN_STEP = {"first_step_deadline_seconds": 4.0, "step_deadline_seconds": 4.0}
LONG_WINDOW = {"min_seconds": 60.0, "max_seconds": 60.0, "min_steps": 10**6, "max_steps": 10**6}
CRASHED, USER_ERROR, TIMEOUT = Outcome.CRASHED, Outcome.USER_ERROR, Outcome.TIMEOUT
INVALID, ENVIRONMENT = Outcome.INVALID_CONFIG, Outcome.ENVIRONMENT

DEATHS = (
    case("segfault", CRASHED, "warm-up", "killed by SIGSEGV", in_step("ctypes.string_at(0)")),
    case("abort", CRASHED, "warm-up", "killed by SIGABRT", in_step("os.abort()")),
    case("vanish", CRASHED, "warm-up", "exit status 0 without a result", in_step("os._exit(0)")),
    case("SIGKILL", CRASHED, "warm-up", "killed by SIGKILL, not by", in_step("os.kill(os.getpid(), signal.SIGKILL)")),
    case("SIGTERM", CRASHED, "build", "killed by SIGTERM", in_build("os.kill(os.getpid(), signal.SIGTERM)")),
    case("segfault on import", CRASHED, "load", "killed by SIGSEGV", on_import("ctypes.string_at(0)")),
    case("segfault after a child left as a script does", CRASHED, "warm-up", "killed by SIGSEGV",
         in_build("child = os.fork()\nsys.exit(0) if child == 0 else os.waitpid(child, 0)")
         + "\n" + in_step("ctypes.string_at(0)")),
    case("half a result", CRASHED, "warm-up", r"result\.json cannot be used",
         in_step('(PROBE / "result.json").write_text(\'{"protocol": 1, "outcome": "o\'); os._exit(0)')),
)  # fmt: skip

HELD_OUT = """
class HeldOut(Dataset):
    def __len__(self): return 64
    def __getitem__(self, index): raise ValueError("no held-out sample")
def validation(): return HeldOut()
"""
RAISED = (
    case("raise on import", USER_ERROR, "load", "no such thing", on_import("raise ValueError('no such thing')")),
    case("raise in build", USER_ERROR, "build", "no such thing", in_build("raise ValueError('no such thing')")),
    case("raise in step", USER_ERROR, "warm-up", "no such thing", in_step("raise ValueError('no such thing')")),
    case("raise while measuring", USER_ERROR, "measure", "no such thing",
         in_step("global since\nsince = globals().get('since') or time.monotonic()\n"
                 "if time.monotonic() - since > 3: raise ValueError('no such thing')"),
         patience=LONG_WINDOW),
    case("raise in validation", USER_ERROR, "validate", "no held-out sample", HELD_OUT),
    case("raise in a worker", USER_ERROR, "warm-up", "no such thing",
         in_sample("raise ValueError('no such thing')"), config=ONE_WORKER),
    case("exit in step", USER_ERROR, "warm-up", "SystemExit", in_step("sys.exit(3)")),
    case("endless recursion", USER_ERROR, "warm-up", "RecursionError", in_step("loss(model, batch)")),
    case("an error without words", USER_ERROR, "warm-up", "Mute",
         "class Mute(Exception):\n    def __str__(self): raise TypeError('no words')\n" + in_step("raise Mute")),
    case("a file name that is no text", USER_ERROR, "warm-up", r"no image in caf\\udce9\.jpg",
         in_step(r"raise ValueError('no image in ' + b'caf\xe9.jpg'.decode('utf-8', 'surrogateescape'))")),
)  # fmt: skip

HANGS = (
    case("endless import", TIMEOUT, "load", "given up in phase load: no sign of life for 2 s",
         on_import("while True: pass"), patience=IN_LOAD),
    case("endless build", TIMEOUT, "build", "given up in phase build: no sign", in_build("forever()"),
         patience=IN_BUILD),
    case("a hang while its child trains", TIMEOUT, "build", "given up in phase build",
         in_build("if os.fork(): forever()"), patience=IN_BUILD),
    case("endless step", TIMEOUT, "warm-up", "given up in phase warm-up", in_step("while True: pass"),
         patience=IN_STEP),
    case("deadlocked worker", TIMEOUT, "warm-up", "given up in phase warm-up",
         "lock = threading.Lock(); lock.acquire()\n" + in_sample("lock.acquire()"),
         config=TWO_WORKERS, patience=IN_STEP),
    case("worker in a session of its own", TIMEOUT, "warm-up", "given up in phase warm-up",
         in_sample("os.setsid() if os.getsid(0) != os.getpid() else None; forever()"),
         config=TWO_WORKERS, patience=IN_STEP),
    case("signal handlers, then a hang", TIMEOUT, "warm-up", "given up in phase warm-up",
         "for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP):\n"
         "    signal.signal(number, lambda *_: None)\n" + in_step("forever()"), patience=IN_STEP),
)  # fmt: skip

EXHAUSTION = (
    case("shared memory full", Outcome.OOM_SHM, "warm-up", "shared memory",
         "def dataset(): return TensorDataset(torch.randn(64, 8, 200_000), torch.randint(2, (64,)))\n"
         "def loss(model, batch): return model(batch[0].mean(2)).sum()\n",
         config=ONE_WORKER, little_shared_memory=True),
    case("shared memory full, which no sample foretold", Outcome.OOM_SHM, "warm-up", "shared memory",
         "class Wide(IterableDataset):\n"
         "    def __iter__(self): return ((torch.randn(8, 200_000), 0) for _ in range(64))\n"
         "def dataset(): return Wide()\n"
         "def loss(model, batch): return model(batch[0].mean(2)).sum()\n",
         config=ONE_WORKER, little_shared_memory=True),
    case("file descriptors exhausted", INVALID, "warm-up", "ulimit -n",
         in_build("resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir('/proc/self/fd')) + 4,) * 2)"),
         config={"num_workers": 8}),
    case("no more processes", INVALID, "warm-up", "ulimit -u", UNPRIVILEGED + in_build("obey_limits()"),
         config={"num_workers": 8}),
    case("no more threads", INVALID, "build", "can't start new thread",
         UNPRIVILEGED + in_build("obey_limits()\nfor _ in range(50):\n"
                                 "    threading.Thread(target=forever, daemon=True).start()")),
    case("host memory limit", Outcome.OOM_HOST, "warm-up", "DefaultCPUAllocator",
         in_step("wide = model(batch[0]).new_ones(batch[0].shape[0], 64, 2**20)"), memory_limit_bytes=1200 * MIB),
    case("host memory limit in a worker", Outcome.OOM_HOST, "warm-up", "MemoryError",
         in_sample("ballast = bytearray(4 * 2**30)"), config=ONE_WORKER, memory_limit_bytes=1200 * MIB),
    case("no file may grow", ENVIRONMENT, "done", "result",
         in_step("resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))")),
)  # fmt: skip

CONFIGURATIONS = (
    case("batch of one under BatchNorm", INVALID, "warm-up", "Expected more than 1 value per channel",
         "def model(): return nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))",
         config={"batch_size": 1}),
    case("fewer samples than a batch", USER_ERROR, "build", "dataset has 64 samples", "", config={"batch_size": 128}),
    case("a stream that gives no batch", USER_ERROR, "warm-up", "no batch in a whole epoch",
         "class Short(IterableDataset):\n    def __iter__(self): yield torch.randn(8), 0\n"
         "def dataset(): return Short()"),
    case("a stream that cannot start anew", USER_ERROR, "", "starts anew",
         "class Once(IterableDataset):\n    rows = iter([(torch.randn(8), 0)] * 40)\n"
         "    def __iter__(self): return self.rows\ndef dataset(): return Once()"),
    case("unpicklable dataset under spawn", USER_ERROR, "warm-up", "pickle",
         "multiprocessing.set_start_method('spawn')\n"
         "def dataset():\n    made = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))\n"
         "    made.transform = lambda sample: sample\n    return made", config=ONE_WORKER),
    case("no compiler", Outcome.COMPILE_FAILED, "warm-up", "compiler",
         "import torch._inductor.config\ntorch._inductor.config.cpp.cxx = ('no-such-compiler',)\n"
         "torch._inductor.config.force_disable_caches = True\n"
         "def model(): return torch.compile(nn.Linear(8, 2))"),
    case("a worker killed", CRASHED, "warm-up", "killed by signal: Killed|exited unexpectedly",  # either is said
         in_sample("os.kill(os.getpid(), signal.SIGKILL)"), config=TWO_WORKERS),
)  # fmt: skip

UNUSUAL = (
    survived("NaN losses", in_step("return plain_loss(model, batch) * float('nan')")),
    survived("infinite losses", in_step("return plain_loss(model, batch) * float('inf')")),
    survived("20 MB of prints", in_build("for _ in range(20): print('x' * 2**20)")),
    survived("binary garbage on stdout", in_build("os.write(1, bytes(range(256)) * 64)")),
    survived("closed output", in_build("sys.stdout.close(); sys.stderr = None; os.close(1)")),
    survived("closed descriptors", on_import(
        "os.closerange(3, 64)\n"
        "mine = [open(PROBE / 'tag', 'rb'), *(open(PROBE / f'mine-{number}', 'wb') for number in range(16))]")),
    survived("a child that lives on", in_build("if os.fork() == 0: forever()")),
    survived("a child that trains, too", in_build("os.fork()")),
    survived("a child in a session of its own", in_build(
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)")),
    survived("signal handlers", on_import(
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1): signal.signal(number, signal.SIG_IGN)"),
        config=ONE_WORKER),
    survived("another working folder", on_import("os.chdir('/')")),
    survived("spawned workers", on_import("multiprocessing.set_start_method('spawn')"), config=ONE_WORKER),
    survived("a short stream",
             "class Short(IterableDataset):\n"
             "    def __iter__(self):\n        for _ in range(20): yield torch.randn(8), 0\n"
             "def dataset(): return Short()"),
)  # fmt: skip

FAULTS = (*DEATHS, *RAISED, *HANGS, *EXHAUSTION, *CONFIGURATIONS, *UNUSUAL)
