"""What `autotune doctor` makes of a GPU that the driver shows and torch does not."""

import sys
from types import SimpleNamespace

import pytest

from autotune.core.codes import Code
from autotune.core.notices import notice
from autotune.core.results import Failure, Inspection, Outcome
from autotune.report.blocks import doctor_block
from autotune.report.doctor import examine
from tests.worlds import environment


@pytest.fixture
def one_card(monkeypatch):
    """A driver with one GPU that says hardly more than its name."""
    driver = SimpleNamespace(
        NVMLError=OSError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetName=lambda handle: "GPU",
        nvmlSystemGetDriverVersion=lambda: "470.1",
    )
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def advice(*, chosen=False, **changes):
    """About torch."""
    inspection = Inspection(outcome=Outcome.OK, environment=environment(**changes))
    return next(
        check.advice for check in examine(inspection, chosen=chosen, foreign=lambda: 0.0) if check.name == "torch"
    )


@pytest.mark.parametrize(("cuda", "expected"), [(None, "install a CUDA build"), ("13.0", "driver 470.1 is probably")])
def test_a_card_that_torch_does_not_use_is_told_with_the_probable_reason(one_card, cuda, expected):
    assert expected in advice(device="cpu", cuda=cuda)


@pytest.mark.parametrize("circumstances", [{"device": "cpu", "chosen": True}, {"device": "cuda:0", "cuda": "13.0"}])
def test_nothing_is_said_of_a_card_where_the_device_is_the_wanted_one(one_card, circumstances):
    assert advice(**circumstances) == ""


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        ({"isolation": "fork"}, ["forked from a process of 300 MiB that has torch imported"]),
        (
            {"isolation": "fresh", "isolation_reason": "forked probes need Linux"},
            ["fresh processes: forked probes need Linux"],
        ),
        ({}, []),
    ],
    ids=["fork", "fresh", "not-known"],
)
def test_how_probes_start_and_what_that_holds_is_told(way, expected):
    inspection = Inspection(outcome=Outcome.OK, environment=environment(), **way)

    checks = examine(inspection, fork_server_bytes=300 * 2**20, foreign=lambda: 0.0)

    assert [check.text for check in checks if check.name == "probes"] == expected


def test_a_hidden_card_is_nobodys_mistake(one_card, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")

    assert advice(device="cpu", cuda="13.0") == ""


@pytest.mark.parametrize(
    ("foreign", "state", "closing"),
    [
        (0.3, "good", "This machine is fit for a search"),
        (0.5, "busy", "This machine is busy"),
        (2.0, "busy", "This machine is busy"),
        (2.1, "bad", "This machine is not fit for a search"),
    ],
)
def test_cores_that_others_keep_busy_make_a_machine_busy_and_half_of_them_unfit(foreign, state, closing):
    inspection = Inspection(outcome=Outcome.OK, environment=environment(usable_cores=4))

    checks = examine(inspection, foreign=lambda: foreign)

    cores = next(check for check in checks if check.name == "cores")
    assert (cores.state, cores.text) == (state, f"4 usable, {foreign:.1f} kept busy by others")
    assert doctor_block(checks).plain.splitlines()[-1].startswith(closing)


def test_a_driver_that_is_not_there_gets_no_tick(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    inspection = Inspection(outcome=Outcome.OK, environment=environment(device="cpu"))

    checks = examine(inspection, foreign=lambda: 0.0)

    (nvml,) = [line for line in doctor_block(checks).plain.splitlines() if "NVML" in line]
    assert nvml.split()[:2] == ["–", "NVML"]


def found(**changes):
    """The checks of a CPU by name."""
    inspection = Inspection(outcome=Outcome.OK, environment=environment(device="cpu", **changes), isolation="fork")
    return {check.name: check for check in examine(inspection, foreign=lambda: 0.5)}


def test_every_check_can_be_worded_from_its_code_and_numbers():
    failure = Failure(phase="start", message="no such device", evidence="exit status 1")
    failed = examine(Inspection(outcome=Outcome.ENVIRONMENT, failure=failure))
    little = found(native_dtypes=(), cuda=None, no_compiler="triton is not installed").values()

    for check in (*found(mallocs=("glibc",)).values(), *little, *failed):
        said = notice(check.code, **check.numbers)

        assert check.code.number // 100 == 13
        assert (said.meaning, said.next_step) == (check.text, check.advice)


def test_a_program_gets_numbers_with_their_units_in_the_names():
    checks = found(usable_cores=4)

    assert (checks["cores"].code, checks["cores"].numbers) == (
        Code.CORES_SHARED, {"usable_cores": 4, "foreign_cores": 0.5},
    )  # fmt: skip
    assert checks["host memory"].numbers.keys() == {"available_bytes", "total_bytes", "limit_source"}


BOTH = ("libjemalloc.so.2", "libtcmalloc_minimal.so.4")


@pytest.mark.parametrize(
    ("changes", "text", "code", "numbers"),
    [
        ({"mallocs": ("glibc",)}, f"can be tuned: glibc; not installed: {BOTH[0]}, {BOTH[1]}",
         "values-offered", {"values": ("glibc",), "missing": BOTH}),
        ({"mallocs": ("glibc", "jemalloc", "tcmalloc")}, "can be tuned: glibc, jemalloc, tcmalloc",
         "values-offered", {"values": ("glibc", "jemalloc", "tcmalloc")}),
        ({"mallocs": ("glibc",), "variables": ("MALLOC_CONF", "LD_PRELOAD")},
         "not tuned: your environment sets LD_PRELOAD, MALLOC_CONF",
         "set-by-environment", {"variables": ("LD_PRELOAD", "MALLOC_CONF")}),
    ],
    ids=["one", "all", "set"],
)  # fmt: skip
def test_a_knob_says_what_a_machine_offers_to_it(changes, text, code, numbers):
    check = found(**changes)["malloc"]

    assert (check.text, check.state, check.advice) == (text, "good", "")
    assert (check.code, check.numbers) == (code, numbers)


def test_a_knob_without_values_of_this_machine_says_nothing():
    names = list(found(mallocs=("glibc",)))

    assert "malloc" not in found()
    assert names[:7] == ["device", "torch", "autocast", "compile", "cores", "host memory", "malloc"]


def test_readings_that_the_driver_does_not_give_are_left_out(one_card):
    card = found()["GPU 0"]

    assert (card.text, card.state) == ("GPU, driver 470.1", "good")
    assert card.numbers == {"gpu": "GPU", "driver": "470.1"}


def test_the_deprecated_distribution_is_advised_away(monkeypatch, tmp_path):
    metadata = tmp_path / "pynvml-11.5.3.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: pynvml\nVersion: 11.5.3\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    old = found()["pynvml"]

    assert (old.text, old.state, old.numbers) == (
        "the deprecated distribution is installed", "advice", {"version": "11.5.3"},
    )  # fmt: skip
    assert "pynvml 11.5.3 is installed" in old.advice
    assert "pip uninstall pynvml" in old.advice
