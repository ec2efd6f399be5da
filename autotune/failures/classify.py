"""Decides how a probe failed: from its chain of exceptions, or, if there is none, from how its process ended.

Strings and numbers only, no torch: a kept exception object would pin the frames, and so the memory, of the failed run.
The table of known failures is `failures/rules.py`.
"""

from __future__ import annotations

import errno
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from traceback import walk_tb
from typing import NamedTuple

from autotune.core.results import Outcome
from autotune.failures.rules import CERTAIN, CODES, ERRNOS, MESSAGES, TYPES
from autotune.harmless import cropped

NEAR_LIMIT = 0.85  # share of the device's memory in use above which a vague cuBLAS or cuDNN status means memory
HOST_EXHAUSTED = 0.08  # share of the host's memory left below which a SIGKILL is the kernel's, even without a counter
# For a SIGKILL that the launcher did not send.
KILLED_BY_OTHERS = ", not by autotune: by a person, a scheduler or the kernel's OOM killer"
EXIT_CANNOT_WRITE = 74  # EX_IOERR of sysexits.h: the probe could not write its result
SHARED_MEMORY = "/dev/shm"
LOCKS = "multiprocessing.synchronize"  # makes the locks of loader workers, files in /dev/shm, and names none
FEW = (errno.ENOMEM, errno.EMFILE, errno.EAGAIN)  # other shortages that keep a lock from being made
# Messages of torch.utils.data (2.13) about a loader worker; the second if the worker died before torch watched it.
_WORKER_KILLED = re.compile(r"killed by signal: Killed|DataLoader worker .*exited unexpectedly(?! with exit code)")
SIGNALS = {one.value: one.name for one in signal.Signals}  # real-time signals have no name
_MESSAGE_CHARACTERS = 2000  # kept at each end of a message: a worker's error has its type first and its text last
_WRAPPED = re.compile(r"Caught (\w+) in (DataLoader worker process \d+|pin memory thread)")
_RAISED = re.compile(r"^([A-Za-z_][\w.]*)(?:: (.*))?$", re.MULTILINE)
_THROWN = re.compile(r"^\s*what\(\):\s*(.+)$", re.MULTILINE)  # by C++; pages of its stack may follow
_OF_A_RANK = re.compile(r"^autotune: (.+ ended.*: .+)$", re.MULTILINE)  # or its launcher; follows what that reports
_DEATH_NOTE = re.compile(
    r"Fatal Python error: .*|terminate called .*|^\w[\w.]*(?:Error|Exception|Exit)\b.*", re.MULTILINE
)


class _Judgement(NamedTuple):
    outcome: Outcome
    evidence: str
    weakness: tuple[int, int]  # kind of evidence (0: code ... 3: message), and position of the rule in it


@dataclass(frozen=True, kw_only=True)
class Link:
    """One exception of a chain, as text."""

    type_name: str  # module.qualname
    bases: tuple[str, ...] = ()  # names of all base classes, nearest first
    message: str = ""
    error_code: int | None = None  # cudaError_t of a torch.AcceleratorError
    errno: int | None = None
    raised_in: str = ""  # the module of its innermost frame

    def is_a(self, names: frozenset[str]) -> bool:
        """Return whether the type or one of its base classes has one of these names, without module."""
        return not names.isdisjoint((self.type_name.rpartition(".")[2], *self.bases))

    def __str__(self) -> str:
        name = self.type_name.removeprefix("builtins.")
        return f"{name}: {self.message}" if self.message else name


def describe(error: BaseException) -> tuple[Link, ...]:
    """Return the exception, then the one that it was raised from or while handling, down to the first."""
    links: list[Link] = []
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        links.append(_link(current))
        context = None if current.__suppress_context__ else current.__context__
        current = current.__cause__ or context
    return tuple(links)


def words_of(error: BaseException) -> str:
    """Return the message of an error, whatever the user's own `__str__` does, in characters that JSON can hold.

    A file name that is not UTF-8 appears in a message as lone surrogates (PEP 383), which no encoder accepts.
    """
    try:
        text = str(error)
    except Exception as broken:
        text = f"(its message cannot be shown: {type(broken).__name__})"
    return text.encode("utf-8", "backslashreplace").decode()


