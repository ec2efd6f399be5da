"""Known failures are told apart; each row of the tables names where its message was seen."""

from __future__ import annotations

import errno
import os

import pytest

from autotune.core.results import Outcome
from autotune.errors import TargetError
from autotune.failures.classify import (
    Link,
    classify,
    death_note,
    describe,
    judge_exit,
    judge_loader_worker_kill,
    words_of,
)
from autotune.failures.rules import MESSAGES, TYPES, MessageRule
from tests.known_failures import EXITS, RUNTIME, SINGLE, WORKER_DEATHS


@pytest.mark.parametrize(("type_name", "message", "code", "expected", "source"), SINGLE)
def test_a_known_error_has_its_outcome(
    type_name: str, message: str, code: int | None, expected: Outcome, source: str
) -> None:
    link = Link(type_name=type_name, message=message, error_code=code)

    outcome, evidence = classify([link])

    assert outcome is expected, source
    assert evidence
    assert "\n" not in evidence


@pytest.mark.parametrize("rule", MESSAGES, ids=lambda rule: rule.pattern.pattern[:40])
def test_every_message_rule_is_met_by_a_real_message(rule: MessageRule) -> None:
    links = [Link(type_name=type_name, message=message) for type_name, message, *_ in SINGLE]
    links += [Link(type_name=RUNTIME, message=message) for message in WORKER_DEATHS]

    verdicts = [classify([link]) for link in links]

    assert any(outcome is rule.outcome and rule.pattern.search(evidence) for outcome, evidence in verdicts)


def test_every_type_rule_has_a_source() -> None:
    assert all(rule.source for rule in (*TYPES, *MESSAGES))


def test_the_table_is_long_and_every_message_has_its_version_and_source() -> None:
    rows = {(type_name, message, code) for type_name, message, code, _, _ in SINGLE}

    assert len(rows) == len(SINGLE) >= 60
    assert [source for *_, source in SINGLE if not any(letter.isdigit() for letter in source)] == []


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        (Link(type_name="torch.AcceleratorError", error_code=700, message="CUDA error: out of memory"),
         Outcome.DEVICE_FAULT),
        (Link(type_name="torch._inductor.exc.InductorError", message="CUDA out of memory"), Outcome.COMPILE_FAILED),
        (Link(type_name="builtins.OSError", errno=errno.ENOSPC, message="CUDA out of memory"), Outcome.ENVIRONMENT),
    ],
)  # fmt: skip
def test_a_message_says_nothing_where_a_code_a_type_or_a_number_does(link: Link, expected: Outcome) -> None:
    assert classify([link])[0] is expected


@pytest.mark.parametrize(("number", "expected"), [
    (errno.ENOENT, Outcome.OOM_SHM), (errno.EACCES, Outcome.OOM_SHM), (errno.EROFS, Outcome.OOM_SHM),
    (errno.ENOSPC, Outcome.OOM_SHM), (errno.ENOSYS, Outcome.OOM_SHM), (errno.EMFILE, Outcome.INVALID_CONFIG),
])  # fmt: skip
def test_a_lock_of_loader_workers_that_cannot_be_made_is_a_matter_of_shared_memory(
    number: int, expected: Outcome
) -> None:
    link = Link(
        type_name="builtins.OSError", errno=number, message=f"[Errno {number}]", raised_in="multiprocessing.synchronize"
    )

    assert classify([link])[0] is expected


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EACCES])
def test_a_file_of_the_users_that_cannot_be_read_is_their_own_error(number: int) -> None:
    assert classify(describe(OSError(number, os.strerror(number), "data.bin")))[0] is Outcome.USER_ERROR


def test_a_quota_that_is_used_up_is_no_error_of_the_user() -> None:
    assert classify(describe(OSError(errno.EDQUOT, "Disk quota exceeded")))[0] is Outcome.ENVIRONMENT


