"""Stories of studies with more than one answer: the better supported one stands, and none is lost."""

import msgspec
import pytest

from autotune.core import codec
from autotune.core.records import Config, Limit
from autotune.core.requests import ProbeRequest
from autotune.core.results import Outcome
from autotune.study import disk
from autotune.study.answers import answered_probes, is_better_supported, keep_answer
from autotune.study.recommendation import Recommendation, Undecided, load_result
from autotune.testing import FakeLauncher, Machine
from tests.worlds import Listener, declared, environment, searched

SMALL = {
    "tune": ("amp_dtype", "num_workers"),
    "limits": {"amp_dtype": Limit(values=(None, "bfloat16")), "num_workers": Limit(values=(0, 4))},
}


def _earlier(folder, number=1):
    return codec.read(folder / disk.EARLIER.format(number), Recommendation)


def _poorer(answer):
    """The same answer, had there been time for two rounds only."""
    return msgspec.structs.replace(answer, rounds=2, relative_half_width=0.4)


def test_a_search_without_time_does_not_replace_a_well_supported_answer(tmp_path):
    first = searched(tmp_path, FakeLauncher(facts=declared()), time_budget_seconds=600, **SMALL)
    before, listener = (tmp_path / disk.BEST).read_bytes(), Listener()
    noisy = FakeLauncher(facts=declared(), machine=Machine(noise_between_probes=0.05))

    second = searched(tmp_path, noisy, listener, time_budget_seconds=2, **SMALL)

    assert (second.params, second.rounds) == (first.params, first.rounds)
    assert listener.answer == second
    assert (tmp_path / disk.BEST).read_bytes() == before
    assert _earlier(tmp_path).rounds < first.rounds
    (told,) = [note for note in listener.notes if note.startswith("The earlier recommendation is kept")]
    assert f"{first.rounds} interleaved rounds" in told
    assert "best-1.json" in told


def test_an_answer_that_is_as_well_supported_replaces_the_earlier_one_which_is_kept(tmp_path):
    first = searched(tmp_path, FakeLauncher(facts=declared()), time_budget_seconds=45, **SMALL)

    second = searched(tmp_path, FakeLauncher(facts=declared()), time_budget_seconds=1e6, **SMALL)
    third = searched(tmp_path, FakeLauncher(facts=declared()), time_budget_seconds=1e6, **SMALL)

    assert load_result(tmp_path) == third
    assert [_earlier(tmp_path, number) for number in (1, 2)] == [first, second]


def test_an_answer_of_another_machine_never_stands(tmp_path):
    """A clone of a study holds best.json alone."""
    there, here = tmp_path / "there", tmp_path / "here"
    first = searched(there, FakeLauncher(facts=declared()), time_budget_seconds=1e6, **SMALL)
    here.mkdir()
    (here / disk.BEST).write_bytes((there / disk.BEST).read_bytes())
    other = environment(device_name="Small GPU")

    second = searched(here, FakeLauncher(facts=declared(), environment=other), time_budget_seconds=2, **SMALL)

    assert second.environment.device_name == "Small GPU"
    assert load_result(here) == second
    assert _earlier(here) == first


def test_an_earlier_answer_that_fails_now_does_not_stand(tmp_path):
    first = searched(tmp_path, FakeLauncher(facts=declared()), time_budget_seconds=600, **SMALL)
    assert first.params["amp_dtype"] == "bfloat16"
    fails = FakeLauncher(
        facts=declared(), faults={ProbeRequest: lambda asked: Outcome.OOM_HOST if asked.config["amp_dtype"] else None}
    )

    second = searched(tmp_path, fails, time_budget_seconds=60, **SMALL)

    assert second.params["amp_dtype"] is None
    assert load_result(tmp_path) == second
    assert _earlier(tmp_path) == first


def test_what_was_confirmed_for_an_answer_that_does_not_stand_is_no_confirmation_broken_off(tmp_path):
    searched(tmp_path, FakeLauncher(facts=declared()), time_budget_seconds=600, **SMALL)
    searched(tmp_path, FakeLauncher(facts=declared()), time_budget_seconds=2, **SMALL)
    listener = Listener()

    searched(tmp_path, FakeLauncher(facts=declared()), listener, time_budget_seconds=2, **SMALL)

    assert answered_probes(tmp_path, disk.read_request(tmp_path)) == len(disk.read_trials(tmp_path))
    assert not any("interrupted confirmation" in note for note in listener.notes)


def test_a_damaged_answer_is_kept_as_it_was_and_replaced(tmp_path):
    searched(tmp_path, FakeLauncher(facts=declared()), time_budget_seconds=600, **SMALL)
    (tmp_path / disk.BEST).write_text("{")
    listener = Listener()

    answer = searched(tmp_path, FakeLauncher(facts=declared()), listener, time_budget_seconds=2, **SMALL)

    (told,) = [one for one in listener.notes if "best.json cannot be read" in one]
    assert told.endswith(" The answer of this search replaces it; the file is kept as a best-N.json.")
    assert load_result(tmp_path) == answer
    assert (tmp_path / disk.EARLIER.format(1)).read_text() == "{"


@pytest.fixture(scope="module")
def answer(tmp_path_factory):
    return searched(tmp_path_factory.mktemp("study"), FakeLauncher(facts=declared()), time_budget_seconds=600, **SMALL)


def _baseline_alone(answer):
    kept = tuple(one for one in answer.confirmations if dict(one.config.values) == answer.baseline)
    return msgspec.structs.replace(answer, confirmations=kept, relative_half_width=0.001, rounds=12, achieved=None)


