"""The messages between a launcher and its fork server: one record each."""

from __future__ import annotations

from autotune.core.records import Record

MESSAGE_BYTES = 2**16  # largest size of a message


class Imports(Record, frozen=True, kw_only=True):
    """The launcher's first message: what the fork server imports besides torch."""

    statements: tuple[str, ...] = ()  # lines of Python
    program: str = ""  # `sys.argv[0]` while they are imported
    beside: tuple[str, ...] = ()  # modules in the target's folder: a probe would find these first


class Ready(Record, frozen=True, kw_only=True):
    """The fork server's reply: whether processes may be forked from it, or why not."""

    unsafe: str = ""  # empty: forked processes are equivalent to fresh ones
    safe_statements: int | None = None  # with only so many statements it would be safe; None: with none
    may_pass: bool = False  # memory or processes were lacking: another fork server may be safe


class ForkRequest(Record, frozen=True, kw_only=True):
    """Fork a process for the request in `folder`. Log, lifeline, progress pipe and status socket come with it."""

    folder: str
    tag: str
    environ: dict[str, str]  # what the fork server does not have, and may be set this late


class Born(Record, frozen=True, kw_only=True, tag="born"):
    """The forked process leads a session of its own and carries its tag. Its pidfd comes with this."""

    pid: int


class Refused(Record, frozen=True, kw_only=True, tag="refused"):
    """The reply of a fork server that could not fork a process, with the reason."""

    reason: str
    for_good: bool  # the fork server is no longer safe; else the machine could not fork at this moment


class Ended(Record, frozen=True, kw_only=True, tag="ended"):
    """The end of the forked process; `status` is as in `subprocess.Popen.returncode`."""

    status: int


ForkReply = Born | Refused | Ended
