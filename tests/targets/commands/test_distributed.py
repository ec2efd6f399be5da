"""The command lines of launchers: what they start is found as their own parsers find it."""

import shlex
from pathlib import Path

import pytest

from autotune.errors import TargetError
from autotune.machine.interference import LEADER
from autotune.targets.commands.command import Command
from autotune.targets.commands.distributed import LAUNCHERS, device_of_rank, launch_of
from autotune.targets.commands.program import read
from autotune.targets.commands.recognition.recognise import recognise
from autotune.targets.commands.watching.command_loop import check_device

TORCHRUN, ACCELERATE = LAUNCHERS
ACCELERATED = """
import argparse
from accelerate import Accelerator
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
accelerator = Accelerator()
"""


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(ACCELERATED)


def _parser(launcher):
    if launcher is TORCHRUN:
        from torch.distributed.run import get_args_parser

        return get_args_parser()
    launch = pytest.importorskip("accelerate.commands.launch")
    return launch.launch_command_parser()


@pytest.mark.parametrize("launcher", LAUNCHERS, ids=["torchrun", "accelerate"])
def test_options_without_a_value_are_those_of_its_parser(launcher):
    actions = [one for one in _parser(launcher)._actions if one.option_strings and one.dest != "help"]
    flags = {name.replace("_", "-") for one in actions if one.nargs == 0 for name in one.option_strings}
    names = {name for one in actions for name in one.option_strings}

    dashed = {name.replace("_", "-") for name in names}
    assert flags == launcher.flags & dashed  # each version of accelerate has some that others do not have
    assert all(one.nargs in (0, None) for one in actions)
    refused = set(launcher.refused) - {"--use-parallelism-config"}  # accelerate 0.34 has none
    assert {launcher.ranks_option, *launcher.knob_options, *refused} <= names | dashed


@pytest.mark.parametrize(
    ("launcher", "line"),
    [
        (TORCHRUN, "--standalone --nproc-per-node 2 train.py --batch-size 4 -m"),
        (TORCHRUN, "--nnodes=1 --nproc_per_node=2 --rdzv-conf a=b train.py --nproc-per-node 7"),
        (TORCHRUN, "-m --nproc-per-node 3 --tee 3 train -x"),
        (TORCHRUN, "train.py"),
        (ACCELERATE, "--num_processes 1 --mixed_precision bf16 train.py --mixed_precision fp16"),
        (ACCELERATE, "--cpu -q --num-processes=2 --dynamo_backend inductor -m train 3"),
        (ACCELERATE, "--num_cpu_threads_per_process=1 --num_processes 1 train.py"),
    ],
)
def test_what_it_starts_is_what_its_parser_finds(launcher, line):
    said = _parser(launcher).parse_args(shlex.split(line))

    program = read(["python", "-m", launcher.module, *shlex.split(line)])

    assert program.launch is not None
    count = said.nproc_per_node if launcher is TORCHRUN else said.num_processes
    assert program.launch.ranks == int(count)
    assert (program.module or str(program.file)) == said.training_script
    assert list(program.arguments) == said.training_script_args
    assert program.launch.is_module == bool(said.module)
    options = _parser(launcher).parse_args([*program.launch.options, "-m", "another", "x"])
    assert {**vars(options), "training_script": "", "training_script_args": "", "module": ""} == {
        **vars(said), "training_script": "", "training_script_args": "", "module": "",
        **({"nondefault": options.nondefault} if "nondefault" in said else {}),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("torch.distributed.run --nproc-per-node gpu train.py", "which is no number.*Write the number: --nproc-per-no"),
        ("torch.distributed.run --nnodes 1:4 train.py", "trains on several machines"),
        ("torch.distributed.run --no-python train.sh", "does not start a Python file"),
        ("torch.distributed.run --nproc-per-node 2", "has nothing to run"),
        ("torch.distributed.launch train.py", "starts other processes in a way that is not watched"),
        ("torch.distributed.run missing.py", "There is no file missing.py"),
        ("accelerate.commands.launch --use_deepspeed train.py", "trains with DeepSpeed, which is not supported yet"),
        ("accelerate.commands.launch --num_machines 2 train.py", "trains on several machines"),
    ],
)
def test_what_it_cannot_be_watched_in_is_refused_at_once(line, message):
    with pytest.raises(TargetError, match=message):
        read(["python", "-m", *line.split()])


