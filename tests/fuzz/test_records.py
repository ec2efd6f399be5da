"""Damaged bytes in every file of a study: each command answers or says what is damaged, and nothing is deleted."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tests.fuzz.inprocess import assert_answered, run

RECORDED = Path(__file__).parents[2] / "studies" / "digits_cnn-xeon"
READERS = (
    ("best", "x"), ("best", "x", "--json"), ("show", "x"), ("show", "x", "--failed"), ("show", "x", "--probe", "1"),
    ("show", "x", "--json"), ("export", "x", "--to", "torch"), ("export", "x", "--to", "hf"), ("report", "x"),
    ("compare", "x", "y"), ("log", "x", "--to", "csv"),
)  # fmt: skip
SEARCH = ("search", "examples/digits_cnn.py", "--study", "studies/x", "-n", "1", "-q")


def files(study: Path) -> list[Path]:
    return sorted(path for path in study.rglob("*") if path.is_file() and path.suffix in (".json", ".txt"))


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a recorded study, and another one beside it; without the page, which nothing reads."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "digits_cnn.py").write_text("def model(): ...\n")
    for name in ("x", "y"):
        shutil.copytree(RECORDED, tmp_path / "studies" / name, ignore=shutil.ignore_patterns("report.*"))
    return tmp_path / "studies" / "x"


def damage(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    kind = chance.choice(("flip", "flip", "no UTF-8", "cut", "empty", "zeros", "swap digits", "insert"))
    if kind == "flip":
        for _ in range(chance.randint(1, 5)):
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    elif kind == "no UTF-8":
        letters = [place for place, byte in enumerate(content) if chr(byte).isalpha()]
        content[chance.choice(letters)] = 0xFF
    elif kind == "cut":
        del content[chance.randrange(len(content)) :]
    elif kind == "empty":
        content.clear()
    elif kind == "zeros":
        content[:] = bytes(len(content))
    elif kind == "swap digits":
        content[:] = (
            content.replace(b"1", b"-9").replace(b"2", b"null")
            if chance.random() < 0.5
            else content.replace(b"0", b"1e999")
        )
    else:
        content[chance.randrange(len(content)) : 0] = b'{"x": [1, "\xff"]}'
    path.write_bytes(content)


def test_every_command_answers_for_the_undamaged_study(study: Path) -> None:
    assert {words: run(*words).returncode for words in READERS} == dict.fromkeys(READERS, 0)


@pytest.mark.parametrize("seed", range(60))
def test_a_damaged_file_is_read_around_or_named(seed: int, study: Path) -> None:
    chance = random.Random(seed)
    there = files(study)
    path = there[seed % len(there)] if seed < len(there) else chance.choice(there)
    damage(path, chance)
    before = {one: one.read_bytes() for one in files(study)}

    assert_answered([*chance.sample(READERS, 4), SEARCH])

    kept = {one.read_bytes() for one in study.parent.rglob("*") if one.is_file()}
    lost = [one for one, content in before.items() if "probes" in one.parts and content not in kept]
    assert not lost


@pytest.mark.parametrize("name", ["study.json", "best.json", "study.db", "probes", "probes/0001/result.json"])
@pytest.mark.parametrize("kind", ["folder", "link to itself", "link to nowhere", "missing"])
def test_a_file_that_is_something_else_is_read_around_or_named(name: str, kind: str, study: Path) -> None:
    path = study / name
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    if kind == "folder":
        path.mkdir()
    elif kind != "missing":
        path.symlink_to(path if kind == "link to itself" else study / "nowhere")

    assert_answered([*READERS, SEARCH])
