"""The arguments of a command that are knobs are recognised by name, and the program's own parser reads the result."""

import ast
import shlex
import sys
from pathlib import Path

import pytest

from autotune.errors import TargetError
from autotune.knobs import defaults
from autotune.targets.commands.argument_meaning import meaning_of
from autotune.targets.commands.recognition.recognise import recognise

ARGPARSE = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("-b", "--batch-size", type=int, default=64)
parser.add_argument("-j", "--workers", type=int, default=4)
parser.add_argument("--accum-iter", type=int, default=1)
parser.add_argument("--precision", choices=["fp32", "amp_bf16"], default="fp32")
parser.add_argument("--channels-last", action="store_true")
parser.add_argument("--val-batch-size", type=int, default=256)
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("data", nargs="?")
"""
TYPER = """
import click
@click.command()
@click.option("--batch-size", "-b", default=32)
@click.option("--num-workers", default=2)
@click.option("--bf16/--no-bf16", default=False)
def main(batch_size, num_workers, bf16): ...
"""
HUGGING_FACE = """
from transformers import HfArgumentParser, TrainingArguments
parser = HfArgumentParser(TrainingArguments)
args, = parser.parse_args_into_dataclasses()
"""
NANOGPT = """
out_dir = 'out'
batch_size = 12
gradient_accumulation_steps = 5 * 8
dtype = 'bfloat16'
compile = True
exec(open('configurator.py').read())
learning_rate = 1e-3
"""
HYDRA = """
import hydra
@hydra.main(config_path="conf", config_name="train")
def main(config): ...
"""
LIGHTNING = "from lightning.pytorch.cli import LightningCLI\nLightningCLI()\n"
TUNED = {"batch_size": 96, "gradient_accumulation_steps": 3, "num_workers": 7, "amp_dtype": "bfloat16"}


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def _recognised(script, line, /, **corrections):
    Path("train.py").write_text(script)
    return recognise([sys.executable, *shlex.split(line)], corrections)


def _arguments(found, **values):
    """The program's own arguments, filled."""
    return found.command.filled(defaults() | values, "/scratch")[2:]


def _argparse(script):
    names = {}
    exec(script, names)  # a script of this file
    return names["parser"]


@pytest.mark.parametrize(
    ("line", "baseline"),
    [
        ("train.py --batch-size 16 --workers 0", {"batch_size": 16, "num_workers": 0}),
        ("train.py --batch-size=16 data -j 2", {"batch_size": 16, "num_workers": 2}),
        ("train.py -b 16 --batch-s 8", {"batch_size": 8}),
        ("train.py --precision amp_bf16 --channels-last", {"amp_dtype": "bfloat16", "channels_last": True}),
        ("train.py", {}),
        ("train.py data --lr 0.5", {}),
    ],
)
def test_argparse_takes_what_was_recognised(line, baseline):
    today = {"batch_size": 64, "num_workers": 4, "gradient_accumulation_steps": 1, "amp_dtype": None,
             "channels_last": False}  # fmt: skip

    found = _recognised(ARGPARSE, line)

    assert found.command.baseline == today | baseline
    read = _argparse(ARGPARSE).parse_args(_arguments(found, **TUNED))
    assert (read.batch_size, read.accum_iter, read.workers, read.precision) == (96, 3, 7, "amp_bf16")
    assert not read.channels_last
    assert read.val_batch_size == 256
    assert not found.command.can_take("amp_dtype", "float16")


def test_short_options_with_their_value_in_the_same_word_are_read():
    found = _recognised(ARGPARSE, "train.py -b16 -j2")

    assert found.command.baseline["batch_size"] == 16
    assert _arguments(found, **TUNED)[:2] == ["-b96", "-j7"]
    assert "--batch-size" not in found.command.text


@pytest.mark.parametrize("line", ["--config train.yaml", "--fname=train.yaml", "@train.args", "train.json"])
def test_defaults_of_the_script_are_not_those_of_today_where_a_file_may_say_others(line):
    Path("train.args").touch()

    found = _recognised(ARGPARSE, f"train.py {line} --workers 2")

    assert found.command.text.endswith(f"train.py {line} --workers {{num_workers=2}}")
    assert any("--batch-size" in left and "may say what it is today" in left for left in found.left)


