"""The first lines of a search can be read before the table of probes is there."""

import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from autotune.cli.dry_run import print_preview
from autotune.core.codes import Code
from autotune.core.records import CheckLine, Goal, Limit, StepFacts
from autotune.preparation.header import held_phrase, opening_lines
from autotune.preparation.not_searched import not_searched as notices_of_not_searched
from autotune.preparation.settings import Settings
from autotune.preparation.short_budget import budget_note, short_budget
from autotune.testing import FakeLauncher
from tests.worlds import Listener, config, declared, environment, facts, searched, space, study_request


@pytest.mark.parametrize("device", ["cpu", "cuda:0", "cuda:12"])
def test_a_space_parts_the_device_from_its_name(device):
    request = study_request(environment=environment(device=device, device_name="NVIDIA H200"))

    lines = opening_lines(Path("study"), request, space(), Settings(target="model.py"), resumed=False)

    assert f"{device.upper()} " in lines[1].partition("NVIDIA H200")[0]


def test_workers_that_a_loader_does_not_take_are_said_to_be_left_out():
    own = facts(data="dataloader", dataset_samples=None, takes_workers=False)
    space_of_it = space(baseline=config(batch_size=64, num_workers=4), of=own)

    lines = opening_lines(
        Path("study"), study_request(facts=own), space_of_it, Settings(target="model.py"), resumed=False
    )

    assert "workers" not in lines[-1].partition(" · workers not tuned: dataloader() takes no num_workers")[0]
    assert lines[-1].endswith("dataloader() takes no num_workers")
    assert {made["num_workers"] for made in space_of_it.configs} == {0}


def not_searched(request, space, settings):
    return [one.text for one in notices_of_not_searched(request, space, settings)]


ASKED = Settings(target="model.py")
STREAM = facts(data="iterable", dataset_samples=None, repeats_samples=True)


@pytest.mark.parametrize(
    ("limits", "searched"), [({}, {0, 1}), ({"num_workers": Limit(low=0, high=4)}, {0, 1, 2, 4})], ids=str
)
def test_workers_that_would_repeat_a_stream_are_searched_only_where_they_are_asked_for(limits, searched):
    goal, today = Goal(limits=limits), config(batch_size=64)
    made = space(goal, today, of=STREAM)

    said = not_searched(study_request(goal=goal, facts=STREAM), made, ASKED)

    assert {one["num_workers"] for one in made.configs} == searched
    assert any(text.startswith("workers above 1 not searched: each would give") for text in said) is (not limits)


@pytest.mark.parametrize(
    ("goal", "said"),
    [
        ({"exact": True, "tune": ("batch_size",)}, ["batch not searched: --exact holds it, because BatchNorm "]),
        ({"exact": True}, ["batch not searched: --exact holds it, because BatchNorm "]),
        ({"exact": True, "tune": ("amp_dtype",)}, ["precision not searched: --exact holds it, because it changes "]),
        ({"exact": True, "tune": ("num_workers",)}, []),
        ({"tune": ("batch_size",)}, []),
    ],
    ids=str,
)
def test_a_knob_that_exactness_holds_although_it_is_tuned_is_said_with_the_reason(goal, said):
    goal, today, of = Goal(global_batch=64, **goal), config(batch_size=64), facts(has_batch_norm=True)

    told = not_searched(study_request(goal=goal, facts=of), space(goal, today, of=of), ASKED)

    assert len(told) == len(said)
    assert all(text.startswith(start) for text, start in zip(told, said, strict=True))


HELD_BY_LOSS = "batch not searched: the loss is no mean over samples, so another micro-batch trains another loss"


@pytest.mark.parametrize(
    ("goal", "said"),
    [
        ({"global_batch": 64}, [f"{HELD_BY_LOSS} (search it with --batch 8:512)"]),
        ({"global_batch": 64, "exact": True}, [HELD_BY_LOSS]),
        ({"global_batch": 64, "limits": {"batch_size": Limit(values=(32, 64))}}, []),
        ({"global_batch": 64, "tune": ("batch_size",)}, []),
    ],
    ids=str,
)
def test_a_micro_batch_that_the_loss_holds_is_said(goal, said):
    goal, today, of = Goal(**goal), config(batch_size=64), facts(is_mean_loss=False)

    told = not_searched(study_request(goal=goal, facts=of), space(goal, today, of=of), ASKED)

    assert told == said


