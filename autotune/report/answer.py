"""The answer of a study on a terminal: the result, the gain of each change, warnings, and next steps."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.text import Text

from autotune.core.codes import Code
from autotune.core.notices import Notice, costliest_first
from autotune.core.slow_line_sentences import SLOW_LINE_TEXTS
from autotune.harmless import cropped, python, shell_word
from autotune.objectives import objective_of
from autotune.report import phrases
from autotune.report.bottleneck import bottleneck_of
from autotune.report.changes import changes_of, value_of, worth, worth_lines
from autotune.report.durations import durations, steps_per_epoch
from autotune.report.essentials import essential, values_besides
from autotune.report.losses import is_precision_doubtful, losses_phrase, tells_doubt
from autotune.report.phrases import plain
from autotune.sentences import capitalized
from autotune.study.answers import is_uncompared, rounds_run
from autotune.study.recommendation import Recommendation
from autotune.study.view import StudyView, facts_of
from autotune.targets.commands.recommended_command import RecommendedCommand, recommended_command
from autotune.units import counted, format_rate, format_share

WIDEST_ANSWER = 100  # characters: longer lines are hard to read
MOST_ANSWER_LINES = 15  # of that width: they can be read at one glance
MOST_WARNINGS = 3
LONGEST_TEXT, LONGEST_NAME, LONGEST_WORTH = 240, 48, 84  # characters: a warning may quote a message of any length
TITLES = 12  # characters before each line
OF_GLOBAL_BATCH = (Code.GLOBAL_BATCH_UNDECLARED, Code.GLOBAL_BATCH_FREE, Code.FASTER_WITH_BASELINE_BATCH,
                   Code.NOT_FASTER_WITH_BASELINE_BATCH, Code.BASELINE_BATCH_ALONE)  # fmt: skip
OF_TIME = (Code.NOT_CONFIRMED, Code.ONLY_BASELINE_TRIED)  # ask for a longer budget, as an open question does in minutes
OF_OTHER_WORK = (Code.CONFIRMATION_INTERFERENCE, Code.LONE_RATE_INTERFERENCE, Code.BASELINE_RATE_INTERFERENCE,
                 Code.INTERFERENCE_THROUGHOUT, Code.RATES_SPREAD, Code.PROBES_LEFT_OUT)  # fmt: skip
BEFORE_PYTHON = "(in the shell, before Python starts)"
IN_THE_SCRIPT, WITHOUT_WRITING = "Write in the script's TrainingArguments:", "(sets them, the script stays as it is)"


class Line(NamedTuple):
    """One line below the first sentence: its title, its text, and the colour of both."""

    title: str
    text: str
    style: str = ""


def answer_block(
    best: Recommendation, view: StudyView | None = None, *, width: int | None = WIDEST_ANSWER, verbose: bool = False
) -> Text:
    """Return the result of a search. Print it with `soft_wrap=True`: lines are broken here, and never in a command.

    `view` of the study adds the gain of each change. `width` is in characters; None: whole lines, for a file. `verbose`
    adds all details.
    """
    width = sys.maxsize if width is None else min(width, WIDEST_ANSWER)
    head = [line for text in sentences(best, view) for line in flow(plain(text).split(), width)]
    above, warnings = [*changes(best, view, width), *numbers(best, width)], costliest_first(to_know(best))
    room = MOST_ANSWER_LINES - len(head) - 1 - len(above) - len(following(best, width))
    least = len(titled_lines("!", _brief(warnings[0]), width)) if warnings else 0
    own = own_lines(best, width, None if verbose else room - least)
    advised = (*OF_TIME, *OF_OTHER_WORK) if best.undecided else OF_TIME if is_uncompared(best) else ()
    room -= len(own)
    told = (
        [one.text for one in costliest_first(best.warnings)]
        if verbose
        else fitting_warnings(first_of_other_work(warnings), room, width, advised)
    )
    below = following(best, width, left_out=0 if verbose else len(warnings) - len(told))
    lines = [*above, *(line for text in told for line in titled_lines("!", text, width, "yellow")), *own, *below]
    lines += details(best, view, width) if verbose else []
    block = Text("\n".join(head) + "\n\n", "bold green" if phrases.is_better(best) else "bold yellow")
    for line in lines:
        block.append(f"  {line.title.ljust(TITLES - 2)}", line.style or "bold").append(f"{line.text}\n", line.style)
    block.right_crop(1)
    return block


def sentences(best: Recommendation, view: StudyView | None = None) -> list[str]:
    """Return the answer in one sentence, its consequences for training, and the answer without another global batch."""
    return [_first(best), *consequences(best, view)]


def consequences(best: Recommendation, view: StudyView | None) -> list[str]:
    """Return the consequences of another global batch, if it changes, and the best without that change."""
    changed, steps = best.global_batch_change, steps_per_epoch(best, facts_of(best, view))
    beside = [f"{capitalized(one.text)}." for one in best.reasons if one.code in OF_GLOBAL_BATCH]
    return [*([f"{_learning_rate(changed)} {steps}".rstrip()] if changed else []), *beside]


def _first(best: Recommendation) -> str:
    found, now, before = phrases.headline(best), best.global_batch_size, best.baseline_global_batch_size
    name = cropped(plain(best.model), LONGEST_NAME)
    is_better = phrases.is_better(best) and best.params != best.baseline
    if phrases.achieved(best) or (is_better and not objective_of(best.goal).is_speed):
        text = f"{name}: {found}"
    elif is_better:
        text = f"{name} trains {found}"
    else:
        text = capitalized(found)
    if now != before:
        return f"With a global batch of {now} instead of {before}: {text}."
    return f"{text}." if best.params == best.baseline else f"{text}, with the same global batch of {now}."


def _learning_rate(changed: Notice) -> str:
    """Return a sentence that another global batch learns differently, with a learning rate to begin with."""
    rate, sgd, adam = (changed.figure(f"{name}_factor", 1.0) for name in ("learning_rate", "sgd", "adam"))
    if changed.code is Code.GLOBAL_BATCH_CHANGED:
        start = f"{rate:.2g} times today's"
    else:
        start = f"{sgd:.2g} (SGD) or {adam:.2g} (Adam) times today's"
    return f"Another global batch changes what the model learns. Learning rate to start from: {start}."


def changes(best: Recommendation, view: StudyView | None, width: int) -> Iterator[Line]:
    """Yield each change with its value of today and its gain, then the settings that stay."""
    made = [one for one in changes_of(best, view) if one.kept]
    rows = [(next(iter(one.values)), value_of(one.values), f"was {value_of(one.before)}") for one in made]
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    for number, (one, row) in enumerate(zip(made, rows, strict=True)):
        cells = "  ".join(text + " " * (size - cell_len(text)) for text, size in zip(row, widths, strict=True))
        told = worth(one, best) if view or best.changes is not None or len(made) == 1 else ""
        told = cropped(told, LONGEST_WORTH)
        first, *rest = flow([cells, f"  {told}".rstrip()], width - TITLES)
        yield Line("" if number else "Change", first.rstrip())
        yield from (Line("", text) for text in rest)
    stays = values_besides(best, [name for one in made for name in one.values], facts_of(best, view))
    yield from titled_lines("Kept" if made else "Settings", stays, width)


def numbers(best: Recommendation, width: int) -> Iterator[Line]:
    """Yield lines with the measured speed, peak memory and losses."""
    *first, last = phrases.speed_parts(best)
    parts = [*first, f"{last} on {phrases.device(best.environment)}"]
    yield from (Line("Speed" * (not n), text) for n, text in enumerate(flow(parts, width - TITLES, ", ")))
    waiting = f"waiting for data {format_share(best.data_wait_share)}"
    yield Line("Memory", f"{phrases.memory_phrase(best)} · {waiting}")
    yield from titled_lines(
        "Losses", cropped(losses_phrase(best), LONGEST_TEXT), width, "yellow" if is_precision_doubtful(best) else ""
    )


def to_know(best: Recommendation) -> list[Notice]:
    """Return the warnings that no other line of the block contains."""
    return [one for one in best.warnings if one.code is not Code.PRECISION_UNDECIDED or not tells_doubt(best)]


def first_of_other_work(warnings: Sequence[Notice]) -> list[Notice]:
    """Return the warnings, and of those that blame other work on the machine only the first: all ask for quiet."""
    blaming = [one for one in warnings if one.code in OF_OTHER_WORK]
    return [one for one in warnings if one not in blaming[1:]]


def fitting_warnings(warnings: Sequence[Notice], room: int, width: int, advised: Collection[Code] = ()) -> list[str]:
    """Return the texts of at most three warnings that fill no more than `room` lines, but always one.

    The last ones are first shortened to their meaning, then left out: the first one is the most important. The remedy
    of warnings with an `advised` code is named elsewhere.
    """
    most = min(len(warnings), MOST_WARNINGS)
    tries = [(most, whole) for whole in range(most, -1, -1)] + [(count, 0) for count in range(most - 1, 0, -1)]
    texts: list[str] = []
    for count, whole in tries:
        texts = [
            (_whole if n < whole and one.code not in advised else _brief)(one) for n, one in enumerate(warnings[:count])
        ]
        if sum(len(titled_lines("!", text, width)) for text in texts) <= room:
            break
    return texts


def own_lines(best: Recommendation, width: int, room: int | None) -> list[Line]:
    """Return the user's slow lines, which no setting mends, most expensive first: in `room` lines; None: whole."""
    if room is None:
        texts = [one.text for one in best.slow_lines]
        return [line for n, text in enumerate(texts) for line in titled_lines("Your code" * (not n), text, width)]
    texts = [cropped(plain(in_short(one)), width - TITLES) for one in best.slow_lines]
    return [Line("Your code" * (not n), text) for n, text in enumerate(texts[: max(0, room)])]


