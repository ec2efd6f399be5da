"""The check of answers: which plain loops it asks for, how it judges them, and that it leaves no process behind."""

import dataclasses
import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace

import autotune
from autotune.knobs import defaults
from benchmarks.answers_check import changes, judging, searching, training
from benchmarks.answers_check.__main__ import arguments, begun
from benchmarks.answers_check.changes import BATCH
from benchmarks.answers_check.judging import Standing
from benchmarks.answers_check.records import Answers, Round, Search, keep, key, known, values_of
from benchmarks.answers_check.targets import TARGETS, Target, chosen
from benchmarks.answers_check.telling import lines
from benchmarks.surfaces.plain import Trained

STUDIES = Path(__file__).parents[2] / "studies"
HELD = Target(
    name="held", what="declared", target="held.py", global_batch=64, memory_limit=None, usual=16,
    grid={"batch_size": (16, 32, 64), "amp_dtype": (None, "bfloat16")},
)  # fmt: skip
FREE = Target(
    name="free", what="nothing declared", target="free.py", global_batch=32, memory_limit=None, usual=32,
    grid={"num_threads": (None, 1)}, curve=(32, 64, 128, 256, 512),
)  # fmt: skip
WOBBLE = (1.0, 1.002, 0.998, 1.001, 0.999)  # of a round; one of them per configuration and round, in turn


def said(**values):
    return key({"batch_size": 32, **values})


def machine(text):
    """samples/s: bf16 and one thread are worth much, channels_last nothing, full speed needs batches of 128."""
    values = values_of(text)
    rate = 1000 * min(1.0, values["batch_size"] / 128) ** 0.5
    rate *= 1.5 if values["amp_dtype"] else 1.0
    return rate * (1.2 if values["num_threads"] == 1 else 1.0)


def found(number, **values):
    usual = {**defaults(), "batch_size": 32}
    return Search(
        number=number, seconds=60.0, values={**usual, **values}, baseline=usual, finished_at="2026-11-22T00:00:00"
    )


def failed(number):
    return Search(number=number, seconds=9.0, failure="exit status 3: too noisy", finished_at="2026-11-22T00:00:00")


def measured(target, *searches, rate=machine, rounds=5):
    """All answers of these searches, screened and run in rounds on a machine in closed form."""
    answers = Answers(target=target.name, budget_seconds=60.0, machine="a fake", searches=searches)
    answers = replace(answers, screened={config: rate(config) for config in changes.candidates(answers, target)})
    wobble = itertools.cycle(WOBBLE[:4])
    ran = changes.wanted(answers, target)

    def one():
        rates = {config: rate(config) for config in ran}
        return Round(rates={c: each if isinstance(each, str) else each * next(wobble) for c, each in rates.items()})

    return replace(answers, rounds=tuple(one() for _ in range(rounds)))


def held(number, **values):
    """An answer of `HELD`, which starts from 16 × 4."""
    started = {**defaults(), "batch_size": 16, "gradient_accumulation_steps": 4}
    return replace(found(number), values={**started, **values}, baseline=started)


def test_eight_targets_of_different_kinds_with_small_grids():
    assert len(TARGETS) == len({target.name for target in TARGETS}) == 8
    assert all(4 <= len(target.cells()) <= 8 for target in TARGETS)
    assert sum(not target.declares_batch for target in TARGETS) >= 1


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_every_cell_of_a_grid_holds_the_global_batch(target):
    assert {changes.samples(key(cell)) for cell in target.cells()} == {target.global_batch}


def test_a_target_that_is_none_is_named():
    with pytest.raises(ValueError, match=r"no target is called tabuler: there are tabular, .* and all"):
        chosen("restorer,tabuler")


def test_a_key_says_what_is_not_the_default_and_comes_back_complete():
    values = {**defaults(), "batch_size": 32, "num_workers": 2}

    assert key(values) == '{"batch_size": 32, "num_workers": 2}'
    assert values_of(key(values)) == values


def test_micro_batch_and_accumulation_are_one_change():
    one, other = said(batch_size=16, gradient_accumulation_steps=4), said(batch_size=64, num_threads=1)

    assert changes.changes(one, other) == [BATCH, ("num_threads",)]
    assert changes.put(one, BATCH, other) == said(batch_size=64)


def test_each_change_of_an_answer_is_reverted_alone():
    search = held(1, batch_size=64, gradient_accumulation_steps=1, num_threads=1)

    assert changes.reverted(key(search.values), search.baseline) == {
        BATCH: said(batch_size=16, gradient_accumulation_steps=4, num_threads=1),
        ("num_threads",): said(batch_size=64),
    }


