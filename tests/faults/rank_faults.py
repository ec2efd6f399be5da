"""The ten faults of one of two ranks: of our own ranks in tests, and of other launchers in `benchmarks/rank_faults.py`.

Rank 1 suffers them in the fourth step, between the forward pass of the others and their all-reduce.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotune.core.results import Outcome

MEMORY = "torch.empty(2**50)"  # a petabyte: the allocator of the CPU refuses it


@dataclass(frozen=True, kw_only=True)
class RankFault:
    """One fault."""

    name: str
    code: str  # statements, in rank 1
    outcome: Outcome
    words: str  # of the failure's message
    cause: str  # a word that whoever knows the cause says, whatever the launcher
    hangs: bool = False  # the process does not end by itself
    ignores_sigterm: bool = False


FAULTS = (
    RankFault(
        name="out of memory", code=MEMORY, outcome=Outcome.OOM_HOST,
        words="rank 1 of 2: RuntimeError: [enforce fail at alloc_cpu.cpp", cause="memory",
    ),
    RankFault(
        name="out of memory, and its process does not end", outcome=Outcome.OOM_HOST,
        code=f"threading.Thread(target=time.sleep, args=(10_000,)).start(); {MEMORY}",
        words="rank 1 of 2: RuntimeError: [enforce fail at alloc_cpu.cpp", cause="memory", hangs=True,
    ),
    RankFault(
        name="out of memory, caught, exit status 0", outcome=Outcome.OOM_HOST,
        code=f"try: {MEMORY}\nexcept RuntimeError: sys.exit(0)", words="rank 1 of 2: SystemExit: 0", cause="memory",
    ),
    RankFault(
        name="exit status 77 without a word", code="os._exit(77)", outcome=Outcome.CRASHED,
        words="rank 1 of 2 ended without a result: exit status 77", cause="77",
    ),
    RankFault(
        name="SIGKILL", code="os.kill(os.getpid(), 9)", outcome=Outcome.CRASHED,
        words="rank 1 of 2 ended without a result: killed by SIGKILL", cause="SIGKILL",
    ),
    RankFault(
        name="SIGSEGV", code="os.kill(os.getpid(), 11)", outcome=Outcome.CRASHED,
        words="rank 1 of 2 ended without a result: killed by SIGSEGV", cause="SIGSEGV",
    ),
    RankFault(
        name="the user's error", code="raise ValueError('mine')", outcome=Outcome.USER_ERROR,
        words="ValueError: mine", cause="mine",
    ),
    RankFault(
        name="sleeps", code="time.sleep(10_000)", outcome=Outcome.TIMEOUT,
        words="(fault) gave no sign of life; rank 0 waits for it", cause="fault", hangs=True,
    ),
    RankFault(
        name="busy for ever", code="while True: pass", outcome=Outcome.TIMEOUT,
        words="(fault) gave no sign of life; rank 0 waits for it", cause="fault", hangs=True,
    ),
    RankFault(
        name="sleeps, and ignores SIGTERM", code="time.sleep(10_000)", outcome=Outcome.TIMEOUT,
        words="(fault) gave no sign of life; rank 0 waits for it", cause="fault", hangs=True, ignores_sigterm=True,
    ),
)  # fmt: skip

SUFFERING = """
import os, signal, sys, threading, time, torch
from torch import nn
RANK = int(os.environ.get("RANK", 0))
SIZE = 16
torch.manual_seed(0)
data = torch.utils.data.TensorDataset(torch.randn(512, 64), torch.randint(10, (512,)))
calls = 0

def network():
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))

def fault():
{code}

def cost(model, batch):
    global calls
    calls += 1
    if RANK == 1 and calls == 4:
        fault()
    return nn.functional.cross_entropy(model(batch[0]), batch[1])
"""
TARGET = """
def model():
    return network()

def dataset():
    return data

def loss(model, batch):
    return cost(model, batch)
"""


def suffering(fault: RankFault) -> str:
    """Return the code in which rank 1 suffers: `network`, `data` and `cost`."""
    ignoring = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" if fault.ignores_sigterm else ""
    return SUFFERING.format(code="\n".join(f"    {line}" for line in (ignoring + fault.code).splitlines()))


def target(fault: RankFault) -> str:
    """Return that as a file of functions."""
    return suffering(fault) + TARGET
