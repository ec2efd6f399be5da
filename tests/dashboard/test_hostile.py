"""Whatever a study holds and whatever a client sends, the server shows text, stays inside the studies, and lives on."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from autotune.core import codec
from autotune.core.results import Outcome
from autotune.dashboard import server as serving_it
from autotune.dashboard.server import MOST_CONNECTIONS, StudyServer
from autotune.study import disk
from tests.pages import Page
from tests.reporting import config, failed, ladder, recommendation, request, trial, written
from tests.serving import ask, serving
from tests.worlds import earlier

HOSTILE = """"'><script>alert(1)</script><img src=x onerror=alert(2)><!-- {{ 7 * 7 }} & \x1b[31m"""
FOLDER = """x"'><img src=x onerror=alert(2)>&lt; {{ 7 * 7 }}"""


def hostile_study(folder: Path) -> None:
    probes = (
        trial(0, config(), failed(Outcome.CRASHED, HOSTILE), "baseline"),
        trial(1, config(amp_dtype=HOSTILE), failed(Outcome.OOM_DEVICE, HOSTILE)),
    )
    written(
        folder,
        (*ladder()[:1], *probes[1:]),
        recommendation(model=HOSTILE, target=HOSTILE, warnings=(earlier(HOSTILE),)),
    )
    facts = request().facts
    changed = {
        "target": HOSTILE,
        "facts": type(facts)(**{**{n: getattr(facts, n) for n in facts.__struct_fields__}, "name": HOSTILE}),
    }
    codec.write(folder / disk.STUDY, request(**changed))
    disk.log_of(folder, 1).write_text(HOSTILE)


def made(place: Path) -> Path:
    hostile_study(place / "studies" / FOLDER)
    written(place / "studies" / "resnet", ladder()[:2])
    (place / "secret.txt").write_text("secret")
    return place / "studies"


@pytest.fixture
def studies(tmp_path: Path) -> Path:
    return made(tmp_path)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StudyServer]:
    with serving(made(tmp_path_factory.mktemp("served"))) as started:
        yield started


NAME = "x%22%27%3E%3Cimg%20src%3Dx%20onerror%3Dalert%282%29%3E%26lt%3B%20%7B%7B%207%20%2A%207%20%7D%7D"


@pytest.mark.parametrize(
    "place", ["/", f"/studies/{NAME}/", f"/compare?a={NAME}&b=resnet", f"/compare?a=resnet&b={NAME}"]
)
def test_what_a_study_says_is_never_markup(served: StudyServer, place: str) -> None:
    status, headers, page = ask(served, place)

    elements = Page(page).elements
    nonce = headers["Content-Security-Policy"].partition("script-src 'nonce-")[2].partition("'")[0]
    assert status == 200
    assert [tag for tag, _ in elements if tag in ("img", "iframe", "object", "base", "embed")] == []
    assert {attributes.get("nonce") for tag, attributes in elements if tag in ("script", "style")} == {nonce}
    assert [name for _, attributes in elements for name in attributes if name.startswith("on")] == []
    assert "{{ 7 * 7 }}" in page


@pytest.mark.parametrize(
    "place", [f"/studies/{NAME}/probes/0001/log.txt", "/<script>alert(1)</script>", f"/studies/{HOSTILE[:9]!a}"]
)
def test_what_is_no_page_is_text_and_may_do_nothing(served: StudyServer, place: str) -> None:
    _, headers, _ = ask(served, place.replace(" ", "%20"))

    assert headers["Content-Type"].startswith("text/plain")
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Content-Security-Policy"].startswith("default-src 'none'; base-uri 'none'")


@pytest.mark.parametrize("name", ["study.json", "best.json"])
def test_a_linked_record_is_not_read(studies: Path, name: str) -> None:
    written(studies.parent / "elsewhere", ladder()[:1], recommendation(model="SecretNet"))
    (studies / "resnet" / name).unlink(missing_ok=True)
    (studies / "resnet" / name).symlink_to(studies.parent / "elsewhere" / name)

    with serving(studies) as server:
        page, index = ask(server, "/studies/resnet/"), ask(server, "/")

    assert page[0] == 500
    assert f"{name} of study resnet is a link" in page[2]
    assert "SecretNet" not in page[2] + index[2]