def test_of_two_messages_the_more_telling_is_the_evidence() -> None:
    outer = Link(type_name=RUNTIME, message="DataLoader worker (pid(s) 9, 10) exited unexpectedly")
    cause = Link(type_name=RUNTIME, message=WORKER_DEATHS[1])

    assert "killed by signal: Killed" in classify([outer, cause])[1]


@pytest.mark.parametrize(
    ("kills", "share", "expected"),
    [(2, 0.5, Outcome.OOM_HOST), (None, 0.03, Outcome.OOM_HOST), (0, 0.5, None), (None, None, None)],
)
@pytest.mark.parametrize("message", WORKER_DEATHS[1:])
def test_a_worker_that_was_killed_is_out_of_memory_if_the_kernel_says_so(
    message: str, kills: int | None, share: float | None, expected: Outcome | None
) -> None:
    _, evidence = classify([Link(type_name=RUNTIME, message=message)])

    judged = judge_loader_worker_kill(evidence, oom_kills=kills, host_available_share=share)

    assert (judged[0] if judged else None) is expected


@pytest.mark.parametrize(
    "message", [WORKER_DEATHS[0], "DataLoader worker (pid 12) exited unexpectedly with exit code 1. Details are lost"]
)
def test_kills_by_the_kernel_do_not_excuse_another_failure(message: str) -> None:
    _, evidence = classify([Link(type_name=RUNTIME, message=message)])

    assert judge_loader_worker_kill(evidence, oom_kills=3, host_available_share=0.01) is None


def test_words_that_no_encoder_takes_are_written_out() -> None:
    assert words_of(ValueError("caf\udce9.jpg")) == "caf\\udce9.jpg"


def test_oom_in_the_chain_outranks_its_wrapper() -> None:
    wrapper = Link(type_name="torch._inductor.exc.InductorError", message="RuntimeError while compiling")
    cause = Link(type_name="torch.OutOfMemoryError", message="CUDA out of memory.")

    outcome, evidence = classify([wrapper, cause])

    assert outcome is Outcome.OOM_DEVICE
    assert evidence == "torch.OutOfMemoryError: CUDA out of memory."


@pytest.mark.parametrize(
    ("death", "expected"), [(WORKER_DEATHS[0], Outcome.OOM_SHM), (WORKER_DEATHS[1], Outcome.CRASHED)]
)
def test_a_worker_that_died_is_judged_by_the_signal_in_the_cause(death: str, expected: Outcome) -> None:
    chain = [
        Link(type_name=RUNTIME, message="DataLoader worker (pid(s) 9) exited unexpectedly"),
        Link(type_name=RUNTIME, message=death),
    ]

    assert classify(chain)[0] is expected


@pytest.mark.parametrize(
    ("share", "expected"), [(0.95, Outcome.OOM_DEVICE), (0.3, Outcome.CRASHED), (None, Outcome.CRASHED)]
)
@pytest.mark.parametrize(
    "message",
    [
        "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        "FIND was unable to find an engine to execute this computation",
        "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
    ],
)
def test_a_vague_status_means_memory_only_on_a_full_device(
    message: str, share: float | None, expected: Outcome
) -> None:
    outcome, _ = classify([Link(type_name=RUNTIME, message=message)], memory_share=share)

    assert outcome is expected


def test_a_full_device_does_not_excuse_the_users_error() -> None:
    outcome, _ = classify([Link(type_name="builtins.KeyError", message="'label'")], memory_share=0.99)

    assert outcome is Outcome.USER_ERROR


@pytest.mark.parametrize(
    ("number", "expected", "evidence"),
    [
        (errno.ENOMEM, Outcome.OOM_HOST, "the host refused memory"),
        (errno.EMFILE, Outcome.INVALID_CONFIG, "ulimit -n"),
        (errno.EAGAIN, Outcome.INVALID_CONFIG, "ulimit -u"),
        (errno.ENOSPC, Outcome.ENVIRONMENT, "a disk is full"),
        (errno.EROFS, Outcome.ENVIRONMENT, "read-only"),
        (errno.ENOENT, Outcome.USER_ERROR, "No such file"),
    ],
)
def test_a_system_error_is_judged_by_its_number(number: int, expected: Outcome, evidence: str) -> None:
    outcome, words = classify(describe(OSError(number, "No such file or whatever")))

    assert outcome is expected
    assert evidence in words


