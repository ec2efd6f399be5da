"""`autotune search --on`: Ray starts the workers of a search on a real cluster, and nothing of them outlives it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

import autotune
from autotune.errors import UsageError
from autotune.fleet import on_ray
from autotune.fleet.ray_placement import worker_resources
from tests.fleet.fleet import until
from tests.fleet.ray_cluster import PLAIN, RayCluster, free_port

TARGET = """\
import json, os, time
import torch
from torch import nn
from torch.utils.data import TensorDataset

def model():
    with open("seen.jsonl", "a") as seen:
        seen.write(json.dumps({"threads": os.environ.get("OMP_NUM_THREADS"), "niceness": os.nice(0)}) + "\\n")
    return nn.Linear(8, 2)
def dataset(): return TensorDataset(torch.randn(512, 8), torch.randint(2, (512,)))
baseline = {"batch_size": 64}
space = {"batch_size": [64, 128], "amp_dtype": [None], "num_workers": [0]}
"""
# Enough configurations for two workers to explore.
WIDER = TARGET.replace('[64, 128], "amp_dtype": [None], "num_workers": [0]', '[16, 32, 64], "num_workers": [0, 1]')
HANGS_ON_NODE2 = """def model():
    while os.uname().nodename == "node2" and os.path.exists("hang"): time.sleep(0.05)
