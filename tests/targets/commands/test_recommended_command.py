"""The answer to a command is a command."""

import shlex

from msgspec.structs import replace

from autotune.knobs import defaults
from autotune.targets.commands.recommended_command import recommended_command
from tests.reporting import FACTS

TODAY = defaults() | {"batch_size": 64}
TARGET = "-- python train.py --bs {batch_size=64} --out {output_dir=runs} {bf16:flag=false} --name 'a b'"


def _recommended(target=TARGET, **values):
    found = recommended_command(target, TODAY | values, TODAY)
    assert found is not None
    return found


def test_the_line_has_the_recommended_settings_and_its_own_outputs():
    found = _recommended(batch_size=96, amp_dtype="bfloat16")

    assert found.text == "python train.py --bs 96 --out runs --bf16 --name 'a b'"
    assert list(found.words) == shlex.split(found.text)
    assert found.unset == ()


def test_what_is_set_by_variables_stands_before_the_line():
    found = _recommended(num_threads=2, omp_wait_policy="passive")

    assert found.text.startswith("OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive python train.py --bs 64 ")
    assert found.variables == {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"}


def test_what_the_command_cannot_say_is_told():
    assert _recommended(num_workers=4).unset == ("num_workers 4",)


def test_what_the_script_derives_need_not_be_said():
    found = _recommended("-- python train.py --bs {batch_size=8} --steps 32", gradient_accumulation_steps=2)
    derived = _recommended("-- python train.py --bs {batch_size=8} --global-batch 32", gradient_accumulation_steps=2)

    assert found.unset == ("gradient_accumulation_steps ×2",)
    assert derived.unset == ()


def test_code_has_no_command():
    assert recommended_command("model.py", TODAY, TODAY) is None


WRITTEN = replace(FACTS, written=("batch_size", "gradient_accumulation_steps", "amp_dtype"))


def test_what_the_script_writes_is_told_by_its_own_names():
    best = TODAY | {"batch_size": 32, "gradient_accumulation_steps": 2, "num_workers": 1}

    found = recommended_command("-- python train.py", best, TODAY, WRITTEN)

    assert found is not None
    assert found.written == {"per_device_train_batch_size": 32, "gradient_accumulation_steps": 2}
    assert found.missing == (
        "Write in the script: TrainingArguments(..., per_device_train_batch_size=32, gradient_accumulation_steps=2). "
        "autotune knows no argument of the command for num_workers 1: set it in the script."
    )


def test_where_the_script_stays_as_it_is_nothing_is_to_be_written():
    found = recommended_command("-- python train.py", TODAY, TODAY, WRITTEN)

    assert found is not None
    assert (found.missing, dict(found.environ)) == ("", {})