def test_a_full_disk_that_is_shared_memory_is_no_fault_of_the_machine() -> None:
    outcome, words = classify(describe(OSError(errno.ENOSPC, "No space left on device", "/dev/shm/pym-12-abc")))

    assert outcome is Outcome.OOM_SHM
    assert "/dev/shm is full" in words


def test_a_target_error_is_judged_by_a_known_error_that_it_wraps() -> None:
    def build() -> None:
        try:
            raise ValueError("Expected more than 1 value per channel when training, got input size [1, 4]")
        except ValueError as error:
            raise TargetError("the training step failed") from error

    with pytest.raises(TargetError) as caught:
        build()

    assert classify(describe(caught.value))[0] is Outcome.INVALID_CONFIG


def test_describe_follows_causes_and_contexts_and_hears_from_none() -> None:
    def fail() -> None:
        try:
            try:
                raise MemoryError
            except MemoryError:
                raise KeyError("label")  # noqa: B904 - the context is what is tested
        except KeyError as error:
            raise RuntimeError("no batch") from error

    def hide() -> None:
        try:
            raise MemoryError
        except MemoryError:
            raise ValueError("hidden") from None

    with pytest.raises(RuntimeError) as shown:
        fail()
    with pytest.raises(ValueError, match="hidden") as hidden:
        hide()

    assert [link.type_name for link in describe(shown.value)] == [
        "builtins.RuntimeError",
        "builtins.KeyError",
        "builtins.MemoryError",
    ]
    assert len(describe(hidden.value)) == 1


def test_describe_survives_a_circle_and_a_broken_message() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise TypeError("no words")

    first, second = Mute(), RuntimeError("x" * 10_000)
    first.__cause__, second.__cause__ = second, first

    links = describe(first)

    assert links[0].message == "(its message cannot be shown: TypeError)"
    assert len(links) == 2
    assert len(links[1].message) < 5000


def test_a_subclass_is_known_by_its_base() -> None:
    class Wide(MemoryError):
        pass

    assert classify(describe(Wide("mine")))[0] is Outcome.OOM_HOST


def test_nothing_recorded_is_said_so() -> None:
    assert classify([]) == (Outcome.USER_ERROR, "no exception was recorded")


@pytest.mark.parametrize(("status", "phase", "kills", "share", "log", "expected", "part"), EXITS)
def test_an_exit_without_result_has_its_outcome(
    status: int, phase: str | None, kills: int | None, share: float | None, log: str, expected: Outcome, part: str
) -> None:
    outcome, evidence = judge_exit(
        status, timed_out_phase=phase, oom_kills=kills, host_available_share=share, log_tail=log
    )

    assert outcome is expected
    assert part in evidence


@pytest.mark.parametrize(
    ("log", "note"),
    [
        ("Traceback (most recent call last):\n  File 'a.py', line 1\nValueError: no\n", "ValueError: no"),
        (
            "loading\nFatal Python error: Aborted\n\nCurrent thread 0x1 (most recent call first):\n",
            "Fatal Python error: Aborted",
        ),
        (
            "terminate called after throwing an instance of 'c10::AcceleratorError'\n"
            "  what():  CUDA error: unspecified launch failure\nframe #0: c10::Error\n\nFatal Python error: Aborted\n",
            "CUDA error: unspecified launch failure",
        ),
        ("autotune: rank 1 of 2 ended: killed by SIGKILL\nChildFailedError:\n", "rank 1 of 2 ended: killed by SIGKILL"),
        ("  what():  no\nautotune: rank 0 ended: killed by SIGABRT\n", "rank 0 ended: killed by SIGABRT; no"),
        ("epoch 1\nepoch 2\n\n", "epoch 2"),
        ("", ""),
    ],
)
def test_a_death_note_is_the_line_that_says_most(log: str, note: str) -> None:
    assert death_note(log) == note