def in_short(slow_line: Notice) -> str:
    """Return `model.py:21: 9.02 ms a step (21%) → keep a tensor (detach), read it now and then`."""
    known = slow_line.numbers
    text = SLOW_LINE_TEXTS.get(str(known.get("kind")))
    instead = known.get("instead") or (text.instead if text else "")  # an earlier version gave it itself
    if not instead or not {"place", "milliseconds", "share"} <= known.keys():
        return slow_line.text
    place = str(known["place"]).partition(" in ")[0]
    cost = f"{format_rate(slow_line.figure('milliseconds'))} ms a step"
    return f"{place}: {cost} ({format_share(slow_line.figure('share'))}) → {instead}"


def following(best: Recommendation, width: int, left_out: int = 0) -> list[Line]:
    """Return the next steps; `left_out`: the number of warnings that only `--verbose` shows."""
    study, parts = shell_word(best.study), []
    command = recommended_command(best.target, best.params, best.baseline, best.facts)
    exports = [] if command else phrases.exports(best.params)
    parted = [flow([line, BEFORE_PYTHON], width - TITLES, "   ") for line in exports]
    lines = [Line("Set" * (not n), text) for texts in parted for n, text in enumerate(texts)]
    if best.undecided or is_uncompared(best):
        lines += titled_lines("Next", phrases.what_would_tell(best), width)
    if best.params != best.baseline:
        framework = best.facts.framework if best.facts else "torch"
        loaded = [f"autotune.load_best({python(best.study)})", f"autotune export {study} --to {framework}"]
        run = f"autotune run {study}" + f"   {WITHOUT_WRITING}" * bool(command and command.written)
        parts = [run] if command else loaded
        lines += by_command(command, width) if command else []
        title = "Or" if command else "Use it"
        lines += [Line(title * (not n), text) for n, text in enumerate(flow(parts, width - TITLES, " · "))]
    parts = [f"autotune best {study} --verbose", f"autotune report {study}"]
    if left_out:
        parts = [f"{counted(left_out, 'more warning')}: {parts[0]}"]
    return lines + [Line("More" * (not n), text) for n, text in enumerate(flow(parts, width - TITLES, " · "))]


