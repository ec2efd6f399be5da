from __future__ import annotations

import io
import os
import pty
import re

import msgspec
import pytest
from rich.console import Console

from autotune.context.reporter import Reporter
from autotune.core.results import Outcome, Trial, Verdict
from autotune.knobs import KNOBS, knob, touched
from autotune.knobs.choice_knob import ChoiceKnob
from autotune.knobs.num_workers import NumWorkers
from autotune.objectives.verdict import judge
from autotune.report.columns import RESULT_ROOM, columns, fitting_columns, header, line_width
from autotune.report.probes import table
from autotune.report.running import STAGES
from autotune.report.terminal import TerminalReporter, probe_line
from tests.reporting import config, failed, ladder, measured, recommendation, request, trial, view

ESCAPE = "\x1b"


def verdict(one: Trial) -> Verdict:
    return judge(one.result, request())


def tell(reporter: Reporter, trials: tuple[Trial, ...]) -> None:
    reporter.opening(["autotune · model.py", "GPU   Example GPU"])
    for one in trials:
        reporter.probing(one.number, one.config, one.purpose)
        reporter.probed(one, verdict(one), best_so_far=one.number == 6)
    reporter.note("a note")
    reporter.detail("a detail")
    reporter.finished(recommendation())


@pytest.mark.parametrize(
    ("known", "words"),
    [
        (0, "2 probes in 90 s\n"),
        (3, "2 probes now, 3 before\n"),
        (-1, "2 probes\n"),
    ],  # Ctrl-C on a second machine, whose probes no answer counts
)
def test_what_is_counted_at_the_end_was_probed_now(known: int, words: str) -> None:
    stream = io.StringIO()
    reporter = TerminalReporter(Console(file=stream))
    for one in ladder()[:2]:
        reporter.probed(one, verdict(one), best_so_far=False)
    reporter.finished(recommendation(probes=2 + known, seconds=90.0))

    assert f"\n{words}" in stream.getvalue()


def to_file(quiet: bool = False, verbose: bool = False, trials: tuple[Trial, ...] | None = None) -> str:
    stream = io.StringIO()
    tell(TerminalReporter(Console(file=stream), quiet=quiet, verbose=verbose), ladder() if trials is None else trials)
    return stream.getvalue()


def test_a_pipe_gets_one_whole_line_per_probe_and_no_escape_bytes() -> None:
    text = to_file()

    rows = re.findall(r"^ *\d+  .*$", text, re.MULTILINE)
    assert len(rows) == len(ladder())
    assert ESCAPE not in text
    assert "\r" not in text
    assert "layout" in text
    assert "unstable: loss is not finite in 3 of 40 steps" in text
    assert text.count("samples/s") == 1


def test_forced_colour_into_a_pipe_moves_no_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")

    text = to_file()

    sequences = set(re.findall(r"\x1b\[[0-9;?]*([A-Za-z])", text))
    assert sequences == {"m"}


def test_quiet_says_nothing() -> None:
    assert to_file(quiet=True) == ""


def test_verbose_adds_phase_frame_and_evidence_of_a_failure() -> None:
    text = to_file(verbose=True)

    assert "in phase warm-up at model.py:12: torch.OutOfMemoryError" in text
    assert "in phase" not in to_file()


def test_what_happens_between_probes_is_kept_only_by_who_wants_to_know_all() -> None:
    assert "a note" in to_file() and "a detail" not in to_file()
    assert "a detail" in to_file(verbose=True)


def test_verbose_says_how_each_probe_started_and_nothing_of_studies_that_do_not_know() -> None:
    stream = io.StringIO()
    reporter = TerminalReporter(Console(file=stream, width=120), verbose=True)
    ways = ({"isolation": "fork"}, {"isolation": "fresh", "isolation_reason": "forked probes need Linux"}, {})
    for number, way in enumerate(ways):
        probe = trial(number, config(128), msgspec.structs.replace(measured(2605.0), **way))
        reporter.probed(probe, verdict(probe), best_so_far=False)

    started = [line.strip() for line in stream.getvalue().splitlines() if line.startswith("     ")]
    assert started == ["forked", "a fresh process: forked probes need Linux"]


