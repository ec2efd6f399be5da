"""Memory in words: rows that add up, modules, other optimizers, and a profile that had not enough of it."""

import pytest
from msgspec.structs import replace

from autotune.core.memory_breakdown import BlockBytes, Breakdown, ModuleBytes
from autotune.core.memory_peak import MemoryPeak
from autotune.core.results import Failure, Outcome
from autotune.errors import TargetError
from autotune.memory.model import Arm
from autotune.memory.records import ShapeRun
from autotune.profile.memory_judge import largest_modules, peak_bytes, rows
from autotune.profile.memory_records import HeapUse, MemoryUse, StateBytes
from autotune.profile.memory_run import with_shapes
from autotune.profile.memory_table import memory_sentences
from autotune.profile.records import ModuleSeconds, ProfileRequest, ProfileResult
from tests.profile.test_table import lines, result
from tests.worlds import config

MIB = 2**20
CRASH = Failure(phase="load", message="killed by signal 11", evidence="exit status")


def breakdown(activations=40, modules=(), **changes):
    sizes = {"parameters": 10, "gradients": 10, "optimizer state": 20, "activations": activations, "batch": 1}
    categories = {name: size * MIB for name, size in {**sizes, "temporary": 9, **changes}.items()}
    return Breakdown(categories=categories, modules=tuple(module(*one) for one in modules))


def module(name, size, kind="Linear"):
    return ModuleBytes(name=name, kind=kind, bytes=size)


def use(**changes):
    usual = {
        "peak": MemoryPeak(process_bytes=400 * MIB, workers_bytes=900 * MIB), "context_bytes": 300 * MIB,
        "tensors": breakdown(), "optimizer": "AdamW",
        "states": (StateBytes(optimizer="SGD", bytes=0), StateBytes(optimizer="Adam", bytes=20 * MIB)),
    }  # fmt: skip
    return MemoryUse(**{**usual, **changes})


def shown(**changes):
    return lines(replace(result(), memory=use(**changes)))


def line(start, **changes):
    (found,) = (one for one in shown(**changes) if one.startswith(f"  {start}"))
    return found


def test_what_is_not_explained_is_a_row_of_its_own():
    assert dict(rows(use()))["not explained"] == 10 * MIB
    assert line("not explained").split()[2:4] == ["10.0", "2%"]


def test_more_than_the_peak_is_said_with_a_minus():
    assert dict(rows(use(context_bytes=320 * MIB)))["not explained"] == -10 * MIB
    assert line("not explained", context_bytes=320 * MIB).split()[2:4] == ["-10.0", "-2%"]


def test_what_the_context_gave_back_is_no_memory_below_zero():
    """A training that dropped 152 MiB in its first step had a context of 144 % of the peak, and buffers of -48 %."""
    heap = HeapUse(kept_bytes=0, buffers_bytes=-30 * MIB, code_bytes=0, later_bytes=0)
    before, after = dict(rows(use())), dict(rows(use(heap=heap, context_bytes=use().context_bytes + 30 * MIB)))

    assert after["buffers"] == 0
    assert after["context"] == before["context"]
    assert sum(after.values()) == sum(before.values())


def test_on_a_device_the_peak_is_its_own_with_context_and_what_the_allocator_keeps():
    peak = MemoryPeak(
        process_bytes=5000 * MIB, allocated_bytes=95 * MIB, reserved_bytes=120 * MIB, device_used_bytes=520 * MIB,
        reserved_at_end_bytes=110 * MIB,
    )  # fmt: skip
    found = use(peak=peak, context_bytes=410 * MIB)

    assert peak_bytes(found) == 530 * MIB
    assert dict(rows(found)) | {} == {
        **{name: size for name, size in breakdown().categories.items()},
        "context": 410 * MIB,
        "cached": 25 * MIB,
        "not explained": 5 * MIB,
    }


@pytest.mark.parametrize(
    ("activations", "says"),
    [(40, "90.0 counted in a step, 90.0 by shapes alone"), (30, "80.0 by shapes alone: 11% less, most of it activa")],
)
def test_shapes_that_disagree_are_said_to_and_where(activations, says):
    shapes = Arm(values={}, breakdown=breakdown(activations))

    assert says in line("tensors:", shapes=shapes)


def test_other_optimizers_stand_beside_the_own():
    assert line("state") == "  state: AdamW 20.0; of others SGD 0, Adam 20.0"


