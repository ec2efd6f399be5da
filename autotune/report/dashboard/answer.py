"""What a browser asks for and what goes back to it, apart from the protocol that carries them."""

from __future__ import annotations

from dataclasses import dataclass, field
from http import HTTPStatus

from autotune.harmless import plain_lines

HTML, TEXT = "text/html; charset=utf-8", "text/plain; charset=utf-8"
NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


@dataclass(frozen=True, kw_only=True)
class Question:
    """A request, decoded: `place` is its path without the first slash, `known` the tag of what the browser has."""

    place: str
    query: dict[str, str] = field(default_factory=dict)
    raw_query: str = ""
    known: str = ""
    accepted_encoding: str = ""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What to send; `policy` is the content security policy that the browser holds it to."""

    status: HTTPStatus = HTTPStatus.OK
    kind: str = TEXT
    body: bytes = b""
    policy: str = NOTHING
    headers: dict[str, str] = field(default_factory=dict)


def plain_text(message: str, status: HTTPStatus = HTTPStatus.OK) -> Answer:
    """A sentence or a log: to a browser and to a terminal nothing but text, whatever it contains."""
    return Answer(status=status, body=plain_lines(message).encode())


def page_policy(nonce: str) -> str:
    """Only style and script that carry the nonce count, and no other server is ever asked for anything."""
    return (
        f"default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )
