"""The catalogue of GPU trainings: what can run, what is told, and that nothing is done twice."""

import argparse
import dataclasses
import math
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from autotune.core import codec
from benchmarks.answers import BEST, EXPERT, USUAL, Answer, configs, lines, verdicts
from benchmarks.catalogue import CATALOGUE, catalogue, missing
from benchmarks.gpu_catalogue import advance, stored, tell
from benchmarks.peers import OURS, Pick, theirs
from benchmarks.stages import OVERRUN_SECONDS, PEERS, STAGES, Slice, search_command, search_limit, training_seconds
from benchmarks.surfaces.plain import Trained, in_turn
from tests.worlds import environment

pytestmark = pytest.mark.slow  # trains

(UNET,) = catalogue("unet")
PICKS = {
    USUAL: Pick(values=dict(UNET.baseline)),
    OURS: Pick(values={"batch_size": 256, "amp_dtype": "bfloat16"}, tries=9, out_of_memory=1, seconds=80.0),
    EXPERT: Pick(values={"batch_size": 512, "amp_dtype": "bfloat16", "tf32": True}, tries=5, seconds=30.0),
    **{name: Pick(values=None, note="not installed, not run (lightning)") for name in PEERS if name != EXPERT},
}
TRAINED = {USUAL: Trained([100.0]), OURS: Trained([400.0, 420.0]), EXPERT: Trained([410.0, 400.0])}


def answer(**changes):
    whole = Answer(
        task="unet", command="as it was", environment=environment(device_name="NVIDIA H200"), versions={},
        flops_per_sample=1e12, convolves=True, picks=PICKS, trained=TRAINED,
    )  # fmt: skip
    return replace(whole, **changes)


@pytest.fixture
def now(tmp_path):
    options = argparse.Namespace(
        place=str(tmp_path), stages="", grid=False, trained=1.0, rounds=1, time_budget="1s", smoke=True
    )
    return Slice(options=options, ends_at=time.monotonic() + 1e6)


@pytest.mark.parametrize("task", CATALOGUE, ids=lambda task: task.name)
def test_every_target_is_there_and_its_usual_run_lies_in_its_grid(task):
    assert isinstance(missing(task.target), str)
    assert math.prod(task.baseline.values()) == task.global_batch
    assert task.baseline["batch_size"] in task.grid["batch_size"]


def test_a_target_lacks_only_what_nothing_else_can_stand_in_for(tmp_path):
    target = tmp_path / "model.py"

    target.write_text('NEEDS = "no_such_package or pytest", "neither_this"\n')

    assert missing(str(target)) == "neither_this not installed"


def test_a_name_that_is_no_target_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match=r"no target is called nonsense: there are resnet50, .*tabular_mlp"):
        catalogue("unet,nonsense")


def test_what_is_done_is_not_done_again(now):
    before = answer()

    after = advance(UNET, before, now)

    assert after is before
    assert not stored(UNET, now.options).exists()


def test_no_stage_is_begun_that_would_not_end_in_time(now):
    late = Slice(options=now.options, ends_at=time.monotonic() + 0.5)
    empty = answer(flops_per_sample=None, picks={USUAL: PICKS[USUAL]}, trained={})

    assert advance(UNET, empty, late) is empty


def test_a_stage_that_fails_is_noted_once_and_leaves_the_others_their_turn(now, tmp_path):
    broken = catalogue("unet", device="cpu", small=True)[0]
    broken = type(broken)(**{**vars(broken), "target": str(tmp_path / "nowhere.py")})
    only = argparse.Namespace(**{**vars(now.options), "stages": "flops,search"})
    begun = answer(flops_per_sample=None, notes=("flops: of an earlier call",))

    after = advance(broken, begun, Slice(options=only, ends_at=now.ends_at))

    assert [note.partition(":")[0] for note in after.notes] == ["flops"]
    assert "nowhere" in after.notes[0]
    assert codec.read(stored(broken, only), Answer) == after


def test_a_new_pick_has_all_trained_anew(now):
    train = STAGES[-1]
    with_grid = answer(picks={**PICKS, BEST: Pick(values={"batch_size": 128})})

    assert train.is_done(answer(), UNET, now)
    assert not train.is_done(with_grid, UNET, now)