def test_fewer_rounds_and_a_wider_interval_are_worse_and_one_of_them_alone_is_not(answer):
    poorer = _poorer(answer)
    wider = msgspec.structs.replace(answer, relative_half_width=0.4)
    fewer = msgspec.structs.replace(answer, rounds=2)

    assert is_better_supported(answer, poorer)
    assert not is_better_supported(poorer, answer)
    assert not is_better_supported(answer, answer)
    assert not is_better_supported(answer, wider)
    assert not is_better_supported(answer, fewer)


def test_what_compared_the_baseline_with_nothing_is_worse_however_narrow(answer):
    assert is_better_supported(answer, _baseline_alone(answer))
    assert not is_better_supported(_baseline_alone(answer), _poorer(answer))


def test_a_gain_that_surely_exceeds_the_earlier_one_needs_no_more_rounds(answer):
    gain = msgspec.structs.replace(answer.achieved, gain_low=9.0, gain_high=11.0)

    assert not is_better_supported(answer, msgspec.structs.replace(_poorer(answer), achieved=gain))


def test_what_is_open_because_others_kept_the_baseline_from_the_cores_replaces_nothing_that_was_decided(answer):
    rival = Undecided(config=Config(values=answer.params), gain=10.0, gain_low=4.0, gain_high=20.0, rounds=30)
    beside = msgspec.structs.replace(rival, beside_others=True)
    busy = msgspec.structs.replace(answer, rounds=30, undecided=beside)

    assert is_better_supported(answer, busy)
    assert not is_better_supported(busy, answer)
    assert not is_better_supported(busy, busy)
    assert not is_better_supported(answer, msgspec.structs.replace(answer, rounds=30, undecided=rival))


def test_rounds_are_not_replaced_by_single_probes_whatever_their_intervals(answer):
    rounds = msgspec.structs.replace(answer, rounds=2, relative_half_width=0.6)
    single = msgspec.structs.replace(answer, rounds=1, relative_half_width=0.03)
    rival = Undecided(config=Config(values=answer.params), gain=10.0, gain_low=4.0, gain_high=20.0, rounds=2)
    busy = {"undecided": msgspec.structs.replace(rival, beside_others=True)}

    for gain in (None, msgspec.structs.replace(answer.achieved, gain_low=None, gain_high=None)):
        rounds, single = (msgspec.structs.replace(one, achieved=gain, speedup_low=None) for one in (rounds, single))
        assert is_better_supported(rounds, single)
        assert is_better_supported(msgspec.structs.replace(rounds, relative_half_width=None), single)
        assert is_better_supported(msgspec.structs.replace(rounds, **busy), msgspec.structs.replace(single, **busy))
        assert not is_better_supported(single, rounds)


def _kept(folder, earlier, later, fails=False):
    codec.write(folder / disk.BEST, earlier)
    return keep_answer(folder, later, lambda config: fails)


def test_an_answer_of_single_probes_is_not_said_to_rest_on_a_round(tmp_path, answer):
    single = msgspec.structs.replace(answer, rounds=1)

    kept, told = _kept(tmp_path, single, _baseline_alone(answer))

    assert kept.params == single.params
    assert "it rests on single probes, this one on the baseline alone" in told


def test_of_an_earlier_answer_that_is_kept_the_probes_are_those_of_the_study_today(tmp_path, answer):
    now = msgspec.structs.replace(_poorer(answer), probes=6, seconds=7.0)

    kept, _ = _kept(tmp_path, answer, now)

    assert (kept.probes, kept.seconds, kept.rounds) == (6, 7.0, answer.rounds)
    assert codec.read(tmp_path / disk.BEST, Recommendation) == answer


def test_fewer_rounds_that_surely_gained_more_do_not_replace_an_answer_in_silence(tmp_path, answer):
    gain = msgspec.structs.replace(answer.achieved, gain_low=9.0, gain_high=11.0)

    _, told = _kept(tmp_path, answer, msgspec.structs.replace(_poorer(answer), achieved=gain))
    _, again = _kept(tmp_path, answer, answer)

    assert told == "This recommendation replaces the earlier one, which is saved as best-1.json."
    assert again == ""


@pytest.mark.parametrize("since", ["the code has changed", "its settings have failed"])
def test_a_better_supported_answer_is_never_replaced_in_silence(tmp_path, answer, since):
    before = msgspec.structs.replace(answer, target_digest="a", relative_half_width=0.01)
    later = msgspec.structs.replace(_poorer(answer), target_digest="b" if "code" in since else "a")

    kept, told = _kept(tmp_path, before, later, fails="failed" in since)

    assert kept == codec.read(tmp_path / disk.BEST, Recommendation) == later
    assert _earlier(tmp_path) == before
    assert told == (
        "This recommendation replaces the earlier one, which is saved as best-1.json. That one rests on "
        f"{answer.rounds} interleaved rounds (± 1%), this one on 2 interleaved rounds (± 40%), but {since} since."
    )


@pytest.mark.parametrize("later", ["a", "a+c+m:2"])
def test_imports_that_are_not_found_are_no_change_of_the_code(tmp_path, answer, later):
    before = msgspec.structs.replace(answer, target_digest="a+b+m:2,n:1", relative_half_width=0.01)

    kept, told = _kept(tmp_path, before, msgspec.structs.replace(_poorer(answer), target_digest=later))

    assert kept.rounds == before.rounds
    assert told.startswith("The earlier recommendation is kept")