@pytest.mark.parametrize(
    ("one", "other", "near"),
    [((64, 1), (32, 1), True), ((64, 1), (16, 4), False), ((32, 2), (64, 1), True), ((32, 1), (32, 4), False)],
)
def test_batches_are_near_within_a_power_of_two_of_micro_and_global_batch(one, other, near):
    configs = [said(batch_size=micro, gradient_accumulation_steps=steps) for micro, steps in (one, other)]

    assert changes.is_near(*configs) is near


def test_what_a_rival_does_and_an_answer_does_not_is_tried_alone():
    answers = measured(HELD, held(1, batch_size=64, gradient_accumulation_steps=1))

    tried = changes.added(answers.answered[0], answers, HELD)

    assert tried == {("amp_dtype",): said(batch_size=64, amp_dtype="bfloat16")}


def test_arithmetic_that_paired_losses_excluded_is_no_rival():
    search = replace(held(1), refused=({"amp_dtype": "bfloat16"},))

    answers = measured(HELD, search)

    assert answers.screened
    assert not [config for config in changes.wanted(answers, HELD) if values_of(config)["amp_dtype"]]


def test_where_no_batch_is_declared_rivals_have_that_of_the_answer():
    answers = measured(FREE, found(1, batch_size=128), found(2, batch_size=128), found(3, batch_size=256))

    for answer in answers.answered:
        assert {changes.samples(rival) for rival in changes.rivals(answer, answers, FREE)} == {changes.samples(answer)}
    assert {changes.samples(config) for config in answers.screened} == {128}


def test_the_interleaved_rounds_hold_all_that_is_judged():
    answers = measured(FREE, found(1, batch_size=128), found(2, batch_size=128, num_threads=1), found(0))

    ran = changes.wanted(answers, FREE)

    assert len(ran) == len(set(ran))
    assert {said(batch_size=size) for size in FREE.curve} <= set(ran)
    assert {*answers.answered, *changes.swapped(*answers.answered).values()} <= set(ran)


def test_nothing_is_run_for_a_target_whose_searches_all_failed():
    answers = Answers(target="held", budget_seconds=60.0, machine="a fake", searches=(failed(1), failed(0)))

    assert changes.candidates(answers, HELD) == changes.wanted(answers, HELD) == ()


def test_an_answer_as_fast_as_the_best_holds():
    finding = judging.speed(
        measured(HELD, held(1, batch_size=64, gradient_accumulation_steps=1, amp_dtype="bfloat16")), HELD
    )

    assert finding.standing is Standing.HOLDS
    assert finding.shares == pytest.approx([1.0], abs=0.005)


def test_an_answer_that_misses_a_faster_configuration_fails():
    finding = judging.speed(measured(HELD, held(1, batch_size=64, gradient_accumulation_steps=1)), HELD)

    assert finding.standing is Standing.FAILS
    assert finding.shares == pytest.approx([1 / 1.5], abs=0.01)


def test_an_answer_that_dies_in_the_plain_loop_is_worth_nothing():
    best = {"batch_size": 64, "gradient_accumulation_steps": 1}

    answers = measured(HELD, held(1, **best), rate=lambda c: "killed" if c == said(**best) else machine(c))

    assert judging.speed(answers, HELD).shares == (0.0,)


@pytest.mark.parametrize("rounds", [0, judging.LEAST_ROUNDS - 1])
def test_too_few_rounds_judge_nothing(rounds):
    answers = measured(FREE, found(1, batch_size=128, num_threads=1), rounds=rounds)

    standings = [judge(answers, FREE).standing for judge in (judging.speed, judging.minimal, judging.at_knee)]

    assert standings == [Standing.NOT_RUN] * 3


def test_answers_that_differ_in_what_changes_nothing_are_the_same():
    answers = measured(FREE, found(1, batch_size=128), found(2, batch_size=64, channels_last=True))

    finding = judging.repeats(answers, FREE)

    assert (finding.standing, finding.text) == (Standing.HOLDS, "2 alike, in what matters")


def test_answers_that_differ_in_what_is_worth_much_are_not():
    answers = measured(FREE, found(1, batch_size=128), found(2, batch_size=128, num_threads=1))

    finding = judging.repeats(answers, FREE)

    assert finding.standing is Standing.FAILS
    assert finding.text.startswith("threads auto or threads 1 (+20.")


def test_batches_further_apart_than_a_power_of_two_are_different_answers():
    finding = judging.repeats(measured(FREE, found(1, batch_size=32), found(2, batch_size=128)), FREE)

    assert (finding.standing, finding.text) == (Standing.FAILS, "batch 32 or batch 128")


