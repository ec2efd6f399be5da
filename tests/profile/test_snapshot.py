"""The lines that made what is alive, from a snapshot of CUDA's memory in torch's own format (torch 2.13)."""

import json
from pathlib import Path

import pytest
import torch

from autotune.child.__main__ import _judge
from autotune.core.memory_breakdown import ALLOCATION_SITES, AllocationSite
from autotune.core.results import Outcome
from autotune.memory.records import ShapeRun
from autotune.profile.memory_judge import held_then
from autotune.profile.memory_run import OutOfMemory, with_shapes
from autotune.profile.records import ProfileRequest, ProfileResult
from autotune.profile.snapshot import sites_of_snapshot
from tests.worlds import config

MIB = 2**20
TORCH = {"filename": json.__file__, "line": 12, "name": "linear"}  # of an installed package, or the standard library
MODEL, OTHER = str(Path.cwd() / "model.py"), str(Path.cwd() / "other.py")


def frame(file, line, name="forward"):
    return {"filename": file, "line": line, "name": name}


def block(mib, *frames, state="active_allocated"):
    return {"address": 0, "size": mib * MIB, "requested_size": mib * MIB - 4, "state": state, "frames": list(frames)}


def segment(*blocks, device=0):
    size = sum(one["size"] for one in blocks)
    return {
        "device": device, "address": 0, "total_size": size, "allocated_size": size, "active_size": size, "stream": 0,
        "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False, "blocks": list(blocks),
    }  # fmt: skip


def snapshot(*segments):
    return {"segments": list(segments), "device_traces": [[]], "allocator_settings": {}}


def test_blocks_belong_to_the_innermost_line_of_the_user_s():
    found = snapshot(
        segment(block(2, TORCH, frame(MODEL, 31), frame(MODEL, 40)), block(1, TORCH, frame(OTHER, 7))),
        segment(block(4, frame(MODEL, 31)), block(6, state="inactive"), block(3, state="active_awaiting_free")),
    )

    assert sites_of_snapshot(found, 0) == (
        AllocationSite(place="model.py:31", bytes=6 * MIB, count=2),
        AllocationSite(place="", bytes=3 * MIB, count=1),
        AllocationSite(place="other.py:7", bytes=1 * MIB, count=1),
    )


def test_blocks_of_other_devices_and_without_frames_at_all_are_told_apart():
    bare = {name: value for name, value in block(1).items() if name != "frames"}

    found = sites_of_snapshot(snapshot(segment(bare), segment(block(8, frame(MODEL, 1)), device=1)), 0)

    assert found == (AllocationSite(place="", bytes=MIB, count=1),)


def test_what_was_held_is_told_with_bytes_shares_and_counts():
    sites = sites_of_snapshot(snapshot(segment(block(3, frame(MODEL, 31)), block(1))), 0)

    assert held_then(sites) == (
        "When memory ran out, tensors held 4 MiB: model.py:31 made 75% (3 MiB in 1 tensor), no line of yours made 25% "
        "(1 MiB in 1 tensor)."
    )
    assert held_then(()) == ""


def test_the_sites_of_an_out_of_memory_come_with_its_failure_and_are_told():
    sites = sites_of_snapshot(snapshot(segment(block(3, frame(MODEL, 31)))), 0)
    error = torch.OutOfMemoryError("CUDA out of memory")
    setattr(error, ALLOCATION_SITES, sites)
    asked = ProfileRequest(target="model.py", config=config(batch_size=64), device="cpu")

    outcome, failure = _judge(error, asked, "measure")

    assert (outcome, failure.sites) == (Outcome.OOM_DEVICE, sites)
    with pytest.raises(OutOfMemory, match=r"tensors held 3 MiB: model\.py:31 made 100%") as raised:
        with_shapes(ProfileResult(outcome=outcome, failure=failure), asked, ShapeRun(outcome=Outcome.OK))
    assert raised.value.result.failure.sites == sites