"""
SHORT, LONGER = ("-t", "10s", "-n", "1"), ("-t", "120s", "-n", "16", "--workers-expected", "2")
SEARCH = ("--stability", "off", "--compile", "none", "--profile", "off", "--no-progress")
LONG_SECONDS = 240.0  # Ray starts its processes slowly where others work on the machine


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    started = RayCluster()
    yield started
    started.close()


@pytest.fixture
def pair() -> Iterator[RayCluster]:
    """A cluster of two nodes, of which a test may kill one."""
    started = RayCluster()
    try:
        started.add("node2")
        yield started
    finally:
        started.close()


@pytest.fixture
def search(request, fleet, tmp_path) -> Iterator:
    """Begins searches as they are typed; those that are left are killed, and the cluster is free again after that."""
    begun, cluster = [], request.getfixturevalue("pair" if "pair" in request.fixturenames else "cluster")
    (tmp_path / "model.py").write_text(TARGET)

    def start(*words: str, study: str = "model", device: str = "cpu", on: str = cluster.address, budget=SHORT):
        given = ("--device", device) if device else ()
        with (tmp_path / f"{study}.txt").open("w") as out, (tmp_path / f"{study}.err").open("w") as err:
            begun.append(subprocess.Popen(
                [sys.executable, "-m", "autotune", "search", "model.py", "--on", on, "--study", f"studies/{study}",
                 *SEARCH, *budget, *given, *words],
                cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                env={**os.environ, **PLAIN, "AUTOTUNE_STORAGE": fleet.url},
            ))  # fmt: skip
        return begun[-1]

    yield start
    for one in begun:
        one.kill()
        one.wait()
    until(lambda: not cluster.actors() and not cluster.probes())


def told(folder: Path, study: str = "model") -> str:
    return (folder / f"{study}.txt").read_text() + (folder / f"{study}.err").read_text()


def begins_to_probe(cluster, folder: Path, study: str = "model") -> None:
    def is_probing() -> bool:
        assert "Error" not in told(folder, study)
        return (folder / "studies" / study / "probes" / "0000" / "request.json").exists() and bool(cluster.probes())

    until(is_probing, LONG_SECONDS)


def test_a_search_ends_with_an_answer_measured_in_an_actor(cluster, search, tmp_path):
    before = {path.name for path in tmp_path.iterdir()}

    status = search("--workers-expected", "2", on=cluster.client_address).wait(LONG_SECONDS)

    errors = (tmp_path / "model.err").read_text()
    assert status == 0, told(tmp_path)
    assert f"{cluster.client_address} has room for 1 of 2 workers, each with 1 CPU: going on with 1." in errors
    assert "ray::" not in errors and "WARNING" not in errors and "INFO" not in errors
    results = sorted(tmp_path.glob("studies/model/probes/*/result.json"))
    assert {json.loads(one.read_text())["worker"] for one in results} == {os.uname().nodename}
    assert {path.name for path in tmp_path.iterdir()} - before == {"model.txt", "model.err", "studies", "seen.jsonl"}
    until(lambda: not cluster.actors() and not cluster.probes())


def test_probes_have_all_threads_and_the_priority_of_the_node(cluster, search, tmp_path):
    search()
    until((tmp_path / "seen.jsonl").exists, LONG_SECONDS)
    until((tmp_path / "seen.jsonl").read_text)

    seen = json.loads((tmp_path / "seen.jsonl").read_text().splitlines()[0])

    niceness = psutil.Process(cluster.head.pid).nice() if os.getuid() == 0 else seen["niceness"]
    assert seen == {"threads": None, "niceness": niceness}


def test_an_actor_that_is_killed_is_started_again_and_the_search_ends(cluster, search, tmp_path):
    searching = search()
    begins_to_probe(cluster, tmp_path)
    (actor,) = cluster.actors()
    running = cluster.probes()

    actor.kill()
    until(lambda: not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in running))
    until(lambda: [one for one in cluster.actors() if one.pid != actor.pid], LONG_SECONDS)

    assert searching.wait(LONG_SECONDS) == 0, told(tmp_path)
    results = sorted(tmp_path.glob("studies/model/probes/*/result.json"))
    assert {json.loads(one.read_text())["outcome"] for one in results} == {"ok"}


@pytest.mark.parametrize("on", ["address", "client_address"])
def test_a_search_that_is_killed_leaves_nothing_and_goes_on(cluster, search, tmp_path, on):
    searching = search(on=getattr(cluster, on))
    begins_to_probe(cluster, tmp_path)

    searching.kill()
    searching.wait()
    until(lambda: not cluster.actors() and not cluster.probes())
    until(lambda: not [one for one in psutil.process_iter(["cmdline"]) if is_driver(one)])
    resumed = search("--resume", on=getattr(cluster, on))

    assert resumed.wait(LONG_SECONDS) == 0, told(tmp_path)


def is_driver(one: psutil.Process) -> bool:
    return "autotune.fleet.ray_driver" in " ".join(one.info["cmdline"] or ())


def test_ctrl_c_ends_the_workers(cluster, search, tmp_path):
    searching = search()
    begins_to_probe(cluster, tmp_path)

    searching.send_signal(signal.SIGINT)

    assert searching.wait(LONG_SECONDS) == 130, told(tmp_path)
    until(lambda: not cluster.actors() and not cluster.probes())
    assert "--resume" in told(tmp_path)


def test_a_search_whose_connection_dies_says_so_and_ends(cluster, search, tmp_path):
    searching = search()
    begins_to_probe(cluster, tmp_path)
    (driver,) = [one for one in psutil.Process(searching.pid).children() if "ray_driver" in " ".join(one.cmdline())]

    driver.kill()

    assert searching.wait(LONG_SECONDS) == 3, told(tmp_path)
    assert "The connection to it was lost" in told(tmp_path)
    until(lambda: not cluster.actors() and not cluster.probes())


def test_two_nodes_measure_for_one_search_and_a_node_that_dies_loses_nothing(pair, search, fleet, tmp_path):
    """What node2 runs hangs, so that it certainly dies in the middle of a probe, which the head node then measures."""
    (tmp_path / "model.py").write_text(WIDER.replace("def model():\n", HANGS_ON_NODE2))
    (tmp_path / "hang").touch()
    searching = search(budget=LONGER, on=pair.client_address)
    until(lambda: "node2" in running(fleet) or searching.poll() is not None, LONG_SECONDS)
    place = running(fleet)["node2"]

    pair.kill("node2")

    assert searching.wait(LONG_SECONDS) == 0, told(tmp_path)
    study = tmp_path / "studies" / "model"
    assert not [one for one in study.glob("*/*/request.json") if not one.with_name("result.json").exists()]
    results = {one.parent.name: json.loads(one.read_text()) for one in study.glob("probes/*/result.json")}
    assert {one["outcome"] for one in results.values()} == {"ok"}
    assert json.loads((study / place / "result.json").read_text())["outcome"] == "ok"
    assert {one["worker"] for one in results.values()} == {os.uname().nodename}


def test_each_node_has_a_worker_and_the_one_that_asked_has_the_answer(pair, search, tmp_path):
    (tmp_path / "model.py").write_text(WIDER)
    searching = search(budget=LONGER)

    assert searching.wait(LONG_SECONDS) == 0, told(tmp_path)

    study = tmp_path / "studies" / "model"
    results = [json.loads(one.read_text()) for one in study.glob("probes/*/result.json")]
    assert {one["worker"] for one in results} == {os.uname().nodename, "node2"}
    assert autotune.load_best(study)["batch_size"] in (16, 32, 64)


def running(fleet) -> dict[str, str]:
    """What each worker measures now."""
    with psycopg.connect(fleet.url) as connection:
        if connection.execute("SELECT to_regclass('autotune_job')").fetchone() == (None,):
            return {}
        rows = connection.execute(
            "SELECT w.name, o.place FROM autotune_job o JOIN autotune_worker w ON w.id = o.worker "
            "WHERE o.state = 'running'"
        )
        return dict(rows.fetchall())


def test_a_cluster_that_is_busy_says_so(cluster, search, tmp_path):
    first = search(study="first")
    until(cluster.actors, LONG_SECONDS)
    first.send_signal(signal.SIGSTOP)  # so that it does not end while the second is still being connected

    second = search(study="second")

    assert second.wait(LONG_SECONDS) == 3, told(tmp_path, "second")
    assert "has 1 CPU free, which a worker needs. Another job probably uses them" in told(tmp_path, "second")


def test_a_gpu_that_torch_does_not_see_is_an_error_and_not_the_processor(cluster, search, tmp_path):
    searching = search("--workers-expected", "2", device="")

    assert searching.wait(LONG_SECONDS) == 3, told(tmp_path)
    assert f"The worker {os.uname().nodename}/gpu" in told(tmp_path)
    assert "This machine could not be inspected" in told(tmp_path)


def test_a_cluster_that_does_not_answer_is_one_error(cluster, search, tmp_path):
    address = f"127.0.0.1:{free_port()}"

    assert search(on=address).wait(LONG_SECONDS) == 3
    assert f"The Ray cluster {address} could not be reached: " in told(tmp_path)


def test_without_ray_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(on_ray, "find_spec", lambda name: None)

    with pytest.raises(UsageError, match=r"pip install -e '\.\[ray,postgres\]'"):
        on_ray.check_cluster("auto", None)


@pytest.mark.parametrize("address", ["auto", "ray://head", "ray://head:10001", "10.0.0.1:6379", "[fd00::1]:6379"])
def test_an_address_of_a_cluster(address, monkeypatch):
    monkeypatch.setattr(on_ray, "find_spec", lambda name: object())

    on_ray.check_cluster(address, "cuda")


@pytest.mark.parametrize("address", ["", "head", "http://head:8265", "local", "ray:/head", "ray://me@head:1"])
def test_what_is_no_address_of_a_cluster(address):
    with pytest.raises(UsageError, match="is no address of a Ray cluster"):
        on_ray.check_cluster(address, None)


CPUS_4, CPUS_8 = {"CPU": 4.0, "memory": 1e9}, {"CPU": 8.0}
GPUS_8 = {"CPU": 96.0, "GPU": 8.0}


@pytest.mark.parametrize(
    ("nodes", "device", "bundle", "strategy", "room"),
    [
        ([CPUS_4, CPUS_4], None, {"CPU": 4.0}, "STRICT_SPREAD", 2),  # one on each: a worker measures a machine
        ([CPUS_4, CPUS_4, CPUS_8], None, {"CPU": 4.0}, "STRICT_SPREAD", 3),
        ([CPUS_4, CPUS_8, CPUS_8], None, {"CPU": 8.0}, "STRICT_SPREAD", 2),
        ([{"CPU": 0.0}, CPUS_4], "cpu", {"CPU": 4.0}, "STRICT_SPREAD", 1),  # a head node that takes no work
        ([CPUS_4, GPUS_8], None, {"CPU": 12.0, "GPU": 1.0}, "SPREAD", 8),
        ([GPUS_8, GPUS_8], "cpu", {"CPU": 96.0}, "STRICT_SPREAD", 2),
        ([{"CPU": 0.0, "GPU": 2.0}], "cuda", {"GPU": 1.0}, "SPREAD", 2),
        ([CPUS_4], "cuda", {"GPU": 1.0}, "SPREAD", 0),
        ([{}], None, {}, "STRICT_SPREAD", 0),
    ],
)  # fmt: skip
def test_a_worker_gets_a_gpu_with_its_processors_or_a_whole_machine(nodes, device, bundle, strategy, room):
    found = worker_resources(nodes, device)

    assert (found.bundle, found.strategy, found.room) == (bundle, strategy, room)


@pytest.mark.parametrize(
    ("nodes", "gpus", "bundle", "room"),
    [
        ([CPUS_4, GPUS_8], 4, {"CPU": 48.0, "GPU": 4.0}, 2),
        ([GPUS_8, GPUS_8], 3, {"CPU": 36.0, "GPU": 3.0}, 4),  # what is left of a node is left alone
        ([GPUS_8], 16, {"CPU": 192.0, "GPU": 16.0}, 0),
    ],
)
def test_a_worker_whose_ranks_train_on_several_gpus_gets_them_on_one_node(nodes, gpus, bundle, room):
    found = worker_resources(nodes, "cuda", gpus)

    assert (found.bundle, found.room) == (bundle, room)


def test_what_is_free_bounds_the_workers():
    each = worker_resources([GPUS_8, GPUS_8], None)

    assert each.free({"CPU": 100.0, "GPU": 16.0}) == 8
    assert each.free({"GPU": 16.0}) == 0