def test_a_launcher_that_reads_a_file_of_its_own_keeps_what_it_says(monkeypatch):
    Path("train.py").write_text("from accelerate import Accelerator\naccelerator = Accelerator()\n")
    monkeypatch.setenv("HF_HOME", str(Path("cache").absolute()))
    monkeypatch.setenv("PATH", str(Path.cwd()))
    Path("accelerate").write_text(f"#!{sys.executable}\n")
    Path("accelerate").chmod(0o755)

    assert "mixed_precision" in recognise(["accelerate", "launch", "train.py"]).command.text
    assert (
        "mixed_precision" not in recognise(shlex.split("accelerate launch --config_file a.yaml train.py")).command.text
    )
    Path("cache/accelerate").mkdir(parents=True)
    Path("cache/accelerate/default_config.yaml").touch()
    assert "mixed_precision" not in recognise(["accelerate", "launch", "train.py"]).command.text


SUBCOMMANDS = """
import argparse
parsers = argparse.ArgumentParser().add_subparsers()
train = parsers.add_parser("train")
train.add_argument("--batch-size", type=int, default=64)
test = parsers.add_parser("test")
test.add_argument("--batch-size", type=int, default=512)
test.add_argument("--workers", type=int, default=4)
"""


def test_arguments_of_another_subcommand_are_not_those_of_the_command():
    found = _recognised(SUBCOMMANDS, "train.py train")

    assert found.command.text.endswith("train.py train --batch-size {batch_size=64}")


GROUPS = [
    """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--workers", type=int, default=4)
train = parser.add_subparsers().add_parser("train")
train.add_argument("--batch-size", type=int, default=64)
""",
    """
import click
@click.group()
@click.option("--workers", default=4)
def parser(workers): ...
@parser.command()
@click.option("--batch-size", default=64)
def train(batch_size): ...
@parser.command("evaluate")
@click.option("--accum", default=2)
def test(accum): ...
""",
]


@pytest.mark.parametrize("script", GROUPS, ids=["argparse", "click"])
def test_arguments_that_stand_before_a_subcommand_are_not_put_behind_it(script):
    found = _recognised(script, "train.py train")
    typed = _recognised(script, "train.py --workers 2 train")

    assert found.command.text.endswith("train.py train --batch-size {batch_size=64}")
    (left,) = found.left
    assert left.startswith("--workers of the script is left alone: the script has subcommands")
    assert typed.command.text.endswith("--workers {num_workers=2} train --batch-size {batch_size=64}")
    parser = _argparse(script)
    if "argparse" in script:
        assert parser.parse_args(_arguments(typed, **TUNED)).workers == 7
    else:
        parser.main(_arguments(typed, **TUNED), standalone_mode=False)


def test_a_file_of_data_says_no_settings():
    found = _recognised(ARGPARSE, "train.py --train-file train.json")

    assert found.command.baseline["batch_size"] == 64


def test_the_baseline_command_does_what_the_command_does_today():
    found = _recognised(ARGPARSE, "train.py --batch-size 16 --lr 3 data")

    again = _argparse(ARGPARSE).parse_args(_arguments(found, **found.command.baseline))

    assert again == _argparse(ARGPARSE).parse_args(["--batch-size", "16", "--lr", "3", "data"])


def test_click_takes_what_was_recognised():
    click = pytest.importorskip("click")

    found = _recognised(TYPER, "train.py --batch-size 16")

    assert found.command.baseline == {"batch_size": 16, "num_workers": 2, "amp_dtype": None}
    command = click.Command(
        "main",
        params=[
            click.Option(["--batch-size", "-b"], default=32), click.Option(["--num-workers"], default=2),
            click.Option(["--bf16/--no-bf16"], default=False),
        ],
    )  # fmt: skip
    read = command.make_context("main", _arguments(found, **TUNED)).params
    assert read == {"batch_size": 96, "num_workers": 7, "bf16": True}


