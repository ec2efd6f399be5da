"""What memory did is said with the number that matters and the line that mends it."""

import pytest
from msgspec.structs import replace

from autotune.answer.reasons import left_out_warnings, warnings_of
from autotune.core.codes import Code
from autotune.core.interference_readings import HostInterference
from autotune.core.notices import costliest_first
from autotune.core.records import Goal
from autotune.core.results import Trial
from autotune.study.summary import ConfigSummary
from tests.worlds import GIB, config, good, measured, study_request

REQUEST = study_request()  # 16 GiB
MIB = 2**20


def _winner(*probes, **values):
    where = config(**{"batch_size": 64, **values})
    trials = [
        Trial(
            number=number,
            purpose="confirm",
            config=where,
            result=replace(measured(peak=8 * GIB), measurement=replace(measured(peak=8 * GIB).measurement, **changes)),
        )
        for number, changes in enumerate(probes)
    ]
    return ConfigSummary(config=where, trials=tuple(trials), verdicts=(good(100.0),) * len(trials))


def _leaking(slope=8 * MIB):
    return {"memory_track": tuple((step, GIB + step * slope) for step in range(30))}


def _warnings(winner, request=REQUEST):
    return [*warnings_of(winner, request, 0.0, 0.0)]


@pytest.mark.parametrize(
    ("probed", "said"), [({config()}, True), ({config(), config(batch_size=64)}, False), (set(), False)]
)
def test_an_answer_for_want_of_another_is_no_praise_of_the_baseline(probed, said):
    request = study_request(baseline=config())

    warnings = warnings_of(_winner({}, batch_size=32), request, 0.0, 0.0, probed=probed)

    assert (Code.ONLY_BASELINE_TRIED in {warning.code for warning in warnings}) == said


def test_configurations_that_had_interference_are_told_apart_by_what_is_fixed():
    busy = {"interference": HostInterference(run_queue_wait_share=0.5, foreign_cores=1.0)}
    confirmed = [_winner(busy, batch_size=16, **values) for values in ({"amp_dtype": "bfloat16"}, {})]

    (warning,) = left_out_warnings(
        confirmed, study_request(domains={"amp_dtype": ("bfloat16",)}), confirmed[0].config, is_sure=False
    )

    told = [one.numbers for one in warning.numbers["rounds"]]
    assert told == [{"configuration": name, "slowed": 1, "rounds": 1} for name in ("16×1 bf16", "16×1")]
    assert warning.text.startswith("Which configuration is faster is not certain")
    assert "too many probes: 16×1 bf16 in 1 of 1; 16×1 in 1 of 1. " in warning.text


def test_of_a_configuration_alone_only_the_rate_is_doubtful():
    busy = {"interference": HostInterference(run_queue_wait_share=0.5, foreign_cores=1.0)}

    (warning,) = left_out_warnings([_winner(busy)], REQUEST, _winner(busy).config, is_sure=False)

    said = (
        "The rate is probably too low: there was interference in too many probes: 64×1 fp32 workers 0 nchw in 1 of 1."
    )
    assert warning.brief == said
    assert warning.text.startswith(said)


@pytest.mark.parametrize(
    ("winner_slowed", "is_kept", "code"),
    [
        (False, False, Code.BASELINE_RATE_INTERFERENCE),
        (True, False, Code.LONE_RATE_INTERFERENCE),
        (False, True, Code.LONE_RATE_INTERFERENCE),
    ],
)
def test_a_baseline_alone_that_others_slowed_makes_the_gain_look_larger(winner_slowed, is_kept, code):
    busy = {"interference": HostInterference(run_queue_wait_share=0.5, foreign_cores=1.0)}
    other = _winner(*[busy if winner_slowed else {}] * 2, amp_dtype="bfloat16")
    baseline = _winner(busy, busy)

    (warning,) = left_out_warnings(
        [other, baseline], REQUEST, (baseline if is_kept else other).config, is_sure=True
    )  # fmt: skip

    assert warning.code is code


def test_growing_memory_is_said_with_the_steps_that_are_left_and_a_way_out():
    (said,) = _warnings(_winner(_leaking(), _leaking()))

    assert (said.code, said.numbers) == (Code.MEMORY_GROWS, {"step_bytes": 8 * MIB, "steps_left": 1024})
    assert "`total += loss.item()`" in said.text


def test_it_is_said_when_the_baseline_wins_too():
    winner = _winner(_leaking())

    assert winner.config == REQUEST.baseline
    assert [warning.code for warning in _warnings(winner)] == [Code.MEMORY_GROWS]


