"""Values by name: printed, put into a file that a user keeps, and for more devices than were measured."""

import json
import os
import re
import shlex
import subprocess
import sys

import pytest
from msgspec.structs import replace

from autotune.errors import UsageError
from autotune.export.merging import merged
from autotune.export.plain import as_variables
from autotune.export.programs import exported_text
from autotune.export.recipe import on_devices, recipe
from autotune.knobs.wording import Framework
from autotune.study.recommendation import Undecided
from tests.commandline import assert_one_clear_error, run_here
from tests.reporting import recommendation, whole, written
from tests.worlds import config, facts


@pytest.fixture
def home(tmp_path):
    best = recommendation(params=config(64, gradient_accumulation_steps=4, amp_dtype="bfloat16", num_workers=2,
                                        omp_wait_policy="passive").values)  # fmt: skip
    written(tmp_path / "study", whole(), best)
    return tmp_path


def _exported(home, *words):
    return run_here(home, "export", "study", *words)


def test_json_is_the_dict(home):
    assert json.loads(_exported(home, "--to", "json").stdout)["amp_dtype"] == "bfloat16"


@pytest.mark.parametrize(
    ("is_kept", "says"),
    [
        (True, "your baseline itself, undecided against another configuration (1.08×, 0.95 to 1.22)"),
        (False, "undecided against your baseline (1.08×, 0.95 to 1.22)"),
    ],
)
def test_what_is_undecided_is_not_said_to_be_measured(is_kept, says):
    rival = Undecided(config=config(64), gain=1.08, gain_low=0.95, gain_high=1.22, rounds=3)
    best = recommendation(undecided=rival)

    found = recipe(replace(best, params=best.baseline) if is_kept else best, Framework.TORCH)

    remark = next(one for one in found.remarks if "samples/s" in one)
    assert remark.partition("samples/s, ")[2].startswith(f"{says}; measured on")


def test_variables_are_read_by_a_shell(home):
    lines = _exported(home, "--to", "env").stdout

    said = subprocess.run(
        ["sh", "-c", f"{lines}\necho $BATCH_SIZE $AMP_DTYPE $OMP_WAIT_POLICY"], capture_output=True, text=True,
        check=True, env={"PATH": os.environ["PATH"]},
    )  # fmt: skip
    assert said.stdout == "64 bfloat16 passive\n"


def test_what_is_not_set_is_no_empty_variable():
    lines = as_variables({"batch_size": 64, "amp_dtype": None, "omp_wait_policy": None}).splitlines()

    assert lines == ["export BATCH_SIZE=64", "unset AMP_DTYPE", "unset OMP_WAIT_POLICY"]


def test_a_knob_of_the_users_own_overwrites_no_variable_of_the_shell():
    lines = as_variables({"batch_size": 64, "path": "short", "home": None}).splitlines()

    assert lines == ["export BATCH_SIZE=64", "export KNOB_PATH=short", "unset KNOB_HOME"]


@pytest.mark.parametrize(
    ("now", "today", "said"),
    [(True, False, "    gradient_checkpointing=True,\n"), (False, True, "    gradient_checkpointing=False,\n")],
)
def test_what_a_trainer_recomputes_by_itself_is_its_argument(now, today, said):
    best = recommendation(params=config(64, activation_checkpointing=now).values,
                          baseline=config(64, activation_checkpointing=today).values,
                          facts=facts(written=("activation_checkpointing",)))  # fmt: skip

    text = exported_text(Framework.HUGGING_FACE, recipe(best, Framework.HUGGING_FACE))

    assert said in text
    assert "checkpoint_blocks" not in text


def test_torchtitan_gets_flags_and_derives_accumulation_from_the_global_batch(home):
    lines = _exported(home, "--to", "torchtitan").stdout

    words = shlex.split(lines.replace("\\\n", " "), comments=True)
    assert words[:6] == [
        "--training.local_batch_size", "64", "--training.global_batch_size", "256",
        "--training.mixed_precision_param", "bfloat16",
    ]  # fmt: skip
    assert words[words.index("--dataloader.num_workers") + 1] == "2"
    assert "--dataloader.persistent_workers" in words


def test_yaml_keeps_what_else_stands_there(home):
    (home / "train.yaml").write_text("# mine\nlr: 0.1\nbatch_size: 8   # small\nmodel:\n  width: 3\n")

    _exported(home, "--to", "yaml", "--write", "train.yaml")

    kept = (home / "train.yaml").read_text()
    assert kept.startswith("# mine\nlr: 0.1\nbatch_size: 64   # small\nmodel:\n  width: 3\n")
    assert 'amp_dtype: "bfloat16"\n' in kept
    assert "num_threads: null\n" in kept