@pytest.mark.parametrize(
    ("typed", "default", "today"),
    [("--bf16", "False", True), ("--no-bf16", "True", False), ("", "True", True), ("--bf16", "True", True)],
)
def test_of_a_pair_of_flags_one_always_stands_there(typed, default, today):
    found = _recognised(TYPER.replace("default=False", f"default={default}"), f"train.py {typed}")

    assert found.command.baseline["amp_dtype"] == ("bfloat16" if today else None)
    assert [word for word in _arguments(found, amp_dtype=None) if "bf16" in word] == ["--no-bf16"]
    assert [word for word in _arguments(found, amp_dtype="bfloat16") if "bf16" in word] == ["--bf16"]


@pytest.mark.parametrize("typed", ["", "--bf16 --per_device_train_batch_size 4", "--fp16 True --output_dir o"])
def test_training_arguments_take_what_was_recognised(typed):
    transformers = pytest.importorskip("transformers")

    found = _recognised(HUGGING_FACE, f"train.py {typed} --use_cpu True")

    (read,) = transformers.HfArgumentParser(transformers.TrainingArguments).parse_args_into_dataclasses(
        _arguments(found, **TUNED)
    )
    assert (read.per_device_train_batch_size, read.gradient_accumulation_steps) == (96, 3)
    assert (read.dataloader_num_workers, read.bf16, read.fp16) == (7, True, False)
    assert read.output_dir == "/scratch"


def test_the_defaults_of_training_arguments_are_known():
    found = _recognised(HUGGING_FACE, "train.py")

    assert found.command.baseline == {
        "batch_size": 8, "gradient_accumulation_steps": 1, "num_workers": 0, "amp_dtype": None
    }  # fmt: skip


def test_recomputed_activations_of_a_trainer_are_tuned_where_they_are_typed():
    left = _recognised(HUGGING_FACE, "train.py").left
    typed = _recognised(HUGGING_FACE, "train.py --gradient_checkpointing False")

    assert any(one.startswith("--gradient_checkpointing of the script is left alone: what it is today") for one in left)
    assert typed.command.baseline["activation_checkpointing"] is False
    assert not any("checkpointing" in one for one in typed.left)


def test_the_configurator_of_nanogpt_takes_what_was_recognised():
    """Its rules: `--key=value`, a literal of the same type as the global (its configurator.py)."""
    found = _recognised(NANOGPT, "train.py --batch_size=8 --compile=False", amp_dtype="--dtype")

    assert found.command.baseline == {
        "batch_size": 8, "amp_dtype": "bfloat16", "gradient_accumulation_steps": 40
    }  # fmt: skip
    names = {}
    for word in _arguments(found, **TUNED):
        name, value = word.removeprefix("--").split("=")
        names[name] = value if name in ("dtype", "out_dir") else ast.literal_eval(value)
    assert names == {"batch_size": 96, "compile": False, "dtype": "bfloat16", "out_dir": "/scratch",
                     "gradient_accumulation_steps": 3}  # fmt: skip


def test_a_file_of_globals_sets_the_values_of_today():
    """nanoGPT runs `python train.py config/train_shakespeare_char.py`: its globals are the defaults."""
    Path("small.py").write_text("batch_size = 64\ngradient_accumulation_steps = 1\nout_dir = 'out-small'\n")

    found = _recognised(NANOGPT, "train.py small.py --batch_size=8")

    assert found.command.baseline == {"batch_size": 8, "gradient_accumulation_steps": 1}
    assert "--out_dir=out-small" in found.command.recommended(found.command.baseline)


def test_a_global_that_is_computed_is_not_passed_over():
    chosen = NANOGPT.replace("'bfloat16'", "'bfloat16' if torch.cuda.is_available() else 'float16'")

    found = _recognised(chosen, "train.py")

    assert any(sentence.startswith("--dtype is left alone: it may be amp_dtype") for sentence in found.left)


