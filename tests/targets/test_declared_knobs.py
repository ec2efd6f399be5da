"""Knobs that a target declares go by name to the functions that take them; what nothing takes is a mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.core.records import Declaration
from autotune.errors import TargetError
from autotune.knobs import KNOBS
from autotune.knobs.declared import declaration
from autotune.targets import resolve
from autotune.targets.declared_knobs import of_command
from autotune.testing.target_contract import clean_imports
from tests.targets_support import DATASET, HEAD, inspect, refused, start, watch, write

WIDE = HEAD + "def model(width): return nn.Sequential(nn.Linear(4, width), nn.Linear(width, 2))\n" + DATASET


def declared(folder: Path, text: str) -> Declaration:
    (found,) = inspect(folder, text).declared
    return found


def test_an_unknown_name_that_a_function_takes_is_a_knob(tmp_path: Path) -> None:
    facts = inspect(tmp_path, WIDE + 'space = {"width": [8, 2, 4], "num_workers": [0]}\n')

    assert facts.declared == (Declaration(name="width", values=(8, 2, 4), default=8, ordered=True, takers=("model",)),)
    assert set(facts.space) == {"num_workers"}
    assert "8, 2, 4: yours, handed to model()" in {one.text for one in facts.check_lines}
    assert "width" not in {one.name for one in KNOBS}


def test_a_probe_hands_its_value_to_every_function_that_names_it(tmp_path: Path) -> None:
    seen = tmp_path / "seen.txt"
    text = HEAD + (
        f"def note(who, width):\n    with open({str(seen)!r}, 'a') as f: print(who, width, file=f)\n"
        "def model(width): note('model', width); return nn.Linear(4, 2)\n"
        "def dataset(width=1):\n    note('dataset', width)\n"
        "    return TensorDataset(torch.randn(100, 4), torch.randint(2, (100,)))\n"
        "def optimizer(params, *, width): note('optimizer', width); return torch.optim.SGD(params, lr=0.1)\n"
        "def loss(model, batch, width): note('loss', width); return model(batch[0]).square().mean()\n"
        "def setup(knobs): note('setup', knobs['width'])\n"
        'space = {"width": [2, 4]}\n'
    )

    start(tmp_path, text, width=4, batch_size=8).train(watch(1))

    told = dict.fromkeys(seen.read_text().splitlines())
    assert sorted(told) == ["dataset 4", "loss 4", "model 4", "optimizer 4", "setup 4"]


@pytest.mark.parametrize(
    ("default", "expected"), [("'flash'", "flash"), ("'other'", "other"), ("None", "sdpa"), ("object()", "sdpa")],
    ids=str,
)  # fmt: skip
def test_what_a_function_does_by_itself_is_the_baseline(tmp_path: Path, default: str, expected: str) -> None:
    text = HEAD + f"def model(attn={default}): return nn.Linear(4, 2)\n" + DATASET

    assert declared(tmp_path, text + 'space = {"attn": ["sdpa", "flash"]}\n').default == expected


@pytest.mark.parametrize(
    ("default", "space", "expected"),
    [
        ("'tanh'", "['relu', 'gelu']", (("tanh", "relu", "gelu"), "tanh", False, "changes")),
        ("'gelu'", "'relu'", (("gelu", "relu"), "gelu", False, "changes")),
        ("3", "{'values': [1, 2], 'memory': 'grows'}", ((3, 1, 2), 3, True, "grows")),
        ("'all'", "{'values': [1, 2], 'memory': 'grows'}", (("all", 1, 2), "all", False, "changes")),
        ("1.0", "[1, 2]", ((1, 2), 1, True, "changes")),  # the same number
        ("None", "[1, 2]", ((1, 2), 1, True, "changes")),
        ("float('inf')", "[1, 2]", ((1, 2), 1, True, "changes")),
    ],
)  # fmt: skip
def test_what_a_function_does_by_itself_is_searched_too(
    tmp_path: Path, default: str, space: str, expected: tuple[object, ...]
) -> None:
    text = HEAD + f"def model(act={default}): return nn.Linear(4, 2)\n" + DATASET

    one = declared(tmp_path, text + f'space = {{"act": {space}}}\n')

    assert (one.values, one.default, one.ordered, one.memory) == expected


def test_a_declared_baseline_leaves_the_default_of_a_function_out(tmp_path: Path) -> None:
    text = HEAD + "def model(act='tanh'): return nn.Linear(4, 2)\n" + DATASET

    one = declared(tmp_path, text + 'space = {"act": ["relu", "gelu"]}\nbaseline = {"act": "gelu"}\n')

    assert one.values == ("relu", "gelu")


def test_the_declared_baseline_counts_more(tmp_path: Path) -> None:
    facts = inspect(tmp_path, WIDE + 'space = {"width": [2, 4]}\nbaseline = {"width": 4, "batch_size": 8}\n')

    assert facts.baseline == {"width": 4, "batch_size": 8}


def test_a_declaration_in_full_says_what_is_known_of_it(tmp_path: Path) -> None:
    one = '{"values": ["a", "b"], "changes_arithmetic": False, "memory": "grows", "ordered": True}'

    found = declared(
        tmp_path, HEAD + "def model(kind): return nn.Linear(4, 2)\n" + DATASET + f"space = {{'kind': {one}}}\n"
    )

    assert (found.changes_arithmetic, found.memory, found.ordered) == (False, "grows", True)


MISTAKES = {
    "nothing takes it": (
        'space = {"widht": [2, 4]}\n',
        ["space: there is no knob 'widht', and no function that autotune calls in model.py takes an argument of that",
         "Did you mean width?", "def model(widht)"],
    ),
    "a knob of ours, mistyped": (
        'space = {"num_worker": [2, 4]}\n', ["there is no knob 'num_worker'", "Did you mean num_workers?"],
    ),
    "a knob of ours, mistyped in a function too": (
        'def setup(batch_sizes): ...\nspace = {"batch_sizes": [2, 4]}\n',
        ["there is no knob 'batch_sizes'. It was", "Did you mean batch_size? A knob of your own needs a name that is"],
    ),
    "a knob of ours, mistyped, where a function takes all knobs": (
        'def setup(knobs): ...\nspace = {"num_threds": [2, 4]}\n', ["Did you mean num_threads?"],
    ),
    "no values": ('space = {"width": []}\n', ['space["width"]: width has no value: list at least one.']),
    "an object": ('space = {"width": [nn.ReLU]}\n', ["values travel to processes as JSON"]),
    "the same twice": ('space = {"width": [2, 2]}\n', ["the same value twice: 2, 2"]),
    "no number": ('space = {"width": [2.0, float("nan")]}\n', ["finite numbers"]),
    "a name of ours": ('space = {"device": ["cpu"]}\n', ["'device' is a name that autotune hands to functions itself"]),
    "an unknown key": (
        'space = {"width": {"value": [2, 4]}}\n', ["unknown key 'value', probably meant as 'values'. It may have"],
    ),
    "memory in other words": ('space = {"width": {"values": [2], "memory": "much"}}\n', ["must be one of grows"]),
    "growing without an order": (
        'space = {"width": {"values": ["a", "b"], "memory": "grows"}}\n', ["grows with its order, and it has none"],
    ),
    "a baseline that is not listed": (
        'space = {"width": [2, 4]}\nbaseline = {"width": 3}\n', ['baseline["width"]: width must be one of 2, 4, got 3'],
    ),
    "a baseline that is not declared": ('baseline = {"widht": 3}\n', ["baseline: there is no knob 'widht'"]),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_every_mistake_of_a_declaration_has_its_message(tmp_path: Path, mistake: str) -> None:
    text, expected = MISTAKES[mistake]

    error = refused(tmp_path, WIDE.replace("(width)", "(width=4)") + text)

    assert [part for part in expected if part not in str(error)] == [], str(error)


def test_what_is_declared_beside_the_file_counts_more(tmp_path: Path) -> None:
    place = str(write(tmp_path, WIDE + 'space = {"width": [2, 4]}\n'))

    with clean_imports():
        facts = resolve(place).inspect(
            "cpu", None, lambda phase: None, [Declaration(name="width", values=(8,), default=8)]
        )

    assert facts.declared[0].values == (8,)


def test_a_builder_takes_it_too(tmp_path: Path) -> None:
    text = HEAD + (
        "def build(width=4):\n"
        "    data = TensorDataset(torch.randn(100, 4), torch.randint(2, (100,)))\n"
        "    return {'model': nn.Linear(4, 2), 'dataset': data, 'space': {'width': [2, 4]}}\n"
    )

    with clean_imports():
        facts = resolve(f"{write(tmp_path, text)}:build").inspect("cpu", None, lambda phase: None)

    assert facts.declared == (Declaration(name="width", values=(2, 4), default=4, ordered=True, takers=("build",)),)


def test_an_argument_that_is_typed_without_braces_takes_no_knob() -> None:
    from autotune.targets.commands.command import Command

    with pytest.raises(TargetError, match=r"the command has no \{lr\}\. .* stays as it is .* --lr \{lr:0\.1/0\.2\}\."):
        of_command(Command.parse("-- python train.py --lr 0.1"), [declaration("lr", [0.1, 0.2])])


def test_a_command_declares_it_in_its_placeholder() -> None:
    from autotune.targets.commands.command import Command

    command = Command.parse("-- python train.py --attn {attn:sdpa/flash} --rows={rows:8/16=16} --bs {batch_size=4}")

    assert [(one.name, one.values) for one in command.declared] == [("attn", ("sdpa", "flash")), ("rows", (8, 16))]
    assert command.baseline == {"attn": "sdpa", "rows": 16, "batch_size": 4}
    words = command.filled({"attn": "flash", "rows": 8, "batch_size": 2}, "")
    assert words[2:] == ["--attn", "flash", "--rows=8", "--bs", "2"]
    assert Command.parse(command.text) == command


@pytest.mark.parametrize(
    ("placeholder", "expected"),
    [
        ("{attn}", "{attn:a/b/c} for a knob of your own"),
        ("{batch_sizes:8/16}", "Did you mean {batch_size}?"),
        ("{attn:a/a}", "attn has the same value twice"),
        ("{device:a/b}", "'device' is a name that autotune hands"),
    ],
)
def test_every_mistake_of_a_placeholder_has_its_message(placeholder: str, expected: str) -> None:
    from autotune.targets.commands.command import Command

    with pytest.raises(TargetError) as caught:
        Command.parse(f"-- python train.py {placeholder}")

    assert expected in str(caught.value)


def test_other_arguments_of_such_a_command_are_recognised_all_the_same(tmp_path: Path) -> None:
    from autotune.targets.commands.command import Command
    from autotune.targets.commands.recognition.recognise import recognise

    script = tmp_path / "train.py"
    script.write_text(
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--batch-size', type=int)\n"
        "p.add_argument('--attn')\np.add_argument('--note')\np.parse_args()\n"
    )

    typed = f"python {script} --batch-size 8 --attn {{attn:sdpa/flash}} --note {{note}}"
    found = recognise(Command.split(typed)).command

    assert {"batch_size", "attn"} <= set(found.knobs)
    assert found.recommended({"batch_size": 4, "attn": "flash"})[2:] == [
        "--batch-size", "4", "--attn", "flash", "--note", "{note}",
    ]  # fmt: skip
