"""`--verify-goodput`: trainings after the answer, and what is said of them."""

import pytest
from msgspec.structs import replace

from autotune import folder as disk
from autotune.branches import BranchLoss, GoodputCheck
from autotune.errors import UsageError
from autotune.launch.fake import FakeLauncher, Machine
from autotune.results import Outcome
from autotune.tuning.recommendation import load_result
from autotune.tuning.verification import LEAST_SECONDS, MOST_SECONDS, branch_batches, sentences, verified
from tests.worlds import Listener, declared, searched

WANTED = {
    "objective": "time-to-quality", "global_batch": "free", "verify_goodput": True,
    "tune": ("batch_size",), "probes": 6, "time_budget_seconds": 1e5,
}  # fmt: skip


def world(**options):
    return FakeLauncher(machine=Machine(noise_scale=500.0), facts=declared(batch_size=32, num_workers=8), **options)


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    folder, launcher, listener = tmp_path_factory.mktemp("story") / "study", world(), Listener()
    return folder, launcher, listener, searched(folder, launcher, listener, **WANTED)


def again(story, launcher=None, left=1e4, folder=None):
    """The verification alone, of the story's answer as it was before."""
    place, _, _, answer = story
    unverified = replace(answer, batch_advice=replace(answer.batch_advice, check=None), reasons=answer.reasons[2:])
    return verified(unverified, folder or place, disk.read_request(place), launcher or world(), Listener(), left)


def elsewhere(story, tmp_path):
    """A study of the same noise scale, in which no branches were trained."""
    place = tmp_path / disk.NOISE_SCALE / "0000"
    place.mkdir(parents=True)
    for file in (story[0] / disk.NOISE_SCALE / "0000").iterdir():
        (place / file.name).write_bytes(file.read_bytes())
    return tmp_path


def test_the_answer_is_checked_by_trainings_from_the_same_state(story):
    folder, _, listener, answer = story

    ((asked, result),) = disk.read_branches(folder)
    check = answer.batch_advice.check
    assert [config.global_batch_size() for config in asked.branches][::2] == [32, answer.global_batch_size]
    assert {**answer.params, "batch_size": 32} == {**asked.branches[0].values, "gradient_accumulation_steps": 1}
    assert (asked.steps, asked.phi) == (answer.batch_advice.noise.steps, answer.batch_advice.noise.phi)
    assert asked.max_seconds == MOST_SECONDS
    assert result.elapsed_seconds < 1.1 * MOST_SECONDS
    assert check.verdict == "agrees"
    assert check.low < (1 + answer.global_batch_size / 500) / (1 + 32 / 500) < check.high
    assert answer.reasons[:2] == sentences(check)
    assert any("from the same weights on, for at most 300 s" in note for note in listener.notes)


def test_of_a_short_budget_a_fifth_is_kept_for_it(tmp_path):
    launcher, listener = world(), Listener()

    searched(tmp_path, launcher, listener, **{**WANTED, "probes": None, "time_budget_seconds": 200})

    ((asked, _),) = disk.read_branches(tmp_path)
    assert 40 <= asked.max_seconds < 80
    assert launcher.clock() <= 200 * 1.05
    assert "Of the time budget 40 s are kept for --verify-goodput." in listener.notes


def test_the_check_is_kept_in_the_answer(story):
    folder, _, _, answer = story

    assert load_result(folder).batch_advice == answer.batch_advice
    assert load_result(folder).reasons == answer.reasons


def test_trainings_that_the_study_has_are_not_made_again(story):
    before = len(disk.read_branches(story[0]))

    repeated = again(story, left=0.0)

    assert (repeated.batch_advice, repeated.reasons) == (story[3].batch_advice, story[3].reasons)
    assert len(disk.read_branches(story[0])) == before


def test_without_time_it_says_so_and_the_answer_stands(story, tmp_path):
    left = again(story, left=LEAST_SECONDS - 1, folder=elsewhere(story, tmp_path))

    assert left.warnings[0] == (
        "--verify-goodput did not check the global batch. Of the time budget 14 s were left, and it takes 15 s at "
        "least. The same command with a longer --time-budget goes on with it."
    )
    assert left.params == story[3].params
    assert not (tmp_path / disk.GOODPUT).exists()