FLAGS = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument({}, action="{}")
"""


@pytest.mark.parametrize(
    ("names", "action", "typed", "today"),
    [
        ('"--no-bf16"', "store_true", "", True),
        ('"--no-bf16"', "store_true", "--no-bf16", False),
        ('"--disable_bf16", dest="bf16"', "store_false", "", True),
        ('"--disable_bf16", dest="bf16"', "store_false", "--disable_bf16", False),
        ('"--bf16"', "store_false", "", True),
        ('"--bf16"', "store_false", "--bf16", False),
    ],
)
def test_a_flag_that_says_no_is_there_where_the_value_is_not(names, action, typed, today):
    found = _recognised(FLAGS.format(names, action), f"train.py {typed}")

    flag = names.split('"')[1]
    assert found.command.baseline == {"amp_dtype": "bfloat16" if today else None}
    assert _arguments(found, amp_dtype="bfloat16") == []
    assert _arguments(found, amp_dtype=None) == [flag]


def test_a_flag_that_contradicts_its_name_is_left_alone():
    found = _recognised(FLAGS.format('"--no-bf16"', "store_false"), "train.py")

    assert found.command.knobs == ()
    assert any(sentence.startswith("--no-bf16 is left alone") for sentence in found.left)


@pytest.mark.parametrize(
    ("code", "dtype"),
    [
        ("torch.autocast('cuda', dtype=torch.bfloat16, enabled=args.amp)", "bfloat16"),
        ("torch.cuda.amp.autocast(enabled=args.amp)", "float16"),
        ("autocast(device_type='cpu', enabled=args.amp)", "bfloat16"),
        ("half = torch.float16\ntorch.amp.autocast(device.type, half)", "float16"),
        ("torch.autocast(device.type)", None),
        ("torch.autocast('cuda', dtype=chosen())", None),
        ("torch.autocast('cuda', dtype=torch.bfloat16); torch.autocast('cuda', dtype=torch.float16)", None),
        ("", None),
    ],
)
@pytest.mark.parametrize("flag", ["--amp", "--no-amp"])
def test_a_flag_for_mixed_precision_means_the_dtype_of_the_scripts_autocast(code, dtype, flag):
    found = _recognised(FLAGS.format(f'"{flag}"', "store_true") + code, "train.py")

    if dtype is None:
        assert found.command.knobs == ()
        assert any(sentence.startswith(f"{flag} is left alone") for sentence in found.left)
    else:
        assert found.command.baseline == {"amp_dtype": dtype if "no" in flag else None}
        assert _arguments(found, amp_dtype=dtype) == ([] if "no" in flag else ["--amp"])


TIMM = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument('-b', '--batch-size', type=int, default=128)
parser.add_argument('--amp', action='store_true', default=False)
parser.add_argument('--amp-dtype', default='float16', type=str)
parser.add_argument('--amp-impl', default='native', type=str)
"""
CHOSEN = TIMM.replace("default='float16', type=str", "default='fp16', choices=['fp16', 'bf16']")


@pytest.mark.parametrize(
    ("script", "typed", "today"),
    [
        (TIMM, "", None),
        (TIMM, "--amp", "float16"),
        (TIMM, "--amp --amp-dtype bfloat16", "bfloat16"),
        (TIMM, "--amp-dtype=bfloat16", None),
        (CHOSEN, "", None),
        (CHOSEN, "--amp-dtype bf16 --amp", "bfloat16"),
        (TIMM.replace("--amp'", "--no-amp'"), "", "float16"),
        (TIMM.replace("--amp'", "--no-amp'"), "--no-amp", None),
    ],
)
def test_a_dtype_that_a_flag_switches_on_is_said_by_both(script, typed, today):
    found = _recognised(script, f"train.py {typed}")

    assert found.command.baseline == {"batch_size": 128, "amp_dtype": today}
    for dtype in (None, "bfloat16", "float16"):
        assert found.command.can_take("amp_dtype", dtype)
        read = _argparse(script).parse_args(_arguments(found, batch_size=96, amp_dtype=dtype))
        assert (read.amp if "amp" in read else not read.no_amp) is (dtype is not None)
        if dtype is not None:
            assert read.amp_dtype in (dtype, {"bfloat16": "bf16", "float16": "fp16"}[dtype])