def by_command(command: RecommendedCommand, width: int) -> list[Line]:
    """Return the command to train with, on one line however long, and the settings that it cannot express."""
    written = [f"{one}," for one in command.arguments]
    lines = [IN_THE_SCRIPT, *flow(written, width - TITLES)] if written else []
    return [
        *(Line("Use it" * (not n), text) for n, text in enumerate(lines)),
        Line("Run" if written else "Use it", plain(command.text)),
        *(titled_lines("And", command.unsaid, width, "yellow") if command.unset else ()),
    ]


def details(best: Recommendation, view: StudyView | None, width: int) -> Iterator[Line]:
    """Yield all details: the dict, the evidence, the gain of each change, the runners-up, and the machine."""
    lost = [
        f"{name}: {'' if rate is None else f'{phrases.samples_per_second(rate)}, '}{one.reason.text}"
        for name, rate, one in phrases.runners_up(best)
    ]
    matter, others = essential(best)
    everything = [f"{name}: {python(value)}" for name, value in matter.items()]
    if others:
        everything.append(f"as torch has it: {', '.join(others)}")
    environment = f"{phrases.environment_line(best.environment)} · {best.measured_at[:10]}"
    for title, texts in (
        ("All", everything),
        ("Time", [durations(best, facts_of(best, view))]),
        ("Step", [bottleneck_of(view)] if view and bottleneck_of(view) else []),
        ("Why", list(dict.fromkeys(one.text for one in evidence(best)))),
        ("Worth", worth_lines(best, view)),
        ("Others", [*lost, *([phrases.PAIRED] if lost and max(best.rounds, rounds_run(best)) > 1 else [])]),
        ("Machine", [environment]),
    ):
        for number, text in enumerate(texts):
            yield from titled_lines("" if number else title, text, width)


def evidence(best: Recommendation) -> list[Notice]:
    """Return the facts on losses, the reasons for the choice, and the facts on configurations that were not tried."""
    known = (best.stability, *(one.reason for one in best.loss_verdicts), *best.reasons, best.certificate)
    return [one for one in known if one is not None]


def titled_lines(title: str, text: str, width: int, style: str = "") -> list[Line]:
    """Return `text`, broken between words, with the title before its first line."""
    lines = flow(plain(text).split(), width - TITLES)
    return [Line(title if number == 0 else "", line, style) for number, line in enumerate(lines)]


def flow(parts: Sequence[str], width: int, between: str = " ") -> list[str]:
    """Return the parts on as few lines as they need; none is broken, however long."""
    lines: list[str] = []
    for part in filter(None, parts):
        if lines and cell_len(lines[-1] + between + part) <= width:
            lines[-1] += between + part
        else:
            lines.append(part)
    return lines


def _whole(warning: Notice) -> str:
    """Return the warning with its remedy; only its meaning if that is too long."""
    if warning.code is Code.PROBES_LEFT_OUT:  # --verbose names them, with the reasons
        return f"{_brief(warning)} {warning.next_step}".rstrip()
    return warning.text if len(warning.text) <= LONGEST_TEXT else _brief(warning)


def _brief(warning: Notice) -> str:
    is_failure = warning.code is Code.CONFIGURATIONS_FAILED  # whose error is what matters
    return cropped(warning.meaning if is_failure else warning.brief, LONGEST_TEXT)