def test_modules_with_more_than_a_quarter_are_shown_by_their_parts():
    modules = [
        module("layers.0.up", 30),
        module("layers.0", 10, "Block"),
        module("layers.1.up", 40),
        module("head", 20),
    ]

    found = [(one.name, one.bytes) for one in largest_modules([*modules, module("(loss)", 5, "")])]

    assert found == [("layers.1.up", 40), ("layers.0.up", 30), ("head", 20), ("layers.0 itself", 10), ("(loss)", 5)]


def test_a_policy_that_recomputes_more_and_saves_no_more_is_left_out():
    policies = {"every_third": 30, "every_second": 30, "selective": 35, True: 20}
    arms = [
        Arm(values={"activation_checkpointing": name}, breakdown=breakdown(left)) for name, left in policies.items()
    ]
    blocks = (BlockBytes(name="1", kind="Block", bytes=5 * MIB), BlockBytes(name="2", kind="Block", bytes=6 * MIB))
    own = replace(breakdown(), blocks=blocks)

    said = line("checkpointing", tensors=own, shapes=Arm(values={}, breakdown=own), recomputed=tuple(arms))

    assert said == "  checkpointing saves every 3rd 10.0, all 2: 20.0; blocks hold 2 Block 6.00, 1 Block 5.00"


def test_of_many_blocks_the_three_that_hold_most_are_told_with_the_time_of_recomputing_each():
    sizes = {"0": 5, "1": 7, "2": 7, "3": 6}
    blocks = tuple(BlockBytes(name=name, kind="Block", bytes=size * MIB) for name, size in sizes.items())
    own = replace(breakdown(), blocks=blocks)
    arm = Arm(values={"activation_checkpointing": True}, breakdown=breakdown(20))
    modules = [ModuleSeconds(name=f"{at}.up", kind="Linear", forward=0.01 * (4 - at), backward=0.0) for at in range(4)]
    held = use(tensors=own, shapes=Arm(values={}, breakdown=own), recomputed=(arm,))

    (said,) = (
        one for one in memory_sentences(replace(result(), memory=held, modules=tuple(modules))) if "check" in one
    )

    most = "2 Block 7.00 for 20.0 ms, 1 Block 7.00 for 30.0 ms, 3 Block 6.00 for 10.0 ms"
    assert said == f"checkpointing saves all 4: 20.0; blocks hold {most}"


def test_padding_and_its_bound():
    assert line("padding", padding=0.3).startswith("  padding: 30% of the tokens; ")
    assert not [one for one in shown(padding=0.0) if "padding" in one]


def test_everything_fits_its_columns_and_fifteen_lines():
    long = [(f"encoder.layers.{number}.attention.{'x' * 60}", 10 * MIB) for number in range(4)]

    found = shown(tensors=breakdown(modules=long), shapes=Arm(values={}, breakdown=breakdown(30)), padding=0.5)

    assert max(map(len, found)) <= 100
    assert len(found) - len(lines(result())) <= 15


def ended(found):
    asked = ProfileRequest(target="model.py", config=config(batch_size=4096), device="cpu")
    failure = Failure(phase="warm-up", message="DefaultCPUAllocator: can't allocate memory", evidence="RuntimeError")
    with pytest.raises(TargetError) as caught:
        with_shapes(ProfileResult(outcome=Outcome.OOM_HOST, failure=failure), asked, found)
    return str(caught.value)


def test_a_profile_without_enough_memory_says_what_needs_most():
    arm = Arm(values={}, breakdown=breakdown(2048, modules=[("0", 1536 * MIB), ("(loss)", 512 * MIB)]))

    said = ended(ShapeRun(outcome=Outcome.OK, arms=(arm,)))

    assert "can't allocate memory. By shapes alone the tensors of a step, micro-batches of 4096" in said
    assert "take 2.05 GiB: activations 2 GiB, optimizer state 20 MiB, parameters 10 MiB" in said
    assert "of the activations 0 Linear 75%, (loss) Linear 25%." in said
    assert said.endswith("Try a smaller batch: --config batch=2048.")


def test_where_shapes_do_not_tell_either_that_is_said():
    assert "What needs most is not known, because killed by signal 11." in ended(
        ShapeRun(outcome=Outcome.CRASHED, failure=CRASH)
    )
