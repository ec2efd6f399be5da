"""What an answer says of torch.compile."""

from msgspec.structs import replace

from autotune.answer.compile_advice import doubts, with_compile_advice
from autotune.core.codes import Code
from autotune.core.records import Goal
from autotune.study.history import History
from autotune.study.recommendation import Confirmation
from tests.reporting import recommendation
from tests.study.test_compiling_seconds import COMPILED, PLAIN, compiled
from tests.worlds import measured, study_request, trial

COLD, WARM = compiled(60.0), compiled(2.0, cold=False, number=1)


def confirmed(config, rate):
    return Confirmation(
        config=config, samples_per_second=rate, rounds=(rate,), trials=(0,), peak_bytes=1, data_wait_share=0.0
    )


def advised(*trials, rate=150.0, others=(PLAIN, 100.0), goal=None):
    answer = recommendation(
        params=COMPILED.values, samples_per_second=rate,
        confirmations=(confirmed(COMPILED, rate), confirmed(*others)) if others else (confirmed(COMPILED, rate),),
        reasons=(), warnings=(),
    )  # fmt: skip
    request = study_request(goal=goal or Goal(global_batch=64))
    return with_compile_advice(answer, History(request, trials))


def test_the_break_even_is_told_against_the_fastest_without_it():
    said = advised(COLD, WARM).reasons[0]

    assert said.code is Code.COMPILING
    assert said.numbers == {"cold_seconds": 60.0, "warm_seconds": 2.0, "pays_seconds": 180.0}
    assert "it pays after 3:00 min" in said.text


def test_with_a_planned_run_its_share_is_told():
    said = advised(COLD, goal=Goal(global_batch=64, run_length="10m")).reasons[0]

    assert "10.0% of a run of 10m, which the choice counts" in said.text


def test_without_a_rival_nothing_is_said_to_pay():
    assert "pays" not in advised(COLD, others=()).reasons[0].text
    assert "pays" not in advised(COLD, rate=90.0).reasons[0].text


def test_an_answer_that_compiles_nothing_is_left_as_it_is():
    answer = recommendation(params=PLAIN.values)

    assert with_compile_advice(answer, History(study_request(), [trial(measured(), **PLAIN.values)])) is answer


def test_zero_graphs_are_a_warning_and_cost_nothing():
    found = advised(compiled(0.1, graphs=0, frames=0))

    assert [one.code for one in found.warnings] == [Code.NOTHING_COMPILED]
    assert found.reasons == ()


def test_a_compilation_inside_the_window_is_a_warning_of_answer_and_probe():
    late = compiled(30.0, frames_in_window=2, seconds_in_window=3.0, number=1)

    found = advised(COLD, late)

    assert [one.code for one in found.warnings] == [Code.COMPILED_IN_WINDOW]
    assert found.warnings[0].numbers == {"frames": 2, "seconds": 3.0, "probes": 1, "of": 2}
    assert "2 frames inside the timed window" in doubts(late)
    assert doubts(COLD) == doubts(trial(measured(), **PLAIN.values)) == ""


def test_graph_breaks_are_told():
    said = advised(compiled(30.0, graph_breaks=2, graphs=3)).reasons[1]

    assert said.code is Code.GRAPH_BREAKS


def test_what_a_script_compiles_by_itself_is_doubted_too():
    late = replace(compiled(30.0, frames_in_window=1, seconds_in_window=1.0), config=PLAIN)
    answer = recommendation(params=PLAIN.values, warnings=(), reasons=())

    found = with_compile_advice(answer, History(study_request(), [late]))

    assert [one.code for one in found.warnings] == [Code.COMPILED_IN_WINDOW]
    assert found.reasons == ()
