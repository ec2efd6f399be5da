"""The dashboard's server: what it answers, to whom, and how it begins and ends."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune import dashboard
from autotune.dashboard import serve
from autotune.dashboard.server import StudyServer
from autotune.dashboard.site import MOST_LOG_BYTES, Site
from autotune.errors import StudyNotFound, UsageError
from autotune.study.disk import STUDIES
from tests.commandline import start
from tests.reporting import ladder, recommendation, written
from tests.serving import ask, serving


def made(place: Path) -> Path:
    """A folder of two studies, and what must not be served."""
    written(place / "studies" / "resnet", ladder()[:3], recommendation())
    written(place / "studies" / "a b&c", ladder()[:1])
    (place / "studies" / "README.md").write_text("not a study")
    (place / "secret.txt").write_text("secret")
    return place / "studies"


@pytest.fixture
def studies(tmp_path: Path) -> Path:
    """For tests that change something."""
    return made(tmp_path)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StudyServer]:
    """For all others, of all studies."""
    with serving(made(tmp_path_factory.mktemp("served"))) as started:
        yield started


@pytest.fixture(scope="module")
def exposed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StudyServer]:
    """One for other machines."""
    place = made(tmp_path_factory.mktemp("exposed"))
    with serving(place, "0.0.0.0", exposed=True, names=["gpu-box.example"]) as started:
        yield started


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


def test_it_can_be_started_before_the_first_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    with serving(STUDIES) as server:
        before = ask(server, "/")[2]
        made(tmp_path)
        after = ask(server, "/")[2]

    assert "There are no studies here yet." in before
    assert 'href="/studies/resnet/"' in after


def test_a_folder_of_studies_has_an_index_and_a_page_for_each(server: StudyServer) -> None:
    index = ask(server, "/")[2]
    redirect = ask(server, "/studies/a%20b&c")

    assert 'href="/studies/resnet/"' in index and 'href="/studies/a%20b%26c/"' in index
    assert (redirect[0], redirect[1]["Location"]) == (308, "/studies/a%20b%26c/")
    for place in ("/studies/a%20b%26c/", "/studies/resnet/probes/0000/log.txt"):
        assert ask(server, place)[0] == 200


def test_what_does_not_carry_the_nonce_of_its_own_answer_counts_for_nothing(server: StudyServer) -> None:
    first, second = (ask(server, "/studies/resnet/") for _ in range(2))

    nonce = first[1]["Content-Security-Policy"].partition("'nonce-")[2].partition("'")[0]
    assert f'<style nonce="{nonce}">' in first[2]
    assert nonce not in second[2]


@pytest.mark.parametrize("place", ["/", "/studies/resnet/", "/nothing", "/studies/resnet/probes/0000/log.txt"])
def test_no_other_origin_may_read_frame_guess_or_learn_of_anything(server: StudyServer, place: str) -> None:
    _, headers, _ = ask(server, place, Origin="https://evil.example")

    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert [name for name in headers if name.lower().startswith("access-control")] == []


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_written(server: StudyServer, method: str) -> None:
    status, headers, _ = ask(server, "/", method)

    assert (status, headers["Allow"]) == (405, "GET, HEAD")


def test_head_is_get_without_its_body(server: StudyServer) -> None:
    status, headers, body = ask(server, "/", "HEAD")

    assert (status, body) == (200, "")
    assert int(headers["Content-Length"]) > 1000


FOREIGN = ("evil.example", "evil.example:8088", "127.0.0.1.evil.example", "192.168.0.7", "localhost.evil")
OURS = ("localhost", "LOCALHOST:9000", "127.0.0.1", "[::1]:8088", "127.0.0.1:1")  # a tunnel may have any port


@pytest.mark.parametrize(("host", "status"), [*((one, 400) for one in FOREIGN), *((one, 200) for one in OURS)])
def test_only_names_of_this_machine_get_an_answer(server: StudyServer, host: str, status: int) -> None:
    assert ask(server, "/", host=host)[0] == status
    assert ask(server, "/", host=host, Host="evil.example")[0] == 400  # two of them are none


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1", 200), ("gpu-box.example", 200), ("GPU-BOX.example:80", 200), ("x.example", 400), ("10.9.8.7", 400)]
)  # fmt: skip
def test_an_exposed_server_answers_to_its_address_and_the_names_given_for_it(
    exposed: StudyServer, host: str, status: int
) -> None:
    assert ask(exposed, "/", host=host)[0] == status


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt", "/%2e%2e/secret.txt", "/studies/../../secret.txt", "/studies/%2e%2e/secret.txt",
        "/studies/../secret.txt", "/studies//secret.txt", "/studies/resnet/../../secret.txt",
        "/studies/resnet/%2e%2e/%2e%2e/secret.txt", "/studies/resnet/%252e%252e/%252e%252e/secret.txt",
        "/studies/resnet/..%5c..%5csecret.txt", "/studies/resnet/probes/../../../secret.txt",
        "/studies/resnet/probes/0000/..%2f..%2f..%2f..%2fsecret.txt", "/studies/resnet/probes/0000/request.json",
        "/studies/resnet/probes/9999/log.txt", "/studies/resnet/probes/0000/log.txt%00",
        "/studies/resnet/probes/0000/log.txt%0a", "/studies/resnet/probes/" + 3000 * "9" + "/log.txt",
        "/studies/resnet/best.json", "/studies/resnet/study.db", "/resnet/", "/compare",
        "/compare?a=resnet&b=../secret.txt", "/dashboard/../secret.txt", "/static/../secret.txt", "/README.md", "/%ff",
    ],
)  # fmt: skip
def test_only_pages_and_logs_are_served(server: StudyServer, path: str) -> None:
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

    assert (followed[0], linked[0]) == (404, 404)
    assert "secret" not in followed[2]
    assert "linked" not in index[2]


def test_of_a_long_log_the_end_is_served_and_where_the_whole_of_it_is(studies: Path) -> None:
    log = studies / "resnet" / "probes" / "0001" / "log.txt"
    log.write_bytes(b"first\n" + b"\xff" * MOST_LOG_BYTES + b"<b>last</b>")

    with serving(studies / "resnet") as server:
        body = ask(server, "/probes/0001/log.txt")[2]

    assert body.endswith("<b>last</b>")
    assert "first\n" not in body and len(body) < MOST_LOG_BYTES + 1000
    assert body.startswith(f"[the first 17 bytes are left out; the whole log is {log}]")


@pytest.mark.parametrize(
    ("record", "old", "new", "said"),
    [
        ("study.json", b"{", b"", "is not a readable StudyRequest"),
        ("probes/0000/request.json", b'"batch_size"', b'"batch_siz\xff"', ""),
        ("probes/0000/result.json", b'"step_seconds":', b'"step_seconds": [], "warmup_seconds":', ""),
    ],
)
def test_what_is_damaged_in_one_study_is_explained_and_leaves_the_list_of_all(
    studies: Path, record: str, old: bytes, new: bytes, said: str
) -> None:
    path = studies / "resnet" / record
    path.write_bytes(path.read_bytes().replace(old, new, 1))

    with serving(studies) as server:
        damaged, index = ask(server, "/studies/resnet/"), ask(server, "/")

    assert (damaged[0], index[0]) == (500, 200)
    assert said in damaged[2]
    assert 'href="/studies/a%20b%26c/"' in index[2]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.7"])
def test_listening_beyond_this_machine_has_to_be_asked_for_and_is_said_to_expose(tmp_path: Path, host: str) -> None:
    with pytest.raises(UsageError, match=r"source paths, error texts and logs.*--host 127\.0\.0\.1.*--expose"):
        StudyServer(tmp_path, host=host, port=0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"host": "example.com"}, "is not an address"),
        ({"host": ""}, "is not an address"),
        ({"host": "127.0.0.1.example.com"}, "is not an address"),
        ({"host": "0.0.0.0", "names": ["*"]}, "--allow-host takes whole names only"),  # it would let any page in
        ({"names": ["box"]}, "--allow-host box would change nothing"),
    ],
)
def test_an_address_that_cannot_be_meant_is_refused(tmp_path: Path, options: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        StudyServer(tmp_path, **{"port": 0, "exposed": True} | options)


def test_a_taken_port_is_said_with_a_way_to_another(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        with pytest.raises(UsageError, match=f"Port {port} of 127.0.0.1 is taken.*--port"):
            StudyServer(tmp_path, port=port)


def test_no_folder_is_no_study(tmp_path: Path) -> None:
    with pytest.raises(StudyNotFound, match="is not a folder"):
        serve(tmp_path / "nothing", port=0, on_ready=lambda _: None)


def test_without_the_extra_one_error_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard, "find_spec", lambda name: None if name == "uvicorn" else object())

    with pytest.raises(UsageError, match=r"needs uvicorn, .*pip install -e '\.\[dashboard\]'"):
        serve(tmp_path, port=0, on_ready=lambda _: None)


def test_a_fault_of_ours_is_said_and_the_server_lives_on(server: StudyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Site, "index", lambda _: 1 / 0)
        status, headers, body = ask(server, "/")

    assert (status, ask(server, "/")[0]) == (500, 200)
    assert "autotune itself failed: ZeroDivisionError" in body
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")


SERVE = """
import sys
from pathlib import Path
from autotune.dashboard import serve
serve(Path(sys.argv[1]), port=0, on_ready=lambda address: print(address, flush=True))
heavy = {"torch", "optuna"} & set(sys.modules)
print("ended", *heavy, flush=True)
"""


@pytest.mark.slow
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


@pytest.mark.slow
def test_exposing_says_what_is_exposed_and_that_nothing_guards_it(studies: Path) -> None:
    with start(studies.parent, "dashboard", "studies", "--host", "0.0.0.0", "--expose", "--port", "0") as process:
        assert process.stdout is not None
        said = process.stdout.readline() + process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)

    assert "serving studies at http://0.0.0.0:" in said
    assert "source paths, error texts, logs" in said
    assert "There is no password" in said
