"""Whatever a study, a target or a machine is called: in no place does it become more than text."""

from __future__ import annotations

import ast
import csv
import io
import json
import shlex
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from autotune import harmless

LINE_ENDS = ("\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029")
STEERING = (
    "\x1b[31m",
    "\x1b]0;title\x07",
    "\x9b31m",
    "\b",
    "\x7f",
    "\u202e",
    "\u2066",
    "\u200f",
    "\ufeff",
    "\udcff",
    "\0",
)
BREAKING = ('"', "'", "\\", "</script>", "<img src=x>", "$(id)", "`id`", "; id", "=1+1", "#", "{{ 7 * 7 }}", "&lt;")
HOSTILE = [f"a{part}import os" for part in (*LINE_ENDS, *STEERING, *BREAKING)]


def is_tame(text: str) -> bool:
    """Nothing in it but printable characters, ends of lines and tabs."""
    return all(letter.isprintable() or letter in "\n\t" for letter in text)


@pytest.mark.parametrize("text", HOSTILE)
def test_on_a_terminal_it_is_one_printable_line(text: str) -> None:
    assert harmless.plain(text).isprintable()
    assert len(harmless.plain(text).splitlines()) == 1


def test_of_coloured_text_nothing_but_the_text_is_left() -> None:
    assert harmless.plain("\x1b[1mLoad\x1b[0m \x1b[38;5;9monly\x1b[m this\x1b[2K") == "Load only this"
    assert harmless.plain_lines("\x1b[31mred\x1b[0m\nplain [31m") == "red\nplain [31m"


@pytest.mark.parametrize("text", HOSTILE)
def test_several_lines_stay_and_nothing_else_that_steers(text: str) -> None:
    whole = harmless.plain_lines(f"  first\n\t{text}\n")

    assert is_tame(whole)
    assert whole.startswith("  first\n\t") and whole.endswith("\n")


@pytest.mark.parametrize("text", HOSTILE)
def test_a_comment_holds_no_statement(text: str) -> None:
    program = harmless.comment(text) + "\n"

    assert ast.parse(program).body == []
    assert len(program.splitlines()) == 1


@pytest.mark.parametrize("cookie", ["coding: unicode_escape", "coding=utf-7", "-*- coding:unicode_escape -*-"])
def test_a_comment_declares_no_encoding_that_makes_code_of_it(tmp_path: Path, cookie: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(harmless.comment(f"{cookie} \\nprint('run')+AAo-print('run')") + "\n")

    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("value", [*HOSTILE, "grün 🚀", "plain", 7, 1.5, True, None])
def test_a_literal_has_its_value_and_no_statement(value: object) -> None:
    told = harmless.python(value)

    assert ast.literal_eval(told) == value
    assert told.isprintable()


@pytest.mark.parametrize("text", [one for one in HOSTILE if "\udcff" not in one] + ["grün 🚀 \U000e0001"])
def test_json_is_printable_and_says_the_same(text: str) -> None:
    document = json.dumps({"name": text}, indent=1, ensure_ascii=False)

    told = harmless.json_text(document)

    assert is_tame(told)
    assert json.loads(told) == {"name": text}


@pytest.mark.parametrize("text", HOSTILE)
def test_a_shell_reads_one_word(text: str) -> None:
    assert shlex.split(f"autotune best {harmless.shell_word(text)} --json") == [
        "autotune", "best", harmless.plain(text), "--json"
    ]  # fmt: skip


@pytest.mark.parametrize("text", [*HOSTILE, "=1+1", " =1+1", "\x1b=1+1", "@SUM(A1)", "-1", "+1"])
def test_a_spreadsheet_reads_one_cell_and_computes_nothing(text: str) -> None:
    table = io.StringIO()
    csv.writer(table).writerow([harmless.csv_cell(text), "next"])

    (first, second), *more = csv.reader(io.StringIO(table.getvalue()))

    assert (second, more) == ("next", [])
    assert first.isprintable() and not first.startswith(("=", "+", "-", "@"))


@pytest.mark.parametrize("text", HOSTILE)
def test_a_page_has_no_element_or_attribute_more(text: str) -> None:
    page = ElementTree.fromstring(f'<p title="{harmless.markup(text)}">{harmless.markup(text)}</p>')

    assert (len(page), list(page.attrib)) == (0, ["title"])
    assert page.text == harmless.plain(text)


def test_what_is_cropped_ends_in_an_ellipsis_and_what_fits_stays():
    assert [harmless.cropped("1234", most) for most in (3, 4)] == ["12…", "1234"]