def test_an_interruption_is_told_even_if_quiet() -> None:
    stream = io.StringIO()
    reporter = TerminalReporter(Console(file=stream), quiet=True)
    best = trial(1, config(128), measured(2605.0))

    reporter.probed(best, verdict(best), best_so_far=True)
    reporter.interrupted(view((best,)), "autotune search model.py")

    text = stream.getvalue()
    assert "keeps 1 probe in" in text
    assert "batch 128 × 1" in text
    assert text.endswith("Go on with: autotune search model.py\n")


def test_a_baseline_with_nothing_beside_it_is_not_the_best_so_far() -> None:
    def told(*trials: Trial) -> str:
        stream = io.StringIO()
        TerminalReporter(Console(file=stream)).interrupted(view(trials), "autotune search model.py")
        return stream.getvalue()

    baseline = trial(0, view(()).request.baseline, measured(152.0), "baseline")

    assert "Only the baseline was measured so far: 152 samples/s with batch " in told(baseline)
    best = "Best so far, by single probes, which decide nothing: "
    slower, faster = (trial(1, config(128), measured(rate)) for rate in (100.0, 661.0))
    assert f"{best}your baseline, 152 samples/s with batch " in told(baseline, slower)
    assert f"{best}661 samples/s with batch 128 × 1" in told(baseline, faster)
    assert ", your baseline 152 samples/s.\n" in told(baseline, faster)
    assert "baseline" not in told(faster)


def test_an_error_message_cannot_steer_the_terminal() -> None:
    hostile = trial(0, config(), failed(Outcome.CRASHED, "\x1b[2J\x1b]0;gone\x07 gone\rover"))

    text = to_file(verbose=True, trials=(hostile,))

    assert ESCAPE not in text
    assert "\x07" not in text
    assert "\r" not in text


def read_until(controller: int, seen: bytes, text: bytes) -> bytes:
    """All that was written, once `text` comes after `seen`: the kernel hands over parts, redraws take their time."""
    start = len(seen)
    while text not in seen[start:]:
        seen += os.read(controller, 65536)
    return seen


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, columns_wide: int) -> str:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    controller, terminal = pty.openpty()
    with os.fdopen(terminal, "w", encoding="utf-8") as stream:
        console = Console(file=stream, width=columns_wide, height=40)
        with TerminalReporter(console, budget_seconds=600) as reporter:
            one = trial(0, config(), measured(152.0), "baseline")
            reporter.opening(["title"])
            reporter.probing(0, one.config, "baseline")
            reporter.probed(one, verdict(one), best_so_far=True)
            reporter.phase("search")
            reporter.detail("Comparing the losses.")
            seen = read_until(controller, b"", b"Comparing the losses.")
            reporter.note("Waiting for quiet.")
            seen = read_until(controller, seen, b"Waiting for quiet.")
            seen = read_until(controller, seen, b"Explore")
            reporter.probing(1, config(128), "search")
        stream.write("the end")
        stream.flush()
        seen = read_until(controller, seen, b"the end")
    os.close(controller)
    return seen.decode()