def test_the_time_of_training_counts_equal_picks_once(now):
    same = answer(picks={USUAL: PICKS[USUAL], OURS: PICKS[USUAL]})

    assert training_seconds(answer(), UNET, now) == pytest.approx(3 * training_seconds(same, UNET, now))


def test_picks_are_trained_at_the_held_global_batch():
    trained = configs(answer(), UNET)

    assert {name: (c["batch_size"], c["gradient_accumulation_steps"]) for name, c in trained.items()} == {
        USUAL: (32, 16), OURS: (256, 2), EXPERT: (512, 1),
    }  # fmt: skip
    assert trained[EXPERT]["tf32"]


def test_the_table_tells_rates_shares_and_utilisation():
    told = list(lines(answer(), UNET))

    usual, ours, expert, *absent = ([cell.strip() for cell in line.split("|")[2:-1]] for line in told)
    assert usual[-3:] == ["100", "24%", "20% of tf32"]
    assert ours[0] == OURS
    assert ours[-6:] == ["9", "1", "80 s", "410", "100%", "41% of bfloat16"]
    assert "tf32" in expert[1]
    assert {row[1] for row in absent} == {"not installed, not run (lightning)"}


def test_a_pick_that_died_says_of_what():
    dead = {**TRAINED, EXPERT: Trained([], died="torch.OutOfMemoryError: CUDA out of memory")}

    told = list(lines(answer(trained=dead), UNET))

    assert sum("CUDA out of memory" in line for line in told) == 1


def test_ours_is_compared_round_by_round():
    assert verdicts(answer()) == (
        "unet: the recommendation runs at 400% of usual defaults, 101% (98%, 105%) of expert's."
    )
    assert verdicts(answer(trained={})) == ""


def test_what_the_probes_promised_is_held_against_the_plain_loop():
    promised = {**PICKS, OURS: dataclasses.replace(PICKS[OURS], promised=418.2)}

    assert verdicts(answer(picks=promised)).endswith("; its probes had promised 102.0% of what it runs at.")


def test_the_table_names_what_was_not_run_unless_it_was_run_before(capsys):
    tell([(UNET, answer())], {"unet": "not run, no GPU today", "vit_s": "not run, timm or torchvision not installed"})

    told = capsys.readouterr().out
    assert "NVIDIA H200" in told.splitlines()[0]
    assert "Peaks of NVIDIA H200, dense: 989.4 TFLOP/s in half precision" in told
    assert told.endswith("vit_s: not run, timm or torchvision not installed\n")
    assert "no GPU today" not in told


def test_the_search_is_the_products_own_command_at_its_own_budget(now):
    unhurried = argparse.Namespace(**{**vars(now.options), "time_budget": None})

    command = search_command(UNET, unhurried)

    assert command[2:5] == ["autotune", "search", "benchmarks/catalogue/unet.py"]
    assert "--time-budget" not in command


def test_a_search_may_overrun_its_budget_but_not_the_slice(now):
    unhurried = argparse.Namespace(**{**vars(now.options), "time_budget": "100s"})

    with_time = search_limit(Slice(options=unhurried, ends_at=now.ends_at))
    without = search_limit(Slice(options=unhurried, ends_at=time.monotonic() + 120))

    assert with_time == 100 + OVERRUN_SECONDS
    assert without < 120


@pytest.mark.parametrize("name", [name for name in PEERS if name == EXPERT or "Accelerate" in name])
def test_a_peer_picks_a_batch_that_ran(name, monkeypatch):
    if "Accelerate" in name:
        pytest.importorskip("accelerate", reason="needs accelerate, which is tuned for and not needed")
    monkeypatch.setenv("CATALOGUE_SMALL", "1")
    monkeypatch.chdir(Path(__file__).parents[2])
    (task,) = catalogue("tabular_mlp", device="cpu", small=True)

    pick = theirs(task, PEERS[name], 0.0)

    assert pick.values is not None, pick.note
    assert pick.had_run


def test_a_small_target_trains_in_the_plain_loop(monkeypatch):
    monkeypatch.setenv("CATALOGUE_SMALL", "1")
    monkeypatch.chdir(Path(__file__).parents[2])
    (task,) = catalogue("tabular_mlp", device="cpu", small=True)

    trained = in_turn(task, {USUAL: task.baseline}, 0.05, 1)[USUAL]

    assert trained.died == ""
    assert (trained.rate or 0) > 0
