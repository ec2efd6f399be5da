"""What a person names as a target becomes the text that a study records."""

import sys

import pytest

from autotune.errors import TargetError
from autotune.targets.commands.recognition.typed_target import typed_target
from autotune.targets.commands.script.trains_when_run import trains_when_run

GUARD = 'if __name__ == "__main__":\n    main()\n'


@pytest.mark.parametrize(
    ("text", "trains"),
    [
        (f"def main(): ...\n{GUARD}", True),
        ("def main(): ...\nmain()\n", True),
        ("model = Net()\nfor x, y in loader:\n    loss(model(x), y).backward()\n    optimizer.step()\n", True),
        (f"def model(): ...\ndef dataset(): ...\n{GUARD}", False),
        ("def model(): ...\ndef dataset(): ...\n", False),
        (f"def trainer(): ...\n{GUARD}", False),
        ("model = Net()\ntrainer = Trainer(model, arguments)\ntrainer.train()\n", True),
        ("trainer = Trainer(net, data)\ntrainer()\n", True),
        ("model = Net()\nSFTTrainer(model=model, args=args).train()\n", True),
        ("model = Net()\nmodel.train()\ndef dataset(): ...\n", False),
        ("trainer = Trainer(net, data)\nif __name__ == '__main__':\n    trainer.train()\n", False),
        ("model = Net()\ndef epoch():\n    loss().backward()\ndef main():\n    epoch()\nmain()\n", True),
        ("model = Net()\ndef data():\n    return Scaler().fit(x)\ndataset = data()\n", False),
        ("scaler = StandardScaler().fit(x)\ndef model(): ...\ndef dataset(): ...\n", False),
        ("model = Net()\nL.Trainer(max_epochs=3).fit(model)\n", True),
        (f"class Net(L.LightningModule): ...\n{GUARD}", False),
        (f"from pkg.net import build as model\n{GUARD}", False),
        ("def get_model(): ...\n", False),
        ("class Net(nn.Module):\n    def fit(self): self.optimizer.step()\ndef model(): ...\n", False),
        ("def broken(:\n", False),
    ],
)
def test_a_script_is_known_from_a_file_of_functions(tmp_path, text, trains):
    (tmp_path / "t.py").write_text(text)

    assert trains_when_run(tmp_path / "t.py") is trains


def test_a_file_that_is_not_there_is_no_script(tmp_path):
    assert not trains_when_run(tmp_path / "t.py")


def test_a_script_is_taken_as_the_command_that_runs_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(GUARD)

    typed = typed_target(["train.py"], {}, is_typed_command=False)

    assert typed.text == "-- python train.py"
    assert "taken as the command `python train.py`" in typed.remarks[0]


ARGPARSE = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--seed', type=int)\n" + GUARD


@pytest.mark.parametrize(("script", "told"), [(ARGPARSE, ["-t"]), ("from options import parse\n" + GUARD, [])])
def test_an_option_of_ours_behind_the_command_is_told_before_it_is_run(tmp_path, monkeypatch, script, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(script)
    words = [sys.executable, "train.py", "--seed", "3", "-t", "40s"]

    typed = typed_target(words, {}, is_typed_command=True, options={"-t", "--time-budget", "--seed"})

    said = [one for one in typed.remarks if "options of autotune stand before `--`" in one]
    assert [one.split()[0] for one in said] == told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", 1),
        ("import sys\nprint(sys.argv)\n", 1),
        ("import sys\nbudget = sys.argv['--time-budget' in sys.argv]\n", 0),
    ],
)
def test_an_option_of_ours_behind_a_script_that_declares_none_is_told(tmp_path, monkeypatch, text, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(text)
    words = ["python", "train.py", "--time-budget", "60s", "--seed", "3"]

    typed = typed_target(words, {}, is_typed_command=True, options={"-t", "--time-budget", "--seed"})

    assert sum("--time-budget stands behind `--`" in one for one in typed.remarks) == told
    assert not any("--seed stands" in one for one in typed.remarks)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("--batchsize 64", "--batchsize is no argument of the script (did you mean --batch-size?)"),
        ("--batch_size=64", "--batch_size is no argument of the script (did you mean --batch-size?)"),
        ("--batch 64", "--batch 64: taken for batch_size"),
        ("--batch-size 64", "--batch-size 64: taken for batch_size"),
    ],
)
def test_a_mistyped_argument_is_not_taken_for_a_knob(tmp_path, monkeypatch, typed, said):
    monkeypatch.chdir(tmp_path)
    declared = "parser.add_argument('--batch-size', type=int)\nparser.add_argument('--seed', type=int)\n"
    (tmp_path / "train.py").write_text(ARGPARSE.replace("parser.add_argument('--seed', type=int)\n", declared))

    found = typed_target(["python", "train.py", *typed.split()], {}, is_typed_command=True)

    assert said in found.remarks
    assert sum(typed.partition("=")[0].split()[0] in one for one in found.remarks) == 1
    assert ("{batch_size" in found.text) == ("taken for" in said)


@pytest.mark.parametrize("target", ["model.py", "pkg.train", "model.py:build", "train.py:build"])
def test_code_is_named_as_ever(tmp_path, monkeypatch, target):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text("def model(): ...\n")
    (tmp_path / "train.py").write_text(GUARD)

    assert typed_target([target], {}, is_typed_command=False).text == target


def test_a_recorded_text_can_be_given_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    words = [sys.executable, "train.py", "--bs", "8"]

    once = typed_target(words, {}, is_typed_command=True)
    again = typed_target([once.text], {}, is_typed_command=False)

    assert again.text == once.text == f"-- {sys.executable} train.py --bs {{batch_size=8}}"


@pytest.mark.parametrize(
    ("words", "corrections", "said"),
    [
        (["python", "train.py"], {}, "Write `--` before it: -- python train.py"),
        (["model.py"], {"batch": "--bs"}, "--map says what the arguments of a command are, and model.py is none"),
    ],
)
def test_what_is_no_target_is_told(words, corrections, said):
    with pytest.raises(TargetError, match=said):
        typed_target(words, corrections, is_typed_command=False)


def test_where_a_file_says_all_settings_they_can_be_typed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("from options import parse\n" + GUARD)

    typed = typed_target([sys.executable, "train.py", "--fname", "conf/train.yaml"], {}, is_typed_command=True)

    assert any("conf/train.yaml may say more; type what is to be tuned" in remark for remark in typed.remarks)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("{act}", "a knob of yours is written with its values: {act:a/b}"),
        ("--act={act:relu}", "{act:relu} is no placeholder, and is given to the script as it stands"),
        ("{act:relu/gelu", "{act:relu/gelu has no closing brace"),
        ("{batch_size=32", "{batch_size=32 has no closing brace"),
        ("{batchsize=32}", "did you mean {batch_size=32}?"),
        ("{bach_size:1/2}", "did you mean {batch_size:1/2}?"),
        ("model-{epoch}.pt", ""),
        ("{loss:.3f}", ""),
        ("{{act}}", ""),
        ('{"a": 1}', ""),
        ("{act:relu/gelu}", ""),
    ],
)
def test_a_placeholder_that_is_none_is_told(tmp_path, monkeypatch, word, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(ARGPARSE)

    remarks = typed_target(["python", "train.py", "--act", word], {}, is_typed_command=True).remarks

    told = [one for one in remarks if "brace" in one or "placeholder" in one]
    assert len(told) == bool(said)
    assert said in "".join(told)