def test_a_flag_beside_a_dtype_can_be_named_as_something_else():
    found = _recognised(TIMM, "train.py", amp="no")

    assert found.command.baseline == {"batch_size": 128}


def test_keys_of_hydra_are_replaced_where_they_stand():
    found = _recognised(HYDRA, "train.py +train.batch_size=16 data.num_workers=2 val.batch_size=4 trainer.precision=32")

    assert found.command.baseline == {"batch_size": 16, "num_workers": 2, "amp_dtype": None}
    assert _arguments(found, **TUNED) == [
        "+train.batch_size=96", "data.num_workers=7", "val.batch_size=4", "trainer.precision=bf16"
    ]  # fmt: skip


def test_hydra_itself_takes_what_was_recognised():
    parser = pytest.importorskip("hydra.core.override_parser.overrides_parser").OverridesParser.create()

    found = _recognised(HYDRA, "train.py train.batch_size=16 ++data.num_workers=2")

    read = parser.parse_overrides(_arguments(found, **TUNED))
    assert {one.key_or_group: one.value() for one in read} == {"train.batch_size": 96, "data.num_workers": 7}


def test_the_trainer_of_the_lightning_command_line_is_known():
    found = _recognised(LIGHTNING, "train.py fit --data.init_args.batch_size=16 --data.num_workers 2")

    assert found.command.baseline == {
        "batch_size": 16, "gradient_accumulation_steps": 1, "amp_dtype": None, "num_workers": 2
    }  # fmt: skip
    assert _arguments(found, **TUNED) == [
        "fit", "--data.init_args.batch_size=96", "--data.num_workers", "7", "--trainer.precision=bf16-mixed",
        "--trainer.accumulate_grad_batches=3",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("--batch-size", "batch_size"), ("--batch_size", "batch_size"), ("--bs", "batch_size"),
        ("per_device_train_batch_size", "batch_size"), ("train.batch_size", "batch_size"), ("--batch", "batch_size"),
        ("--micro-batch-size", "batch_size"), ("--training.local_batch_size", "batch_size"),
        ("--train_bsz", "batch_size"), ("device_train_microbatch_size", "batch_size"),
        ("--device-batch-size", "batch_size"), ("--num_dataloader_workers", "num_workers"),
        ("--workers", "num_workers"), ("--num-workers", "num_workers"), ("dataloader_num_workers", "num_workers"),
        ("--minibatch-size", "batch_size"), ("--mini_batch_size", "batch_size"), ("--train-minibatch", "batch_size"),
        ("--loader-workers", "num_workers"), ("--loader-procs", "num_workers"), ("--num-loader-jobs", "num_workers"),
        ("--data-jobs", "num_workers"), ("--dataloader_processes", "num_workers"),
        ("data.workers_per_gpu", "num_workers"),
        ("--nworkers", "num_workers"), ("--accum", "gradient_accumulation_steps"),
        ("--gradient-accumulation-steps", "gradient_accumulation_steps"),
        ("--accumulate_grad_batches", "gradient_accumulation_steps"), ("--accum_iter", "gradient_accumulation_steps"),
        ("--accum-freq", "gradient_accumulation_steps"), ("--grad_accum_steps", "gradient_accumulation_steps"),
        ("--grad-acc-steps", "gradient_accumulation_steps"),
        ("--precision", "amp_dtype"), ("--mixed_precision", "amp_dtype"), ("--trainer.precision", "amp_dtype"),
        ("--bf16", "bf16"), ("--use-fp16", "fp16"), ("--grad-checkpointing", "activation_checkpointing"),
        ("--output_dir", "output_dir"), ("--outf", "output_dir"), ("--save-folder", "output_dir"),
        ("hydra.run.dir", "output_dir"),
    ],
)  # fmt: skip
def test_names_are_known(name, meant):
    found = meaning_of(name)

    assert found is not None
    assert (found.name, found.is_doubtful) == (meant, False)