@pytest.mark.parametrize(
    ("search", "standing"),
    [
        (found(0, batch_size=128, num_threads=1), Standing.HOLDS),
        (found(0, batch_size=128), Standing.FAILS),
        (replace(found(0, batch_size=128), undecided="undecided between a and b"), Standing.HOLDS),
        (failed(0), Standing.FAILS),
    ],
)
def test_beside_a_load_an_answer_is_the_same_or_undecided(search, standing):
    answers = measured(FREE, found(1, batch_size=128, num_threads=1), search)

    assert judging.beside_load(answers, FREE).standing is standing


def test_a_change_is_kept_rightly_if_it_is_measurably_worth_it():
    answers = measured(
        HELD, held(1, batch_size=64, gradient_accumulation_steps=1, amp_dtype="bfloat16", channels_last=True)
    )

    kept = {change.what: change.standing for change in judging.ablated(answers, HELD) if change.is_kept}

    assert kept == {
        "batch 64, not batch 16 ×4": Standing.HOLDS,
        "precision bf16, not precision fp32": Standing.HOLDS,
        "layout nhwc, not layout nchw": Standing.FAILS,
    }
    assert judging.minimal(answers, HELD).text == "2 of 3 kept, 0 of 0 dropped"


def test_a_change_without_which_nothing_runs_is_kept_rightly():
    def rate(config):
        return machine(config) if values_of(config)["amp_dtype"] else "out of memory"

    answers = measured(HELD, held(1, amp_dtype="bfloat16"), rate=rate)

    (change,) = [change for change in judging.ablated(answers, HELD) if change.is_kept]
    assert (change.standing, change.note) == (Standing.HOLDS, "does not run without: out of memory")


def test_a_dropped_change_that_is_worth_more_than_2_percent_fails():
    answers = measured(HELD, held(1, batch_size=64, gradient_accumulation_steps=1))

    (change,) = [change for change in judging.ablated(answers, HELD) if not change.is_kept]

    assert (change.what, change.standing) == ("precision bf16, not precision fp32", Standing.FAILS)


@pytest.mark.parametrize(
    ("seconds", "standing"), [(30.0, Standing.HOLDS), (65.9, Standing.HOLDS), (66.1, Standing.FAILS)]
)
def test_a_budget_may_be_overrun_by_a_tenth(seconds, standing):
    answers = measured(FREE, replace(found(1), seconds=seconds), rounds=0)

    assert judging.punctual(answers, FREE).standing is standing


@pytest.mark.parametrize(
    ("batch", "accumulation", "standing"),
    [(128, 1, Standing.HOLDS), (64, 1, Standing.HOLDS), (256, 1, Standing.HOLDS), (512, 1, Standing.FAILS),
     (32, 1, Standing.FAILS), (64, 2, Standing.FAILS)],
)  # fmt: skip
def test_where_no_batch_is_declared_the_knee_of_the_curve_is_wanted(batch, accumulation, standing):
    answers = measured(FREE, found(1, batch_size=batch, gradient_accumulation_steps=accumulation))

    finding = judging.at_knee(answers, FREE)

    assert finding.standing is standing
    assert finding.text.endswith("the knee is 128")


def test_where_a_batch_is_declared_there_is_no_knee():
    assert judging.at_knee(measured(HELD, held(1)), HELD) is None


def test_the_table_says_what_failed_and_what_was_not_run():
    answers = measured(FREE, found(1, batch_size=128, num_threads=1), failed(2))

    text = "\n".join(lines((HELD, FREE), {"free": answers}, searches=3))

    assert "failed: exit status 3: too noisy" in text
    assert "Not run of held: anything." in text
    assert "Not run of free: 1 of 3 quiet searches, the search beside a load." in text
    assert "(a) as fast as the best known (97 % in the median, 93 % always): does not hold: " in text
    assert "(b) beside a load the same, or undecided: not run" in text
    assert "(e) with nothing declared the knee, without accumulation: does not hold: " in text


def test_the_table_says_what_holds():
    best = {"batch_size": 128, "num_threads": 1}
    answers = measured(FREE, *(found(number, **best) for number in (1, 2, 3, 0)))

    told = [line for line in lines((FREE,), {"free": answers}, searches=3) if line.startswith("(")]

    assert len(told) == 6
    assert all(": holds: " in line for line in told)


