"""A search that predicts memory: when it does, what it says, and what its probes make of it."""

import dataclasses

import pytest
from msgspec.structs import replace

from autotune.core.records import Goal, Limit
from autotune.core.results import Failure, Outcome
from autotune.memory.model import ON_HOST, Arm
from autotune.memory.prediction import MemoryPrediction
from autotune.memory.records import ShapeRun, ShapeRunRequest
from autotune.memory.stage import arms, asking, describe_shape_run, predict_memory
from autotune.study import disk
from autotune.study.history import History
from autotune.testing import FakeLauncher
from tests.worlds import (
    GIB,
    Interrupted,
    Listener,
    config,
    context,
    declared,
    earlier,
    environment,
    facts,
    measured,
    searched,
    space,
    study_request,
    trial,
)  # fmt: skip

FREE = space(goal=Goal(), baseline=config(batch_size=64))
LONG = 600.0


def _said(listener):
    return [note for note in listener.notes if note.startswith("Memory prediction")]


def _search(folder, launcher=None, **settings):
    listener = Listener()
    given = {"sampler": "structured", "global_batch": "free", "probes": 2, "time_budget_seconds": LONG, **settings}
    searched(folder, launcher or FakeLauncher(facts=declared()), listener, **given)
    return listener


def test_a_search_says_which_batches_are_predicted_to_fit(tmp_path):
    listener = _search(tmp_path)

    assert _said(listener) == [
        "Memory prediction: batches up to 512 fit with bf16 or fp16, batches up to 256 fit with fp32."
    ]


