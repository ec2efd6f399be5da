"""What people type wrong: one clear error on standard error, the promised exit status, and nothing written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import typer

from autotune.cli.app import app
from autotune.cli.options import Options
from tests.commandline import assert_one_clear_error, listing
from tests.commandline import run_here as run
from tests.fuzz import inprocess
from tests.fuzz.inprocess import target

NOWHERE = "postgresql://tune@127.0.0.1:1/tune"
WRONG = [
    (("-t", "soon"), "--time-budget: 'soon'"),
    (("-t", "0s"), "--time-budget: '0s'"),
    (("-t", "2"), "--time-budget: '2' has no unit"),
    (("--batch", "64:8"), "--batch 64:8"),
    (("--batch", ":"), "--batch ::"),
    (("--threads", "1:none"), "--threads 1:none: 'none' is no number, so it bounds no range: list the values, 1,none"),
    (("--threads", "none:8"), "--threads none:8: 'none' is no number, so it bounds no range: list the values, none,8"),
    (("--amp", "none:bf16"), "--amp none:bf16: 'none' is no number, so it bounds no range: list the values, none,bf16"),
    (("--amp", "bf16:"), "--amp bf16:: 'bf16' is no number, so it bounds no range"),
    (("--batch", "many"), "--batch many"),
    (("--batch", "0"), "--batch 0"),
    (("--workers", "-1:2"), "--workers -1:2"),
    (("--amp", "int8"), "--amp int8"),
    (("--bucket", "7x"), "--bucket 7x: bucket_cap_mb must be 10, 50, 100 or none, got '7x'"),
    (("--fix", "amp=int8"), '--fix amp=int8: amp_dtype must be "bfloat16", "float16" or none, got \'int8\''),
    (("--accum", "many"), "--accum many: gradient_accumulation_steps must be a whole number"),
    (("--channels-last", "maybe"), "--channels-last maybe: channels_last must be true or false"),
    (("--fix", "nothing=3"), "--fix: there is no knob 'nothing'"),
    (("--fix", "batchsize=64"), "--fix: there is no knob 'batchsize'. The name was probably mistyped. Did you mean"),
    (("--fix", "batch"), "--fix batch: 'batch' has no value"),
    (("--fix", "batch="), "--fix batch=:"),
    (("--fix", "amp=bf16,amp=fp32"), "--fix amp=bf16,amp=fp32: amp_dtype is given twice, with different values."),
    (("--fix", "amp=bf16", "--amp", "none"), "--fix amp=bf16 holds a value that --amp none leaves out."),
    (("--fix", "batch=4", "--batch", "8:"), "--fix batch=4 holds a value that --batch 8: leaves out."),
    (("--baseline", "batch=8,batch=16"), "--baseline batch=8,batch=16: batch_size is given twice"),
    (("-q", "-v"), "--quiet asks for the result alone and --verbose for all details."),
    (("--baseline", "batch=0"), "--baseline batch=0"),
    (("--tune", "speed"), "--tune: there is no knob 'speed'"),
    (("--global-batch", "much"), "--global-batch much"),
    (("--global-batch", "0"), "--global-batch 0"),
    (("--memory-limit", "lots"), "--memory-limit: 'lots'"),
    (("--memory-limit", "0%"), "--memory-limit: a share of the memory must be above 0% and at most 100%, got 0%"),
    (("--batch", "8:x"), "--batch 8:x: batch_size"),
    (("--headroom", "2"), "--headroom: a share must be between 0% and 100%, got 200%: write 2% or 0.02"),
    (("--headroom", "much"), "--headroom: 'much' is not a share: write 8% or 0.08"),
    (("--sampler", "magic"), "--sampler must be one of structured"),
    (("--objective", "fame"), "got 'fame'"),
    (("--within", "120%"), "--within: a share must be between 0% and 100%, got 120%: write 8% or 0.08"),
    (("--within", "10"), "--within: a share must be between 0% and 100%, got 1000%: write 10% or 0.1"),
    (("--memory-limit", "120%"), "--memory-limit: a share of the memory must be above 0% and at most 100%, got 120%"),
    (("--price", "cheap"), "--price"),
    (("--objective", "cost", "--price", "2,49"), "--price: '2,49'"),
    (("--device", "gpu"), "There is no device called 'gpu'. The name was probably mistyped. Did you mean cuda?"),
    (("--device", "quantum"), "There is no device called 'quantum'"),
    (("--device", "cuda:first"), "Did you mean cuda?"),
    (("--stability", "twice"), "--stability must be one of off, quick, full, got 'twice'"),
    (("--loss-tolerance", "much"), "--loss-tolerance: 'much'"),
    (("--resume",), "studies/model"),
    (("--resume", "--fresh"), "--resume goes on with a study and --fresh begins a new one"),
    (("-n", "0"), "--probes must be at least 1, got 0"),
    (("--workers-expected", "2"), "--workers-expected 2 waits for workers of a database, and none is named"),
    (
        ("--workers-expected", "0", "--storage", NOWHERE),
        "--workers-expected must be at least 1, got 0",
    ),
    (("--ranks", "0"), "--ranks must be at least 1, got 0. It was probably mistyped"),
    (("--on", "auto"), "--storage was probably forgotten: Ray keeps no results"),
    (("--on", "ray:/head", "--storage", NOWHERE), "--on ray:/head is no address of a Ray cluster"),
    (("--on", "auto", "--storage", NOWHERE, "--device", "cuda:1"), "--device cuda:1 names one GPU of a machine"),
    (("--seed", "-1"), "--seed must be from 0 to 4294967295, got -1. It was probably mistyped"),
]


@pytest.mark.parametrize(("words", "named"), WRONG, ids=[" ".join(words) for words, _ in WRONG])
def test_a_wrong_value_is_one_clear_error_and_leaves_nothing(
    words: tuple[str, ...], named: str, tmp_path: Path
) -> None:
    (tmp_path / "model.py").write_text("raise AssertionError('not looked at')\n")
    before = listing(tmp_path)

    ended = run(tmp_path, "search", "model.py", *words)

    assert named in assert_one_clear_error(ended)
    assert before == listing(tmp_path)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("worker", "--study", "model"), "A worker needs the address of the search's database"),
        (("worker", "--storage", NOWHERE, "--study", "/"), "--study '/' names no study"),
        (("worker", "missing.py", "--storage", NOWHERE, "--study", "model"), "There is no file missing.py"),
        (
            ("scale", "--", "python", "model.py"),
            "python model.py is a command, and only its own launcher starts its ranks",
        ),
        (("scale", "python model.py"), "`autotune scale` changes the number of a file of functions"),
    ],
)
def test_what_workers_and_ranks_cannot_do_is_said_at_once(words: tuple[str, ...], named: str, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("raise AssertionError('not looked at')\n")
    before = listing(tmp_path)

    ended = run(tmp_path, *words)

    assert named in assert_one_clear_error(ended)
    assert before == listing(tmp_path)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("search", "model.py", "-n", "many"), "--probes many is not a whole number. It was probably mistyped. Write"),
        (("search", "model.py", "--ranks=two"), "--ranks two is not a whole number"),
        (("show", "--probe", "seven"), "Write a number, as in --probe 2. `autotune show --help` shows"),
        (("show", "--probe"), "--probe needs a value, and none follows it. It was probably left out. It is: Only this"),
        (("show", "--failed=yes"), "--failed takes no value, and it was given one."),
        (("scale", "model.py", "--rounds", "1.5"), "--rounds 1.5 is not a whole number"),
        (("best", "--global-batch", "0"), "--global-batch 0 cannot be used: it must be greater than or equal to 1."),
        (
            ("dashboard", "--port", "70000"),
            "it must be less than or equal to 65535. It was probably mistyped. Write a ",
        ),
        (("explain", "cnn", "--measure", "malloc=none"), "autotune explain has no place for malloc=none. A setting "),
        (("race", "--rounds", "3"), "autotune race needs contestants, and none is given."),
        (
            ("scale",),
            "autotune scale needs a target, and none is given. It was probably left out. Write autotune scale",
        ),
        (("profile",), "autotune profile needs a target, and none is given."),
        (("worker",), "autotune worker needs a study, and none is given. It was probably left out. Add --study STUDY."),
        (("show", "a", "b", "c"), "autotune show has no place for b c. A word was probably left over. Write autotune"),
        (("compare", "a"), "autotune compare needs b, and none is given."),
        (("compare", "a"), "Write autotune compare [OPTIONS] a b."),
        (("profile", "model.py", "--device", "quantum"), "There is no device called 'quantum'"),
        (("search", "model.py", "--probess", "3"), "--probess"),
        (("search",), "There is no target."),
        (
            ("serch", "model.py"),
            "autotune has no command serch. It was probably mistyped. Did you mean autotune search?",
        ),
        (("model.py",), "Write autotune search model.py."),
        (("--verbose", "search"), "autotune has no option --verbose."),
    ],
)
def test_a_wrong_word_is_one_clear_error(words: tuple[str, ...], named: str, tmp_path: Path) -> None:
    ended = run(tmp_path, *words)

    assert named in assert_one_clear_error(ended)
    assert listing(tmp_path) == set()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--fix", "batch=48,workers=0"), "Change --fix batch or `space` in the target, or change --global-batch."),
        (("--batch", "48", "--fix", "workers=0"), "Change --batch or `space` in the target"),
    ],
)
def test_an_error_about_a_knob_names_the_option_that_was_typed_for_it(
    words: tuple[str, ...], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    target(tmp_path)

    assert named in assert_one_clear_error(
        inprocess.run("search", "model.py", "--dry-run", "--global-batch", "32", *words)
    )


def test_a_wrong_number_in_a_variable_names_the_variable(tmp_path: Path) -> None:
    ended = run(tmp_path, "search", "model.py", AUTOTUNE_RANKS="two")

    assert "--ranks two is not a whole number. It stands in the variable AUTOTUNE_RANKS." in assert_one_clear_error(
        ended
    )


@pytest.mark.parametrize(
    ("words", "choices"),
    [
        (("export", "--to", "keras"), "torch, hf, lightning, accelerate, deepspeed, torchtitan, json, yaml, env"),
        (("log", "--to", "paper"), "csv, tensorboard, wandb, mlflow"),
        (("show", "--sort", "beauty"), "number, speed, memory"),
    ],
)
def test_what_is_not_among_the_choices_is_answered_by_listing_them(
    words: tuple[str, ...], choices: str, tmp_path: Path
) -> None:
    message = assert_one_clear_error(run(tmp_path, *words))

    assert message == f"{words[1]} {words[2]} is not known. It was probably mistyped. Use one of: {choices}."


@pytest.mark.parametrize("command", [("check", "model.py"), ("doctor",)])
def test_a_device_that_is_none_is_a_mistake_for_every_command(command: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("raise AssertionError('not looked at')\n")

    ended = run(tmp_path, *command, "--device", "gpu")

    assert "Did you mean cuda?" in assert_one_clear_error(ended)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "status", "named"),
    [
        (("model.py", "--device", "cuda:77"), 3, "cuda:77"),
        (("model.py", "--memory-limit", "900000GiB"), 2, "--memory-limit 900000GiB is more than"),
        (("mdel.py",), 2, "There is no file mdel.py"),
    ],
)
def test_what_this_machine_does_not_have_leaves_no_study(
    words: tuple[str, ...], status: int, named: str, tmp_path: Path
) -> None:
    assert run(tmp_path, "init").returncode == 0
    before = listing(tmp_path)

    ended = run(tmp_path, "search", *words)

    assert named in assert_one_clear_error(ended, status)
    assert before == listing(tmp_path)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("dashboard", ".", "--host", "0.0.0.0", "--port", "0"), "0.0.0.0"),
        (("dashboard", ".", "--allow-host", "box", "--port", "0"), "--allow-host box would change nothing"),
        (("dashboard", ".", "--allow-host", "box", "--expose", "--port", "0"), "Add --expose and --host 0.0.0.0"),
        (("init",), "model.py exists already"),
        (("init", "missing/model.py"), "there is no folder missing"),
        (("init", "foo.txt"), "foo.txt is not a Python file"),
    ],
)
def test_what_cannot_be_done_is_one_clear_error_and_leaves_all_as_it_was(
    words: tuple[str, ...], named: str, tmp_path: Path
) -> None:
    (tmp_path / "model.py").write_text("# mine\n")

    ended = run(tmp_path, *words)

    assert named in assert_one_clear_error(ended)
    assert (tmp_path / "model.py").read_text() == "# mine\n"
    assert {str(tmp_path / "model.py")} == listing(tmp_path)


def test_a_fresh_dry_run_says_which_study_a_search_would_move_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    target(tmp_path)
    (tmp_path / "studies" / "model").mkdir(parents=True)
    (tmp_path / "studies" / "model" / "study.json").write_text("{}")

    fresh, first = (inprocess.run("search", "model.py", "--dry-run", "--fresh", *more) for more in ((), ("-s", "new")))

    assert "would move the study in studies/model to studies/model.old-1." in fresh.stdout
    assert fresh.returncode == 0 and "would move" not in first.stdout


def test_the_usage_line_names_the_command_however_it_was_started(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-m", "autotune", "best", "one", "two"], capture_output=True, text=True)

    assert ended.stderr.startswith("error: autotune best ")


def test_without_a_command_the_commands_are_listed(tmp_path: Path) -> None:
    ended = run(tmp_path)

    for command in ("init", "check", "search", "show", "best", "dashboard", "doctor"):
        assert f"\n  {command}" in ended.stdout + ended.stderr
    assert "..." not in (ended.stdout + ended.stderr).partition("Commands:")[2], "a description was cut off"


def test_a_value_of_a_knob_of_ones_own_may_have_a_comma() -> None:
    context = typer.Context(typer.main.get_command(app))

    typed = Options(context, lambda name: True).pairs("--fix", "kind=small,new,batch=64,note=a=b,c")

    assert typed == {"kind": "small,new", "batch_size": 64, "note": "a=b,c"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--time-buget", "30s"), "has no option --time-buget. It was probably mistyped. Did you mean --time-budget?"),
        (("--bacth", "8"), "Did you mean --batch?"),
        (("--budget", "60s"), "It was probably mistyped. Did you mean --time-budget or --memory-budget?"),
        (("--batch-sizes", "8"), "If it is what you train with today, declare it: --baseline batch=8"),
        (("--num-workers=3",), "model.py is a file of functions, which is given no arguments. If it is what you train"),
        (("--batch", "8,16", "-t", "40s", "--folder", "r2"), "is given no arguments. Did you mean --study?"),
        (("--epochs", "3"), "is given no arguments. `autotune search --help` lists autotune's options."),
        (("--tune", "optim"), "It is the column heading of the knob fused_optimizer. Write fused_optimizer."),
        (("--tune", "batch×accum"), "Write them one by one: batch_size, gradient_accumulation_steps."),
        (("--tune", "bf16"), "no knob 'bf16'. It is a value of amp. Write amp; with the value, amp=bf16."),
        (("--tune", "batch,flash"), "It is a value of sdpa. Write sdpa; with the value, sdpa=flash."),
        (("--fix", "bf16"), "--fix bf16: 'bf16' has no value. It is a value of amp. Write amp; with the value, amp="),
        (("--tune", "50"), "Use one of batch_size (batch)"),  # a value of too many
        (("--tune", "none"), "Use one of batch_size (batch)"),
        (("--map", "optim="), "It is the column heading of the knob fused_optimizer. Write fused_optimizer."),
        (("--command", "python train.py"), "Two targets are named: model.py, and --command 'python train.py'."),
    ],
)
def test_what_was_probably_meant_is_named(tmp_path, words, told):
    (tmp_path / "model.py").write_text("def model(): ...\n")

    ended = run(tmp_path, "search", "model.py", *words)

    assert told in ended.stderr and ended.returncode == 2


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("torchrun --nproc-per-node 2 train.py --epochs 1", "-- torchrun --nproc-per-node 2 train.py --epochs 1"),
        ("accelerate launch train.py", "-- accelerate launch train.py"),
        ("accelerate launch train.py --epochs 1", "-- accelerate launch train.py --epochs 1"),
        ("-t 30s python train.py", "-t 30s -- python train.py"),
        ("python train.py -t 30s", "-t 30s -- python train.py"),  # the script has no -t
        ("python train.py --lr 1 --time-budget=3m --seed 3", "--time-budget=3m -- python train.py --lr 1 --seed 3"),
        ("python -m pkg.train --epochs 1", "-- python -m pkg.train --epochs 1"),
        ("-q train.py --epochs 1", "-q -- python train.py --epochs 1"),
    ],
)
def test_dashes_forgotten_before_a_command_are_put_in_its_line(tmp_path, typed, meant):
    (tmp_path / "train.py").write_text("epochs = '--epochs'\n")

    ended = run(tmp_path, "search", *typed.split())

    assert ended.stderr.endswith(f": autotune search {meant}\n") and ended.returncode == 2


def test_a_file_with_a_model_that_reads_arguments_is_still_a_script(tmp_path):
    (tmp_path / "train.py").write_text("import argparse\ndef model(): ...\n")

    ended = run(tmp_path, "search", "train.py", "--batch-size", "8")

    assert ended.stderr.endswith(": autotune search -- python train.py --batch-size 8\n") and ended.returncode == 2


@pytest.mark.parametrize("typed", ["--epochs 3 train.py", "studies --epochs 3"])
def test_no_dashes_are_proposed_where_no_command_is_known(tmp_path, typed):
    (tmp_path / "train.py").write_text("")

    ended = run(tmp_path, "search", *typed.split())

    assert " -- " not in ended.stderr and "has no option --epochs" in ended.stderr
