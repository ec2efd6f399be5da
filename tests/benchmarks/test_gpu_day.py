"""The slices of a day with a GPU: that each ends in time, says what failed, and packs what there is."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # whole benchmarks

ROOT = Path(__file__).parents[2]
STUBBORN = "#!/bin/sh\necho begun\nsleep 60\necho ended\n"


def day(tmp_path, *words, python=sys.executable):
    """One call as from the root of the repository; what it says, and its exit status."""
    environ = {"PLACE": "gpu", "ARCHIVE": "gpu.tar.gz", "PYTHON": str(python), "DEVICE": "cpu", "CATALOGUE_SMALL": "1"}
    (tmp_path / "benchmarks").symlink_to(ROOT / "benchmarks")
    ended = subprocess.run(
        ("sh", "benchmarks/gpu_day.sh", *words),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return ended.stdout, ended.returncode


def packed(tmp_path):
    with tarfile.open(tmp_path / "gpu.tar.gz") as archive:
        members = {name: archive.extractfile(name) for name in archive.getnames()}
        return {Path(name).name: member.read().decode() for name, member in members.items() if member}


def test_what_does_not_end_in_time_is_ended_and_what_it_said_is_packed(tmp_path):
    stubborn = tmp_path / "python"
    stubborn.write_text(STUBBORN)
    stubborn.chmod(0o755)

    told, status = day(tmp_path, "fidelity", "0.1", python=stubborn)

    assert status == 1
    assert told.endswith("failed: fidelity\n")
    (log,) = packed(tmp_path).values()
    assert "begun" in log
    assert "ended" not in log


def test_what_earlier_calls_left_is_packed_with_it(tmp_path):
    (tmp_path / "gpu").mkdir()
    (tmp_path / "gpu/unet.json").write_text("{}")

    told, status = day(tmp_path, "fidelity", "1", python="true")

    assert status == 0
    assert told.endswith("packed into gpu.tar.gz\n")
    assert packed(tmp_path)["unet.json"] == "{}"


def test_without_time_nothing_is_begun(tmp_path):
    told, status = day(tmp_path, "questions", "0", python="false")

    assert status == 1
    assert "failed: questions (no time left)" in told


def test_a_slice_that_is_none_is_refused_with_those_there_are(tmp_path):
    told, status = day(tmp_path, "nonsense", "1")

    assert status == 2
    assert "there are tests, questions, targets, fidelity, commands, profile, knobs and ranks" in told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("questions", "2", "--only", "none"), "torch"),
        (("targets", "2", "--smoke", "--targets", "tabular_mlp", "--stages", "flops"), "| usual defaults |"),
        (("fidelity", "2", "--catalogue", "nonsense"), "no target is called nonsense"),
    ],
    ids=lambda words: words[0] if isinstance(words, tuple) else "",
)
def test_each_slice_says_what_its_benchmark_understands(tmp_path, words, said):
    told, _ = day(tmp_path, *words)

    assert said in told
    assert "usage:" not in told


def test_the_slice_of_ranks_scales_searches_and_times_their_exchange(tmp_path):
    told, _ = day(tmp_path, "ranks", "3", "--models", "wide", "--rounds", "1")

    for said in ("Racing 2 contestants", "2 ranks (gloo)", "global batch 32, of 2 ranks", "=== ranks, "):
        assert said in told, said
    assert "usage:" not in told


def test_the_slice_of_commands_profiles_and_searches_a_script_as_it_is(tmp_path):
    told, status = day(tmp_path, "commands", "2", "tabular_mlp", "--batch-size", "64")

    assert status == 0, told
    for said in (" a step of 64 samples, ", "=== command-search, ", "global batch 64", "  Settings  "):
        assert said in told, said


def test_the_slice_of_a_profile_leaves_its_page(tmp_path):
    told, status = day(tmp_path, "profile", "2", "benchmarks/catalogue/tabular_mlp.py")

    assert status == 0, told
    assert "profile.html" in packed(tmp_path)


def test_the_slice_of_knobs_tells_what_they_gain_in_a_plain_loop(tmp_path):
    told, status = day(
        tmp_path, "knobs", "3", "--only", "tabular_mlp", "--baseline", "batch=64", "--knob", "allocator=none"
    )

    assert status == 0, told
    assert "| tabular_mlp | " in told
