"""A notice: a warning or reason next to the numbers, as a code with its own numbers. Only this module words it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Set
from string import Formatter
from typing import Any

from autotune.core.codes import Code
from autotune.core.records import Record, Value
from autotune.core.slow_line_sentences import SLOW_LINE_TEXTS, SlowLineText
from autotune.sentences import first_few
from autotune.units import (
    counted,
    format_bytes,
    format_difference,
    format_rate,
    format_seconds,
    format_share,
    significant,
)

MOST_LISTED = 3  # shown of `{probes:few}`: a program gets all of them
NEWER = "A finding of a newer version of autotune."
OPTIONAL = re.compile(r"\[([^]]*)\]")
NEXT_SENTENCE = re.compile(r"(?<=[.!?]) (?=[A-Z])")
# Codes that are not listed are the least important. First come those that spoil the model or end the training,
COSTLIEST_WARNINGS = (
    Code.RANKS_DIFFER, Code.CODE_CHANGED, Code.PRECISION_UNDECIDED, Code.LOSSES_UNJUDGED, Code.MEMORY_GROWS,
    Code.MEMORY_GROWS_LINE, Code.SAMPLES_REPEATED, Code.GLOBAL_BATCH_CHANGED, Code.GLOBAL_BATCH_CHANGED_NOISE_SCALE,
    Code.LOSS_OF_BATCH, Code.BATCH_NORM, Code.LARGEST_BATCH_UNTRIED, Code.LARGEST_BATCH_UNTRIED_OWN_LOOP,
    # then what makes the answer doubtful or leaves speed on the table, then what is good to know
    Code.ONLY_BASELINE_TRIED, Code.NOT_CONFIRMED, Code.DIFFERS_ELSEWHERE, Code.FAILS_ELSEWHERE, Code.PRECISION_REFUSED,
    Code.CONFIGURATIONS_FAILED, Code.CONFIRMATION_INTERFERENCE, Code.LONE_RATE_INTERFERENCE,
    Code.BASELINE_RATE_INTERFERENCE,
    Code.INTERFERENCE_THROUGHOUT, Code.RATES_SPREAD, Code.FAULTS_SPREAD,
    Code.LOADER_BOUND, Code.LOADER_BOUND_CORES_FULL, Code.LOADER_BOUND_SEARCH_SHORT, Code.LOADER_BOUND_WORKERS_OPEN,
    Code.LOADER_BOUND_WORKERS_FIXED, Code.LOADER_BOUND_WORKERS_TRIED,
    Code.RANKS_UNEVEN, Code.RANKS_MEMORY_UNEVEN, Code.COMMUNICATION_EXPOSED,
    Code.LOADER_BOUND_COMMAND, Code.NOISE_SCALE_UNKNOWN, Code.NOISE_SCALE_EARLY, Code.SYNTHETIC_BATCHES,
    Code.NOTHING_COMPILED, Code.COMPILED_IN_WINDOW, Code.PROBES_LEFT_OUT, Code.PAUSES_LEFT_OUT,
)  # fmt: skip


class Notice(Record, frozen=True, kw_only=True):
    """One warning or reason. A program reads `code` and `numbers`, a person reads `text`."""

    code: Code
    numbers: dict[str, Number]  # by the names in the sentence of the code, units in the names
    text: str = ""  # the sentence and its next step

    @property
    def meaning(self) -> str:
        """The sentence without the next step; the text's first sentence if an earlier version stored other numbers."""
        return self._parts()[0]

    @property
    def brief(self) -> str:
        """The meaning without its optional parts."""
        return self._parts()[1]

    @property
    def next_step(self) -> str:
        """The next step; empty: none, or the meaning contains it."""
        return self._parts()[2]

    def figure(self, name: str, missing: float = 0.0) -> float:
        """Return the number of that name, in the unit in the name; `missing` if it is absent or not a number."""
        value = self.numbers.get(name)
        return value if isinstance(value, int | float) else missing

    def _parts(self) -> tuple[str, str, str]:
        code, numbers = self.code, self.numbers
        if code is Code.EARLIER:
            return self._by_sentences()
        try:
            sentence, next_step = _sentences(code, numbers)
            meaning, step = (worded(part, numbers, numbers.keys()) for part in (sentence, next_step))
            return meaning, worded(OPTIONAL.sub("", sentence), numbers, frozenset()), step
        except (LookupError, TypeError, ValueError, ArithmeticError, RecursionError):  # other numbers, or none
            return self._by_sentences()

    def _by_sentences(self) -> tuple[str, str, str]:
        """Return the parts of an earlier version's text: after the first sentence it is mostly a next step."""
        meaning, *rest = NEXT_SENTENCE.split(self.text, maxsplit=1)
        return meaning, meaning, " ".join(rest)

    @classmethod
    def upgraded(cls, content: Any) -> Any:
        """Return the record for a sentence that an earlier version wrote in its place; None if it was empty.

        A code that only a newer version knows becomes its sentence, too.
        """
        if isinstance(content, str):
            return {"code": Code.EARLIER, "numbers": {}, "text": content} if content else None
        known = super().upgraded(content)
        if not isinstance(known, dict):
            return known
        if known.get("code") not in set(Code):
            return {"code": Code.EARLIER, "numbers": {}, "text": known.get("text") or NEWER}
        return {**known, "numbers": _upgraded(known.get("numbers"))}


