"""The one place that makes foreign text harmless: text from a study, a target, a machine or a framework.

Each kind of output has a function that keeps such a text readable there and removes what could do harm:

    terminal, one line     plain          Python, a value       python
    terminal, several      plain_lines    Python, a comment     comment
    HTML and SVG           markup         shell, one word       shell_word
    JSON                   json_text      CSV, one cell         csv_cell

All of them remove what is not printable: control characters, which steer terminals; line ends, of which Python knows
eleven; directions of writing, which show a text in another order than it has; halves of surrogate pairs.
"""

from __future__ import annotations

import json
import re
import shlex
from html import escape

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # by which a spreadsheet recognises one (OWASP, "CSV Injection")
# A comment in the first two lines can name the encoding of a program (PEP 263), and some encodings turn what follows
# into code.
_ENCODING = re.compile("coding(?=[:=])")
_COLOUR = re.compile("\x1b\\[[0-9;?]*[ -/]*[@-~]")  # ECMA-48: what steers a terminal, such as its colours
_UNUSUAL = re.compile("[^\n\t -~]")
LONGEST_MESSAGE = 600  # characters shown of a message; log and best.json have all of it


def plain(text: str) -> str:
    """Return `text` on one line, for a terminal or a message: a space replaces everything that is not printable."""
    if not text.isprintable():
        text = _COLOUR.sub("", text)
        text = "".join(character if character.isprintable() else " " for character in text)
    return text.strip()


def cropped(text: str, most: int = LONGEST_MESSAGE) -> str:
    """Return `text` in at most `most` characters, the last of them an ellipsis where it is cropped."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def plain_lines(text: str) -> str:
    """Return several lines, such as a traceback or a log, without harmful characters; line ends and tabs stay."""
    text = _COLOUR.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _UNUSUAL.sub(lambda found: found[0] if found[0].isprintable() else " ", text)


def comment(text: str) -> str:
    """Return `text` as a comment of Python or of a shell, which ends where the text does and declares no encoding."""
    indent = " " * (len(text) - len(text.lstrip(" ")))  # of code that is shown as a comment
    return f"# {indent}{_ENCODING.sub('coding ', plain(text))}"


def python(value: object) -> str:
    """Return a text, number, truth value or None as a literal of Python that has exactly this value."""
    if isinstance(value, str) and value.isascii() and value.isprintable():
        return json.dumps(value)  # in double quotes, the usual style of code
    return repr(value)


def json_text(document: str) -> str:
    """Return a JSON `document` with the same content, with numbered escapes for what is not printable."""
    return _UNUSUAL.sub(lambda found: found[0] if found[0].isprintable() else _numbered(found[0]), document)


def shell_word(text: str) -> str:
    """Return `text` as one word for a shell."""
    return shlex.quote(plain(text))


def csv_cell(text: str) -> str:
    """Return `text` on one line; if a spreadsheet would compute it, with an apostrophe in front."""
    return f"'{plain(text)}" if text.startswith(FORMULA) or plain(text).startswith(FORMULA) else plain(text)


def markup(text: str) -> str:
    """Return `text` on one line as content or attribute of HTML and SVG."""
    return escape(plain(text))


def _numbered(character: str) -> str:
    r"""Return such as `\u202e`; two surrogate halves for a character beyond the first plane."""
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[place] << 8 | units[place + 1]:04x}" for place in range(0, len(units), 2))