def test_the_one_global_batch_that_has_an_answer_is_told_as_one(home):
    said = _exported(home, "--global-batch", "64").stderr

    assert "has no answer for a global batch of 64, only for 1024. " in said
    assert "Ask for that one, or search with --global-batch 64." in said


@pytest.mark.parametrize(("name", "line"), [("t.yaml", "batch_size: 64\n"), ("t.json", '"batch_size": 64,\n')])
def test_a_file_is_written_by_knob_name_in_the_form_of_its_ending_if_nothing_else_is_said(home, name, line):
    ended = _exported(home, "--write", name)

    assert ended.returncode == 0, ended.stderr
    assert line in (home / name).read_text()


def test_the_written_yaml_is_what_a_reader_of_yaml_reads(home):
    yaml = pytest.importorskip("yaml")
    (home / "train.yaml").write_text("lr: 0.1\nbatch_size: 8\n")

    _exported(home, "--to", "hf", "--write", "train.yaml")

    read = yaml.safe_load((home / "train.yaml").read_text())
    assert (read["lr"], read["batch_size"], read["per_device_train_batch_size"], read["bf16"]) == (0.1, 8, 64, True)


def test_json_keeps_what_else_stands_there(home):
    (home / "ds.json").write_text('{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": 1}')

    _exported(home, "--to", "deepspeed", "--write", "ds.json")

    kept = json.loads((home / "ds.json").read_text())
    assert kept["zero_optimization"] == {"stage": 2}
    assert (kept["train_micro_batch_size_per_gpu"], kept["gradient_accumulation_steps"]) == (64, 4)


def test_the_file_that_accelerate_launch_reads_keeps_what_else_stands_there(home):
    (home / "a.yaml").write_text("distributed_type: 'NO'\nmain_training_function: main\n")

    _exported(home, "--to", "accelerate", "--world-size", "4", "--write", "a.yaml")

    kept = (home / "a.yaml").read_text()
    assert kept.startswith('distributed_type: "MULTI_GPU"\nmain_training_function: main\nnum_processes: 4\n')


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.toml", "", "neither JSON nor YAML"),
        ("a.json", "{", "is not valid JSON"),
        ("a.json", "[]", "holds no object"),
        ("a.yaml", "batch_size: [8, 16]\n", "more than one value for batch_size, in line 1"),
        ("a.yaml", "batch_size:\n  - 8\n", "more than one value for batch_size"),
        ("a.yaml", "{batch_size: 8, lr: 0.1}\n", "not one block-style YAML mapping"),
        ("a.yaml", "- lr\n- 0.1\n", "not one block-style YAML mapping"),
        ("a.yaml", "lr: 0.1\n---\nlr: 0.2\n", "not one block-style YAML mapping"),
        ("a.yaml", "lr: 0.1\n...\n", "not one block-style YAML mapping"),
    ],
)
def test_a_file_that_cannot_take_them_is_left_as_it_is(tmp_path, name, content, said):
    (tmp_path / name).write_text(content)

    with pytest.raises(UsageError, match=said):
        merged(tmp_path / name, {"batch_size": 64})
    assert (tmp_path / name).read_text() == content


def test_code_is_not_put_into_a_file_of_values(home):
    assert "is code" in assert_one_clear_error(_exported(home, "--to", "lightning", "--write", "a.json"))


def test_more_devices_accumulate_less(home):
    found = json.loads(_exported(home, "--to", "json", "--world-size", "2").stdout)

    assert (found["batch_size"], found["gradient_accumulation_steps"]) == (64, 2)
    assert "--training.global_batch_size 256" in _exported(home, "--to", "torchtitan", "--world-size", "2").stdout


@pytest.mark.parametrize(
    ("devices", "accumulation", "ranks", "said"),
    [
        (0, 4, 1, "--world-size 0 is no number of devices"),
        (3, 4, 1, "It is 4 × 64, the micro-batch of one device, and 4 is no multiple of 3. --world-size can be 1 or 2 "
                  "or 4. Search with a multiple of 3: --global-batch 258."),
        (8, 4, 1, "Search with smaller micro-batches for 8: --global-batch 256 --batch 4,8,16,32."),
        (8, 2, 2, "the global batch of 256 samples. It is 4 × 64"),
        (2, 1, 1, "--world-size can be 1. Search with smaller micro-batches for 2: --global-batch 64 --batch 4,8,"),
    ],
)  # fmt: skip
def test_a_number_of_devices_that_would_change_the_global_batch_is_refused_with_those_that_would_not(
    devices, accumulation, ranks, said
):
    best = recommendation(params=config(64, gradient_accumulation_steps=accumulation).values, facts=facts(ranks=ranks))

    with pytest.raises(UsageError, match=re.escape(said)):
        on_devices(best, devices)


