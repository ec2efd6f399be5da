"""Searches where activations may be recomputed: only where memory binds, and only where it pays."""

import pytest

from autotune.core.codes import Code
from autotune.core.records import Config
from autotune.knobs import knob
from autotune.knobs.base import Circumstances
from autotune.testing import FakeLauncher, Machine, machine
from tests.worlds import GIB, Listener, environment, facts, searched

NARROW = {"tune": ("batch_size", "activation_checkpointing"), "global_batch": "free", "time_budget_seconds": 900.0}
LAUNCHES = dict.fromkeys((None, "bfloat16", "float16"), 0.2)  # seconds: half of full speed at batch 500


LAYERED = facts(baseline={"batch_size": 8, "num_workers": 8}, checkpointable_blocks=12)
KNOB = knob("activation_checkpointing")


def _launcher(gibibytes, **machine):
    return FakeLauncher(
        machine=Machine(memory_bytes=gibibytes * GIB, **machine),
        facts=LAYERED,
        environment=environment(device_bytes=gibibytes * GIB),
    )


def _searched(folder, launcher, **settings):
    listener = Listener()
    found = searched(folder, launcher, listener, **{**NARROW, **settings})
    return found, [t for t in listener.trials if t.config["activation_checkpointing"]], listener.notes


@pytest.mark.parametrize("sampler", ["structured", "tpe"])
def test_where_all_batches_fit_no_probe_is_spent_on_it(tmp_path, sampler):
    _, recomputed, notes = _searched(tmp_path, _launcher(1000), sampler=sampler, probes=20)

    assert recomputed == []
    assert "Skipping 40 of 50 configurations: every batch fits without activation checkpointing" in "".join(notes)


def test_where_memory_holds_back_what_is_launched_it_is_found_and_confirmed(tmp_path):
    launcher = _launcher(5, fixed_seconds=LAUNCHES)

    found, recomputed, _ = _searched(tmp_path, launcher, sampler="structured")

    assert found.params["activation_checkpointing"] is not False
    assert sum(trial.purpose == "confirm" for trial in recomputed) >= 2
    assert found.params == launcher.best(_configs(found)).values


def test_where_selective_fits_blocks_that_are_faster_are_probed_too(tmp_path, monkeypatch):
    """As measured of GPT-2 (docs/notes/throughput.md 4): every second block took 1.10 of the time, selective 1.19."""
    for policy, truth in {"every_third": (0.3, 0.33), "every_second": (0.45, 0.5), "selective": (0.83, 0.67)}.items():
        monkeypatch.setitem(machine.RECOMPUTED, policy, truth)
    tune = ("batch_size", "amp_dtype", "activation_checkpointing")

    found, recomputed, _ = _searched(tmp_path, _launcher(6, fixed_seconds=LAUNCHES), sampler="structured", tune=tune)

    assert found.params["activation_checkpointing"] == "every_second"
    assert "selective" in {trial.config["activation_checkpointing"] for trial in recomputed}


def test_where_computing_is_saturated_larger_batches_are_not_bought_with_it(tmp_path):
    found, _, notes = _searched(tmp_path, _launcher(32), sampler="tpe", probes=12)

    assert found.params["activation_checkpointing"] is False
    assert any("larger batches, which gain too little" in note for note in notes)
    assert found.certificate.code is Code.ALL_MEASURED


def test_a_resumed_search_decides_the_same_again(tmp_path):
    launcher = _launcher(1000)
    _searched(tmp_path, launcher, sampler="tpe", probes=3)

    _, recomputed, notes = _searched(tmp_path, launcher, sampler="tpe", probes=20)

    assert recomputed == []
    assert any("every batch fits without activation checkpointing" in note for note in notes)
    assert any("no configuration is left to try" in note for note in notes)


def _configs(found):
    return [
        Config(values={**found.params, "batch_size": 2**exponent, "activation_checkpointing": on})
        for exponent in range(3, 13)
        for on in KNOB.domain(Circumstances(facts=LAYERED, environment=environment(), global_batch=None))
    ]
