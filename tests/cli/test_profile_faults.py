"""`autotune profile` of trainings that fail, with real faults: one clear error in its words, and few lines of log."""

import re
from functools import partial

import pytest

from autotune.failures.log_excerpt import MOST_EXCERPT_LINES
from autotune.launch.subprocess import SubprocessLauncher
from tests.commandline import run_here as run

pytestmark = pytest.mark.slow

FAULT = """\
import os, sys, time
import torch
from torch import nn
steps = 0
def fault():
    global steps
    steps += 1
    if steps >= 30 and os.environ.get("RANK", "{rank}") == "{rank}":
        {fault}
"""
MODEL = (
    FAULT
    + """
def model(): return nn.Linear(8, 2)
def dataset(): return torch.utils.data.TensorDataset(torch.randn(512, 8), torch.randint(2, (512,)))
def loss(model, batch):
    fault()
    return nn.functional.cross_entropy(model(batch[0]), batch[1])
"""
)
SCRIPT = (
    FAULT
    + """
from torch import distributed
model = nn.Linear(8, 2)
if "RANK" in os.environ:
    distributed.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn(512, 8), torch.randint(2, (512,)))
for epoch in range(1000):
    for inputs, targets in torch.utils.data.DataLoader(data, batch_size=32):
        fault()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
"""
)
RAISES, KILLED, EXITS = "raise ValueError('mine')", "os.kill(os.getpid(), 9)", "os._exit(77)"
CRASHES, HANGS, GREEDY = "os.kill(os.getpid(), 11)", "time.sleep(10000)", "torch.ones(2**40)"
TORCHRUN = ["--", "python", "-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py"]
WAYS = {"file": ["model.py"], "ranks": ["model.py", "--ranks", "2"], "command": ["--", "python", "train.py"]}
OF_SEARCHES = ("search", "--fresh", "--baseline", "--step-timeout", "a probe", "Traceback (most recent call last)")


def failed(folder, fault, words, **more):
    """What the command says of it: the lines before its error, and the error."""
    rank = int("2" in words)  # of one process, or of the second
    for name, text in (("model.py", MODEL), ("train.py", SCRIPT)):
        (folder / name).write_text(text.format(fault=fault, rank=rank))
    ended = run(folder, "profile", *words, **more)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.count("error: ") == 1
    before, _, error = ended.stderr.partition("error: ")
    assert not [words for words in OF_SEARCHES if words in ended.stderr], ended.stderr
    assert len(before.splitlines()) <= 2 + MOST_EXCERPT_LINES, before
    return before, error


@pytest.mark.parametrize("words", [*WAYS.values(), TORCHRUN], ids=[*WAYS, "torchrun"])
def test_what_the_user_s_code_raises_is_told_with_its_line(tmp_path, words):
    before, error = failed(tmp_path, RAISES, words)

    assert "ValueError: mine" in before
    assert ":9 in fault: ValueError: mine" in error
    assert error.startswith("rank 1 of 2: ") is ("2" in words)


@pytest.mark.parametrize("words", [*WAYS.values(), TORCHRUN], ids=[*WAYS, "torchrun"])
def test_one_that_is_killed_is_not_told_that_it_raised(tmp_path, words):
    _, error = failed(tmp_path, KILLED, words)

    whose = "rank 1 of 2 ended without a result: " if "2" in words else "its process was "
    assert f"did not come to its end: {whose}killed by SIGKILL" in error
    assert "Profile it once more" in error


@pytest.mark.parametrize(
    ("way", "says"), [("file", "its process ended with "), ("ranks", "rank 1 of 2 ended without a ")]
)
def test_one_that_ends_its_process_is_told_its_status(tmp_path, way, says):
    _, error = failed(tmp_path, EXITS, WAYS[way])

    assert says in error
    assert "exit status 77, in " in error
    assert "os._exit" in error
    assert "batch" not in error


@pytest.mark.parametrize("words", [WAYS["command"], TORCHRUN], ids=["command", "torchrun"])
def test_a_command_that_ends_with_a_status_had_an_error_of_its_own(tmp_path, words):
    _, error = failed(tmp_path, EXITS, words)

    assert "train.py ended with exit status 77 after 29 optimizer steps" in error
    assert "probably met an error of its own" in error
    assert "****" not in error, "which torchrun prints around a word of its own"


def test_a_command_that_trains_for_too_few_steps_is_asked_for_more_of_them(tmp_path):
    _, error = failed(tmp_path, "sys.exit()", WAYS["command"])

    told = r"it trained for [\d.]+ m?s, and measuring takes about 4\.5 s\. Let it train for [\d,]+ steps or"
    assert re.search(told, error)
    assert "--fresh" not in error, "the advice for a search, which is given for a race and a profile, too"


@pytest.mark.parametrize("way", ["file", "command"])
def test_a_crash_in_compiled_code_is_told_with_the_line_that_called_it(tmp_path, way):
    before, error = failed(tmp_path, CRASHES, WAYS[way])

    assert "Segmentation fault (killed by SIGSEGV), at " in error
    assert ".py:9 in fault" in error
    first = next(line for line in before.splitlines() if line.startswith("  File"))
    assert first.endswith('.py", line 9 in fault')
    assert "autotune/" not in before


@pytest.mark.parametrize("words", [*WAYS.values(), TORCHRUN], ids=[*WAYS, "torchrun"])
def test_one_that_hangs_is_told_with_its_line(tmp_path, words):
    _, error = failed(tmp_path, HANGS, words, launcher=partial(SubprocessLauncher, step_timeout_seconds=10.0))

    assert "gave no sign of life" in error
    assert ".py:9 " in error
    assert error.count("rank 1 in ") == ("2" in words)


def test_a_rank_that_only_answers_others_is_told_that_it_has_to_train(tmp_path):
    answers = "while rank == 1: distributed.recv(total, 0)\n"
    (tmp_path / "train.py").write_text(
        "import torch\nfrom torch import distributed, nn\ndistributed.init_process_group('gloo')\n"
        f"rank, total, model = distributed.get_rank(), torch.zeros(4), nn.Linear(8, 2)\n{answers}"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for inputs in torch.utils.data.DataLoader(torch.randn(64000, 8), batch_size=32):\n"
        "    model(inputs).sum().backward(), optimizer.step(), distributed.send(total, 1)\n"
    )

    ended = run(tmp_path, "profile", *TORCHRUN, launcher=partial(SubprocessLauncher, step_timeout_seconds=10.0))

    assert "rank 1 in train.py:5 (<module>) gave no sign of life, in " in ended.stderr
    assert "as a parameter server does. Let each rank take optimizer steps" in ended.stderr


@pytest.mark.parametrize("words", [*WAYS.values(), TORCHRUN], ids=[*WAYS, "torchrun"])
def test_one_that_asks_for_too_much_memory_is_asked_for_a_smaller_batch(tmp_path, words):
    before, error = failed(tmp_path, GREEDY, words)

    assert "line 9, in fault" in before
    assert " ran out of memory" in error
    assert "a smaller batch" in error


def test_the_whole_log_stays_in_the_folder_for_files_which_may_be_used_again(tmp_path):
    _, error = failed(tmp_path, f"print('loading', flush=True); {KILLED}", [*WAYS["file"], "--output", "found"])

    assert error.rstrip().endswith("Full log: found/log.txt")
    assert (tmp_path / "found" / "log.txt").read_text() == "loading\n"
    failed(tmp_path, RAISES, [*WAYS["file"], "--output", "found"])
