from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from autotune import dashboard
from autotune.dashboard import serve
from autotune.dashboard.server import StudyServer
from autotune.dashboard.site import MOST_LOG_BYTES, Site
from autotune.errors import StudyNotFound, UsageError
from tests.commandline import run, start
from tests.reporting import ladder, recommendation, written
from tests.serving import ask, serving


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
        redirect = ask(server, "/studies/a%20b&c")
        page = ask(server, "/studies/a%20b%26c/")
        log = ask(server, "/studies/resnet/probes/0000/log.txt")

    assert 'href="/studies/resnet/"' in index[2]
    assert 'href="/studies/a%20b%26c/"' in index[2]
    assert (redirect[0], redirect[1]["Location"]) == (308, "/studies/a%20b%26c/")
    assert (page[0], log[0]) == (200, 200)


def test_answers_forbid_frames_guessing_and_whatever_does_not_carry_their_own_nonce(studies: Path) -> None:
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
        assert ask(server, "/", host=host)[0] == 400


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9000", "127.0.0.1", "[::1]:8088", "127.0.0.1:1"])
def test_a_tunnel_may_come_from_any_port(studies: Path, host: str) -> None:
    with serving(studies) as server:
        assert ask(server, "/", host=host)[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/%2e%2e/secret.txt",
        "/studies/../../secret.txt",
        "/studies/%2e%2e/secret.txt",
        "/studies/../secret.txt",
        "/studies//secret.txt",
        "/studies/resnet/../../secret.txt",
        "/studies/resnet/%2e%2e/%2e%2e/secret.txt",
        "/studies/resnet/%252e%252e/%252e%252e/secret.txt",
        "/studies/resnet/..%5c..%5csecret.txt",
        "/studies/resnet/probes/../../../secret.txt",
        "/studies/resnet/probes/0000/..%2f..%2f..%2f..%2fsecret.txt",
        "/studies/resnet/probes/0000/request.json",
        "/studies/resnet/probes/9999/log.txt",
        "/studies/resnet/probes/0000/log.txt%00",
        "/studies/resnet/probes/0000/log.txt%0a",
        "/studies/resnet/probes/" + 3000 * "9" + "/log.txt",
        "/studies/resnet/best.json",
        "/studies/resnet/study.db",
        "/resnet/",
        "/compare",
        "/compare?a=resnet&b=../secret.txt",
        "/dashboard/../secret.txt",
        "/static/../secret.txt",
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
        followed, index = ask(server, "/studies/resnet/probes/0001/log.txt"), ask(server, "/")
        linked = ask(server, "/studies/linked/")

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
    assert body.startswith("[the first 17 bytes are left out; the whole log is ")


def test_a_damaged_study_is_explained_and_the_server_lives_on(studies: Path) -> None:
    (studies / "resnet" / "study.json").write_text("{")

    with serving(studies) as server:
        damaged, index = ask(server, "/studies/resnet/"), ask(server, "/")

    assert damaged[0] == 500
    assert "is not a readable StudyRequest" in damaged[2]
    assert index[0] == 200


@pytest.mark.parametrize(
    ("old", "new"),
    [(b'"batch_size"', b'"batch_siz\xff"'), (b'"step_seconds":', b'"step_seconds": [], "warmup_seconds":')],
)
def test_a_damaged_probe_of_one_study_leaves_the_list_of_all(studies: Path, old: bytes, new: bytes) -> None:
    for kind in ("request", "result"):
        record = studies / "resnet" / "probes" / "0000" / f"{kind}.json"
        record.write_bytes(record.read_bytes().replace(old, new, 1))

    with serving(studies) as server:
        damaged, index = ask(server, "/studies/resnet/"), ask(server, "/")

    assert damaged[0] == 500
    assert index[0] == 200
    assert 'href="/studies/a%20b%26c/"' in index[2]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.7"])
def test_listening_beyond_this_machine_has_to_be_asked_for_and_is_said_to_expose(tmp_path: Path, host: str) -> None:
    with pytest.raises(UsageError, match=r"source paths, error texts and logs.*--host 127\.0\.0\.1.*--expose"):
        StudyServer(tmp_path, host=host, port=0)


@pytest.mark.parametrize("host", ["example.com", "", "127.0.0.1.example.com"])
def test_a_name_is_no_address_to_listen_on(tmp_path: Path, host: str) -> None:
    with pytest.raises(UsageError, match="is not an address"):
        StudyServer(tmp_path, host=host, port=0, exposed=True)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("gpu-box.example", 200),
        ("GPU-BOX.example:80", 200),
        ("evil.example", 400),
        ("10.9.8.7", 400),
    ],
)
def test_an_exposed_server_answers_to_its_address_and_the_names_given_for_it(
    studies: Path, host: str, status: int
) -> None:
    with serving(studies, "0.0.0.0", exposed=True, names=["gpu-box.example"]) as server:
        assert ask(server, "/", host=host)[0] == status


def test_two_host_headers_are_none(studies: Path) -> None:
    with serving(studies) as server:
        assert ask(server, "/", host="localhost", Host="evil.example")[0] == 400


def test_a_taken_port_names_the_next_one(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        with pytest.raises(UsageError, match=f"Port {port} of 127.0.0.1 is taken.*--port"):
            StudyServer(tmp_path, port=port)


def test_an_impossible_port_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Port 70000"):
        StudyServer(tmp_path, port=70000)


def test_no_folder_is_no_study(tmp_path: Path) -> None:
    with pytest.raises(StudyNotFound, match="is not a folder"):
        serve(tmp_path / "nothing", port=0, on_ready=lambda _: None)


def test_without_the_extra_one_error_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard, "find_spec", lambda name: None if name == "uvicorn" else object())

    with pytest.raises(UsageError, match=r'needs uvicorn, .*pip install "torch-autotune\[dashboard\]"'):
        serve(tmp_path, port=0, on_ready=lambda _: None)


def test_a_fault_of_ours_is_said_and_the_server_lives_on(studies: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(studies) as server:
        with monkeypatch.context() as patched:
            patched.setattr(Site, "index", lambda _: 1 / 0)
            status, headers, body = ask(server, "/")
        after = ask(server, "/")[0]

    assert (status, after) == (500, 200)
    assert "autotune itself failed: ZeroDivisionError" in body
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")


def test_names_with_a_star_would_let_any_page_in(studies: Path) -> None:
    with pytest.raises(UsageError, match="--allow-host takes whole names only"):
        StudyServer(studies, "0.0.0.0", port=0, exposed=True, names=["*"])


SERVE = """
import sys
from pathlib import Path
from autotune import dashboard
from autotune.dashboard import serve
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
        connection.request("GET", "/studies/resnet/")
        status = connection.getresponse().status
        connection.close()

        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=20)

    assert status == 200
    assert (process.returncode, out, error) == (0, "ended\n", "")


def test_exposing_says_what_is_exposed_and_that_nothing_guards_it(studies: Path) -> None:
    with start(studies.parent, "dashboard", "studies", "--host", "0.0.0.0", "--expose", "--port", "0") as process:
        assert process.stdout is not None
        said = process.stdout.readline() + process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)

    assert "serving studies at http://0.0.0.0:" in said
    assert "source paths, error texts, logs" in said
    assert "There is no password" in said


def test_without_the_flag_the_address_is_refused_with_the_flag_in_the_words(studies: Path) -> None:
    refused = run(studies.parent, "dashboard", "studies", "--host", "0.0.0.0", "--port", "0")

    assert refused.returncode == 2
    assert "--expose" in refused.stderr