@pytest.mark.parametrize(
    "name",
    ["--val-batch-size", "eval.batch_size", "--eval_workers", "--acc", "per_device_eval_batch_size",
     "--test-batch-size", "--batch-norm", "--lr", "--epochs", "--max_steps", "--warmup-steps",
     "val_loader.num_workers", "--num-minibatches", "--nproc", "--num_proc", "--processes"],
)  # fmt: skip
def test_other_names_mean_nothing(name):
    assert meaning_of(name) is None


@pytest.mark.parametrize(
    "name",
    ["--amp", "--dtype", "--half", "--global_batch_size", "--total-batch-size", "--gbs", "--jobs", "--n-jobs"],
)
def test_what_may_mean_a_knob_is_never_guessed(name):
    found = meaning_of(name)

    assert found is not None
    assert found.is_doubtful


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("train.py --amp", "--amp is left alone: it may be amp_dtype; if so, say --map bf16=--amp or --map fp16=--amp"),
        (
            "train.py --dtype x",
            "--dtype is left alone: it may be amp_dtype; if so, say --map amp_dtype=--dtype or --map",
        ),
        (
            "train.py --precision",
            "--precision takes no value, so it cannot be amp_dtype; say --map bf16=--precision or",
        ),
        ("train.py --total-batch-size", "--total-batch-size takes no value, so it cannot be batch_size"),
        ("train.py --save_dir", "--save_dir takes no value, so it cannot be output_dir"),
        ("train.py --jobs 2", "--jobs is left alone: it may be num_workers; if so, say --map num_workers=--jobs"),
        ("train.py a.batch_size=4 b.batch_size=8", "a.batch_size and b.batch_size may both be batch_size"),
        ("train.py --batch-size auto", "--batch-size auto is left alone: auto is no value of batch_size"),
    ],
)
def test_what_is_not_sure_is_said_and_left_alone(line, said):
    found = _recognised("", line)

    assert any(said in sentence for sentence in found.left)
    assert found.command.knobs == ()
    assert found.command.filled({}, "")[1:] == shlex.split(line)


@pytest.mark.parametrize("typed", ["", "--device-batch-size 8"])
def test_what_stands_beside_the_micro_batch_is_the_batch_of_a_step(typed):
    script = ARGPARSE.replace("--batch-size", "--device-batch-size")

    found = _recognised(script, f"train.py --total-batch-size 1024 {typed}")

    said = "--total-batch-size is left alone: the micro-batch is --device-batch-size, so this is probably the global"
    assert any(said in sentence for sentence in found.left)
    assert not any("--map batch_size" in sentence for sentence in found.left)


@pytest.mark.parametrize(
    "typed", ["", "--micro-batch-size 8", "--mini-batch-size 64", "--micro-batch-size=8 --mini-batch-size 64"]
)
def test_of_two_batches_in_effect_none_is_chosen_whichever_is_typed(typed):
    micro = 'parser.add_argument("--micro-batch-size", type=int, default=8)\n'
    script = ARGPARSE.replace('"-b", "--batch-size"', '"--mini-batch-size"') + micro

    found = _recognised(script, f"train.py {typed}")
    told = _recognised(script, f"train.py {typed}", batch_size="--micro-batch-size")

    assert "batch_size" not in found.command.knobs
    assert any("may both be batch_size; say which by --map batch_size=--mi" in sentence for sentence in found.left)
    assert "batch_size" in told.command.knobs


def test_an_old_name_of_the_batch_without_a_default_is_no_rival():
    script = ARGPARSE + 'parser.add_argument("--micro-batch-size", type=int, default=None)\n'

    assert "batch_size" in _recognised(script, "train.py --batch-size 8").command.knobs


def test_a_default_that_only_the_script_knows_is_said():
    script = ARGPARSE.replace("default=64", "default=HERE")

    found = _recognised(script, "train.py")

    assert "batch_size" not in found.command.knobs
    assert any("--batch-size of the script is left alone" in sentence for sentence in found.left)


