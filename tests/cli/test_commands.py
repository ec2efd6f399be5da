"""Everything after `--` is a command: what is recognised is said before anything runs."""

import json
import sys
from hashlib import sha256
from pathlib import Path

import pytest
from msgspec.structs import replace

from autotune.cli.target import resume_line
from autotune.core import codec
from autotune.study.recommendation import Recommendation
from autotune.targets.source import digest_of
from tests.commandline import assert_one_clear_error, run_here, stub_training_arguments
from tests.reporting import FACTS, recommendation, whole, written
from tests.worlds import config

SCRIPT = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--bs", type=int, default=8)
parser.add_argument("--amp", action="store_true")
if __name__ == "__main__":
    raise SystemExit("it was run")
"""
TARGET = f"-- {sys.executable} train.py --bs {{batch_size=64}} {{bf16:flag=false}}"


@pytest.fixture
def home(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


@pytest.fixture
def study(tmp_path):
    best = recommendation(target=TARGET, params=config(96, amp_dtype="bfloat16", num_workers=2, num_threads=1).values,
                          baseline=config(64).values)  # fmt: skip
    written(tmp_path / "study", whole(), best)
    return tmp_path


@pytest.mark.slow  # inspects it
def test_search_says_what_it_took_for_what(home):
    ended = run_here(home, "search", "--dry-run", "--", sys.executable, "train.py", "--bs", "16")

    assert ended.stderr.startswith("--bs 16: taken for batch_size.\n--amp is left alone: it may be amp_dtype; ")
    assert "it was run" in ended.stderr  # by the inspection, and not while it was read


def test_check_takes_a_command_too(home):
    said = assert_one_clear_error(run_here(home, "check", "--", "deepspeed", "train.py"))

    assert "torchrun --nproc-per-node 2 train.py" in said


def test_nothing_to_search_is_told_with_both_forms(home):
    said = assert_one_clear_error(run_here(home, "search"))

    assert "autotune search model.py" in said
    assert "autotune search -- python train.py" in said


def test_the_command_may_stand_in_the_settings_file(home):
    (home / "autotune.toml").write_text(f'command = "{sys.executable} train.py --bs 32"\nmap = {{bf16 = "--amp"}}\n')

    ended = run_here(home, "search", "--dry-run")

    assert "--bs 32: taken for batch_size.\n" in ended.stderr
    assert "--amp, by default off: taken for amp_dtype.\n" in ended.stderr


def test_a_correction_without_an_argument_is_told(home):
    said = assert_one_clear_error(run_here(home, "search", "--map", "batch", "--", "python", "train.py"))

    assert "'batch' has no argument" in said


def test_the_option_that_resumes_stands_before_the_command():
    words = ["search", "--fresh", "-t", "5m", "--", "python", "train.py", "--resume-from", "x"]

    assert resume_line(words) == "autotune search -t 5m --resume -- python train.py --resume-from x"
    assert resume_line(["search", "model.py"]) == "autotune search model.py --resume"


def test_best_prints_the_command_alone(study):
    assert run_here(study, "best", "study", "--command").stdout == (
        f"OMP_NUM_THREADS=1 {sys.executable} train.py --bs 96 --bf16\n"
    )


def test_the_answer_shows_the_command_on_one_line_and_what_it_cannot_say(study):
    shown = run_here(study, "best", "study").stdout

    assert f"  Use it    OMP_NUM_THREADS=1 {sys.executable} train.py --bs 96 --bf16\n" in shown
    assert "autotune knows no argument of the command for num_workers 2" in " ".join(shown.split())
    assert "autotune run study" in shown


def test_the_page_has_it_to_be_copied(study):
    run_here(study, "report", "study", "--output", "page.html")

    assert (
        f"<code>OMP_NUM_THREADS=1 {sys.executable} train.py --bs 96 --bf16</code>" in (study / "page.html").read_text()
    )


def test_run_starts_it_in_place_of_itself(study):
    from tests.commandline import run

    (study / "train.py").write_text("import os, sys\nprint(sys.argv[1:], os.environ['OMP_NUM_THREADS'])\n")

    ended = run(study, "run", "study")

    assert ended.stdout == "['--bs', '96', '--bf16'] 1\n"


@pytest.fixture
def writing(tmp_path):
    """The study of a script that makes its TrainingArguments itself."""
    facts = replace(FACTS, written=("batch_size", "gradient_accumulation_steps"))
    best = recommendation(target=f"-- {sys.executable} train.py", facts=facts, baseline=config(8).values,
                          params=config(4, gradient_accumulation_steps=2, num_threads=1).values)  # fmt: skip
    written(tmp_path / "study", whole(), best)
    return tmp_path


def test_the_answer_shows_what_to_write_into_the_script(writing):
    shown, printed = run_here(writing, "best", "study").stdout, run_here(writing, "best", "study", "--command")

    lines = [line.strip() for line in shown.splitlines()]
    at = lines.index("Use it    Write in the script's TrainingArguments:")
    assert lines[at + 1 : at + 4] == [
        "per_device_train_batch_size=4, gradient_accumulation_steps=2,",
        f"Run       OMP_NUM_THREADS=1 {sys.executable} train.py",
        "Or        autotune run study   (sets them, the script stays as it is)",
    ]
    assert printed.stdout == f"OMP_NUM_THREADS=1 {sys.executable} train.py\n"
    assert "TrainingArguments(..., per_device_train_batch_size=4, gradient_accumulation_steps=2)" in printed.stderr


def test_the_page_has_what_to_write_to_be_copied(writing):
    run_here(writing, "report", "study", "--output", "page.html")

    page = (writing / "page.html").read_text()
    assert "per_device_train_batch_size=4,\ngradient_accumulation_steps=2,</code>" in page


def test_run_sets_what_the_script_writes(writing):
    from tests.commandline import run

    stub_training_arguments(
        writing,
        "per_device_train_batch_size = gradient_accumulation_steps = 1\ndef __post_init__(self): print(vars(self))\n",
    )
    (writing / "train.py").write_text(
        "from transformers.training_args import TrainingArguments\nTrainingArguments().__post_init__()\n"
    )

    ended = run(writing, "run", "study")

    assert ended.stdout == "{'per_device_train_batch_size': 4, 'gradient_accumulation_steps': 2}\n"
    assert "TrainingArguments are made with per_device_train_batch_size=4, gradient_acc" in ended.stderr


def test_run_starts_it_with_the_python_that_was_searched_with(study):
    from tests.commandline import run

    (study / "train.py").write_text("import sys\nprint(sys.executable)\n")
    best = codec.read(study / "study" / "best.json", Recommendation)
    codec.write(study / "study" / "best.json", replace(best, target=best.target.replace(sys.executable, "python")))

    ended = run(study, "run", "study", PATH="/usr/bin:/bin")

    assert ended.stdout == f"{Path(sys.executable).with_name('python')}\n"


def test_run_starts_no_program_but_the_one_that_was_searched(study, tmp_path_factory):
    from tests.commandline import run

    (study / "train.py").write_text("raise SystemExit('the other')\n")
    best = codec.read(study / "study" / "best.json", Recommendation)
    codec.write(study / "study" / "best.json", replace(best, target_digest=sha256(b"searched").hexdigest()))
    other = tmp_path_factory.mktemp("other")
    missing = assert_one_clear_error(run_here(other, "run", str(study / "study")))
    (other / "train.py").write_text("raise SystemExit('the other')\n")
    named_alike = assert_one_clear_error(run_here(other, "run", str(study / "study")))
    at_home = run(study, "run", "study")

    assert "There is no file train.py." in missing
    assert "Run it from the folder where the search ran." in missing
    assert "train.py is not the file that was searched." in named_alike
    assert "train.py changed since it was searched" in at_home.stderr
    assert "the other" in at_home.stderr


def test_run_says_that_what_the_program_imports_has_changed(study, monkeypatch):
    from tests.commandline import run

    monkeypatch.chdir(study)
    (study / "train.py").write_text("import net\nprint(net.WORK)\n")
    (study / "net.py").write_text("WORK = 1\n")
    best = codec.read(study / "study" / "best.json", Recommendation)
    codec.write(study / "study" / "best.json", replace(best, target_digest=digest_of(best.target)))
    unchanged = run(study, "run", "study")
    (study / "net.py").write_text("WORK = 22\n")

    ended = run(study, "run", "study")

    assert (unchanged.stdout, ended.stdout) == ("1\n", "22\n")
    assert "changed since" not in unchanged.stderr
    assert "What train.py imports (net) changed since it was searched" in ended.stderr


def test_run_says_nothing_of_imports_that_it_does_not_find(study, monkeypatch):
    from tests.commandline import run

    monkeypatch.chdir(study)
    (study / "lib").mkdir()
    (study / "lib" / "net.py").write_text("WORK = 1\n")
    (study / "train.py").write_text("try:\n    import net\nexcept ImportError:\n    print('alone')\n")
    best = codec.read(study / "study" / "best.json", Recommendation)
    with monkeypatch.context() as there:
        there.setattr(sys, "path", [sys.path[0], str(study / "lib"), *sys.path[1:]])
        codec.write(study / "study" / "best.json", replace(best, target_digest=digest_of(best.target)))

    ended = run(study, "run", "study")

    assert "+" in codec.read(study / "study" / "best.json", Recommendation).target_digest
    assert ended.stdout == "alone\n"
    assert "changed since" not in ended.stderr


def test_run_can_only_print(study):
    assert run_here(study, "run", "study", "--dry-run").stdout.endswith("train.py --bs 96 --bf16\n")


@pytest.mark.parametrize("placeholder", ["{output_dir}", "{output_dir=}"])
def test_run_needs_to_know_where_the_outputs_go(tmp_path, placeholder):
    target = f"-- {sys.executable} train.py --out {placeholder} --bs {{batch_size=64}}"
    written(tmp_path / "study", whole(), recommendation(target=target))

    said = assert_one_clear_error(run_here(tmp_path, "run", "study"))

    assert "writes into {output_dir}, and no folder was given" in said
    assert "autotune best --command" in said
    assert "--out OUTPUT_DIR" in run_here(tmp_path, "run", "study", "--dry-run").stdout


def test_code_has_no_command(tmp_path):
    written(tmp_path / "study", whole(), recommendation())

    assert "its target is model.py" in assert_one_clear_error(run_here(tmp_path, "best", "study", "--command"))
    said = assert_one_clear_error(run_here(tmp_path, "run", "study"))
    assert said.endswith("Use `autotune best study` or `autotune export study`.")
    assert json.loads(run_here(tmp_path, "best", "study", "--json").stdout)["target"] == "model.py"
