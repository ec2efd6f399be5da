"""A command with placeholders is filled word by word, and says what it runs today."""

import shlex
import subprocess
import sys

import pytest

from autotune.errors import TargetError
from autotune.knobs import defaults
from autotune.targets.commands.command import Command, is_command
from autotune.targets.commands.placeholder import literal


def _filled(text, **values):
    return Command.parse(text).filled(defaults() | values, "/scratch")


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("-- python t.py --bs {batch_size}", {"batch_size": 8}, "python t.py --bs 8"),
        ("-- python t.py --bs={batch_size=64}", {"batch_size": 8}, "python t.py --bs=8"),
        ("-- python t.py --bs={batch=64}", {"batch_size": 8}, "python t.py --bs=8"),
        ("-- python t.py --p {amp_dtype:short}", {"amp_dtype": "bfloat16"}, "python t.py --p bf16"),
        ("-- python t.py --p {amp_dtype:short}", {"amp_dtype": None}, "python t.py --p fp32"),
        ("-- python t.py --p {amp_dtype:accelerate}", {"amp_dtype": None}, "python t.py --p no"),
        ("-- python t.py --p {amp_dtype:torch}", {"amp_dtype": "float16"}, "python t.py --p float16"),
        ("-- python t.py --p {amp_dtype:lightning}", {"amp_dtype": "bfloat16"}, "python t.py --p bf16-mixed"),
        ("-- python t.py --p {amp_dtype:half/mixed/full}", {"amp_dtype": None}, "python t.py --p full"),
        ("-- python t.py {bf16:flag}", {"amp_dtype": "bfloat16"}, "python t.py --bf16"),
        ("-- python t.py {bf16:flag}", {"amp_dtype": None}, "python t.py"),
        ("-- python t.py --amp{fp16:flag}", {"amp_dtype": "float16"}, "python t.py --amp"),
        ("-- python t.py --amp{fp16:flag}", {"amp_dtype": None}, "python t.py"),
        ("-- python t.py amp={bf16:True/False}", {"amp_dtype": None}, "python t.py amp=False"),
        ("-- python t.py --{bf16:amp/no-amp}", {"amp_dtype": None}, "python t.py --no-amp"),
        ("-- python t.py --nhwc {channels_last}", {"channels_last": True}, "python t.py --nhwc true"),
        ("-- python t.py {channels_last:flag}", {"channels_last": True}, "python t.py --channels_last"),
        ("-- python t.py --out {output_dir=runs}", {}, "python t.py --out /scratch"),
        ("-- python t.py 'a b' {{batch_size}}", {}, "python t.py 'a b' '{batch_size}'"),
        ("""-- python t.py '{"a": {"b": 1}}'""", {}, """python t.py '{"a": {"b": 1}}'"""),
    ],
)
def test_values_arrive_in_the_words_of_the_command(text, values, expected):
    assert _filled(text, **values) == shlex.split(expected)


def test_the_baseline_is_what_the_command_says_today():
    text = (
        "-- python t.py --bs {batch_size=64} --p {amp_dtype:lightning=bf16-mixed} --workers {num_workers=4} -x {accum}"
    )

    parsed = Command.parse(text)

    assert parsed.baseline == {"batch_size": 64, "amp_dtype": "bfloat16", "num_workers": 4}
    assert parsed.knobs == ("batch_size", "gradient_accumulation_steps", "amp_dtype", "num_workers")
    assert parsed.text == text


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("{bf16:flag=true} {fp16:flag=false}", "bfloat16"),
        ("{bf16:flag=false} {fp16:flag=true}", "float16"),
        ("{bf16:flag=false} {fp16:flag=false}", None),
        ("{bf16:flag=false}", None),
        ("--amp={bf16:1/0=1}", "bfloat16"),
    ],
)
def test_switches_of_one_knob_say_its_value_together(arguments, expected):
    assert Command.parse(f"-- python t.py {arguments}").baseline == {"amp_dtype": expected}


