"""What a profile that failed says: of its log what helps, and of its end what happened, why and what to do."""

import pytest

from autotune.core.results import Failure, Outcome
from autotune.errors import EnvironmentUnfit
from autotune.failures.log_excerpt import MOST_EXCERPT_LINES, excerpt, stopped_at
from autotune.profile.failed import error_of_profile
from autotune.profile.memory_run import with_sites
from autotune.profile.records import ProfileRequest, ProfileResult
from tests.worlds import config

# Of `autotune profile -- torchrun --nproc-per-node 2 train.py` whose rank 1 was killed (torch 2.13), shortened.
TORCHRUN = """\
W1127 04:02:10.000000 31 .venv/lib/python3.11/site-packages/torch/distributed/run.py:852]
W1127 04:02:10.000000 31 .venv/lib/python3.11/site-packages/torch/distributed/run.py:852] *****
*****************************************
Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid your system being overloaded
*****************************************
epoch 3
Traceback (most recent call last):
  File "/me/autotune/autotune/child/__main__.py", line 121, in _result
    result = work(request, progress=progress)
             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "train.py", line 29, in <module>
    loss.backward()
RuntimeError: [/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:355: Connection reset by peer
W1127 04:02:34.766000 316 .venv/lib/torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 316 closing
Traceback (most recent call last):
  File "/me/.venv/lib/python3.11/site-packages/torch/distributed/run.py", line 1019, in run
    elastic_launch(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
=======================================================
autotune.child FAILED
-------------------------------------------------------
Root Cause (first observed failure):
[0]:
  exitcode  : -9 (pid: 31673)
=======================================================
autotune: rank 1 of 2 ended without a result: killed by SIGKILL
"""
CRASH = """\
loading
Fatal Python error: Segmentation fault

Thread 0x00007fc79b256b81 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 320 in wait

Current thread 0x00007fc79b256b80 (most recent call first):
  File "/me/model.py", line 21 in fault
  File "/me/model.py", line 25 in loss

Extension modules: msgspec._core, numpy.linalg (total: 2)
"""
KILLED = "killed by SIGKILL, not by autotune: by a person, a scheduler or the kernel's OOM killer"
OUT_OF_MEMORY = ProfileResult(
    outcome=Outcome.OOM_DEVICE, failure=Failure(phase="measure", message="CUDA out of memory", evidence="its text")
)
SMALLER = "a smaller batch: --config batch=16"


def error(outcome, message, evidence, log="", phase="measure", **more):
    failure = Failure(phase=phase, message=message, evidence=evidence, traceback="whole log", **more)
    return error_of_profile("model.py", ProfileResult(outcome=outcome, failure=failure), log, SMALLER, None)


def test_what_is_repeated_because_memory_ran_out_may_leave_a_snapshot_in_the_output(tmp_path):
    asked, repeated = ProfileRequest(target="-- python train.py", config=config(), device="cuda", output="o"), []

    class Repeating:
        def run(self, request, folder):
            repeated.append(request)
            return OUT_OF_MEMORY

    assert with_sites(OUT_OF_MEMORY, asked, Repeating(), tmp_path) == OUT_OF_MEMORY
    assert [(one.extent, one.output) for one in repeated] == [("sites", "o")]


def test_what_a_launcher_and_ranks_that_miss_another_say_is_left_out():
    assert excerpt(TORCHRUN) == "epoch 3"


def test_the_traceback_of_a_rank_that_misses_another_is_left_out_where_the_log_is_cut_in_it():
    ours = '  File "/me/autotune/autotune/targets/commands/watching/witness.py", line 152, in backward\n'
    log = TORCHRUN.replace("    loss.backward()\n", f"    loss.backward()\n{ours}")

    assert excerpt(log[log.index("result = work") :]) == ""
    assert excerpt(log[log.index("in _result") :]) == ""
    assert excerpt("run(\n    go()\nValueError: mine\n").endswith("ValueError: mine")