def test_what_is_left_of_the_budget_is_all_that_it_takes(story, tmp_path):
    again(story, left=20.0, folder=elsewhere(story, tmp_path))

    ((asked, _),) = disk.read_branches(tmp_path)
    assert asked.max_seconds == 20.0


def test_a_branch_that_fails_costs_the_check_and_not_the_answer(story, tmp_path):
    failing = world(branch_faults=lambda _: Outcome.OOM_DEVICE)

    left = again(story, failing, folder=elsewhere(story, tmp_path))

    assert "failed: a scripted oom-device. See " in left.warnings[0]
    assert (left.params, left.reasons) == (story[3].params, story[3].reasons[2:])


def test_an_interrupt_leaves_the_check_out(story, tmp_path):
    class Interrupted(FakeLauncher):
        def train_branches(self, request, folder):
            raise KeyboardInterrupt

    left = again(story, Interrupted(), folder=elsewhere(story, tmp_path))

    assert "It was interrupted. The same command goes on with it." in left.warnings[0]


def test_without_a_noise_scale_there_is_nothing_to_check(tmp_path):
    answer = searched(tmp_path / "study", world(gradient_faults=lambda _: Outcome.USER_ERROR), **WANTED)

    assert "did not check the global batch. The noise scale is not known" in answer.warnings[0]
    assert not (tmp_path / "study" / disk.GOODPUT).exists()


def test_it_belongs_to_time_to_quality(tmp_path):
    with pytest.raises(
        UsageError, match=r"says nothing to --objective throughput\. .* Add --objective time-to-quality"
    ):
        searched(tmp_path / "study", world(), verify_goodput=True)

    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize(
    ("baseline", "recommended", "batches"),
    [(32, 512, (32, 128, 512)), (512, 32, (512, 128, 32)), (32, 64, (32, 128, 64)), (48, 48, (48, 96))],
)
def test_the_third_batch_lies_between_the_others_or_beyond_them(baseline, recommended, batches):
    assert branch_batches(baseline, recommended) == batches


def told(**changes):
    ends = tuple(
        BranchLoss(global_batch=batch, learning_rate_factor=factor, loss=loss, half_width=0.0123)
        for batch, factor, loss in ((32, 1.0, 0.41234), (512, 3.21, 0.6789))
    )
    fields = {
        "verdict": "agrees", "global_batch": 512, "baseline_batch": 32, "samples": 51_200, "optimizer": "SGD",
        "branches": ends, "foretold": 4.636, "foretold_low": 3.9, "foretold_high": 5.5, "observed": 4.4, "low": 4.1,
        "high": 4.9, **changes,
    }  # fmt: skip
    return sentences(GoodputCheck(**fields))


def test_the_check_is_told_in_two_sentences():
    assert told() == (
        "checked by training over 51,200 samples from the same weights on: a global batch of 512 needed 4.4 "
        "[4.1, 4.9] times the samples of 32 for the same loss (efficiency 23%), foretold 4.6 [3.9, 5.5] (22%); "
        "the two agree",
        "training loss after as many samples: 0.412 ± 0.01 with 32 (SGD's learning rate × 1), 0.679 ± 0.01 with 512 "
        "(SGD's learning rate × 3.2); other learning rates may do better",
    )


@pytest.mark.parametrize(
    ("baseline", "observed", "which"),
    [(32, 2.0, "fewer"), (32, 8.0, "more"), (2048, 0.1, "more"), (2048, 9.0, "fewer")],
)
def test_a_contradiction_says_in_which_direction(baseline, observed, which):
    sentence, _ = told(verdict="does not agree", baseline_batch=baseline, observed=observed)

    assert sentence.endswith(f"the two do not agree: large batches waste {which} samples here than the noise says")


def test_what_is_not_resolved_says_why():
    open_end = told(verdict="not resolved", high=None, why="the losses scatter too much")
    nothing = told(verdict="not resolved", observed=None, low=None, high=None, why="too few steps")

    assert "512 needed more than 4.1 times the samples" in open_end[0]
    assert open_end[0].endswith("whether they agree is not resolved (the losses scatter too much)")
    assert "a global batch of 512 against 32: too few steps, foretold" in nothing[0]