def test_a_value_that_cannot_be_written_is_known_and_refused():
    parsed = Command.parse("-- python t.py {bf16:flag} --threads {num_threads} --p {amp_dtype:bf16//fp32}")

    assert parsed.can_take("amp_dtype", None)
    assert not parsed.can_take("amp_dtype", "float16")
    assert not parsed.can_take("num_threads", None)
    with pytest.raises(ValueError, match="amp_dtype 'float16'"):
        parsed.filled(defaults() | {"amp_dtype": "float16", "num_threads": 1}, "out")


def test_one_flag_says_one_dtype_and_none():
    parsed = Command.parse("-- python t.py {bf16:flag}")

    assert [parsed.can_take("amp_dtype", dtype) for dtype in (None, "bfloat16", "float16")] == [True, True, False]


@pytest.mark.parametrize(
    ("flag", "today"),
    [("--amp{amp:flag=true}", "float16"), ("--amp{amp:flag=false}", None), ("--no-amp{amp:noflag=true}", None)],
)
def test_a_flag_says_whether_and_another_argument_which(flag, today):
    parsed = Command.parse(f"-- python t.py {flag} --amp-dtype {{amp_dtype:bf16/fp16/fp16=fp16}}")

    assert parsed.baseline == {"amp_dtype": today}
    assert [parsed.can_take("amp_dtype", dtype) for dtype in (None, "bfloat16", "float16")] == [True, True, True]
    said = flag.partition("{")[0]
    for dtype, words in {None: [], "bfloat16": ["bf16"]}.items():
        filled = parsed.filled({"amp_dtype": dtype}, "")[2:]
        assert (said in filled) is ((dtype is None) is ("no" in said))
        assert filled[-1:] == (words or ["fp16"])


def test_the_line_for_a_person_writes_where_the_command_writes_today():
    parsed = Command.parse("-- python t.py --out '{output_dir=my runs}' --bs {batch_size=64}")

    assert parsed.recommended(defaults() | {"batch_size": 96}) == ["python", "t.py", "--out", "my runs", "--bs", "96"]
    assert parsed.takes_output_dir


@pytest.mark.parametrize(
    "word", ["{x}", "{{x}}", "{batch_size=1}", "a{b}}", "{", "}}", "{{{y:z}", '{"a": 1}', "a b", "{a,b}"]
)
def test_any_word_can_be_written_and_comes_back(word):
    parsed = Command.of(["python", literal(word)])

    assert parsed.filled({}, "") == ["python", word]
    assert Command.parse(parsed.text) == parsed


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("--", "no command after `--`"),
        ("-- python 't.py", "quote is probably missing"),
        ("-- python t.py {batchsize}", r"Did you mean \{batch_size\}"),
        ("-- python t.py {lr}", r"Write \{\{lr\}\} where the command itself has braces"),
        ("-- python t.py {amp_dtype:tiny}", "Use one of torch, short, lightning, accelerate"),
        ("-- python t.py {batch_size:short}", r"It has none: write \{batch_size\}"),
        ("-- python t.py {amp_dtype:flag}", r"Write \{bf16:flag\} or"),
        ("-- python t.py {batch_size:flag}", r"such as --batch-size \{batch_size\}"),
        ("-- python t.py {batch_size=many}", "Correct what follows the `=`"),
        ("-- python t.py {batch_size=8} {batch_size=9}", "batch_size 8 and 9 at once"),
        ("-- python t.py {bf16:flag=true} {fp16:flag=true}", "amp_dtype bfloat16 and float16 at once"),
    ],
)
def test_a_mistake_is_told_with_what_to_write(command, said):
    with pytest.raises(TargetError, match=said):
        Command.parse(command)


def test_a_target_is_a_command_when_it_begins_with_two_dashes():
    assert is_command("-- python train.py")
    assert is_command("--")
    assert not is_command("train.py")
    assert not is_command("--weird.py")


def test_a_command_is_read_without_torch():
    program = "from autotune.targets.commands import command\nimport sys\nprint('torch' in sys.modules)"

    assert (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "False\n"
    )
