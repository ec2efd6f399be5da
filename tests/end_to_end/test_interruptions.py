"""Ctrl-C, SIGTERM and kill -9 at real searches: what was finished is kept, what ran is gone, the next run goes on."""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from autotune.core.records import Config
from autotune.study import disk
from autotune.units import counted
from tests.commandline import TARGET, listing, probes, processes, start, start_on_terminal, wait_until

SEARCH = ("search", "model.py", "-t", "10m")  # each is stopped: on a slow machine it may not end before that
# Where a file `hold` says "PURPOSE COUNT", a probe of this purpose waits in its model once so many are finished: it is
# running when it is interrupted, however fast or slow the machine is.
HELD = (
    TARGET
    + """
import json, sys, time
from pathlib import Path

HOLD, PLACE = Path(__file__).with_name("hold"), next((Path(word) for word in sys.orig_argv if "/probes/" in word), None)

def asked(place):
    request = json.loads((place / "request.json").read_text())
    return request["purpose"] if request.get("repeats") is None else "repeat"

def is_held():
    if PLACE is None or not HOLD.exists():
        return False
    purpose, count = HOLD.read_text().split()
    finished = [asked(result.parent) for result in PLACE.parent.glob("*/result.json")]
    return asked(PLACE) == purpose and finished.count(purpose) >= int(count)

def model():
    while is_held():
        time.sleep(0.01)
    return nn.Linear(8, 2)
"""
)
STUDY = Path("studies", "model")
KILLS = 6


def results(home: Path) -> dict[str, bytes]:
    """The result of every finished probe, by number."""
    return {path.parent.name: path.read_bytes() for path in (home / STUDY).glob("probes/*/result.json")}


def hold(home: Path, purpose: str, count: int = 0) -> None:
    """Let probes of this purpose wait once so many are finished."""
    (home / "model.py").write_text(HELD)
    (home / "hold").write_text(f"{purpose} {count}")


def wait_for_a_probe(home: Path) -> Path:
    """Come back when a probe is running that has left no result; its folder."""
    begun: list[Path] = []

    def is_running() -> bool:
        requests = (home / STUDY).glob("probes/*/request.json")
        begun[:] = [path.parent for path in requests if not (path.parent / "result.json").exists()]
        return bool(begun and probes(home))

    wait_until(is_running, "no probe began")
    return begun[0]


def resume_line(output: str) -> list[str]:
    found = re.search(r"Go on with: autotune (.+)", output)
    assert found is not None, output
    return shlex.split(found[1])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_search_says_what_it_has_and_how_to_go_on(number: signal.Signals, copy: Path) -> None:
    hold(copy, "search")
    before = results(copy)
    search = start(copy, *SEARCH)
    running = wait_for_a_probe(copy)

    search.send_signal(number)
    output, _ = search.communicate()

    assert search.returncode == 130
    assert processes(copy) == []
    assert "Best so far" in output
    assert f"The study keeps {counted(len(before), 'probe')} in studies/model." in output
    assert resume_line(output) == [*SEARCH, "--resume"]
    assert "Traceback" not in output
    assert "\x1b" not in output
    assert not (running / "result.json").exists()
    assert disk.read_orphans(copy / STUDY) == ()  # an interrupt is not held against the configuration
    assert before == results(copy)


def test_the_printed_resume_line_goes_on_and_a_second_ctrl_c_stops_it_too(copy: Path) -> None:
    hold(copy, "search")
    before = results(copy)
    first = start(copy, *SEARCH)
    wait_for_a_probe(copy)
    first.send_signal(signal.SIGINT)
    line = resume_line(first.communicate()[0])
    hold(copy, "search", 1 + sum(trial.purpose == "search" for trial in disk.read_trials(copy / STUDY)))

    second = start(copy, *line)
    wait_until(lambda: len(results(copy)) > len(before), "the resumed search finished no probe")
    second.send_signal(signal.SIGINT)
    second.send_signal(signal.SIGINT)
    output, _ = second.communicate()

    assert "(resumed)" in output
    assert second.returncode == 130
    assert "Traceback" not in output
    assert processes(copy) == []
    assert before.items() <= results(copy).items()


