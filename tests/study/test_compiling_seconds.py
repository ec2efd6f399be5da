"""What compiling takes of a probe and of a planned run: guessed, then measured, cold and warm."""

import pytest
from msgspec.structs import replace

from autotune.core.compilation import Compilation
from autotune.core.records import Goal
from autotune.core.requests import InspectRequest, ProbeBudget, ProbeRequest
from autotune.core.run_length import break_even_seconds, parse_run_length, training_share
from autotune.errors import UsageError
from autotune.knobs.compile_mode import PRIOR_SECONDS
from autotune.knobs.cudnn_benchmark import TIMING_SECONDS
from autotune.launch.files import cache_of
from autotune.objectives.verdict import judge_among
from autotune.study.compiling_seconds import WARM_SHARE, CompilingSeconds
from autotune.study.history import History
from autotune.study.view import load_view
from autotune.testing import FakeLauncher
from tests.worlds import config, declared, environment, measured, searched, study_request, trial

PLAIN, COMPILED = config(64), config(64, compile_mode="default")


def compiled(seconds=30.0, *, cold=True, number=0, rate=100.0, of=COMPILED, **counts):
    """A probe of `of` that compiled for so long, in 5 s besides."""
    seen = Compilation(
        **{"frames": 1, "graphs": 1, "graph_breaks": 0, "recompilations": 0, **counts}, seconds=seconds,
        cache_hits=int(not cold), cache_misses=int(cold),
    )  # fmt: skip
    result = measured(rate)
    result = replace(result, measurement=replace(result.measurement, compilation=seen), elapsed_seconds=5.0 + seconds)
    return trial(result, number=number, **of.values)


def test_before_a_probe_the_knob_guesses_and_nothing_else_compiles():
    known = CompilingSeconds([])

    assert known.next(PLAIN) == 0
    assert known.next(COMPILED) == PRIOR_SECONDS["default"]


def test_every_knob_that_takes_time_before_the_first_step_counts():
    known = CompilingSeconds([])

    seconds = {
        (compiles, times): known.next(config(64, compile_mode=compiles, cudnn_benchmark=times))
        for compiles in (None, "default")
        for times in (False, True)
    }

    assert seconds == {
        (None, False): 0, (None, True): TIMING_SECONDS,
        ("default", False): PRIOR_SECONDS["default"], ("default", True): PRIOR_SECONDS["default"] + TIMING_SECONDS,
    }  # fmt: skip


def test_a_first_probe_takes_what_others_of_its_mode_took():
    known = CompilingSeconds([compiled(30.0), compiled(20.0, of=config(32, compile_mode="default"))])

    assert known.next(config(128, compile_mode="default")) == 25.0
    assert known.next(config(128, compile_mode="regional")) == PRIOR_SECONDS["regional"]


def test_a_second_probe_finds_the_code_in_the_cache():
    assert CompilingSeconds([compiled(30.0)]).next(COMPILED) == 30.0 * WARM_SHARE

    known = CompilingSeconds([compiled(30.0), compiled(2.0, cold=False, number=1)])

    assert known.next(COMPILED) == 2.0
    assert known.cold(COMPILED) == 30.0


def test_what_timing_algorithms_takes_is_guessed_beside_compiling_until_a_probe_shows_it():
    timing, both = config(64, cudnn_benchmark=True), config(64, cudnn_benchmark=True, compile_mode="default")

    assert CompilingSeconds([]).next(timing) == TIMING_SECONDS
    assert CompilingSeconds([compiled(30.0)]).next(both) == TIMING_SECONDS + 30.0
    seen = measured(100.0)
    seen = replace(seen, measurement=replace(seen.measurement, warmup_seconds=(6.2, 0.7, 0.2)))
    known = CompilingSeconds([trial(seen, **timing.values)])
    assert known.next(timing) == 0  # its own pace has it
    assert known.next(config(32, cudnn_benchmark=True)) == pytest.approx(6.0)


