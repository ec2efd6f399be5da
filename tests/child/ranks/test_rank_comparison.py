"""What ranks of a command were seen to do: what is refused, what is told, and with which line."""

import pytest

from autotune.child.ranks.rank_comparison import (
    check_batches,
    check_parameters,
    different_on_purpose,
    differing_rank_lines,
)
from autotune.core.records import DriftingParameter, RankFacts
from autotune.errors import TargetError


def _drifting(name="Net.head", ranks=(1,), cause="outside", place="train.py:7", meant=""):
    return DriftingParameter(name=name, ranks=ranks, cause=cause, place=place, meant=meant)


def _ranks(*drifting, looks=1, **facts):
    return [RankFacts(looks=looks, drifting=drifting, **facts)] * 2


def _texts(*ranks, needs_attention=True):
    return [one.text for one in differing_rank_lines(ranks) if one.needs_attention is needs_attention]


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        ("outside", r"The optimizer \(made in train\.py:7\) trains them, .* Make their module a part"),
        (
            "past the wrapper",
            r"DistributedDataParallel \(made in train\.py:7\), which was never called .* model\.module",
        ),
        ("no_sync", r"its last forward pass before a step \(called in train\.py:7\) is inside no_sync\(\)"),
        ("bare", r"a bare nn\.Parameter as an attribute \(self\.scale = nn\.Parameter\(\.\.\.\)\)"),
        ("unwrapped", r"the optimizer \(made in train\.py:7\) trains, .* model = DistributedDataParallel\(model\)"),
        ("unknown", r"DistributedDataParallel \(made in train\.py:7\), and probably the script changes them"),
    ],
)
def test_what_drifts_is_refused_with_its_cause_and_line(cause, words):
    with pytest.raises(TargetError, match=r"after one optimizer step rank 1 has other values of Net\.head .*" + words):
        check_parameters(_ranks(_drifting(cause=cause)))


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        ("outside", r"Make their module a part of the model that the Trainer is given"),
        ("bare", r"Make them a part of the model that the Trainer is given, a bare nn\.Parameter as an attribute"),
        ("unwrapped", r"A Trainer wraps the model that it is given, .* Leave _wrap_model and accelerator\.prepare as"),
        ("past the wrapper", r"self\.model or model\.module, .* of a Trainer, call the model that they are given"),
    ],
)
def test_who_trains_by_a_trainer_is_told_what_to_do_there(cause, words):
    with pytest.raises(TargetError, match=words):
        check_parameters(_ranks(_drifting(cause=cause), has_trainer=True))


def test_parameters_and_ranks_that_differ_are_named():
    drifting = [_drifting("Net.1", ranks=(3,)), _drifting("Net.2", ranks=(1,))]

    with pytest.raises(
        TargetError, match=r"each of 5 optimizer steps rank 1 and 3 have other values of Net\.1, Net\.2"
    ):
        check_parameters(_ranks(*drifting, looks=5))


def test_what_is_outside_of_the_wrapper_is_told_first():
    with pytest.raises(TargetError, match=r"other values of Net\.out than") as raised:
        check_parameters(_ranks(_drifting("Net.in", cause="unknown"), _drifting("Net.out")))

    assert "Net.in" not in str(raised.value)


@pytest.mark.parametrize(
    ("meant", "words"),
    [
        ("exchanged", "right for local SGD"),
        ("part of a model", "parts of one model"),
        ("others exchanged", "DistributedDataParallel is missing: write model = DistributedDataParallel(model)"),
        ("buffer", "buffers that no step wrote and nothing broadcast"),
        ("buffer", "drew its own, with another seed, or nothing ever filled them"),
    ],
)
def test_what_may_be_meant_is_told_and_not_refused(meant, words):
    ranks = _ranks(_drifting("Net.1", meant=meant), looks=9)

    check_parameters(ranks)

    assert different_on_purpose(ranks) == ("Net.1",)
    (text,) = _texts(*ranks)
    assert text.startswith("the ranks had different values of Net.1 after each of 9 optimizer steps")
    assert words in text