def test_ctrl_c_before_the_first_probe_leaves_nothing(home: Path) -> None:
    before = listing(home)
    search = start(home, *SEARCH)
    wait_until(lambda: probes(home), "the target was never looked at")

    search.send_signal(signal.SIGINT)
    output, _ = search.communicate()

    assert search.returncode == 130
    assert "nothing was measured" in output
    assert before == listing(home)
    assert processes(home) == []


def test_ctrl_c_on_a_narrow_terminal_gives_the_terminal_back(copy: Path) -> None:
    hold(copy, "search")
    search, master = start_on_terminal(copy, 60, *SEARCH)
    written = read_until(master, b"Ctrl-C")
    wait_for_a_probe(copy)

    search.send_signal(signal.SIGINT)
    written += read_until(master, b"--resume")
    os.close(master)

    assert search.wait() == 130
    assert written.count(b"\x1b[?25l") == written.count(b"\x1b[?25h") > 0  # the cursor, hidden and shown again
    assert processes(copy) == []


def read_until(terminal: int, text: bytes) -> bytes:
    written = b""
    while text not in written:
        written += os.read(terminal, 4096)  # the end of the other side is an OSError, and fails the test
    return written


def test_a_killed_search_leaves_no_process_and_loses_no_finished_probe(home: Path) -> None:
    chance = random.Random(0)
    kept: dict[str, bytes] = {}

    for kill in range(KILLS):
        search = start(home, *SEARCH)
        if kill == 0:  # however slow the machine is, something has been finished that could be lost
            wait_until(lambda: results(home), "no probe was finished")
        output = ended_within(search, chance.uniform(0.3, 5.0))
        wait_until(lambda: not processes(home), "a probe outlived its search")

        assert "error:" not in output
        now = results(home)
        assert kept.items() <= now.items()
        assert all(json.loads(result)["outcome"] == "ok" for result in now.values())
        kept = now

    last = start(home, *SEARCH)
    wait_until(lambda: len(results(home)) > len(kept), "after the kills no probe could be finished")
    last.send_signal(signal.SIGINT)
    output, _ = last.communicate()
    assert last.returncode == 130
    assert "(resumed)" in output
    assert kept.items() <= results(home).items()


def test_a_search_killed_in_the_confirmation_goes_on_with_the_round_that_it_was_in(home: Path) -> None:
    hold(home, "confirm", 3)  # one round, and the first of the next
    words = (*SEARCH, "-n", "1")
    search = start(home, *words)
    wait_for_confirmed(home, 3)
    wait_for_a_probe(home)
    search.kill()
    search.communicate()
    wait_until(lambda: not processes(home), "a probe outlived its search")
    kept = confirmed(home)

    hold(home, "confirm", 4)
    again = start(home, *words)
    wait_for_confirmed(home, 4)
    again.kill()
    output, _ = again.communicate()

    assert len(kept) == 3
    assert "completed rounds are reused" in output
    assert confirmed(home)[3] == kept[1]  # every other round begins at the other end


def wait_for_confirmed(home: Path, probes: int) -> None:
    """Come back when so many are finished, however many others come before: patience is for one probe at a time."""
    while len(confirmed(home)) < probes:
        done = len(results(home))
        wait_until(
            lambda done=done: len(results(home)) > done or len(confirmed(home)) >= probes, "a probe was not finished"
        )


def confirmed(home: Path) -> list[Config]:
    """What every finished probe of the confirmation was asked, in order; repeats left out."""
    trials = disk.read_trials(home / STUDY)
    return [trial.config for trial in trials if trial.purpose == "confirm" and trial.repeats is None]


def ended_within(search: subprocess.Popen[str], seconds: float) -> str:
    """What the search wrote until it was killed."""
    try:
        output, _ = search.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        search.kill()
        output, _ = search.communicate()
    return output