def test_growth_that_no_training_would_live_to_see_is_not_said():
    """An ordinary training grew by 64 kB a step for the length of a probe: "runs out after 371,872 steps"."""
    slow, roomy = _winner(_leaking(slope=66 * 1024)), replace(REQUEST, memory_limit_bytes=40 * GIB)

    assert [one.code for one in _warnings(slow)] == [Code.MEMORY_GROWS]
    assert _warnings(slow, roomy) == []


def test_growth_in_one_probe_of_three_is_not_blamed_on_the_code():
    assert _warnings(_winner(_leaking(), {}, {})) == []


def test_growth_in_one_probe_of_two_is_not_blamed_on_the_code():
    assert _warnings(_winner(_leaking(), {})) == []


def test_shapes_that_vary_without_a_worst_batch_are_said_with_the_name_to_write():
    (said,) = _warnings(_winner({"shapes_vary": True}))

    assert said.code is Code.LARGEST_BATCH_UNTRIED
    assert said.numbers["free_share"] == pytest.approx(0.1)
    assert "worst_batch(batch_size)" in said.text


def test_a_loop_of_the_targets_own_is_not_asked_for_a_worst_batch():
    own = replace(REQUEST, facts=replace(REQUEST.facts, owns_loop=True))

    (said,) = _warnings(_winner({"shapes_vary": True}), own)

    assert "worst_batch" not in said.text
    assert "chooses its batches: pad all of them to the longest" in said.text


def test_the_headroom_that_is_named_is_the_one_that_was_asked_for():
    asked = study_request(goal=Goal(global_batch=64, headroom_fraction=0.0625))

    assert [one.numbers for one in _warnings(_winner({"shapes_vary": True}), asked)] == [{"free_share": 0.0625}]


@pytest.mark.parametrize("changes", [{"shapes_vary": True, "worst_batches": 1}, {}])
def test_where_the_worst_was_tried_or_there_is_none_nothing_is_said(changes):
    assert _warnings(_winner(changes)) == []


@pytest.mark.parametrize(
    ("workers", "probed", "code", "named"),
    [
        (8, (2, 8), Code.LOADER_BOUND, 16),
        (2, (0, 2), Code.LOADER_BOUND_SEARCH_SHORT, 8),
        (2, (0, 2, 4), Code.LOADER_BOUND_WORKERS_TRIED, 4),
    ],
)
def test_a_loader_that_holds_the_model_up_is_said_with_what_was_not_tried_yet(workers, probed, code, named):
    waiting = {"loader_wait_seconds": (0.3,) * 4}
    asked = study_request(domains={**REQUEST.domains, "num_workers": (0, 2, 4, 8)})
    tried = [config(batch_size=64, num_workers=count) for count in probed]

    (warning,) = warnings_of(_winner(waiting, waiting, num_workers=workers), asked, 0.0, 0.0, probed=tried)

    assert (warning.code, warning.numbers["workers"]) == (code, named)


@pytest.mark.parametrize(
    ("waited", "foreign", "code"),
    [
        (0.8, 0.0, Code.LOADER_BOUND_CORES_FULL),  # 0.27 of each of three processes: packed_cnn
        (0.2, 0.0, Code.LOADER_BOUND),
        (0.8, 1.0, Code.LOADER_BOUND),  # others held a core
        (0.8, None, Code.LOADER_BOUND),
        (None, 0.0, Code.LOADER_BOUND),
    ],
)
def test_where_workers_and_loop_wait_for_cores_no_more_workers_are_advised(waited, foreign, code):
    shared = HostInterference(run_queue_wait_share=0.2, foreign_cores=foreign, threads_wait_share=waited)
    waiting = {"loader_wait_seconds": (0.3,) * 4, "interference": shared}
    asked = study_request(domains={**REQUEST.domains, "num_workers": (0, 2)})
    tried = [config(batch_size=64, num_workers=count) for count in (0, 2)]

    (warning,) = warnings_of(_winner(waiting, waiting, num_workers=2), asked, 0.0, 0.0, probed=tried)

    assert warning.code is code


def test_ranks_that_never_learn_the_same_are_the_first_warning():
    request = study_request()
    differing = replace(request, facts=replace(request.facts, ranks_differ=("Tables.table.weight",)))

    warnings = costliest_first(_warnings(_winner(_leaking()), differing))

    assert [one.code for one in warnings][:2] == [Code.RANKS_DIFFER, Code.MEMORY_GROWS]
    assert "values of Tables.table.weight after" in warnings[0].text