def classify(chain: Sequence[Link], *, memory_share: float | None = None) -> tuple[Outcome, str]:
    """Return the outcome of a chain of exceptions, outermost first, and the evidence in one line.

    A shortage of memory anywhere in the chain outranks the errors around it. Apart from that, a code outranks a type, a
    type outranks a system error's number, and that outranks a message; of two messages the first rule decides. An
    exception whose code, type or number is known is never judged by its message. An unknown error is the user's; so is
    a `TargetError`, unless the error inside it is known. `memory_share` (0..1) is the share of the device's memory that
    was in use or asked for: it decides what a vague cuBLAS or cuDNN status means.
    """
    links = [inner for link in chain for inner in _unwrap(link)]
    verdicts = [verdict for link in links if (verdict := _verdict(link, memory_share))]
    if verdicts:
        strongest = min(verdicts, key=lambda verdict: (not _says_memory(verdict.outcome), verdict.weakness))
        return strongest.outcome, strongest.evidence
    return Outcome.USER_ERROR, _shorten(str(links[0])) if links else "no exception was recorded"


def judge_exit(
    returncode: int,
    *,
    timed_out_phase: str | None = None,
    oom_kills: int | None = None,
    host_available_share: float | None = None,
    log_tail: str = "",
) -> tuple[Outcome, str]:
    """Return the outcome of a probe that left no result, and the evidence in one line.

    `returncode` is that of `subprocess` (negative for a signal), `oom_kills` the increase of the counter of this
    control group, `host_available_share` the least share of the host's memory (0..1) that was available; None is
    unknown.
    """
    if timed_out_phase is not None:
        return Outcome.TIMEOUT, f"given up in phase {timed_out_phase}"
    number = returncode - 128 if 128 < returncode < 128 + signal.NSIG else -returncode  # a shell reports 128 + signal
    if number == signal.SIGKILL:
        return _judge_kill(oom_kills, host_available_share)
    if number == signal.SIGBUS:
        return Outcome.OOM_SHM, "killed by SIGBUS: a page of shared memory (/dev/shm) could not be had"
    how = (
        f"killed by {SIGNALS.get(number, f'signal {number}')}"
        if number > 0
        else f"exit status {returncode} without a result"
    )
    if returncode == EXIT_CANNOT_WRITE:
        return Outcome.ENVIRONMENT, f"{how}: the probe could not write it"
    if number == signal.SIGABRT or returncode > 0:
        words = (*_THROWN.findall(log_tail)[-1:], log_tail[-_MESSAGE_CHARACTERS:])
        verdicts = (_by_message(Link(type_name="log", message=text), None) for text in words)
        if verdict := next(filter(None, verdicts), None):
            return verdict.outcome, f"{how}; {verdict.evidence}"
    return Outcome.CRASHED, how


def judge_loader_worker_kill(
    evidence: str, *, oom_kills: int | None, host_available_share: float | None
) -> tuple[Outcome, str] | None:
    """Return the outcome if the kernel killed a loader worker for lack of memory, which the probe cannot know.

    `evidence` is that of the probe's own failure; the others are those of `judge_exit`. Return None if nothing
    indicates memory.
    """
    if not _WORKER_KILLED.search(evidence):
        return None
    outcome, how = _judge_kill(oom_kills, host_available_share)
    return (outcome, f"a loader worker was {how}") if outcome is Outcome.OOM_HOST else None


def death_note(log: str) -> str:
    """Return the line of a log that best explains why its process ended: the last error, else the last line, or "".

    The text of a C++ exception says more than the abort after it. For ranks it names the one that ended first.
    """
    if of_a_rank := _OF_A_RANK.findall(log):
        return _shorten("; ".join((of_a_rank[-1], *_THROWN.findall(log)[-1:])), 300)
    notes = _THROWN.findall(log) or _DEATH_NOTE.findall(log) or [line for line in log.splitlines() if line.strip()]
    return _shorten(notes[-1].strip(), 300) if notes else ""


