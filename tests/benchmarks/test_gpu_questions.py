"""The questions to a GPU, as far as they can be asked without one."""

import pytest

from autotune.core.results import MemoryPeak
from benchmarks.gpu_questions import answered, asked, questions, shown
from benchmarks.questions import Answer, NotRun, Question
from benchmarks.questions.arithmetic import dropout
from benchmarks.questions.frontier import GIB, bisected, reached, told
from benchmarks.questions.provoked import FAULTS, MEMORY, provoked

QUESTION = Question(name="context", what="what it costs", decides="nothing", ask=lambda device: [f"on {device}"])
CUDA_ONLY = ("exhaustion", "codes", "headroom", "waits", "nvml", "kill")
MIB = 2**20


def test_there_are_ten_and_each_says_what_it_decides():
    names = [question.name for question in questions()]

    assert len(set(names)) == 10
    assert all(".py" in question.decides for question in questions())


@pytest.mark.parametrize("name", CUDA_ONLY)
def test_without_cuda_a_question_says_that_it_was_not_run(name):
    question = next(one for one in questions() if one.name == name)

    assert list(asked(question, "cpu")) == [{"lines": [], "not_run": "needs a CUDA device, and this is cpu"}]


def test_lines_that_are_there_outlive_the_death_of_the_next_and_where_it_died_is_told(capsys):
    def die(device):
        yield f"on {device}"
        raise RuntimeError("of something")

    *_, last = asked(Question(name="n", what="w", decides="d", ask=die), "cpu")

    assert last == {"lines": ["on cpu"], "not_run": "RuntimeError: of something"}
    assert "in die" in capsys.readouterr().err


def test_a_question_that_takes_too_long_is_given_up():
    answer = answered(QUESTION, "cpu", 0.2)

    assert answer.not_run == "no answer in 0 s"
    assert "decides: nothing" in shown(answer, 1)


def test_an_answer_is_shown_with_its_number_and_what_it_decides():
    answer = Answer(name="kill", what="memory after SIGKILL", decides="no pause", lines=("at once",), seconds=2.0)

    assert shown(answer, 10).splitlines() == [
        "10. kill: memory after SIGKILL (2 s)", "   at once", "   decides: no pause",
    ]  # fmt: skip


def test_dropout_draws_the_same_masks_in_every_dtype_on_a_cpu(monkeypatch):
    monkeypatch.setattr("benchmarks.questions.arithmetic.SIZES", (1_000,))

    *masks, draws, paired, autocast = dropout("cpu")

    assert len(masks) == 2
    assert all("100.0000% alike, then the same state" in line for line in masks)
    assert all("100.0000%, 100.0000% alike" in line for line in (draws, paired, autocast))


def peak(batch, dies_at):
    """Half a gibibyte that no allocator knows, and a mebibyte a sample, until the GPU is full."""
    if batch >= dies_at:
        return None
    held = batch * MIB
    return MemoryPeak(
        process_bytes=0, allocated_bytes=held, reserved_bytes=held + 64 * MIB, device_used_bytes=held + GIB // 2,
        reserved_at_end_bytes=held, allocator_retries=0,
    )  # fmt: skip


@pytest.mark.parametrize("dies_at", [33, 47, 3_000, 131_073])
def test_bisection_ends_within_a_percent_of_the_batch_that_dies(dies_at):
    ran, died = bisected(lambda batch: peak(batch, dies_at))

    assert ran[-1].batch < dies_at <= died
    assert died - ran[-1].batch <= max(1, 0.01 * died)
    assert len(ran) <= 22  # doublings, and a share of eight halvings


def test_where_the_first_batch_dies_there_is_nothing_to_say():
    with pytest.raises(NotRun, match="not even batch 32 runs"):
        bisected(lambda batch: None)


def test_each_figure_says_where_it_had_put_death():
    limit = 4 * GIB
    ran, died = bisected(lambda batch: peak(batch, 3_520))  # 4 GiB less what is no sample's

    line = told(ran, died, limit)

    assert "tensors 85.2%, reserved 86.7%, reserved and all else 99.2%" in line
    assert "tensors 4,096, reserved 4,032, reserved and all else 3,520" in line


def test_a_figure_that_does_not_grow_reaches_no_limit():
    assert reached([32, 64], [100, 100], 1000) == float("inf")


def test_the_ways_to_run_out_of_memory_are_all_there():
    assert len(MEMORY) == 9
    assert set(MEMORY) < set(FAULTS)


@pytest.mark.slow
def test_a_fault_is_told_as_the_products_own_rules_read_it():
    line = provoked("beyond the fraction", "cpu")

    assert "builtins.RuntimeError, code None" in line
    assert "read as oom-host" in line
