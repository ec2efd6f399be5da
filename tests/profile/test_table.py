"""The answer in the terminal: everything at once fits, and nothing found is said."""

import json

import pytest

from autotune.core import codec
from autotune.core.interference_readings import HostInterference
from autotune.core.results import Outcome
from autotune.profile.records import (
    PARTS,
    Bounds,
    MeasuredGain,
    ModuleSeconds,
    PartSeconds,
    ProfileResult,
    SlowLine,
    Work,
)
from autotune.profile.table import doubt, profile_block
from tests.worlds import config

LONG = "model = some.very.long.expression.of(the_user, that_goes_on, and_on, and_on, and_on, and_on, and_on, and_on)"


def slow_line(**changes):
    usual = {
        "kind": "host read",
        "place": "a/very/long/folder/of/the/user/model.py:31 in Network.forward",
        "code": LONG,
    }
    return SlowLine(**{**usual, "what": ".item()", "count": 64.0, "seconds": 0.02, **changes})


def result(*lines, **changes):
    usual = {
        "outcome": Outcome.OK,
        "steps": 40,
        "step_seconds": (0.6,) * 40,
        "samples": 64.0,
        "parts": tuple(PartSeconds(part=part, seconds=0.1) for part in PARTS if part != "communication"),
        "modules": tuple(
            ModuleSeconds(name=f"encoder.layers.{number}.attention.{'x' * 60}", kind="Attention", forward=1, backward=2)
            for number in range(12)
        ),
        "work": Work(flops=10**10, peak_flops=1e11, size=1024, dtype="float32"),
    }
    return ProfileResult(**{**usual, "slow_lines": lines, **changes})


def lines(found):
    return profile_block("model.py with " + "x" * 80, config(), "cpu", found).plain.splitlines()


def test_the_longest_answer_fits_40_lines_of_100_columns_and_loses_no_word():
    growth = slow_line(kind="growth", what="history", bytes=2.0**21, steps_left=11_500)

    shown = lines(result(*(slow_line(kind=kind) for kind in ("python", "zeroing", "tail", "host tensor")), growth))

    assert len(shown) <= 40
    assert max(map(len, shown)) <= 100
    text = " ".join(" ".join(shown).split())
    assert "memory grows by 2 MiB a step: what is made here is kept, in history; no memory is left after about" in text
    assert "11,500 steps" in text
    assert shown[-1] == "and 2 findings more: --json"


def test_a_slow_line_says_what_it_costs_how_often_and_what_to_write():
    *_, says, instead = lines(result(slow_line(place="model.py:31 in loss", code="print(loss.item())")))

    assert says == ("model.py:31 in loss 20.0 ms a step (3%): .item() reads a tensor on the host, 64 times a step")
    assert instead.startswith("    print(loss.item())   →   keep a tensor")


def test_what_bounds_a_step_is_said_with_what_each_limit_takes():
    bounds = Bounds(moved_bytes=3 * 2**30, bytes_per_second=2.0**33, calls=2000, call_seconds=3e-6)

    shown = "\n".join(lines(result(bounds=bounds)))

    assert "bound by memory: moving 3 GiB 62%, operations 17%, data 17%, 2,000 calls 1% of the step" in shown


def test_a_mean_of_samples_has_one_decimal():
    assert "a step of 31.9 samples" in lines(result(samples=31.9012))[0]


def test_bounds_that_leave_most_of_a_step_unexplained_do_not_bound_it():
    bounds = Bounds(moved_bytes=2**20, bytes_per_second=2.0**33, calls=2000, call_seconds=3e-6)

    shown = "\n".join(lines(result(bounds=bounds)))

    assert "bound by none of these: " in shown


def test_files_keep_the_names_that_bounds_interference_and_slow_lines_had_in_them():
    bounds = Bounds(moved_bytes=2**20, bytes_per_second=2.0**33, calls=2000, call_seconds=3e-6)
    found = result(slow_line(), bounds=bounds, interference=HostInterference(foreign_cores=1.0))

    written = json.loads(codec.encode(found))

    assert written["limits"]["calls"] == 2000
    assert written["contamination"]["foreign_cores"] == 1.0
    assert len(written["findings"]) == 1
    assert codec.decode(codec.encode(found), ProfileResult) == found


def test_what_was_tried_stands_below_the_slow_line():
    found = slow_line(gain=MeasuredGain(seconds=0.02, low=0.018, high=0.022, same_losses=True))

    assert lines(result(found))[-1] == (
        "    without it 20.0 ms faster a step (measured, 18.0 to 22.0); the same losses in 4 steps"
    )


def test_nothing_found_is_said():
    assert lines(result())[-1] == "No line of yours was found that costs 1% of a step or more."


def test_what_was_not_counted_and_not_told_apart_is_said():
    work = Work(
        flops=None, why="recurrent layers are not counted on a CPU", peak_flops=1e11, size=1024, dtype="float32"
    )

    shown = "\n".join(lines(result(modules=(), work=work)))

    assert "operations not counted: recurrent layers are not counted on a CPU" in shown
    assert "module" not in shown


@pytest.mark.parametrize(("wait", "cores", "told"), [(0.45, 0.93, True), (0.45, 0.0, False), (0.01, 0.93, False)])
def test_work_of_others_is_said(wait, cores, told):
    said = doubt(result(interference=HostInterference(run_queue_wait_share=wait, foreign_cores=cores)))

    assert said.startswith("Other processes kept 0.9 cores busy, and the steps waited 45% ") if told else said == ""
    assert doubt(result()) == ""