def test_one_that_is_not_meant_is_refused_among_those_that_are():
    with pytest.raises(TargetError, match=r"other values of Net\.2 than"):
        check_parameters(_ranks(_drifting("Net.1", meant="exchanged"), _drifting("Net.2")))


def test_what_agrees_later_is_told_only():
    ranks = _ranks(looks=4, averaged={"Net.1": 4})

    check_parameters(ranks)

    assert _texts(*ranks) == []
    (text,) = _texts(*ranks, needs_attention=False)
    assert "different values of Net.1, and the same after 4 optimizer steps" in text


def test_a_rank_that_was_not_there_at_the_last_look_decides_nothing():
    with pytest.raises(TargetError, match="after each of 2 optimizer steps"):
        check_parameters([RankFacts(looks=1), RankFacts(looks=2, drifting=(_drifting(),))])


@pytest.mark.parametrize(("batches", "is_told"), [((4, 4), False), ((4, 3), True), ((4, 0), False)])
def test_epochs_that_are_known_to_differ_are_told_with_the_line_of_the_loader(batches, is_told):
    ranks = [RankFacts(looks=1, epoch_batches=count, loader_place="train.py:3") for count in batches]

    assert [text.endswith("(train.py:3)") for text in _texts(*ranks)] == [True] * is_told
    assert _texts(*(RankFacts(epoch_batches=count) for count in batches)) == []


def test_under_join_epochs_may_differ():
    ranks = [RankFacts(looks=1, epoch_batches=count, joins=True) for count in (4, 3)]

    assert _texts(*ranks) == []
    assert len(_texts(*ranks, needs_attention=False)) == 1


def test_a_search_of_the_graph_is_needless_only_if_it_is_on_all_ranks():
    needless = RankFacts(needless_searches=("train.py:3",))

    assert _texts(needless, RankFacts()) == []
    (text,) = _texts(needless, needless)
    assert text.endswith("leave it out (train.py:3)")
    (text,) = _texts(*[RankFacts(needless_searches=("train.py:3",), has_trainer=True)] * 2)
    assert text.startswith("find_unused_parameters=True, which a Trainer asks for by default, looks through the graph")
    assert text.endswith("model, give TrainingArguments ddp_find_unused_parameters=False (train.py:3)")


def test_equal_first_batches_are_told_unless_one_is_unknown():
    same, other = RankFacts(first_batch=3, loader_place="train.py:3"), RankFacts(first_batch=4)

    assert _texts(same, other) == _texts(RankFacts(), RankFacts()) == _texts(same) == []
    (text,) = _texts(same, same)
    assert text.startswith("all 2 ranks had the same first batch (train.py:3), so an optimizer step probably learns")


def test_early_exchanges_are_told_with_the_line_of_the_forward_pass():
    (text,) = _texts(RankFacts(early_exchanges=("train.py:8",)), RankFacts(early_exchanges=("train.py:8",)))

    assert "the forward pass in train.py:8 is outside of no_sync()" in text


def test_loaders_of_different_batch_sizes_are_refused():
    def seen(*sizes):
        return [RankFacts(loader_place="train.py:3", loader_batch=size) for size in sizes]

    for equal_or_unknown in ((8, 8), (0, 16), ()):
        check_batches(seen(*equal_or_unknown))
    with pytest.raises(
        TargetError, match=r"different sizes, by rank: 8, 16 \(train\.py:3\)\. .* the same batch size\."
    ):
        check_batches(seen(8, 16))


def test_looks_that_ended_early_refuse_nothing_and_are_told():
    early = _ranks(_drifting(), looks_ended_early=True)

    check_parameters(early)
    (text,) = _texts(*early)
    assert "so few steps do not tell" in text


def test_ranks_of_a_file_of_functions_are_told_nothing():
    assert list(differing_rank_lines([])) == []
    check_parameters([])


def test_ranks_without_a_process_group_are_refused():
    with pytest.raises(TargetError, match=r"the 2 ranks stepped their optimizers \(made in train\.py:7\), and none"):
        check_parameters(_ranks(_drifting("", ranks=(), cause="no group"), looks=0))