def test_a_history_expects_a_probe_to_compile_besides():
    history = History(study_request(), [trial(measured(100.0), **PLAIN.values)])
    probe_budget = ProbeBudget()
    plain = history.times.expected_seconds(probe_budget, PLAIN)

    assert history.times.expected_seconds(probe_budget, COMPILED) == pytest.approx(plain + PRIOR_SECONDS["default"])

    history.add(compiled(80.0, number=1))

    assert history.times.expected_seconds(probe_budget, COMPILED) == pytest.approx(plain + 80.0 * WARM_SHARE)
    assert history.times.expected_seconds(probe_budget, config(64, channels_last=True)) == pytest.approx(plain)


def test_compiling_is_no_part_of_what_search_probes_usually_take():
    plain = [trial(measured(100.0), **PLAIN.values)]

    duration = History(study_request(), [*plain, compiled(90.0, number=1)]).times.probe_duration

    assert duration == History(study_request(), plain).times.probe_duration


@pytest.mark.parametrize(
    ("text", "length"), [("12h", "12h"), (" 1H 30m", "1h30m"), ("30 epochs", "30epochs"), ("1epoch", "1epoch")]
)
def test_a_run_length_is_a_time_or_epochs(text, length):
    assert parse_run_length(text) == length


@pytest.mark.parametrize("text", ["12", "0epochs", "epochs", "-3epochs", "soon", "1e999epochs"])
def test_other_run_lengths_are_refused_with_the_forms(text):
    with pytest.raises(ValueError, match="30epochs"):
        parse_run_length(text)


def test_a_share_of_the_planned_run_is_compiling():
    assert training_share("10m", 60.0, 100.0, None) == pytest.approx(0.9)
    assert training_share("2epochs", 60.0, 100.0, 27_000) == pytest.approx(0.9)  # 540 s of training
    assert training_share(None, 60.0, 100.0, 27_000) == 1
    assert training_share("10s", 60.0, 100.0, None) > 0  # a score is above 0


def test_it_pays_when_both_have_trained_on_as_much():
    assert break_even_seconds(60.0, 1.5) == pytest.approx(180.0)
    assert break_even_seconds(60.0, 1.0) is None


@pytest.mark.parametrize(("run_length", "share"), [(None, 1.0), ("10m", 0.9), ("1h", 59 / 60)])
def test_the_score_of_a_planned_run_counts_a_cold_compilation_although_this_probe_was_warm(run_length, share):
    request = study_request(goal=Goal(global_batch=64, run_length=run_length))
    cold, warm = compiled(60.0), compiled(2.0, cold=False, number=1)

    verdict = judge_among(warm, [cold], request)

    assert verdict.value == pytest.approx(100.0 * share)
    assert verdict.training_share == pytest.approx(share)


@pytest.mark.parametrize(
    ("place", "cache"),
    [
        ("study/probes/0007", "study/compiled"),
        ("study/inspect", "study/compiled"),
        ("race/inspect/0000", "race/compiled"),
        ("autotune-x1y2", "autotune-x1y2/compiled"),  # in the system's folder for temporary files
    ],
)
def test_all_of_a_study_share_generated_code_and_nothing_lies_outside(place, cache, tmp_path):
    request = InspectRequest() if "probes" not in place else ProbeRequest(target="m", config=PLAIN, device="cpu")

    assert cache_of(request, tmp_path / place) == tmp_path / cache


def test_generated_code_is_taken_away_when_the_search_ends(tmp_path):
    class Compiling(FakeLauncher):
        def run(self, request, folder):
            made = cache_of(request, folder)
            made.mkdir(exist_ok=True)
            (made / "kernel.so").write_bytes(b"")
            return super().run(request, folder)

    searched(tmp_path / "study", Compiling(facts=declared()), probes=2)

    assert not (tmp_path / "study" / "compiled").exists()


def test_a_study_of_an_earlier_version_goes_on_without_the_knob(tmp_path):
    searched(tmp_path / "study", FakeLauncher(facts=declared()), probes=2)  # no word of compilers

    searched(tmp_path / "study", FakeLauncher(facts=declared(), environment=environment(no_compiler="")), probes=4)

    assert {trial.config["compile_mode"] for trial in load_view(tmp_path / "study").trials} == {None}


def test_epochs_of_unknown_length_are_refused(tmp_path):
    launcher = FakeLauncher(facts=replace(declared(), dataset_samples=None, data="iterable"))

    with pytest.raises(UsageError, match="--run-length 30epochs says epochs"):
        searched(tmp_path / "study", launcher, run_length="30epochs")