@pytest.mark.parametrize("linked", ["probes", "probes/0001", "probes/0001/result.json", "probes/0001/request.json"])
def test_a_linked_probe_is_not_there(studies: Path, linked: str) -> None:
    outside = studies.parent / "elsewhere"
    place = studies / "resnet" / linked
    place.rename(outside)
    place.symlink_to(outside)

    with serving(studies) as server:
        page = ask(server, "/studies/resnet/")
        log = ask(server, "/studies/resnet/probes/0001/log.txt")

    assert page[0] == 200
    assert "1,010" not in page[2]  # probe 1 has 550 samples/s
    assert 'data-purpose="search"' not in page[2]
    assert log[0] == (200 if linked.endswith("json") else 404)


@pytest.mark.parametrize("name", ["study.lock", "probes/0001/log.txt", "probes/0002/result.json", "best.json"])
def test_a_pipe_that_nobody_writes_to_holds_nobody_up(studies: Path, name: str) -> None:
    pipe = studies / "resnet" / name
    pipe.parent.mkdir(exist_ok=True)
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)

    with serving(studies) as server:
        page, log = ask(server, "/studies/resnet/"), ask(server, "/studies/resnet/probes/0001/log.txt")

    assert page[0] == 200
    assert log[0] == (404 if name.endswith("log.txt") else 200)


def raw(server: StudyServer, request_bytes: bytes, tries: int = 5) -> bytes:
    """The whole reply. A reset may swallow it while a long request is on its way (RFC 9112, 9.6): asked again then."""
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
            connection.sendall(request_bytes)
            connection.shutdown(socket.SHUT_WR)
            received = b""
            while part := connection.recv(65536):
                received += part
            return received
    except ConnectionError:
        if tries == 1:
            raise
        return raw(server, request_bytes, tries - 1)


NO_REQUESTS = (
    b"GET /" + b"a" * 70_000, b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 70_000, b"GET / HTTP/1.1\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/x\r\n\r\n",
)  # fmt: skip


@pytest.mark.parametrize("sent", NO_REQUESTS)
def test_a_request_that_is_none_is_refused_in_plain_words(served: StudyServer, sent: bytes) -> None:
    head, _, body = raw(served, sent).partition(b"\r\n\r\n")

    assert b" 400 " in head.partition(b"\r\n")[0]
    assert b"content-type: text/plain" in head.lower()
    assert body == b"Invalid HTTP request received."
    assert ask(served, "/")[0] == 200


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 200 + b"\r\n", 200),
        (b"GET / HTTP/1.0\r\n\r\n", 400),
        (b"PROPFIND / HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        (b"GET //[ HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        (b"GET http://[/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        (b"GET /compare?" + b"a=b&" * 100 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        (b"GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
    ],
)
def test_an_odd_request_gets_its_status_and_nothing_else(served: StudyServer, sent: bytes, status: int) -> None:
    received = raw(served, sent)

    assert f" {status} ".encode() in received.partition(b"\r\n")[0]
    assert b"content-security-policy: default-src 'none'" in received.lower()
    assert ask(served, "/")[0] == 200


def test_a_request_that_trickles_in_is_given_up_however_steadily_it_does(
    studies: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving_it, "CONNECTION_SECONDS", 0.3)
    with serving(studies) as server, socket.create_connection(("127.0.0.1", server.port)) as slow:
        slow.settimeout(0.05)
        slow.sendall(b"GET / HTTP/1.1\r\nX: ")
        closed = False
        for _ in range(200):
            try:
                slow.sendall(b"y")
                closed = slow.recv(1024) == b""
            except TimeoutError:
                continue
            except ConnectionError:
                closed = True
            if closed:
                break

        assert closed
        monkeypatch.undo()
        assert ask(server, "/")[0] == 200


def test_more_connections_than_there_are_places_are_turned_away_and_later_ones_are_served(studies: Path) -> None:
    with serving(studies) as server:
        with ExitStack() as stack:
            for _ in range(MOST_CONNECTIONS):
                held = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=20))
                held.sendall(b"GET")

            assert ask(server, "/")[0] == 503
        for _ in range(100):
            status = ask(server, "/")[0]
            if status != 503:
                break  # the places are given back when the server has seen that they are free

        assert status == 200
