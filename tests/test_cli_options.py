"""What people type wrong: one clear error on standard error, the promised exit status, and nothing written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commandline import assert_one_clear_error, listing, run

WRONG = [
    (("-t", "soon"), "--time-budget: 'soon'"),
    (("-t", "0s"), "--time-budget: '0s'"),
    (("-t", "2"), "--time-budget: '2' has no unit"),
    (("--batch", "64:8"), "--batch 64:8"),
    (("--batch", ":"), "--batch ::"),
    (("--threads", "1:none"), "--threads 1:none: 'none' is no number, so it bounds no range: list the values, 1,none"),
    (("--threads", "none:8"), "--threads none:8: 'none' is no number, so it bounds no range: list the values, none,8"),
    (("--amp", "none:bf16"), "--amp none:bf16: 'none' is no number, so it bounds no range: list the values, none,bf16"),
    (("--amp", "bf16:"), "--amp bf16:: 'bf16' is no number, so it bounds no range"),
    (("--batch", "many"), "--batch many"),
    (("--batch", "0"), "--batch 0"),
    (("--workers", "-1:2"), "--workers -1:2"),
    (("--amp", "int8"), "--amp int8"),
    (("--fix", "nothing=3"), "--fix: there is no knob 'nothing'"),
    (("--fix", "batchsize=64"), "--fix: there is no knob 'batchsize'. The name was probably mistyped. Did you mean"),
    (("--fix", "batch"), "--fix batch: 'batch' has no value"),
    (("--fix", "batch="), "--fix batch=:"),
    (("--baseline", "batch=0"), "--baseline batch=0"),
    (("--tune", "speed"), "--tune: there is no knob 'speed'"),
    (("--global-batch", "much"), "--global-batch much"),
    (("--global-batch", "0"), "--global-batch 0"),
    (("--memory-limit", "lots"), "--memory-limit: 'lots'"),
    (("--memory-limit", "0%"), "--memory-limit: '0%'"),
    (("--batch", "8:x"), "--batch 8:x: batch_size"),
    (("--headroom", "2"), "--headroom: '2'"),
    (("--sampler", "magic"), "--sampler magic"),
    (("--objective", "fame"), "--objective fame"),
    (("--within", "120%"), "--within"),
    (("--price", "cheap"), "--price"),
    (("--objective", "cost", "--price", "2,49"), "--price: '2,49'"),
    (("--device", "gpu"), "There is no device called 'gpu'. The name was probably mistyped. Did you mean cuda?"),
    (("--device", "quantum"), "There is no device called 'quantum'"),
    (("--device", "cuda:first"), "Did you mean cuda?"),
    (("--stability", "twice"), "--stability twice"),
    (("--loss-tolerance", "much"), "--loss-tolerance: 'much'"),
    (("--resume",), "studies/model"),
]


@pytest.mark.parametrize(("words", "named"), WRONG, ids=[" ".join(words) for words, _ in WRONG])
def test_a_wrong_value_is_one_clear_error_and_leaves_nothing(
    words: tuple[str, ...], named: str, tmp_path: Path
) -> None:
    (tmp_path / "model.py").write_text("raise AssertionError('not looked at')\n")
    before = listing(tmp_path)

    ended = run(tmp_path, "search", "model.py", *words)

    assert named in assert_one_clear_error(ended)
    assert before == listing(tmp_path)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("search", "model.py", "-n", "0"), "--probes"),
        (("search", "model.py", "-n", "many"), "--probes"),
        (("search", "model.py", "--seed", "-1"), "--seed"),
        (("search", "model.py", "--probess", "3"), "--probess"),
        (("search",), "target"),
        (("serch", "model.py"), "Did you mean 'search'?"),
        (("show", "--sort", "beauty"), "--sort"),
        (("dashboard", "--port", "70000"), "--port"),
    ],
)
def test_a_wrong_word_is_named_with_exit_status_two(words: tuple[str, ...], named: str, tmp_path: Path) -> None:
    ended = run(tmp_path, *words)

    assert ended.returncode == 2
    assert named in ended.stderr
    assert "Traceback" not in ended.stderr
    assert listing(tmp_path) == set()


def test_a_target_that_is_not_there_leaves_no_study(tmp_path: Path) -> None:
    ended = run(tmp_path, "search", "mdel.py")

    assert "There is no file mdel.py" in assert_one_clear_error(ended)
    assert listing(tmp_path) == set()


@pytest.mark.parametrize("command", [("check", "model.py"), ("doctor",)])
def test_a_device_that_is_none_is_a_mistake_for_every_command(command: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("raise AssertionError('not looked at')\n")

    ended = run(tmp_path, *command, "--device", "gpu")

    assert "Did you mean cuda?" in assert_one_clear_error(ended)


def test_a_device_that_is_not_there_is_exit_status_three_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("")
    before = listing(tmp_path)

    ended = run(tmp_path, "search", "model.py", "--device", "cuda:77")

    assert "cuda:77" in assert_one_clear_error(ended, status=3)
    assert before == listing(tmp_path)


def test_a_limit_above_the_machines_memory_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    assert run(tmp_path, "init").returncode == 0
    before = listing(tmp_path)

    ended = run(tmp_path, "search", "model.py", "--memory-limit", "900000GiB")

    assert "--memory-limit 900000GiB is more than" in assert_one_clear_error(ended)
    assert before == listing(tmp_path)


def test_the_dashboard_refuses_an_address_that_others_can_reach(tmp_path: Path) -> None:
    ended = run(tmp_path, "dashboard", ".", "--host", "0.0.0.0", "--port", "0")

    assert "0.0.0.0" in assert_one_clear_error(ended)


def test_init_never_overwrites_work(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("# mine\n")

    ended = run(tmp_path, "init")

    assert "model.py exists already" in assert_one_clear_error(ended)
    assert (tmp_path / "model.py").read_text() == "# mine\n"


def test_init_into_a_folder_that_is_missing_says_so(tmp_path: Path) -> None:
    ended = run(tmp_path, "init", "missing/model.py")

    assert "missing/model.py" in assert_one_clear_error(ended, status=3)


def test_without_a_command_the_commands_are_listed(tmp_path: Path) -> None:
    ended = run(tmp_path)

    for command in ("init", "check", "search", "show", "best", "dashboard", "doctor"):
        assert f"\n  {command}" in ended.stdout + ended.stderr
    assert "..." not in (ended.stdout + ended.stderr).partition("Commands:")[2], "a description was cut off"
