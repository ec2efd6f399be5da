"""Requests that no browser sends, to a dashboard of damaged studies: it answers or hangs up, and goes on serving."""

from __future__ import annotations

import random
import shutil
import socket
from pathlib import Path

import pytest

from autotune.dashboard.server import StudyServer
from tests.fuzz.test_records import RECORDED, damage, files
from tests.serving import ask, serving

METHODS = (b"GET", b"HEAD", b"POST", b"OPTIONS", b"get", b"G\x00T", b"", b"\xff", b"GET GET")
PATHS = (
    b"/", b"/studies/x/", b"/studies/x/probes/0001/log.txt", b"/compare?a=x&b=y", b"/compare?a=x", b"/compare?a=%ff",
    b"/studies/%2e%2e/%2e%2e/etc/passwd", b"/studies/../../x", b"//", b"/%00", b"/\xff", b"*", b"http://evil/", b"",
    b"/studies/x/probes/9999999999999999999999/log.txt", b"/studies/x/probes/-1/log.txt", b"/?" + b"a=b&" * 2000,
    b"/studies/" + b"x" * 5000 + b"/", b"/studies/x/?chart=%s%n", b"/raw/x/",
)  # fmt: skip
HEADERS = (
    b"Host: 127.0.0.1:{port}", b"Host: evil.example", b"Host:", b"Host: [::1", b"Host: 127.0.0.1:99999999", b"X: \x00",
    b"If-None-Match: " + b'"' * 99, b"Accept-Encoding: \xff", b"Content-Length: -1", b"Content-Length: 9" + b"9" * 40,
    b"Transfer-Encoding: chunked", b"Range: bytes=9-1", b"Expect: 100-continue", b"no colon", b" folded", b":",
)  # fmt: skip
VERSIONS = (b"HTTP/1.1", b"HTTP/1.0", b"HTTP/9.9", b"HTTP/", b"", b"FTP/1.1")


@pytest.fixture
def studies(tmp_path: Path) -> Path:
    for name in ("x", "y"):
        shutil.copytree(RECORDED, tmp_path / "studies" / name, ignore=shutil.ignore_patterns("report.*"))
    return tmp_path / "studies"


def _sent(chance: random.Random, port: int) -> bytes:
    if chance.random() < 0.2:
        return chance.randbytes(chance.randint(0, 300)) + b"\r\n\r\n"
    parts = chance.choice(METHODS), chance.choice(PATHS), chance.choice(VERSIONS)
    if chance.random() < 0.6:  # else the parser refuses nearly all, and nothing behind it is tried
        parts = b"GET", parts[1], b"HTTP/1.1"
    headers = [HEADERS[0], *chance.sample(HEADERS, chance.randint(0, 3))]
    lines = [b" ".join(parts), *(header.replace(b"{port}", str(port).encode()) for header in headers)]
    content = b"\r\n".join(lines) + b"\r\n\r\n" + chance.randbytes(chance.choice((0, 0, 50)))
    return content[: chance.randint(1, len(content))] if chance.random() < 0.1 else content


def _answer(server: StudyServer, sent: bytes) -> bytes:
    received = b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        try:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(65536):
                received += part
        except OSError:
            pass  # it hung up
    return received


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_sent_the_dashboard_goes_on_serving(
    seed: int, studies: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    chance, statuses = random.Random(seed), []

    with serving(studies) as server:
        for _ in range(150):
            first = _answer(server, _sent(chance, server.port)).partition(b"\r\n")[0]
            statuses.append(first.split(b" ")[1] if first.startswith(b"HTTP/") else first[:9])
        after = ask(server, "/studies/x/")[0]

    assert after == 200
    assert b"200" in statuses
    assert b"500" not in statuses
    assert "Traceback" not in "".join(capfd.readouterr())


@pytest.mark.parametrize("seed", range(25))
def test_a_damaged_study_takes_no_other_page_down(seed: int, studies: Path, capfd: pytest.CaptureFixture[str]) -> None:
    chance = random.Random(seed)
    damage(chance.choice(files(studies / "x")), chance)

    with serving(studies) as server:
        pages = {path: ask(server, path) for path in ("/", "/studies/x/", "/studies/y/", "/compare?a=x&b=y")}

    assert (pages["/"][0], pages["/studies/y/"][0]) == (200, 200)
    refused = [page for status, _, page in pages.values() if status != 200]
    assert all("studies/x" in page or "study x" in page for page in refused), refused
    assert "Traceback" not in "".join(capfd.readouterr())