def test_what_ranks_were_measured_with_is_for_as_many_devices():
    best = recommendation(params=config(64, gradient_accumulation_steps=4).values, facts=facts(ranks=2))

    assert on_devices(best, None) == on_devices(best, 2) == best
    assert on_devices(best, 1).params["gradient_accumulation_steps"] == 8
    assert on_devices(best, 4).params["gradient_accumulation_steps"] == 2


@pytest.mark.parametrize("framework", ["hf", "deepspeed", "torchtitan"])
@pytest.mark.parametrize("workers", ["--num-workers {num_workers=0}", ""])
def test_of_a_command_the_settings_are_exported_and_nothing_that_its_script_does_not_have(tmp_path, framework, workers):
    best = recommendation(
        target=f"-- python train.py --batch-size {{batch_size=64}} {workers}",
        params=config(64, gradient_accumulation_steps=4, amp_dtype="bfloat16", num_workers=2).values,
        facts=facts(has_collate=True, owns_loop=True),
    )
    written(tmp_path / "study", whole(), best)

    shown = run_here(tmp_path, "export", "study", "--to", framework)

    assert shown.returncode == 0
    text = shown.stdout + shown.stderr
    assert "64" in text
    assert re.search("bf16|bfloat16", text)
    assert not re.search("drop_last|collate|shuffle|dataset|loss_fn|inputs", text)
    assert ("persistent_workers" in text) == (workers == "")
    assert "# #" not in text
    assert "Your script stays as it is, and is started by: python train.py --batch-size 64" in text


SHARING = """
import os, sys
import torch
from torch.utils.data import DataLoader, DistributedSampler
torch.distributed.init_process_group("gloo")
loader = DataLoader(range(64), batch_size=int(sys.argv[2]), sampler=DistributedSampler(range(64)))
open("rank" + os.environ["RANK"], "w").write(str([len(batch) for batch in loader]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("to", [(), ("--to", "torch"), ("--to", "lightning"), ("--to", "accelerate")])
def test_a_script_with_its_own_loop_is_exported_as_the_line_that_starts_it(tmp_path, to):
    best = recommendation(
        target=f"-- {shlex.quote(sys.executable)} -m torch.distributed.run --standalone --nproc-per-node 2 train.py "
        "--batch-size {batch_size=4}",
        params=config(8, amp_dtype="bfloat16").values, facts=facts(ranks=2),
    )  # fmt: skip
    written(tmp_path / "study", whole(), best)
    (tmp_path / "train.py").write_text(SHARING)

    shown = run_here(tmp_path, "export", "study", *to)

    assert shown.stdout.endswith("--nproc-per-node 2 train.py --batch-size 8\n")
    assert "amp_dtype bf16: set them in the script" in shown.stderr
    if not to:
        subprocess.run(shown.stdout, shell=True, cwd=tmp_path, check=True)  # as a person types it
        assert [(tmp_path / f"rank{rank}").read_text() for rank in range(2)] == ["[8, 8, 8, 8]"] * 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--world-size", "2"), "Their number stands in the command"),
        (("--to", "accelerate", "--check"), "whose script has its own loop"),
    ],
)
def test_what_the_line_of_a_command_cannot_be_asked_is_refused(tmp_path, words, said):
    params = config(8, gradient_accumulation_steps=4).values
    best = recommendation(target="-- python train.py --batch-size {batch_size=4}", params=params)
    written(tmp_path / "study", whole(), best)

    assert said in assert_one_clear_error(run_here(tmp_path, "export", "study", *words))
    assert run_here(tmp_path, "export", "study", "--world-size", "2", "--to", "json").returncode == 0


@pytest.mark.parametrize("words", [("-o", "out.py"), ("--check",), ("--check", "-o", "out.py")])
def test_a_file_that_is_written_into_leaves_nothing_to_print_or_to_build(home, words):
    told = _exported(home, "--to", "hf", "--write", "a.yaml", *words)

    assert "--write and --" in assert_one_clear_error(told)
    assert not (home / "a.yaml").exists() and not (home / "out.py").exists()


def test_what_was_written_into_a_file_is_written_anew(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text('fsdp_config: {"fsdp_version": 1}  # mine\n')

    assert merged(file, {"fsdp_config": {"fsdp_version": 2}}) == 'fsdp_config: {"fsdp_version": 2}  # mine\n'


@pytest.mark.parametrize(("accumulation", "says"), [(1, False), (4, True)])
def test_more_devices_accumulate_less_only_if_there_is_something_to_accumulate(accumulation, says):
    best = recommendation(params=config(64, gradient_accumulation_steps=accumulation).values)

    text = exported_text(Framework.ACCELERATE, recipe(best, Framework.ACCELERATE))

    assert [word in text for word in ("on N devices accumulate", "accumulate(model)", "# divided by")] == [says] * 3
    assert " on one device" in text