def _upgraded(numbers: Any) -> Any:
    """Return the numbers, with every notice among them upgraded."""
    if isinstance(numbers, list):
        return [_upgraded(one) for one in numbers]
    if isinstance(numbers, dict):
        return Notice.upgraded(numbers) if "code" in numbers else {n: _upgraded(one) for n, one in numbers.items()}
    return numbers


# A notice inside another has the same form, and its sentence is inserted without its next step.
Number = Value | Notice | tuple[str | Notice, ...]


def notice(code: Code, **numbers: Number) -> Notice:
    """Return the notice with its text, without optional parts whose number is None or not finite.

    Such numbers are not stored, because JSON cannot represent them; a sentence that needs them says inf or nan. The
    others keep five digits, as in the rest of an answer.
    """
    said: dict[str, Number] = {name: value for name, value in numbers.items() if value is not None}
    given: dict[str, Number] = {
        name: significant(value) if isinstance(value, float) else value
        for name, value in said.items()
        if not isinstance(value, float) or math.isfinite(value)
    }
    text = " ".join(filter(None, (worded(part, said | given, given.keys()) for part in _sentences(code, said))))
    return Notice(code=code, numbers=given, text=text)


def costliest_first(warnings: Iterable[Notice]) -> list[Notice]:
    """Return the warnings, those first whose neglect costs most."""
    places = {code: place for place, code in enumerate(COSTLIEST_WARNINGS)}
    return sorted(warnings, key=lambda one: places.get(one.code, len(places)))


def named(sentence: str) -> set[str]:
    """Return the names of the numbers in a sentence."""
    return {name for _, name, _, _ in Formatter().parse(sentence) if name}


def worded(sentence: str, numbers: Mapping[str, Number], given: Set[str]) -> str:
    """Return the sentence with its numbers; what stands in brackets only where all of its own are given, none empty."""
    known = {name for name in given if numbers[name] != ""}
    shown = OPTIONAL.sub(lambda part: part[1] if named(part[1]) <= known else "", sentence)
    return _WORDS.vformat(shown, (), numbers).strip()  # the space before a part whose neighbour is left out


def _sentences(code: Code, numbers: Mapping[str, Number]) -> tuple[str, str]:
    """Return the sentence and the next step; those of a slow line with the words of its kind in them."""
    if code is not Code.SLOW_LINE:
        return code.sentence, code.next_step
    text = SLOW_LINE_TEXTS.get(str(numbers.get("kind")), SlowLineText("{kind}", "{kind}"))
    if "seen" in numbers:  # an earlier version gave the words themselves
        text = SlowLineText("{seen}", "{instead}")
    return code.sentence.replace("{kind:seen}", text.seen), code.next_step.replace("{kind:instead}", text.instead)


class _Words(Formatter):
    """Python's formats, those of `units`, and lists: `{peak_bytes:bytes}`, `{count:counted probe}`, `{probes:few}`."""

    def format_field(self, value: Any, format_spec: str) -> str:
        kind, _, noun = format_spec.partition(" ")
        if isinstance(value, Notice):
            return _in_place(value)
        if kind in _LISTS:  # a sentence, where an earlier version had none
            return _LISTS[kind]([_in_place(one) for one in value]) if isinstance(value, tuple) else str(value)
        if kind == "counted":
            return counted(value, noun)
        return _FORMATS[kind](value) if kind in _FORMATS else str(format(value, format_spec))


def _in_place(one: Notice | str) -> str:
    """Return the text on one line: an error may have several."""
    return one if isinstance(one, str) else one.meaning.strip().partition("\n")[0]


def _batch(samples: float) -> str:
    """Return a batch size with two digits: intervals of the noise scale support no more."""
    return f"{float(f'{samples:.2g}'):,.3g}" if samples < 1000 else f"{float(f'{samples:.2g}'):,.0f}"


def _times(count: float) -> str:
    return f"{count:,.0f} times" if count >= 1.5 else "once" if count >= 0.75 else f"{count:.2g} times"


def _money(amount: float) -> str:
    """Return an amount with two decimals; below 1 with three digits."""
    return f"{amount:,.2f}" if abs(amount) >= 1 else f"{amount:.3g}"


_FORMATS = {
    "bytes": format_bytes,
    "rate": format_rate,
    "share": format_share,
    "difference": format_difference,
    "seconds": format_seconds,
    "batch": _batch,
    "times": _times,
    "money": _money,
}
_LISTS: dict[str, Callable[[list[str]], str]] = {
    "all": "; ".join,
    "few": lambda texts: first_few(texts, MOST_LISTED, "; "),
    "values": ", ".join,
    "them": lambda texts: "them" if len(texts) > 1 else "it",  # what is said of a list, beside it
    "do": lambda texts: "do" if len(texts) > 1 else "does",
}
_WORDS = _Words()
