"""The messages between a launcher and its fork server: one record each."""

from __future__ import annotations

from autotune.core.records import Record

MESSAGE_BYTES = 2**16  # that a message may have


class Imports(Record, frozen=True, kw_only=True):
    """The launcher's first message: what the fork server imports besides torch."""

    statements: tuple[str, ...] = ()  # lines of Python
    program: str = ""  # what `sys.argv` names while they are imported
    beside: tuple[str, ...] = ()  # modules that lie beside the target: a probe would find these first


class Ready(Record, frozen=True, kw_only=True):
    """The fork server's reply: processes may be forked from it, or why not."""

    unsafe: str = ""  # empty: forked processes are as good as fresh ones
    safe_statements: int | None = None  # with so many of the statements it would be safe; None: with none
    may_pass: bool = False  # it was for want of memory or processes: another fork server may come to be safe


class ForkRequest(Record, frozen=True, kw_only=True):
    """Fork a process for the request in `folder`. Log, lifeline, progress pipe and status socket come with it."""

    folder: str
    tag: str


class Born(Record, frozen=True, kw_only=True, tag="born"):
    """The forked process leads a session of its own and carries its tag. Its pidfd comes with this."""

    pid: int


class Refused(Record, frozen=True, kw_only=True, tag="refused"):
    """No process was forked."""

    reason: str
    for_good: bool  # the fork server is no longer safe; otherwise the machine could not just then


class Ended(Record, frozen=True, kw_only=True, tag="ended"):
    """The end of the forked process; `status` as `subprocess.Popen.returncode` has it."""

    status: int


Status = Born | Refused | Ended