@pytest.mark.slow
def test_a_terminal_gets_a_live_line_and_its_cursor_back(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = on_a_terminal(monkeypatch, 110)

    assert "Ctrl-C keeps the study" in seen
    assert f"{STAGES['search']} · baseline 152 samples/s" in seen
    assert "Comparing the losses." in seen
    assert seen.rindex("Comparing the losses.") < seen.rindex("Explore ·")  # the note took its place
    assert "0:00 / 10:00 · 1 probe ·" in seen
    assert seen.rindex("\x1b[?25h") > seen.rindex("\x1b[?25l")


@pytest.mark.slow
def test_a_narrow_terminal_loses_the_hint_whole_and_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = on_a_terminal(monkeypatch, 60)

    assert "Explore · baseline 152 samples/s  0:00 / 10:00 · 1 probe" in seen
    assert "1 probe ·" not in seen


NAMES = ("batch_size", "amp_dtype", "num_workers", "channels_last", "activation_checkpointing", "num_threads",
         "omp_wait_policy")  # fmt: skip
SOME = tuple(knob(name) for name in NAMES)  # a new knob is a new column, and needs more room
RARE = ("checkpointing", "threads", "omp_wait")  # left alone by most


@pytest.mark.parametrize(
    ("width", "missing"),
    [
        (135, []),
        (126, ["omp_wait"]),
        (116, ["threads", "omp_wait"]),
        (100, [*RARE]),
        (90, [*RARE, "±"]),
        (82, [*RARE, "±", "layout"]),
        (75, [*RARE, "±", "layout", "wait"]),
        (68, [*RARE, "±", "layout", "wait", "workers"]),
    ],
)
def test_narrow_terminals_lose_columns_in_the_stated_order(width: int, missing: list[str]) -> None:
    everything = [column.title for column in columns(SOME)]

    kept = [column.title for column in fitting_columns(columns(SOME), width)]

    assert [title for title in everything if title not in kept] == sorted(missing, key=everything.index)


@pytest.mark.parametrize("width", [20, 60, 80, 100, 200])
def test_no_number_and_no_title_is_ever_cut(width: int) -> None:
    one = trial(7, config(1024), measured(2605.4))

    line, titles = probe_line(one, verdict(one), width=width).plain, header(fitting_columns(columns(), width))

    assert all(text in line for text in ("1024×1", "2,610", "6 GiB"))
    assert all(title in titles for title in ("batch×accum", "samples/s", "peak", "result"))
    assert "…" not in line + titles


@pytest.mark.parametrize("width", [80, 100, 140])
def test_a_long_reason_is_cropped_to_the_width(width: int) -> None:
    one = trial(7, config(), failed(Outcome.CRASHED, "x" * 300))

    line = probe_line(one, verdict(one), width=width).plain

    assert len(line) <= width
    assert line[line_width(fitting_columns(columns(), width)) :].startswith("crashed")


def test_a_measured_probe_over_the_limit_is_not_called_ok() -> None:
    one = trial(3, config(), measured(2000.0, peak_bytes=79 * 2**30))

    assert probe_line(one, verdict(one)).plain.endswith("needs 79 GiB, 76 GiB may be used")


def test_a_probe_that_was_given_up_as_slower_says_so_within_the_room_for_results() -> None:
    one = trial(3, config(), measured(200.0, cut_short=True, noisy=True))

    assert probe_line(one, verdict(one)).plain.endswith("  stopped early")
    assert len("stopped early") <= RESULT_ROOM
    assert "stopped early" in dict(table(view((one,))).rows[0].details)["window"]


def test_a_new_knob_gets_a_column_by_being_in_the_registry() -> None:
    class Prefetch(NumWorkers):
        name, label = "prefetch_factor", "prefetch"

    new = columns((*SOME, Prefetch()))

    cells = {column.title: column.cell(config(prefetch_factor=4), None) for column in new}
    assert cells["prefetch"] == "4"
    assert "prefetch" in [column.title for column in fitting_columns(new, 97)]
    assert "prefetch" not in [column.title for column in fitting_columns(new, 96)]


@pytest.mark.parametrize("knob", [knob for knob in KNOBS if isinstance(knob, ChoiceKnob)], ids=lambda knob: knob.name)
def test_every_choice_of_a_knob_fits_its_column(knob: ChoiceKnob) -> None:
    (column,) = (column for column in columns((knob,)) if column.title == knob.label)

    assert max(len(knob.show(choice)) for choice in (None, *knob.choices)) <= column.width


def test_a_knob_that_this_search_does_not_move_has_no_column() -> None:
    stream = io.StringIO()
    reporter = TerminalReporter(Console(file=stream))

    reporter.opening(["title"], touched([config(512), config(512, num_workers=4)]))
    reporter.probing(0, config(512), "baseline")
    reporter.probed(one := trial(0, config(512), measured(500.0)), verdict(one), best_so_far=False)

    titles, row = [line.split() for line in stream.getvalue().splitlines()[-2:]]
    assert titles[:4] == ["#", "batch×accum", "workers", "samples/s"]
    assert len(row) == len(titles) + 1  # the peak has a unit
