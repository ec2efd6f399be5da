"""Settings files with whatever a person, an editor or a disk may leave in them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fuzz.inprocess import assert_answered, target

KEYS = (
    "time-budget", "time_budget", "probes", "study", "device", "objective", "within", "price", "exact", "tune", "fix",
    "batch", "workers", "threads", "amp", "global-batch", "memory-limit", "headroom", "baseline", "sampler",
    "stability", "loss-tolerance", "step-timeout", "seed", "quiet", "resume", "dry-run", "json",
    "wrkers", "ähnlich", "x y",
)  # fmt: skip
VALUES = (
    '""', '"5m"', '"2"', "2", "2.5", "-1", "1e400", "nan", "inf", "9" * 30, "true", "false", "[]", "[8, 16]",
    '["none", "bf16"]', "[[1], [2]]", "{}", '{ batch = 64 }', "1979-05-27T07:32:00Z", "07:32:00", '"\\u001b[31m"',
    '"\\u202e"', '"bf16"', '"8:32"', '"keep"', '"cpu"', '"../x"', "0x10", "'''a\nb'''",
)  # fmt: skip
FILES = (
    b"", b"\xff\xfe", b"\x00", b"[", b"batch", b"batch =", b"= 1", b"batch = 8\nbatch = 9", b"\xef\xbb\xbfbatch = '8'",
    b"[tool]\nautotune = 3", b"[tool.autotune]\nbatch = '8'", b"[search]\nbatch = '8'", b"a" * 100_000,
    b"[" * 3000, b"x = '" + b"\\" * 999, "batch = '8'".encode("utf-16"),
)  # fmt: skip


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    target(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["autotune.toml", "pyproject.toml"])
def test_a_file_that_cannot_be_read_is_explained(name: str, place: Path) -> None:
    for content in FILES:
        (place / name).write_bytes(content)

        assert_answered([("search", "model.py", "--dry-run"), ("best",), ("search", "--help")])


@pytest.mark.parametrize("key", KEYS)
def test_a_key_explains_every_value_that_it_does_not_take(key: str, place: Path) -> None:
    for value in VALUES:
        (place / "autotune.toml").write_text(f'"{key}" = {value}\n')

        assert_answered([("search", "model.py", "--dry-run")])


@pytest.mark.parametrize("seed", range(30))
def test_a_file_with_flipped_bytes_is_explained(seed: int, place: Path) -> None:
    chance = random.Random(seed)
    content = bytearray(b'batch = "8,16"\ntime-budget = "5m"\nexact = true\nprobes = 3\nthreads = "1:none"\n')
    for _ in range(chance.randint(1, 4)):
        content[chance.randrange(len(content))] = chance.randrange(256)
    (place / "autotune.toml").write_bytes(content)

    assert_answered([("search", "model.py", "--dry-run")])


@pytest.mark.parametrize("kind", ["folder", "link to itself"])
def test_a_settings_file_that_is_no_file_is_explained(kind: str, place: Path) -> None:
    path = place / "autotune.toml"
    if kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(path)

    assert_answered([("search", "model.py", "--dry-run"), ("best",)])