def test_launchers_are_known_by_the_names_that_people_type():
    for words in ("torchrun --nproc-per-node 2 train.py", "/opt/bin/torchrun train.py", "accelerate launch train.py",
                  "accelerate-launch train.py", "python3 -u -m torch.distributed.run train.py"):  # fmt: skip
        assert launch_of(words.split()) is not None, words
    for words in ("accelerate config", "python train.py torchrun", "python -m pkg.torchrun"):
        assert launch_of(words.split()) is None, words


def test_a_command_is_called_by_the_script_and_not_by_its_launcher():
    for words in ("torchrun --nproc-per-node 2 train.py", "python -m torch.distributed.run -m pkg.train"):
        assert Command.of(words.split()).label in ("train.py", "pkg.train")


def test_a_folder_is_called_by_its_name_and_not_by_python():
    for words in ("python prog --batch-size 4", "/opt/bin/python3.11 -u src/prog"):
        assert Command.of(words.split()).label == "prog"


START = ["python", "-m", "accelerate.commands.launch"]


def _recognised(line, script=ACCELERATED, **corrections):
    Path("train.py").write_text(script)
    found = recognise([*START, *shlex.split(line)], corrections)
    return found, found.command.text.removeprefix("-- " + " ".join(START)).strip()


def test_options_of_a_launcher_that_are_knobs_stand_before_the_script():
    found, text = _recognised("--num_processes 1 train.py --batch-size 4")

    assert text == "--num_processes 1 --mixed_precision {amp_dtype:accelerate=no} train.py --batch-size {batch_size=4}"
    assert ("--mixed_precision, by default no", "amp_dtype") in found.taken
    parser = _parser(ACCELERATE)
    words = found.command.filled({"amp_dtype": "bfloat16", "batch_size": 2}, "")[len(START) :]
    read_back = parser.parse_args(words)
    assert (read_back.mixed_precision, read_back.num_processes) == ("bf16", 1)
    assert read_back.training_script_args == ["--batch-size", "2"]


def test_typed_options_of_a_launcher_are_taken_with_their_values():
    found, text = _recognised("--mixed-precision=fp16 --num_cpu_threads_per_process 2 -m train")

    assert text.startswith(
        "--mixed-precision={amp_dtype:accelerate=fp16} --num_cpu_threads_per_process {num_threads=2} -m train"
    )
    assert found.command.baseline == {"amp_dtype": "float16", "num_threads": 2, "batch_size": 8}


@pytest.mark.parametrize(
    "script",
    [ACCELERATED.replace("Accelerator()", "Accelerator(mixed_precision='bf16')"), "from transformers import Trainer\n"],
)
def test_a_precision_that_the_script_does_not_leave_to_it_is_no_knob(script):
    _, text = _recognised("--mixed_precision bf16 train.py", script)

    assert text.startswith("--mixed_precision bf16 train.py")


def test_accumulation_of_accelerate_goes_to_deepspeed_alone():
    _, text = _recognised("--gradient_accumulation_steps 4 train.py")

    assert "--gradient_accumulation_steps 4" in text


def test_what_a_launcher_is_told_can_be_named():
    _, text = _recognised("--mixed_precision bf16 train.py", "import argparse\n", amp="--mixed_precision")

    assert "{amp_dtype:accelerate=bf16}" in text


@pytest.fixture
def second_of_two(monkeypatch):
    for name, value in ((LEADER, "1"), ("WORLD_SIZE", "2"), ("RANK", "1"), ("LOCAL_RANK", "1")):
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(("device", "own"), [("cuda:0", "cuda:1"), ("cuda", "cuda:1"), ("cpu", "cpu")])
def test_a_rank_of_a_launcher_has_the_gpu_of_its_number(second_of_two, device, own):
    assert device_of_rank(device) == own


def test_a_single_process_keeps_the_gpu_that_it_was_given(second_of_two, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "1")

    assert device_of_rank("cuda:3") == "cuda:3"
    check_device("train.py", trained="cuda:0", measured="cuda:3")  # as `.cuda()` may choose


def test_a_rank_that_trains_on_the_gpu_of_another_is_refused_with_the_line_that_mends_it(second_of_two):
    check_device("train.py", trained="cuda:1", measured="cuda:1")
    with pytest.raises(TargetError) as refused:
        check_device("train.py", trained="cuda:0", measured="cuda:1")

    assert str(refused.value).startswith("Rank 1 of train.py trained on cuda:0, and the GPU of its number is cuda:1.")
    assert "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))" in str(refused.value)