@pytest.mark.parametrize(
    ("before", "default", "today"),
    [
        ("BATCH: int = 48\n", "BATCH", 48),
        ("class Defaults:\n  batch = 48\n", "Defaults.batch", 48),
        ("@dataclass\nclass Defaults:\n  batch: int = 32\nDEFAULTS = Defaults(batch=48)\n", "DEFAULTS.batch", 48),
        ("class Defaults:\n  batch: int = 48\nDEFAULTS = Defaults()\n", "DEFAULTS.batch", 48),
        ("class D:\n  batch = 48\n  def __init__(self): self.batch = 3\nDEFAULTS = D()\n", "DEFAULTS.batch", None),
        ("DEFAULTS = SimpleNamespace(batch=48)\n", "DEFAULTS.batch", 48),
        ("DEFAULTS = {'batch': 48}\n", 'DEFAULTS["batch"]', 48),
        ("from settings import SIZE\n", "SIZE", 96),
        ("import settings as given\n", "given.SIZE", 96),
        ("BATCH = 48\ndef f(BATCH):\n  BATCH = 3\n", "BATCH", 48),
        ("BATCH = 48\nif fast: BATCH = 4\n", "BATCH", None),
        ("BATCH = 48\nBATCH *= 2\n", "BATCH", None),
        ("BATCH = 48\ndef f():\n  global BATCH\n  BATCH = 3\n", "BATCH", None),
        ("class Defaults:\n  batch = 48\nDefaults.batch = 3\n", "Defaults.batch", None),
        ("DEFAULTS = {'batch': 48}\nDEFAULTS['batch'] = 3\n", "DEFAULTS['batch']", None),
        ("def batch(): return 3\n", "batch()", None),
        ("from elsewhere import BATCH\n", "BATCH", None),
    ],
)
def test_a_constant_of_the_script_is_looked_up_where_it_is_bound_once(before, default, today):
    Path("settings.py").write_text("SIZE = 96\n")

    found = _recognised(before + ARGPARSE.replace("default=64", f"default={default}"), "train.py")

    assert found.command.baseline.get("batch_size") == today
    left = [one for one in found.left if one.startswith("--batch-size of the script is left alone: what it is today")]
    assert len(left) == (today is None)


def test_a_correction_says_what_an_argument_is():
    found = _recognised("", "train.py --train_bs 8 --batch 3 --amp --j 2", batch_size="--train_bs", fp16="--amp",
                        workers="no")  # fmt: skip

    assert found.command.baseline == {"batch_size": 8, "amp_dtype": "float16"}
    assert _arguments(found, batch_size=4) == ["--train_bs", "4", "--batch", "3", "--j", "2"]


def test_an_argument_whose_value_was_forgotten_is_told_so():
    script = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
"""
    found = _recognised(script, "train.py --batch-size")

    assert found.left == [
        "--batch-size is left alone: there is no value after it; type its present value to have batch_size tuned"
    ]


@pytest.mark.parametrize("typed", ["--amp", ""])
def test_an_argument_without_a_value_can_only_be_the_switch_of_one(typed):
    flag = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--amp", action="store_true")
"""
    found = _recognised(flag, f"train.py {typed}", amp_dtype="--amp")

    assert "--amp takes no value, so it cannot be amp_dtype; say --map bf16=--amp or --map fp16=--amp" in found.left
    assert "amp_dtype" not in found.command.knobs


def test_outputs_can_be_left_alone():
    found = _recognised("", "train.py --output-dir runs", output_dir="no")

    assert not found.command.takes_output_dir
    assert found.taken == []


@pytest.mark.parametrize(
    ("corrections", "said"),
    [
        ({"batch_size": "--bz"}, "has no argument --bz"),
        ({"size": "--batch-size"}, "there is no knob size"),
        ({"layout": "--batch-size"}, "It is the column heading of the knob channels_last"),
    ],
)
def test_a_correction_that_fits_nothing_is_refused(corrections, said):
    with pytest.raises(TargetError, match=said):
        _recognised("", "train.py --batch-size 8", **corrections)