def test_what_holds_of_a_few_targets_holds_so_far():
    answers = measured(FREE, found(1, batch_size=128, num_threads=1))

    told = list(lines((FREE, HELD), {"free": answers}, searches=1))

    assert "(d) the budget is kept within 10 %: holds so far: of 2 targets 1 hold, 1 not run" in told


@pytest.mark.parametrize(("targets", "standing"), [(8, "holds"), (7, "does not hold")])
def test_one_target_of_eight_may_differ_between_searches(targets, standing):
    same = measured(FREE, *(found(number, batch_size=128, num_threads=1) for number in (1, 2, 0)))
    other = measured(FREE, found(1, batch_size=128), found(2, batch_size=128, num_threads=1), found(0))
    all_of = [named(str(number)) for number in range(targets)]

    told = lines(all_of, {target.name: other if target.name == "0" else same for target in all_of}, searches=2)

    (line,) = [line for line in told if line.startswith("(b) the same")]
    assert line.partition(": ")[2].startswith(f"{standing}: of {targets} targets {targets - 1} hold, 1 do not")


def named(name):
    return dataclasses.replace(FREE, name=name)


def test_a_table_of_nothing_says_so():
    assert list(lines((HELD,), {}, searches=3)) == ["Nothing was run yet."]


def test_answers_survive_their_file(tmp_path):
    answers = measured(FREE, found(1, batch_size=128), failed(2))

    keep(tmp_path / "new", answers)

    assert known(tmp_path / "new", "free") == answers
    assert known(tmp_path, "held") is None


def test_answers_of_another_time_budget_are_not_gone_on_with(tmp_path):
    keep(tmp_path, Answers(target="free", budget_seconds=15.0, machine="a fake"))

    with pytest.raises(SystemExit, match=r"free\.json was made with --seconds 15\. Use that"):
        begun(FREE, arguments(["--folder", str(tmp_path), "--seconds", "60"]))


def test_a_stage_that_is_none_is_named(capsys):
    with pytest.raises(SystemExit):
        arguments(["--stages", "search,tabel"])

    assert "no stage is called tabel: there are search, load, plain, table" in capsys.readouterr().err


@pytest.fixture
def loops(monkeypatch):
    """Plain loops on the machine in closed form, which take five seconds each; a list of what was run."""
    ran = []

    def in_turn(task, configs, seconds, rounds):
        ran.extend(configs)
        return {text: Trained(rates=[machine(text)] * rounds) for text in configs}

    monkeypatch.setattr(training.plain, "in_turn", in_turn)
    monkeypatch.setattr(training, "busy_share", lambda: 0.0)
    return ran


def searched_once():
    return Answers(
        target="held", budget_seconds=60.0, machine="a fake", searches=(held(1, amp_dtype="bfloat16"),)
    )  # fmt: skip


def test_plain_loops_go_on_where_time_ended_them(loops):
    answers, kept = searched_once(), []

    def called(answers, minutes):
        effort = training.Effort(seconds=3.0, rounds=2, minutes=minutes)
        return training.trained(HELD, answers, effort, kept.append, clock=lambda: 5.0 * len(loops))

    partly = called(answers, minutes=0.25)
    screened = called(partly, minutes=0.25)
    done = called(screened, minutes=10)

    assert len(partly.screened) == 3
    assert set(screened.screened) == set(changes.candidates(answers, HELD))
    assert len(loops) == len(done.screened) + 2 * len(changes.wanted(done, HELD))
    assert [set(one.rates) for one in done.rounds] == [set(changes.wanted(done, HELD))] * 2
    assert kept[-1] == done == called(done, minutes=10)


def test_every_other_round_goes_backwards(loops):
    effort = training.Effort(seconds=3.0, rounds=2, minutes=10)

    done = training.trained(HELD, searched_once(), effort, lambda answers: None, clock=lambda: 0.0)

    ran = loops[len(done.screened) :]
    assert ran == [*changes.wanted(done, HELD), *reversed(changes.wanted(done, HELD))]


def test_what_died_in_a_round_is_not_trained_again(loops, monkeypatch):
    alive, dead = training.plain.in_turn, said(batch_size=16, gradient_accumulation_steps=4, amp_dtype="bfloat16")

    def in_turn(task, configs, seconds, rounds):
        ran = alive(task, configs, seconds, rounds)
        return {text: Trained(died="killed") if text == dead and seconds == 3.0 else ran[text] for text in ran}

    monkeypatch.setattr(training.plain, "in_turn", in_turn)
    effort = training.Effort(seconds=3.0, rounds=3, minutes=10)

    done = training.trained(HELD, searched_once(), effort, lambda answers: None, clock=lambda: 0.0)

    assert [one.rates[dead] for one in done.rounds] == ["killed"] * 3
    assert loops.count(dead) == 2  # screened, and once in the rounds