def _link(error: BaseException) -> Link:
    kind, frames = type(error), [frame for frame, _ in walk_tb(error.__traceback__)]
    code, number = getattr(error, "error_code", None), getattr(error, "errno", None)
    message = words_of(error)
    if len(message) > 2 * _MESSAGE_CHARACTERS:
        message = f"{message[:_MESSAGE_CHARACTERS]}\n...\n{message[-_MESSAGE_CHARACTERS:]}"
    return Link(
        type_name=f"{kind.__module__}.{kind.__qualname__}",
        bases=tuple(base.__name__ for base in kind.__mro__[1:-1]),
        message=message,
        error_code=code if isinstance(code, int) else None,
        errno=number if isinstance(number, int) else None,
        raised_in=next((str(frame.f_globals.get("__name__", "")) for frame in reversed(frames)), ""),
    )


def _unwrap(link: Link) -> Iterator[Link]:
    """Yield the exception itself, or those in its text if a loader worker or thread passed them on.

    The text quotes source lines of the user's code, which must not be taken for messages.
    """
    wrapped = _WRAPPED.search(link.message)
    if not wrapped:
        yield link
        return
    raised = _RAISED.findall(link.message) or [(wrapped[1], "")]
    for type_name, message in reversed(raised):
        yield replace(link, type_name=type_name, bases=(), message=f"{message} (in {wrapped[2]})".strip())


def _verdict(link: Link, memory_share: float | None) -> _Judgement | None:
    judges: tuple[Callable[[Link], _Judgement | None], ...] = (_by_code, _by_type, _by_errno)
    known = next((verdict for judge in judges if (verdict := judge(link))), None)
    return known or _by_message(link, memory_share)


def _says_memory(outcome: Outcome) -> bool:
    return outcome.out_of_memory and outcome is not Outcome.TOO_LARGE


def _by_code(link: Link) -> _Judgement | None:
    outcome = CODES.get(link.error_code or 0) if link.is_a(frozenset({"AcceleratorError"})) else None
    why = f"cudaError {link.error_code}, {_shorten(str(link))}"
    return _Judgement(outcome, why, (0, 0)) if outcome else None


def _by_type(link: Link) -> _Judgement | None:
    return next(
        (_Judgement(rule.outcome, _shorten(str(link)), (1, 0)) for rule in TYPES if link.is_a(rule.names)), None
    )


def _by_errno(link: Link) -> _Judgement | None:
    if not link.is_a(frozenset({"OSError"})):
        return None
    locks = link.raised_in == LOCKS and link.errno not in FEW
    rule = (Outcome.OOM_SHM, f"no lock could be made in {SHARED_MEMORY}") if locks else ERRNOS.get(link.errno or 0)
    if not rule:
        return None
    outcome, what = rule
    if link.errno == errno.ENOSPC and SHARED_MEMORY in link.message:
        outcome, what = Outcome.OOM_SHM, f"{SHARED_MEMORY} is full"
    return _Judgement(outcome, f"{_shorten(str(link))}, {what}", (2, 0))


def _by_message(link: Link, memory_share: float | None) -> _Judgement | None:
    if link.is_a(CERTAIN):
        return None
    for index, rule in enumerate(MESSAGES):
        found = rule.pattern.search(link.message)
        if found:
            evidence = f"{link.type_name.removeprefix('builtins.')}: {_shorten(found[0])}"
            if rule.near_memory and memory_share is not None and memory_share > NEAR_LIMIT:
                evidence = f"{evidence}, with {memory_share:.0%} of the device's memory in use or asked for"
                return _Judgement(Outcome.OOM_DEVICE, evidence, (3, index))
            return _Judgement(rule.outcome, f"{evidence}, {rule.note}" if rule.note else evidence, (3, index))
    return None


def _judge_kill(oom_kills: int | None, host_available_share: float | None) -> tuple[Outcome, str]:
    if oom_kills:
        return Outcome.OOM_HOST, f"killed by SIGKILL, and the kernel counted {oom_kills} out-of-memory kill(s)"
    if host_available_share is not None and host_available_share < HOST_EXHAUSTED:
        return Outcome.OOM_HOST, f"killed by SIGKILL with {host_available_share:.0%} of the host's memory available"
    return Outcome.CRASHED, f"killed by SIGKILL{KILLED_BY_OTHERS}"


def _shorten(text: str, limit: int = 160) -> str:
    return cropped(" ".join(text.split()), limit)