def _told(held, baseline, **goal):
    made = Goal(global_batch=held, **goal)
    request = study_request(goal=made, baseline=baseline)
    return opening_lines(Path("study"), request, space(made, baseline), Settings(target="model.py"), resumed=False)


@pytest.mark.parametrize(("held", "said"), [(12, True), (10, True), (7, True), (64, False), (100, False)])
def test_a_batch_that_is_not_searched_for_want_of_divisors_is_said(held, said):
    text = f"batch not searched: {held} samples are held per optimizer step, and no other batch from 8 up divides them"

    assert (text in _told(held, config(batch_size=held))[-1]) is said
    assert text not in _told(held, config(batch_size=held), limits={"batch_size": Limit(values=(held,))})[-1]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            (16, 48, 64, 96),
            "batch 48, 96 not searched: the held global batch 64 is not a multiple of them (free it with",
        ),
        ((16, 64), ""),
    ],
)
def test_a_batch_that_was_asked_for_and_cannot_be_searched_is_said(values, said):
    told = _told(64, config(batch_size=64), limits={"batch_size": Limit(values=values)})[-1]

    assert (said in told) if said else ("not searched: the held" not in told)


def test_a_batch_that_tune_leaves_as_it_is_is_not_said_to_exceed_the_data():
    goal = Goal(tune=("num_threads",), limits={"batch_size": Limit(values=(16, 64))})

    said = not_searched(study_request(goal=goal), space(goal, config(batch_size=64)), ASKED)

    assert not any("more samples" in line for line in said)


def test_a_batch_that_exceeds_the_data_is_said():
    goal, few = Goal(limits={"batch_size": Limit(values=(16, 64, 4096))}), facts(dataset_samples=128)

    said = not_searched(study_request(goal=goal, facts=few), space(goal, config(batch_size=64), of=few), ASKED)

    assert "batch 4096 not searched: more samples than the data have for one step" in said


@pytest.mark.parametrize(
    ("settable", "held", "said"),
    [
        (
            ("batch_size",),
            64,
            [
                "precision, workers, prefetch not tuned: no argument was recognised for them (type one",
                "batch not searched: 64 samples are held",
            ],
        ),
        (("batch_size", "num_workers", "amp_dtype", "prefetch_factor"), None, []),
        (("batch_size", "gradient_accumulation_steps", "num_workers", "amp_dtype", "prefetch_factor"), 64, []),
    ],
)
def test_what_a_command_does_not_take_is_said_with_what_follows(settable, held, said):
    of, goal, today = facts(settable=settable, has_convolution=False), Goal(global_batch=held), config(batch_size=64)
    here = environment(capability="7.5")  # without TF32

    told = not_searched(study_request(goal=goal, facts=of, environment=here), space(goal, today, of=of, on=here), ASKED)

    assert len(told) == len(said)
    assert all(text.startswith(start) for text, start in zip(told, said, strict=True))


def test_a_loop_of_the_users_says_itself_what_it_does_not_take():
    own = CheckLine(name="precision", text="not tuned: the Trainer has precision='bf16-true'")
    of = facts(settable=("batch_size", "num_workers"), owns_loop=True, has_convolution=False, check_lines=(own,))
    goal, today = Goal(global_batch=64), config(batch_size=64)

    told = not_searched(study_request(goal=goal, facts=of), space(goal, today, of=of), ASKED)

    assert not any("precision" in line for line in told)
    assert any("64 samples are held per optimizer step, and manual optimization takes no" in line for line in told)


def test_precision_that_an_argument_sets_and_a_framework_refuses_is_said():
    of, today = facts(settable=("batch_size",), has_convolution=False), config(batch_size=64)
    asked = study_request(target="-- python train.py {batch_size=64} {bf16:flag=false}", facts=of)

    told = not_searched(asked, space(Goal(), today, of=of), ASKED)

    assert any(line.startswith("precision not tuned: without a GPU, transformers takes bf16") for line in told)
    assert not any("precision" in line and "no argument was recognised" in line for line in told)


def test_a_command_without_arguments_is_not_asked_to_type_one() -> None:
    of, today = facts(settable=("num_workers",), has_convolution=False), config(batch_size=64)
    asked = study_request(target="-- python train.py config.yaml", facts=of)

    told = " ".join(not_searched(asked, space(Goal(global_batch=64), today, of=of), ASKED))

    assert "no argument was recognised for them (if there is one, name it with --map batch=--NAME; else add" in told
    assert "type one" not in told