def gone(pid):
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def until(held):
    for _ in range(600):
        if held():
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize("name", ["slow_loader-xeon", "digits_cnn-epyc"])
def test_the_answer_of_a_study_is_read_with_what_was_confirmed_beside_it(name):
    asked = Search(number=1, seconds=60.0, finished_at="2026-11-22T00:00:00")

    search = searching.with_answer(asked, STUDIES / name)

    best = autotune.load_result(STUDIES / name)
    assert (search.values, search.baseline, search.speedup) == (best.params, best.baseline, best.speedup)
    assert best.params not in search.others
    assert (search.failure, search.undecided, search.seconds) == ("", "", 60.0)


def test_an_answer_whose_headline_says_undecided_is_read_as_such(monkeypatch):
    monkeypatch.setattr(searching, "headline", lambda best: "undecided between a and b, which was 3 % faster")
    asked = Search(number=0, seconds=60.0, finished_at="2026-11-22T00:00:00")

    search = searching.with_answer(asked, STUDIES / "slow_loader-xeon")

    assert search.undecided == "undecided between a and b, which was 3 % faster"


@pytest.mark.parametrize("said", ["keep it for now: only 1 of 9 was tried", "keep it: no other configuration ran"])
def test_an_answer_that_keeps_the_baseline_for_want_of_time_is_open(monkeypatch, said):
    monkeypatch.setattr(searching, "headline", lambda best: said)

    search = searching.with_answer(Search(number=0, seconds=60.0, finished_at=""), STUDIES / "slow_loader-xeon")

    assert search.undecided == said


def test_a_study_without_an_answer_is_a_failed_search(tmp_path):
    (tmp_path / "study.json").write_text("{}")

    search = searching.with_answer(Search(number=1, seconds=60.0, finished_at="2026-11-22T00:00:00"), tmp_path)

    assert search.failure
    assert search.values == {}


@pytest.mark.slow
def test_a_search_that_fails_is_a_result(tmp_path):
    target = broken_target(tmp_path, "raise RuntimeError('no data here')")

    search = searching.searched(target, 1, 5.0, tmp_path)

    assert search.failure.startswith("exit status 2: broken.py:1 in <module>: RuntimeError: no data here")
    assert search.values == {}
    assert (tmp_path / "runs" / "broken-1.log").read_text()


def broken_target(folder, code):
    path = folder / "broken.py"
    path.write_text(code)
    return Target(name="broken", what="broken", target=str(path), global_batch=32, memory_limit=None, usual=32)


@pytest.mark.slow
def test_a_planted_load_keeps_one_core_busy_and_ends_with_its_block():
    before = psutil.Process().children()  # such as the fork server that tests of one session share
    with searching.load():
        (process,) = set(psutil.Process().children()) - set(before)

        assert process.is_running()
        assert until(lambda: len(process.cpu_affinity()) == 1)

    assert gone(process.pid)


@pytest.mark.slow
def test_a_planted_load_ends_with_a_benchmark_that_is_killed():
    code = (
        "import psutil, time\nfrom benchmarks.answers_check.searching import load\n"
        "with load():\n print(psutil.Process().children()[0].pid, flush=True)\n time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as benchmark:
        pid = int(benchmark.stdout.readline())
        benchmark.kill()

    assert until(lambda: gone(pid))


@pytest.mark.slow
def test_a_benchmark_that_is_stopped_leaves_no_search_behind(tmp_path):
    target = broken_target(tmp_path, "import time\ntime.sleep(600)")
    code = (
        "from benchmarks.answers_check import __main__ as check\n"
        "from benchmarks.answers_check.targets import Target\n"
        f"target = Target(name='broken', what='', target={target.target!r}, global_batch=32, "
        "memory_limit=None, usual=32)\n"
        "check.chosen = lambda names: (target,)\ncheck.main()"
    )
    command = [sys.executable, "-c", code, "--folder", str(tmp_path), "--stages", "load"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as benchmark:
        ours = psutil.Process(benchmark.pid)
        assert until(lambda: list(tmp_path.glob("runs/broken-load/inspect*")) or gone(ours.pid))
        started = ours.children(recursive=True)
        os.kill(benchmark.pid, signal.SIGTERM)
        said = benchmark.communicate(timeout=60)[1]

    assert said.splitlines()[-1] == "Interrupted. The same command goes on."
    assert started
    assert until(lambda: all(gone(process.pid) for process in started))
    assert known(tmp_path, "broken") is None
