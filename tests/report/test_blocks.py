from __future__ import annotations

import functools
import io

from msgspec.structs import replace
from rich.console import Console
from rich.text import Text

from autotune.core.codes import Code
from autotune.core.records import Declaration
from autotune.report.blocks import Check, check_block, doctor_block, trials_table
from tests.reporting import ENVIRONMENT, FACTS, config, failed, ladder, measured, request, trial, view


def printed(block: Text) -> str:
    stream = io.StringIO()
    Console(file=stream).print(block, soft_wrap=True)
    return stream.getvalue()


def numbers(block: Text) -> list[int]:
    return [int(line.split()[0]) for line in block.plain.splitlines()[1:]]


def test_probes_are_sorted_by_speed_with_failures_last() -> None:
    trials = (trial(0, config(), measured(10)), trial(1, config(8), failed()), trial(2, config(16), measured(20)))

    assert numbers(trials_table(view(trials), sort="speed")) == [2, 0, 1]
    assert numbers(trials_table(view(trials))) == [0, 1, 2]


def test_failed_only_also_lists_what_was_measured_but_may_not_be_used() -> None:
    trials = (
        trial(0, config(), measured(10)),
        trial(1, config(8), failed()),
        trial(2, config(16), measured(20, 79 * 2**30)),
    )

    assert numbers(trials_table(view(trials), failed_only=True)) == [1, 2]
    assert trials_table(view(trials[:1]), failed_only=True).plain == "no probe failed"
    assert trials_table(view()).plain == "no probes yet"


def test_the_table_fits_its_width() -> None:
    lines = trials_table(view(ladder()), width=80).plain.splitlines()

    assert max(map(len, lines)) <= 80


def test_check_marks_inferences_and_names_the_line_that_replaces_them() -> None:
    text = printed(check_block("model.py", FACTS, ENVIRONMENT, request().domains))

    assert "! loss    cross_entropy" in text
    assert "override: loss(model, batch)" in text
    assert "gradients in 161 of 161 parameters" in text
    assert text.endswith("will tune: batch_size (3 values)\n")


def test_check_names_a_knob_of_the_users_own_whatever_it_is_called() -> None:
    step = replace(FACTS.check_lines[0], name="step", text="of the target", inferred=False)
    yours = replace(step, text="1, 2: yours, handed to model()")
    declared = (Declaration(name="step", values=(1, 2), default=1, takers=("model",)),)

    text = printed(check_block("m", replace(FACTS, check_lines=(step, yours), declared=declared), ENVIRONMENT, {}))

    assert "step   1, 2: yours" in text
    assert "of the target" not in text


def test_check_does_not_tick_what_the_user_should_look_at() -> None:
    unknown = replace(FACTS.check_lines[0], name="worst batch", text="not known", inferred=False, needs_attention=True)

    assert "! worst batch" in printed(check_block("model.py", replace(FACTS, check_lines=(unknown,)), ENVIRONMENT, {}))


def test_check_does_not_tick_a_loss_that_is_not_finite() -> None:
    assert FACTS.step is not None
    broken = replace(FACTS, step=replace(FACTS.step, loss=None))

    assert "! one step on" in printed(check_block("model.py", broken, ENVIRONMENT, {}))


def test_what_is_found_and_what_replaces_it_stay_apart_however_long_it_is() -> None:
    long = replace(FACTS.check_lines[0], text="x" * 90, inferred=True, override="loss(model, batch)")

    text = printed(check_block("model.py", replace(FACTS, check_lines=(long,)), ENVIRONMENT, {}))

    assert f"{'x' * 90}   override: loss(model, batch)\n" in text


def test_doctor_ends_with_whether_the_machine_is_fit() -> None:
    line = functools.partial(Check, code=Code.DEVICE_FOUND, numbers={})
    good = line(name="torch", text="2.13.0")
    advice = line(name="NVML", text="not found", state="advice", advice="install nvidia-ml-py")
    bad = line(name="disk", text="full", state="bad", advice="free some space")

    assert printed(doctor_block([good])).endswith("This machine is fit for a search.\n")
    assert printed(doctor_block([good, advice])).endswith("with 1 piece of advice above.\n")
    assert printed(doctor_block([good, advice, bad])).endswith("not fit for a search: 1 of 3 checks failed.\n")
    assert "install nvidia-ml-py" in printed(doctor_block([advice]))