def test_a_knob_that_a_command_carries_and_a_study_cannot_set_is_not_said_to_need_an_option_for_bf16() -> None:
    of, today = facts(settable=("batch_size", "amp_dtype"), has_convolution=False), config(batch_size=64)
    text = "-- python train.py {batch_size=64} --use_cpu True {bf16:flag=false} {activation_checkpointing=false}"

    told = not_searched(study_request(target=text, facts=of), space(Goal(), today, of=of), ASKED)

    assert any(line.startswith("checkpointing not tuned: the study was begun by an earlier version") for line in told)
    assert not any("transformers" in line for line in told)


PLAIN = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--workers", type=int, default=read())
"""
REST = ("layout", "tf32", "cudnn")
OF_TRANSFORMERS = "from transformers import HfArgumentParser, TrainingArguments"


@pytest.mark.parametrize(
    ("script", "arguments", "typed", "added"),
    [
        (PLAIN, "--batch-size", [], ["precision", *REST]),  # all its arguments are known, and workers was named
        (PLAIN, "--more 1 --batch-size", ["precision", *REST], []),  # some are declared out of sight
        ("import hydra", "batch_size", ["precision", "workers", *REST], []),
        (OF_TRANSFORMERS, "--batch-size", ["tf32"], ["layout", "cudnn"]),
    ],
    ids=["plain", "others", "hydra", "transformers"],
)
def test_to_type_an_argument_is_advised_where_there_may_be_one(tmp_path, script, arguments, typed, added):
    file = tmp_path / "train.py"
    file.write_text(script)
    of, today = facts(settable=("batch_size", "prefetch_factor")), config(batch_size=64)
    asked = study_request(target=f"-- python {file} {arguments} {{batch_size=64}}", facts=of)

    found = notices_of_not_searched(asked, space(Goal(), today, of=of), ASKED)

    told = {one.code: [*one.numbers["labels"]] for one in found if "labels" in one.numbers}
    assert told.get(Code.KNOBS_WITHOUT_ARGUMENT, []) == typed
    assert told.get(Code.COMMAND_WITHOUT_ARGUMENTS, []) == added


BARE = {"device": "cpu", "capability": None, "native_dtypes": ()}
LACKS = "precision not tuned: this processor has no native bfloat16 or float16"


@pytest.mark.parametrize(
    ("of", "goal", "here", "told"),
    [
        ({}, {}, BARE, True),
        ({"settable": ("batch_size", "amp_dtype")}, {}, BARE, True),
        ({}, {"tune": ("amp_dtype",)}, BARE, True),
        ({}, {}, BARE | {"native_dtypes": ("bfloat16",)}, False),
        ({"settable": ("batch_size",)}, {}, BARE, False),  # it would not be tuned elsewhere
        ({}, {"tune": ("batch_size",)}, BARE, False),
        ({}, {"exact": True}, BARE, False),
        ({"space": {"amp_dtype": Limit(values=(None,))}}, {}, BARE, False),
    ],
)
def test_a_machine_without_values_that_are_expected_is_said_where_they_would_be_tuned(of, goal, here, told):
    target, asked, machine = facts(**of), Goal(**goal), environment(**here)
    made = space(asked, config(batch_size=64), target, machine)

    lines = not_searched(study_request(goal=asked, environment=machine, facts=target), made, ASKED)

    assert [line for line in lines if line.startswith("precision")] == ([LACKS] if told else [])


def test_a_command_is_named_as_it_is_typed_today() -> None:
    text = "-- python train.py --batch-size {batch_size=64} --out {output_dir=runs}"
    asked = study_request(target=text)

    lines = opening_lines(Path("study"), asked, space(), Settings(target=text), resumed=False)

    assert "python train.py --batch-size 64 --out runs ·" in lines[0]


def test_a_baseline_that_breaks_what_is_held_is_measured_for_comparison_only():
    held = _told(256, config(batch_size=48))[3]

    assert "baseline 48×1" in held
    assert "(for comparison only: its global batch is 48, and 256 is held)" in held
    assert "comparison" not in _told(64, config(batch_size=64))[3]


@pytest.mark.parametrize(("asked", "said"), [(256, True), ("keep", False)])
def test_a_baseline_that_takes_more_steps_than_was_declared_says_why(asked, said):
    goal = Goal(global_batch=256)
    request = study_request(goal=goal, baseline=config(batch_size=64, gradient_accumulation_steps=4))
    settings = Settings(target="model.py", global_batch=asked)

    held = opening_lines(Path("study"), request, space(goal, request.baseline), settings, resumed=False)[3]

    assert ("(accumulated to hold it)" in held) is said


def _goes_on(folder, seed):
    listener = Listener()
    searched(folder, FakeLauncher(facts=declared()), listener, seed=seed, probes=1)
    return listener.lines


def test_a_study_that_goes_on_with_another_seed_says_so_and_what_that_changes(tmp_path):
    first, same, other = (_goes_on(tmp_path / "study", seed) for seed in (0, 0, 7))

    assert [line for line in (*first, *same) if line.startswith("Seed")] == []
    assert "(resumed)" in other[0]
    assert other[-1] == (
        "Seed  7 for new probes; earlier probes had 0: initial weights, data order and proposals differ, and all "
        "probes count"
    )


def test_a_search_opens_with_four_lines_and_says_what_is_not_searched():
    own = facts(data="dataloader", dataset_samples=None, takes_workers=False)
    usual, without = (
        opening_lines(
            Path("s"), study_request(facts=of), space(of=of), Settings(target="m.py"), resumed=False, brief=True
        )
        for of in (facts(), own)
    )

    assert len(usual) == 4
    assert f" · {len(space().configs)} configurations" in usual[3]
    assert without[4:] == ["But   workers not tuned: dataloader() takes no num_workers"]


@pytest.mark.parametrize(("seconds", "probes", "wanted"), [(20, None, "6 probes"), (2, 1, "6 probes"), (60, 1, "")])
def test_a_time_budget_in_which_no_search_ends_is_answered_by_one_that_does(seconds, probes, wanted):
    settings = Settings(target="model.py", time_budget_seconds=seconds, probes=probes)

    said = short_budget(settings, space(), inspection_seconds=3.0)

    assert bool(said) is bool(wanted)
    if said:
        assert wanted in said
        assert "s is short: a probe takes about 5.5 s here, and the shortest search with its confirmation takes" in said
        assert ("The first probe is run all the same" in said) is (seconds < 5.5)
        assert "Use --time-budget" in said


def test_a_probe_of_long_steps_is_expected_to_take_them_all():
    said = short_budget(Settings(target="model.py", time_budget_seconds=30), space(), 12.0, step_seconds=10.0)

    assert "a probe takes about 72 s here" in said
    assert "The first probe is run all the same, and may end 42 s late: nothing is begun after that." in said


def test_a_budget_that_start_and_inspection_have_eaten_is_said_to_be_overrun_before_the_first_probe():
    settings = Settings(target="model.py", time_budget_seconds=40)

    eaten = short_budget(settings, space(), inspection_seconds=20.0, gone_seconds=26.0)
    plenty = short_budget(Settings(target="model.py", time_budget_seconds=200), space(), 20.0, gone_seconds=26.0)

    assert "; looking at the target took 26 s. The first probe is run all the same, and may end 8.5 s late: " in eaten
    assert eaten.endswith(" Use --time-budget 3m or more.")
    assert plenty == ""


def test_a_first_probe_of_a_command_that_may_prepare_all_again_is_said_to_overrun_the_budget():
    settings = Settings(target="-- python train.py", time_budget_seconds=60)

    said = short_budget(settings, space(), inspection_seconds=17.0, gone_seconds=47.0)

    assert "a probe takes at least 2.5 s here" in said
    assert "; looking at the target took 47 s. " in said  # 30 s of them before its process was forked: imports
    assert "The first probe is run all the same, and may end 6.5 s late: nothing is begun after that." in said
    assert said.endswith(" Use --time-budget 3m or more.")  # 47 s, the first probe, and five like the inspection


def test_what_a_script_imports_for_the_first_time_is_not_expected_of_every_probe():
    long, short = (Settings(target="-- python train.py", time_budget_seconds=seconds) for seconds in (60, 10))

    assert short_budget(long, space(), inspection_seconds=20.0, step_seconds=10.0) == ""
    assert "a probe takes at least 2.5 s here" in short_budget(short, space(), 20.0, step_seconds=10.0)


def test_a_search_that_would_not_begin_is_not_called_new():
    lines = opening_lines(
        Path("study"), study_request(), space(), Settings(target="model.py"), resumed=False, refused=True
    )

    assert lines[0].endswith("study study (refused)")


def test_a_space_of_one_configuration_names_it_unless_it_is_the_baseline():
    fixed = {"amp_dtype": Limit(values=("bfloat16",))}

    assert _told(64, config(batch_size=64), tune=("batch_size",), limits={"batch_size": Limit(values=(64,))})[
        -1
    ].endswith("1 configuration: only the baseline")
    assert (
        "1 configuration: only 64×1 bf16 workers 0"
        in _told(64, config(batch_size=64), tune=("batch_size",), limits={**fixed, "batch_size": Limit(values=(64,))})[
            -1
        ]
    )


def test_what_is_held_for_ranks_is_told_with_their_number():
    request = study_request(goal=Goal(global_batch=128), facts=facts(ranks=2))

    of = space(Goal(global_batch=128), config(batch_size=64))

    assert held_phrase(request, of) == "global batch 128, of 2 ranks (64 on each)"


def test_a_free_global_batch_is_not_said_to_be_searched_where_no_batch_is():
    of, goal = facts(settable=("num_workers",)), Goal(global_batch=None)

    told = held_phrase(study_request(goal=goal, facts=of), space(goal, config(batch_size=64), of=of))

    assert told == "nothing: the global batch is free, but nothing that is searched changes it"


def test_a_dry_run_says_of_a_short_time_budget_what_a_search_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    step = StepFacts(loss=2.3, seconds=10.0, parameters_with_gradient=1, trainable_parameters=1)
    in_turn = facts(step=step, baseline={"batch_size": 64, "num_workers": 0})
    launcher = FakeLauncher(facts=in_turn, environment=environment(device="cpu", device_name="a CPU"))
    monkeypatch.setattr("autotune.launch.subprocess.SubprocessLauncher", lambda **_: nullcontext(launcher))

    print_preview(Settings(target="model.py", time_budget_seconds=30), time.monotonic() - 3600, as_json=False)

    told = capsys.readouterr().out
    assert "a probe takes about 30 s here" in told  # of four steps: nothing is timed alone
    assert "; looking at the target took 1:00 h. The first probe is run all the same, and may end " in told


def test_a_step_that_compiled_says_nothing_of_the_time_that_a_probe_takes():
    step = StepFacts(loss=2.3, seconds=None, parameters_with_gradient=1, trainable_parameters=1)
    request, settings = study_request(facts=facts(step=step)), Settings(target="model.py", time_budget_seconds=300)

    told = budget_note(settings, request, space(), inspection_seconds=130.0)

    assert "a probe takes about 2:12 min here" in told  # of the inspection, and of measuring


@pytest.mark.parametrize(("of", "said"), [({"compiles_model": True}, True), ({}, False)], ids=["compiled", "not"])
def test_a_model_that_the_code_compiles_is_not_compiled_again_and_that_is_said(of, said):
    here, of, today = environment(device="cpu", no_compiler=""), facts(space={}, **of), config(batch_size=64)
    text = "compile not tuned: your code compiles the model itself"
    for goal in (Goal(), Goal(tune=("compile_mode",))):
        made = space(goal, today, of, here)

        told = not_searched(study_request(goal=goal, environment=here, facts=of), made, ASKED)

        assert [line for line in told if "compile" in line] == [text] * said
        assert (made.domains["compile_mode"] == (None,)) is said


def test_an_argument_of_a_program_that_compiles_is_tuned():
    of = facts(space={}, compiles_model=True, is_program=True)

    made = space(Goal(), config(batch_size=64), of, environment(no_compiler=""))

    assert len(made.domains["compile_mode"]) > 1


def test_a_knob_that_was_asked_for_and_has_one_value_here_is_told():
    here, of, today = environment(device="cpu"), facts(space={}), config(batch_size=64)
    goals = [Goal(global_batch=64, tune=tune) for tune in (("cudnn_benchmark",), ("batch_size",), None)]

    told = [
        not_searched(study_request(goal=one, environment=here, facts=of), space(one, today, of, here), ASKED)
        for one in goals
    ]

    assert told == [["cudnn not tuned: no is its only value here"], [], []]


@pytest.mark.parametrize(
    ("settable", "told"),
    [(("batch_size", "gradient_accumulation_steps"), True), (("amp_dtype",), False)],
    ids=str,
)
def test_a_micro_batch_that_a_command_takes_and_that_has_no_other_is_told(settable, told):
    goal, today, of = Goal(global_batch=8), config(batch_size=8), facts(settable=settable)

    lines = not_searched(study_request(goal=goal, facts=of), space(goal, today, of=of), ASKED)

    assert any("no other batch from 8 up divides them" in one for one in lines) == told
