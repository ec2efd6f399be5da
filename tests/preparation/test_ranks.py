"""What --ranks and --devices ask for: how many processes, on which device, and which GPU each has."""

import pytest

from autotune.errors import UsageError
from autotune.machine.nvml import Gpu
from autotune.preparation.fleet_settings import FleetSettings
from autotune.preparation.header import notes_before_the_search, opening_lines
from autotune.preparation.launching import launching
from autotune.preparation.ranks import VISIBLE_DEVICES, asked_ranks, rank_environ
from autotune.preparation.settings import Settings, read_devices
from tests.worlds import environment, facts, space, study_request

FOUR = tuple(Gpu(index=number, name="H100", uuid=f"GPU-{number}") for number in range(4))


def _asked(gpus=FOUR, target="model.py", **given):
    return asked_ranks(Settings(target=target, **given), lambda: gpus)


def _environ(gpus=FOUR, target="model.py", **given):
    return rank_environ(Settings(target=target, **given), lambda: gpus)


@pytest.fixture(autouse=True)
def _all_cards(monkeypatch):
    monkeypatch.delenv(VISIBLE_DEVICES, raising=False)


def test_one_process_trains_where_nobody_asks_for_more():
    assert (_asked().count, _asked(device="mps").device, _environ()) == (1, "mps", {})


def test_ranks_train_on_the_cpu():
    asked = _asked(ranks=3)

    assert (asked.count, asked.device, _environ(ranks=3)) == (3, "cpu", {})


@pytest.mark.parametrize(
    ("devices", "gpus"),
    [("all", "GPU-0,GPU-1,GPU-2,GPU-3"), ("2", "GPU-0,GPU-1"), ("3,1", "GPU-3,GPU-1"), ("1", "GPU-0")],
)
def test_each_rank_has_a_card_of_its_own(devices, gpus):
    asked = _asked(devices=devices)

    assert (asked.count, asked.device) == (len(gpus.split(",")), "cuda")
    assert _environ(devices=devices) == {VISIBLE_DEVICES: gpus}


def test_cards_are_counted_among_those_that_are_visible(monkeypatch):
    monkeypatch.setenv(VISIBLE_DEVICES, "3, 1")

    assert _environ(devices="all") == _environ(devices="0,1") == {VISIBLE_DEVICES: "3,1"}


def test_how_many_ranks_there_are_is_known_where_no_card_is():
    assert (_asked(devices="4", gpus=()).count, _asked(devices="0,2", gpus=()).count) == (4, 2)


@pytest.mark.parametrize("devices", ["all", "0,2"])
def test_workers_are_told_how_many_cards_to_use_and_not_which(devices):
    settings = Settings(target="model.py", devices=devices)

    with pytest.raises(UsageError, match="Write how many each worker trains with"):
        launching(settings, FleetSettings(storage="postgresql://tune@nowhere/tune"), print).__enter__()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"ranks": 2, "target": "-- python train.py"}, "write them there: -- torchrun --nproc-per-node 2"),
        ({"devices": "2", "target": "-- python train.py"}, "--devices starts the ranks of a file of functions"),
        ({"ranks": 2, "devices": "2"}, "--ranks 2 trains on the CPU and --devices 2 on GPUs."),
        ({"ranks": 2, "device": "cuda"}, "Write --devices 2 for that many GPUs, or --device cpu."),
        ({"devices": "2", "device": "cpu"}, "and --device says cpu."),
        ({"device": "cuda:1", "target": "-- torchrun --nproc-per-node 2 train.py"}, "--device cuda:1 names one device"),
        ({"devices": "5"}, "--devices 5 asks for more than there is: 4 GPUs can be seen here"),
        ({"devices": "0,4"}, "--devices 0,4 asks for more than there is"),
        ({"devices": "all", "gpus": ()}, "there is none to be seen here. This machine has none, or its driver"),
    ],
)
def test_what_cannot_be_is_refused(given, words):
    with pytest.raises(UsageError) as refused:
        _environ(**given)

    assert words in str(refused.value)


def test_one_card_by_its_position_is_an_option_of_its_own():
    with pytest.raises(ValueError, match=r"positions such as 0,2 \(GPU 0 alone is --device cuda:0\)"):
        read_devices("0")


def test_ranks_stand_in_the_header_and_too_many_are_warned_of():
    asked = study_request(facts=facts(ranks=4), environment=environment(device="cpu", usable_cores=2))

    lines = opening_lines(None, asked, space(), Settings(target="model.py"), resumed=False)

    assert lines[1].endswith("· 4 ranks (gloo)")
    assert notes_before_the_search(asked) == [
        "4 ranks share 2 cores: they take turns, and the rates say little of a machine with a core for each. Start at "
        "most 2."
    ]
    assert notes_before_the_search(study_request()) == []
