from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autotune.errors import StudyNotFound, UsageError
from autotune.report.dashboard import MOST_LOG_BYTES, StudyServer, make_server, serve
from tests.reporting import ladder, recommendation, written


@contextmanager
def serving(path: Path) -> Iterator[StudyServer]:
    with make_server(path, port=0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def ask(
    server: StudyServer, path: str, method: str = "GET", host: str | None = None
) -> tuple[int, http.client.HTTPMessage, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=20)
    try:
        connection.putrequest(method, path, skip_host=True)
        connection.putheader("Host", host or f"127.0.0.1:{server.server_address[1]}")
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()
    finally:
        connection.close()


@pytest.fixture
def studies(tmp_path: Path) -> Path:
    written(tmp_path / "studies" / "resnet", ladder()[:3], recommendation())
    written(tmp_path / "studies" / "a b&c", ladder()[:1])
    (tmp_path / "studies" / "README.md").write_text("not a study")
    (tmp_path / "secret.txt").write_text("secret")
    return tmp_path / "studies"


def test_a_study_is_served_with_its_logs_and_read_anew_each_time(studies: Path) -> None:
    folder = studies / "resnet"

    with serving(folder) as server:
        status, headers, page = ask(server, "/")
        log = ask(server, "/probes/0002/log.txt")
        (folder / "best.json").unlink()
        later = ask(server, "/")[2]

    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert "15.3×" in page
    assert "15.3×" not in later
    assert (log[0], log[1]["Content-Type"], log[2]) == (200, "text/plain; charset=utf-8", "log of probe 2\n")


def test_a_folder_of_studies_has_an_index_and_a_page_for_each(studies: Path) -> None:
    with serving(studies) as server:
        index = ask(server, "/")
        redirect = ask(server, "/a%20b&c")
        page = ask(server, "/a%20b%26c/")
        log = ask(server, "/resnet/probes/0000/log.txt")

    assert 'href="resnet/"' in index[2]
    assert 'href="a%20b%26c/"' in index[2]
    assert (redirect[0], redirect[1]["Location"]) == (308, "/a%20b%26c/")
    assert (page[0], log[0]) == (200, 200)


def test_answers_forbid_scripts_frames_and_guessing_and_allow_their_own_style(studies: Path) -> None:
    with serving(studies / "resnet") as server:
        first, second = ask(server, "/"), ask(server, "/")
        missing = ask(server, "/nothing")

    policy = first[1]["Content-Security-Policy"]
    nonce = policy.partition("'nonce-")[2].partition("'")[0]
    assert f'<style nonce="{nonce}">' in first[2]
    assert nonce not in second[2]
    for _, headers, _ in (first, missing):
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_written(studies: Path, method: str) -> None:
    with serving(studies) as server:
        status, headers, _ = ask(server, "/", method)

    assert (status, headers["Allow"]) == (405, "GET, HEAD")


def test_head_is_get_without_its_body(studies: Path) -> None:
    with serving(studies) as server:
        status, headers, body = ask(server, "/", "HEAD")

    assert (status, body) == (200, "")
    assert int(headers["Content-Length"]) > 1000


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8088", "127.0.0.1.evil.example", "192.168.0.7", "localhost.evil"]
)
def test_a_foreign_name_for_this_machine_gets_no_answer(studies: Path, host: str) -> None:
    with serving(studies) as server:
        assert ask(server, "/", host=host)[0] == 421


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9000", "127.0.0.1", "[::1]:8088", "127.0.0.1:1"])
def test_a_tunnel_may_come_from_any_port(studies: Path, host: str) -> None:
    with serving(studies) as server:
        assert ask(server, "/", host=host)[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/%2e%2e/secret.txt",
        "/resnet/../../secret.txt",
        "/resnet/%2e%2e/%2e%2e/secret.txt",
        "/resnet/probes/../../../secret.txt",
        "/resnet/probes/0000/..%2f..%2f..%2f..%2fsecret.txt",
        "/resnet/probes/0000/request.json",
        "/resnet/probes/9999/log.txt",
        "/resnet/probes/0000/log.txt%00",
        "/resnet/probes/0000/log.txt%0a",
        "/resnet/best.json",
        "/README.md",
        "/%ff",
    ],
)
def test_only_pages_and_logs_are_served(studies: Path, path: str) -> None:
    with serving(studies) as server:
        status, _, body = ask(server, path)

    assert status == 404
    assert "secret" not in body


def test_links_are_not_followed_out_of_a_study(studies: Path) -> None:
    log = studies / "resnet" / "probes" / "0001" / "log.txt"
    log.unlink()
    log.symlink_to(studies.parent / "secret.txt")
    written(studies.parent / "elsewhere", ladder()[:1])
    (studies / "linked").symlink_to(studies.parent / "elsewhere")

    with serving(studies) as server:
        followed, index, linked = ask(server, "/resnet/probes/0001/log.txt"), ask(server, "/"), ask(server, "/linked/")

    assert followed[0] == 404
    assert "secret" not in followed[2]
    assert "linked" not in index[2]
    assert linked[0] == 404


def test_of_a_long_log_the_end_is_served(studies: Path) -> None:
    log = studies / "resnet" / "probes" / "0001" / "log.txt"
    log.write_bytes(b"first\n" + b"\xff" * MOST_LOG_BYTES + b"<b>last</b>")

    with serving(studies / "resnet") as server:
        body = ask(server, "/probes/0001/log.txt")[2]

    assert body.endswith("<b>last</b>")
    assert "first\n" not in body
    assert body.startswith("[the first 17 bytes are left out]")


def test_a_damaged_study_is_explained_and_the_server_lives_on(studies: Path) -> None:
    (studies / "resnet" / "study.json").write_text("{")

    with serving(studies) as server:
        damaged, index = ask(server, "/resnet/"), ask(server, "/")

    assert damaged[0] == 500
    assert "is not a readable StudyRequest" in damaged[2]
    assert index[0] == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.7", "example.com", ""])
def test_only_this_machine_may_listen(tmp_path: Path, host: str) -> None:
    with pytest.raises(UsageError, match=r"--host 127\.0\.0\.1"):
        make_server(tmp_path, host=host, port=0)


def test_a_taken_port_names_the_next_one(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        with pytest.raises(UsageError, match=f"Port {port} of 127.0.0.1 is taken.*--port"):
            make_server(tmp_path, port=port)


def test_an_impossible_port_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Port 70000"):
        make_server(tmp_path, port=70000)


def test_no_folder_is_no_study(tmp_path: Path) -> None:
    with pytest.raises(StudyNotFound, match="is not a folder"):
        serve(tmp_path / "nothing", port=0, on_ready=lambda _: None)


SERVE = """
import sys
from pathlib import Path
from autotune.report.dashboard import serve
serve(Path(sys.argv[1]), port=0, on_ready=lambda address: print(address, flush=True))
heavy = {"torch", "optuna"} & set(sys.modules)
print("ended", *heavy, flush=True)
"""


def test_ctrl_c_ends_it_cleanly_and_it_never_needed_torch_or_optuna(studies: Path) -> None:
    command = [sys.executable, "-c", SERVE, str(studies)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline()
        connection = http.client.HTTPConnection("127.0.0.1", int(address.rsplit(":")[-1].strip("/\n")), timeout=20)
        connection.request("GET", "/resnet/")
        status = connection.getresponse().status
        connection.close()

        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=20)

    assert status == 200
    assert (process.returncode, out, error) == (0, "ended\n", "")