def test_it_is_told_after_the_baseline_and_before_anything_is_searched(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        _search(tmp_path, Interrupted(2, facts=declared()))  # during the first probe of the search

    ((request, found),) = disk.attempts(tmp_path, ShapeRunRequest.kind())

    assert request.config == config(batch_size=64)
    assert found.outcome is Outcome.OK


def test_a_search_asks_for_trades_only_where_a_batch_needs_them_and_a_check_for_all(tmp_path):
    search = _search_in(tmp_path, FakeLauncher(results={ShapeRunRequest: _scripted}), FREE, ())

    predict_memory(search)

    ((asked, _),) = disk.attempts(tmp_path, ShapeRunRequest.kind())
    assert asked.spares_trades
    assert not asking(search.request, search.space, GIB, 1.0).spares_trades


@pytest.mark.parametrize(("limit", "runs"), [(16 * GIB, 1), (12 * GIB, 2), (20 * GIB, 2)])
def test_what_is_known_for_another_limit_is_made_anew(limit, runs, tmp_path):
    search = _search_in(tmp_path, FakeLauncher(results={ShapeRunRequest: _scripted}), FREE, ())
    predict_memory(search)
    history = History(replace(search.request, memory_limit_bytes=limit, headroom_bytes=GIB))
    for pair in disk.attempts(tmp_path, ShapeRunRequest.kind()):
        history.add_measured(*pair)

    predict_memory(dataclasses.replace(search, history=history, memory_prediction=MemoryPrediction(FREE, history)))

    assert len(disk.attempts(tmp_path, ShapeRunRequest.kind())) == runs


@pytest.mark.slow
def test_a_resumed_search_reads_it_and_runs_no_other(tmp_path):
    _search(tmp_path)

    listener = _search(tmp_path)

    assert len(disk.attempts(tmp_path, ShapeRunRequest.kind())) == 1
    assert _said(listener) == []


def test_where_it_fails_the_search_goes_on_without_it(tmp_path):
    broken = FakeLauncher(facts=declared(), faults={ShapeRunRequest: lambda request: Outcome.CRASHED})

    listener = _search(tmp_path, broken)

    assert _said(listener) == ["Memory prediction: not possible (a scripted crashed). The search goes on without it."]
    assert listener.answer is not None


@pytest.mark.parametrize(
    "settings",
    [
        {"time_budget_seconds": 60.0},  # of which it may have six
        {"sampler": "tpe"},  # which would not look at it
        {"global_batch": 64},  # no batch above the baseline's
    ],
    ids=["short of time", "another sampler", "nothing can bind"],
)
def test_it_is_left_out_in_silence_where_it_could_not_help(tmp_path, settings):
    listener = _search(tmp_path, **settings)

    assert _said(listener) == []
    assert disk.attempts(tmp_path, ShapeRunRequest.kind()) == ()


@pytest.mark.parametrize(("gibibytes", "asked"), [(0.5, False), (1.0, True)])
def test_an_interpreter_does_not_grow_with_the_batch(tmp_path, gibibytes, asked):
    """At 8 times the batch of a process of 0.5 GiB, at most 0.15 + 8 * 0.35 GiB are needed, of the half of 7.5."""
    host = study_request(environment=environment(device="cpu"), memory_limit_bytes=int(8.5 * GIB))
    wide = space(goal=Goal(limits={"batch_size": Limit(high=512)}), baseline=config(batch_size=64))
    baseline = trial(_on_host(gibibytes, workers=0.0), purpose="baseline", batch_size=64)

    predict_memory(_search_in(tmp_path, FakeLauncher(), wide, [baseline], host))

    assert bool(disk.attempts(tmp_path, ShapeRunRequest.kind())) is asked


def test_each_probe_may_show_that_memory_cannot_bind():
    wide = space(goal=Goal(limits={"batch_size": Limit(high=512)}), baseline=config(batch_size=64))
    history = History(study_request())
    memory = MemoryPrediction(wide, history)
    before = memory.can_bind

    history.add(trial(measured(peak=GIB // 2), purpose="baseline", batch_size=64))

    assert before
    assert not memory.can_bind


PROBED = trial(measured(peak=7 * GIB), purpose="baseline", batch_size=64)


@pytest.mark.parametrize(("left", "asked"), [(20.0, False), (1000.0, True)])
def test_it_is_not_begun_where_too_little_of_the_budget_is_left(tmp_path, left, asked):
    wide = space(goal=Goal(limits={"batch_size": Limit(high=512)}), baseline=config(batch_size=64))
    search = context(tmp_path, trials=[PROBED], time_budget_seconds=1000.0, left=left)

    predict_memory(dataclasses.replace(search, space=wide, memory_prediction=MemoryPrediction(wide, search.history)))

    assert bool(disk.attempts(tmp_path, ShapeRunRequest.kind())) is asked


def test_the_sampler_learns_the_memory_of_arms_that_were_never_probed(tmp_path):
    launcher, listener = FakeLauncher(facts=declared()), Listener()

    searched(
        tmp_path, launcher, listener, sampler="structured", global_batch="free", probes=1, time_budget_seconds=LONG
    )

    probed = next(one for one in listener.trials if one.purpose == "search")
    said = disk.read_prediction(tmp_path, probed.number)
    assert said.memory_bytes == pytest.approx(launcher.machine.needed_bytes(probed.config), rel=0.1)


def _scripted(request):
    """A shape run that predicts 2 GiB and 0.05 GiB per sample, in a process of 1 GiB."""
    points = tuple((batch, int((2 + 0.05 * batch) * GIB)) for batch in request.batches)
    return ShapeRun(outcome=Outcome.OK, base_bytes=GIB, arms=tuple(Arm(values=v, points=points) for v in request.arms))


def _search_in(folder, launcher, searched_space, trials, request=None, listener=None):
    search = context(folder, launcher, listener, request=request, trials=trials, time_budget_seconds=LONG)
    memory = MemoryPrediction(searched_space, search.history)
    return dataclasses.replace(search, space=searched_space, memory_prediction=memory)


def _predicted(folder, *trials):
    search = _search_in(folder, FakeLauncher(results={ShapeRunRequest: _scripted}), FREE, trials)
    predict_memory(search)
    return search.memory_prediction


def test_a_measured_peak_is_left_to_the_sampler_which_knows_it_too(tmp_path):
    probed = trial(measured(peak=7 * GIB), purpose="baseline", batch_size=64)

    said = _predicted(tmp_path, probed).of(config(batch_size=64))

    assert said.share == pytest.approx(6.2 / 15, rel=0.02)  # 1 of the process, 2 + 0.05 * 64
    offset, ratio = said.together
    assert offset == pytest.approx(0.5, rel=0.05)  # half of the peak
    assert ratio == pytest.approx(0.1 * 5.2 / 7, rel=0.05)


def test_what_fits_beside_a_measured_peak_is_fewer_batches_on_a_host(tmp_path):
    """The same peak at 64 samples; each further one is 0.05 GiB of tensors, and on a host about 1.7 times that."""
    wide = space(goal=Goal(limits={"batch_size": Limit(values=tuple(range(64, 256, 8)))}), baseline=config())
    notes = []
    for kind, result in (("cuda", measured(peak=10 * GIB)), ("cpu", _on_host(10.0, workers=0.0))):
        listener, probed = Listener(), trial(result, purpose="baseline", batch_size=64)
        request = study_request(environment=environment(device=kind))
        predict_memory(
            _search_in(
                tmp_path / kind, FakeLauncher(results={ShapeRunRequest: _scripted}), wide, [probed], request, listener
            )
        )
        notes += listener.notes

    assert notes[0] == "Memory prediction: batches up to 136 fit."
    # the upper end: an arm that was not probed may hold more for each byte of its tensors
    assert notes[1].startswith(
        "Memory prediction: batches up to 104 fit with fp32 nchw, batches up to 80 fit with fp32 nhwc or "
    )


def test_a_baseline_without_a_peak_leaves_the_prediction_as_it_is(tmp_path):
    assert _predicted(tmp_path).of(config(batch_size=64)).share == pytest.approx((1 + 2 + 0.05 * 64) / 15)


def test_before_it_has_run_nothing_is_known():
    assert MemoryPrediction(FREE, History(study_request())).of(config()) is None


def test_on_the_host_workers_count_besides():
    host = study_request(environment=environment(device="cpu"))
    results = [
        trial(_on_host(2.0, workers=0.0), number=0, batch_size=64),
        trial(_on_host(2.0, workers=0.5), number=1, batch_size=64, num_workers=2),
    ]
    tensors = int((2 * GIB - ON_HOST.besides_bytes) / ON_HOST.ratio)  # what the prior makes 2 GiB of
    found = ShapeRun(outcome=Outcome.OK, arms=(Arm(values={}, points=((64, tensors),)),))
    asked = ShapeRunRequest(target="model.py", config=config(), arms=({},), batches=(64,), device="cpu")
    prediction = MemoryPrediction(FREE, History(host, results, [(asked, found)]))

    alone, four = (prediction.of(config(batch_size=64, num_workers=count)).share for count in (0, 4))

    assert four - alone == pytest.approx(4 * 0.25 / 15, rel=0.01)


def _on_host(gibibytes, workers):
    from msgspec.structs import replace

    found = measured()
    memory = replace(
        found.measurement.memory, process_bytes=int(gibibytes * GIB), workers_bytes=int(workers * GIB),
        reserved_bytes=None, device_used_bytes=None,
    )  # fmt: skip
    return replace(found, measurement=replace(found.measurement, memory=memory))


def test_every_arm_is_asked_for_the_baseline_s_first():
    found = arms(FREE, config(batch_size=64, amp_dtype="float16", channels_last=True))

    assert (
        found[0].items() >= {"amp_dtype": "float16", "channels_last": True, "activation_checkpointing": False}.items()
    )
    assert len(found) == len({tuple(arm.values()) for arm in found}) == 6


def test_arms_that_trade_time_for_memory_come_last_for_they_matter_only_where_others_do_not_fit():
    deep = space(goal=Goal(), baseline=config(batch_size=64), of=facts(checkpointable_blocks=12))

    found = arms(deep, config(batch_size=64))

    policies = [arm["activation_checkpointing"] for arm in found]
    assert policies[:6] == [False] * 6
    assert sorted(map(str, policies[6:])) == sorted(["every_third", "every_second", "selective", "True"] * 6)


def _below(limit):
    return lambda arm, batch: arm.peak_bytes(batch) < limit


def test_a_dtype_and_a_trade_are_named_and_what_is_not_done_is_not():
    peaks = {(None, False): 80, (None, True): 40, ("bfloat16", False): 60, ("bfloat16", True): 20}
    arms_found = tuple(
        Arm(values={"amp_dtype": dtype, "activation_checkpointing": on}, points=((8, peak), (4096, 50 * peak)))
        for (dtype, on), peak in peaks.items()
    )

    sentence = describe_shape_run(ShapeRun(outcome=Outcome.OK, arms=arms_found), FREE, _below(1000))

    assert "with bf16 ckpt" in sentence and "with fp32." in sentence


def test_a_trade_alone_is_named_by_its_column_where_it_is_not_done():
    arms_found = tuple(
        Arm(values={"activation_checkpointing": on}, points=((8, 80 - 60 * on), (4096, 4000 - 3000 * on)))
        for on in (False, True)
    )

    sentence = describe_shape_run(ShapeRun(outcome=Outcome.OK, arms=arms_found), FREE, _below(1200))

    assert sentence.startswith(
        "Memory prediction: all batches fit with ckpt, batches up to 1024 fit with no checkpointing"
    )


def test_gradients_that_accumulate_are_asked_for_where_a_configuration_has_them():
    held = space(goal=Goal(global_batch=64, limits={}), of=facts())

    assert asking(study_request(), held, GIB, 10.0).micro_batches == 2


@pytest.mark.parametrize(
    ("arms_found", "sentence"),
    [
        (
            (Arm(values={"amp_dtype": None}, points=((8, 1), (4096, 2))),),
            "Memory prediction: all batches fit.",
        ),
        (
            (Arm(values={"amp_dtype": None}, points=((8, 100), (4096, 200))),),
            "Memory prediction: no batch fits.",
        ),
        (
            (Arm(values={"amp_dtype": None}, reason=earlier("contents decide")),),
            "Memory prediction: not possible, because contents decide. The search goes on without it.",
        ),
    ],
)
def test_what_was_foretold_is_one_sentence(arms_found, sentence):
    assert describe_shape_run(ShapeRun(outcome=Outcome.OK, arms=arms_found), FREE, _below(50)) == sentence


def test_a_shape_run_that_died_is_told_by_its_own_words():
    died = ShapeRun(outcome=Outcome.TIMEOUT, failure=Failure(phase="measure", message="no sign of life", evidence=""))

    assert describe_shape_run(died, FREE, lambda arm, batch: True) == (
        "Memory prediction: not possible (no sign of life). The search goes on without it."
    )