def test_a_traceback_that_the_program_printed_itself_stays():
    printed = 'Traceback (most recent call last):\n  File "/me/train.py", line 3, in run\n    go()\nValueError: mine'

    assert excerpt(f"{printed}\nepoch 4\n") == f"{printed}\nepoch 4"


def test_of_a_crash_the_frames_of_the_user_stay():
    assert excerpt(CRASH).splitlines() == [
        "loading",
        '  File "/me/model.py", line 21 in fault',
        '  File "/me/model.py", line 25 in loss',
    ]
    assert stopped_at(CRASH) == "/me/model.py:21 in fault"


def test_of_a_long_log_the_last_lines_are_shown():
    shown = excerpt("".join(f"epoch {one}\n" for one in range(100))).splitlines()

    assert (len(shown), shown[-1]) == (MOST_EXCERPT_LINES, "epoch 99")
    assert stopped_at("epoch 1\n") == ""


@pytest.mark.parametrize(
    ("outcome", "message", "evidence", "says"),
    [
        (Outcome.CRASHED, KILLED, KILLED, "its process was killed by SIGKILL, in steps that were measured. "),
        (Outcome.CRASHED, "rank 1 of 2 ended without a result: killed by SIGKILL", KILLED,
         ": rank 1 of 2 ended without a result: killed by SIGKILL, in steps"),
        (Outcome.CRASHED, "exit status 77 without a result", "exit status 77 without a result",
         "its process ended with exit status 77, in steps"),
        (Outcome.CRASHED, "Fatal Python error: Segmentation fault", "killed by SIGSEGV",
         ": Segmentation fault (killed by SIGSEGV), in steps"),
        (Outcome.TIMEOUT, "given up in phase measure: no sign of life for 180 s", "given up in phase measure",
         ": it gave no sign of life for 180 s, in steps"),
        (Outcome.OOM_HOST, "killed by SIGKILL, and the kernel counted 1 out-of-memory kill(s)", "",
         "ran out of memory: its process was killed by SIGKILL, and the kernel counted 1"),
    ],
)  # fmt: skip
def test_what_happened_is_said_once(outcome, message, evidence, says):
    assert says in str(error(outcome, message, evidence))


@pytest.mark.parametrize(
    ("outcome", "message", "says"),
    [
        (Outcome.CRASHED, KILLED, f"Profile it once more; if it is killed again, try {SMALLER}."),
        (Outcome.CRASHED, "exit status 77", "os._exit"),
        (Outcome.CRASHED, "killed by SIGSEGV", "Compiled code"),
        (Outcome.TIMEOUT, "rank 1 gave no sign of life", "as a parameter server does"),
        (Outcome.TIMEOUT, "rank 1 gave no sign of life; rank 0 waits for it", "a lock, a file or another rank"),
        (Outcome.OOM_DEVICE, "CUDA out of memory", f"Try {SMALLER}."),
        (Outcome.COMPILE_FAILED, "no compiler", "--config compile=none"),
        (Outcome.DEVICE_FAULT, "illegal memory access", "CUDA_LAUNCH_BLOCKING=1 before autotune profile"),
    ],
)
def test_what_to_do_is_said_in_terms_of_a_profile(outcome, message, says):
    assert says in str(error(outcome, message, message))


def test_the_line_that_ran_is_named_where_the_log_has_it():
    found = error(Outcome.CRASHED, "Fatal Python error: Segmentation fault", "killed by SIGSEGV", CRASH)

    assert "(killed by SIGSEGV), at /me/model.py:21 in fault, in steps" in str(found)
    assert found.traceback == excerpt(CRASH)


def test_of_an_error_that_was_raised_the_user_s_frames_are_shown_and_not_the_log():
    found = error(Outcome.OOM_HOST, "MemoryError", "MemoryError", "epoch 1\n", user_frame="model.py:3 in loss")

    assert found.traceback == "whole log"
    assert "--output" not in str(found)


def test_a_machine_that_lacks_what_was_asked_says_so_itself():
    assert isinstance(error(Outcome.ENVIRONMENT, "no CUDA", ""), EnvironmentUnfit)