IN_A_LOOP = """
import argparse
parser = argparse.ArgumentParser()
for name in ("use_amp", "no_tf32"):
    parser.add_argument("--" + name.replace("_", "-"), action="store_true")
"""


@pytest.mark.parametrize(("dtype", "is_on"), [(None, False), ("bfloat16", True)])
def test_a_flag_that_is_off_and_that_only_the_running_script_declares_can_be_named(dtype, is_on):
    found = _recognised(IN_A_LOOP, "train.py", bf16="--use-amp")

    filled = _arguments(found, amp_dtype=dtype)
    assert found.command.baseline["amp_dtype"] is None
    assert _argparse(IN_A_LOOP).parse_args(filled).use_amp is is_on


def test_a_flag_without_a_value_is_asked_what_it_switches_on():
    with pytest.raises(TargetError, match="cannot be typed: say what it switches on, --map bf16=--use-amp or --map fp"):
        _recognised(IN_A_LOOP, "train.py", amp="--use-amp")


def test_a_flag_whose_name_the_script_does_not_contain_is_mistyped():
    with pytest.raises(TargetError, match=r"has no argument --use-apm\. It was probably mistyped"):
        _recognised(IN_A_LOOP, "train.py", bf16="--use-apm")


def test_defaults_of_any_type_are_read_over():
    script = ARGPARSE + "parser.add_argument('--model-kwargs', nargs='*', default={}, choices=[[1], [2]])\n"

    found = _recognised(script, "train.py")

    assert found.command.baseline["batch_size"] == 64


def test_a_parser_in_a_file_beside_the_script_is_read():
    Path("options.py").write_text(ARGPARSE)

    found = _recognised("from options import parser\n", "train.py")

    assert found.command.baseline["batch_size"] == 64


def test_a_module_is_read_below_the_working_folder(tmp_path):
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "run.py").write_text(ARGPARSE)

    found = recognise([sys.executable, "-m", "pkg.run", "--workers", "1"], {})

    assert found.command.baseline["num_workers"] == 1
    assert found.command.text.startswith(f"-- {sys.executable} -m pkg.run --workers {{num_workers=1}} --batch-size")


def test_nothing_of_the_script_is_run(tmp_path):
    _recognised(f"open({str(tmp_path / 'ran')!r}, 'w')\n{ARGPARSE}", "train.py")

    assert not (tmp_path / "ran").exists()


def test_placeholders_are_taken_as_they_stand():
    found = _recognised(ARGPARSE, "train.py --batch-size {batch_size=16} '{lr}'".replace("'{lr}'", "{{lr}}"))

    assert found.command.knobs == ("batch_size",)
    assert found.taken == []


def test_outputs_go_to_a_scratch_folder():
    found = _recognised("", "train.py --output_dir runs/one hydra.run.dir=x")

    assert _arguments(found) == ["--output_dir", "/scratch", "hydra.run.dir=/scratch"]
    assert found.command.recommended({})[-3:] == ["--output_dir", "runs/one", "hydra.run.dir=x"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["no-such-program", "x"], "There is no command no-such-program"),
        (["train.py"], "Write -- python train.py"),
        (["bash", "train.sh"], "is a shell script, and not Python"),
        (["python train.py --bs 4"], "came as a single word"),
        ([sys.executable, "train.py", "&&", "ls"], "belongs to a shell"),
        (["mpirun", "-n", "2", "train.py"], "starts other processes in a way that is not watched"),
        (["accelerate", "env"], "starts other processes in a way that is not watched"),
        (["uv", "run", "train.py"], "without uv"),
        ([f"python3.{sys.version_info.minor + 1}", "train.py"], "Install autotune into the environment of the command"),
        (["LR=3", sys.executable, "train.py"], "begins with a variable"),
        ([sys.executable, "gone.py"], "There is no file gone.py"),
        ([sys.executable, "-c", "pass"], "cannot be watched"),
        ([], "There is no command"),
    ],
)
def test_what_is_no_single_python_program_is_refused(words, said):
    Path("train.py").write_text("pass\n")

    with pytest.raises(TargetError, match=said):
        recognise(words)
