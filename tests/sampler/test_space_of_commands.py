"""The space of a command holds what it takes, in the words that it has, and what can be set from outside."""

import pytest

from autotune.core.records import CheckLine, Goal, Limit
from autotune.errors import UsageError
from autotune.sampler.space import build
from autotune.targets.commands.command import Command
from tests.worlds import config, environment, facts

OUTSIDE = ("num_workers", "num_threads")  # what the process that runs a command can set


def _space(text, goal, baseline):
    command = Command.parse(f"-- python train.py {text}")
    of = facts(settable=(*command.knobs, *OUTSIDE), owns_loop=True)
    return build(of, environment(), goal, baseline, command.can_take)


def test_the_global_batch_is_held_so_a_command_without_accumulation_keeps_its_batch():
    held = _space("{batch_size=64}", Goal(global_batch=64), config(batch_size=64))
    freed = _space("{batch_size=64}", Goal(), config(batch_size=64))

    assert held.domains["batch_size"] == (64,)
    assert len(freed.domains["batch_size"]) > 1
    assert {one.gradient_accumulation_steps for one in freed.configs} == {1}


def test_a_command_with_accumulation_moves_both():
    made = _space(
        "{batch_size=64} {accum=2}", Goal(global_batch=128), config(batch_size=64, gradient_accumulation_steps=2)
    )

    assert {one.global_batch_size() for one in made.configs} == {128}
    assert len(made.domains["batch_size"]) > 1


def test_what_the_command_does_not_take_stays_as_it_is():
    made = _space("{batch_size=64} {accum=1}", Goal(global_batch=64), config(batch_size=64, amp_dtype="bfloat16"))

    assert made.domains["amp_dtype"] == ("bfloat16",)
    assert made.domains["channels_last"] == (False,)
    assert len(made.domains["num_workers"]) > 1


def test_only_values_that_can_be_written_are_searched():
    every = _space("{amp_dtype:short}", Goal(), config())
    flag = _space("{bf16:flag}", Goal(), config())

    assert "bfloat16" in flag.domains["amp_dtype"]
    assert set(every.domains["amp_dtype"]) - set(flag.domains["amp_dtype"]) == {"float16"}


@pytest.mark.parametrize(
    ("text", "goal", "said"),
    [
        ("{batch_size}", Goal(tune=("amp_dtype",)), "amp_dtype cannot be set: the command takes no argument for it"),
        ("{batch_size}", Goal(limits={"amp_dtype": Limit(values=("float16",))}), "--map amp=--argument"),
        ("{bf16:flag}", Goal(limits={"amp_dtype": Limit(values=("float16",))}), "cannot be given amp_dtype fp16"),
    ],
)
def test_what_cannot_be_set_is_refused_where_it_is_asked_for(text, goal, said):
    with pytest.raises(UsageError, match=said):
        _space(text, goal, config())


def test_what_a_trainer_cannot_be_given_is_refused_with_its_reason():
    why = CheckLine(name="accum", text="not tuned: Net optimizes manually, and decides itself when it steps")
    of = facts(settable=("batch_size",), owns_loop=True, check_lines=(why,))

    with pytest.raises(UsageError, match="gradient_accumulation_steps is not tuned: Net optimizes manually"):
        build(of, environment(), Goal(tune=("gradient_accumulation_steps",)), config(), lambda *_: True)


def _ranks(goal, baseline, text="{batch_size=32} {accum=2}", **changes):
    command = Command.parse(f"-- torchrun --nproc-per-node 2 train.py {text}")
    of = facts(settable=(*command.knobs, *OUTSIDE), owns_loop=True, ranks=2, **changes)
    return build(of, environment(), goal, baseline, command.can_take)


def test_ranks_share_a_held_global_batch():
    made = _ranks(Goal(global_batch=128), config(batch_size=32, gradient_accumulation_steps=2))

    assert {one.global_batch_size() for one in made.configs} == {64}  # of each
    assert made.excludes(config(batch_size=32)).text == "its global batch is 64, and 128 is held"


def test_ranks_share_the_samples_of_the_dataset():
    made = _ranks(Goal(), config(batch_size=32), "{batch_size=32}", dataset_samples=256)

    assert max(one.batch_size for one in made.configs) == 128


def test_ranks_whose_batches_are_more_than_the_dataset_are_told_to_be_fewer():
    with pytest.raises(UsageError, match=r"batch is 128\. .* Lower --global-batch, or .* fewer ranks than 2"):
        _ranks(Goal(global_batch=128), config(batch_size=64), dataset_samples=100)


def test_a_global_batch_that_ranks_cannot_share_is_refused():
    with pytest.raises(UsageError, match=r"is 65, and 2 ranks share it.*a multiple of 2"):
        _ranks(Goal(global_batch=65), config(batch_size=32))
