"""The table of predicted memory, as `autotune check --memory` prints it."""

from autotune.core.results import Failure, Outcome
from autotune.memory.model import Arm
from autotune.memory.records import ShapeRun
from autotune.memory.table import memory_block
from tests.worlds import earlier

MIB = 2**20
FULL, HALF = {"amp_dtype": None, "channels_last": False}, {"amp_dtype": "bfloat16", "channels_last": False}


def _arm(values, per_sample, reason=""):
    points = tuple((batch, per_sample * batch * MIB) for batch in (8, 32, 128))
    return Arm(values=values, points=points, reason=earlier(reason) if reason else None)


BATCHES = (8, 16, 32, 64, 128, 256, 512)


def _lines(*arms, base=100, usable=500, on_host=False, searched=BATCHES):
    found = ShapeRun(outcome=Outcome.OK, arms=arms, base_bytes=base * MIB)
    block = memory_block(found, BATCHES, usable * MIB, searched, on_host=on_host)
    return block.plain.splitlines()


def test_rows_are_batches_and_columns_the_knobs_that_differ():
    lines = _lines(_arm(FULL, 6), _arm(HALF, 3))

    assert lines[0].split() == ["batch", "fp32", "bf16"]
    assert lines[1].split() == ["8", "148", "MiB", "✓", "124", "MiB", "✓"]


def test_a_peak_fits_or_is_close_or_does_not():
    lines = _lines(_arm(FULL, 6), _arm(HALF, 3))

    signs = {line.split()[0]: line.split()[3::3] for line in lines[1:6]}
    assert signs == {"8": ["✓", "✓"], "16": ["✓", "✓"], "32": ["✓", "✓"], "64": ["?", "✓"], "128": ["✗", "?"]}


def test_on_a_host_a_peak_is_a_range_from_the_tensors_to_what_processes_took():
    lines = _lines(_arm(FULL, 6), on_host=True)

    assert [line.split(maxsplit=1) for line in lines[1:5]] == [
        ["8", "148–310 MiB ✓"],  # 100 + 48 to 100 + 100 + 2.3 * 48
        ["16", "196–421 MiB ✓"],
        ["32", "292–642 MiB ?"],
        ["64", "484 MiB–1.06 GiB ?"],
    ]
    assert lines[5].endswith("✗")
    assert "100 MiB more, and 1.7 ± 0.6 times their tensors. 500 MiB may be used" in lines[-2]


def test_on_a_host_a_trade_fits_where_its_upper_end_does():
    arms = [_arm({"activation_checkpointing": on}, 6 - 4 * on) for on in (False, True)]

    assert _lines(*arms, on_host=True)[-4] == "  with activation checkpointing ✓ up to 64"
    assert _lines(*arms)[-3] == "  with activation checkpointing ✓ up to 128"


def test_rows_end_where_nothing_fits_any_more():
    lines = _lines(_arm(FULL, 6), _arm(HALF, 3))

    assert [line.split()[0] for line in lines[1:7]] == ["8", "16", "32", "64", "128", "256"]
    assert lines[6].split()[3::3] == ["✗", "✗"]
    assert lines[7].startswith("  Predicted from shapes alone, 100 MiB of the process included; 500 MiB may be used.")


def test_an_arm_that_could_not_be_predicted_says_why():
    lines = _lines(_arm(FULL, 6), Arm(values=HALF, reason=earlier("contents decide")))

    assert lines[0].split() == ["batch", "fp32"]
    assert "  ! bf16: contents decide" in lines


def test_where_no_arm_could_be_predicted_no_table_is_explained():
    lines = _lines(Arm(values=FULL, reason=earlier("contents decide")))

    assert lines == [
        "  ! peak: contents decide",
        "  Memory cannot be predicted here; `autotune search` measures it.",
    ]


def test_one_arm_needs_no_name():
    assert _lines(_arm(FULL, 6))[0].split() == ["batch", "peak"]


def test_a_shape_run_that_died_says_how():
    died = ShapeRun(outcome=Outcome.CRASHED, failure=Failure(phase="measure", message="killed by SIGSEGV", evidence=""))

    assert memory_block(died, (8,), MIB, (8,)).plain == "  memory cannot be predicted: killed by SIGSEGV"


def test_what_trades_time_for_memory_is_told_in_a_line_and_is_no_column():
    arms = [_arm({"amp_dtype": dtype, "activation_checkpointing": on}, 6 - 4 * on - (dtype is not None))
            for dtype in (None, "bfloat16") for on in (False, True)]  # fmt: skip

    lines = _lines(*arms)

    assert lines[0].split() == ["batch", "fp32", "bf16"]
    assert lines[-3] == "  with activation checkpointing ✓ fp32 up to 128, bf16 up to 256"


def test_a_trade_alone_gives_no_column_a_name():
    lines = _lines(*(_arm({"activation_checkpointing": on}, 6 - 4 * on) for on in (False, True)))

    assert lines[0].split() == ["batch", "peak"]
    assert lines[-3] == "  with activation checkpointing ✓ up to 128"


def test_where_nothing_but_a_trade_is_asked_for_it_is_the_table():
    lines = _lines(_arm({"activation_checkpointing": True}, 2))

    assert lines[0].split() == ["batch", "peak"]
    assert not any("activation" in line for line in lines)


def test_a_batch_that_no_search_would_use_has_no_tick():
    lines = _lines(_arm(FULL, 6), _arm(HALF, 3), searched=(8, 32))

    assert [line.count("✓") for line in lines[1:4]] == [2, 0, 2]
    assert [line.endswith("not searched: it does not divide the held global batch") for line in lines[1:4]] == [0, 1, 0]


def test_a_trade_is_told_up_to_the_largest_batch_that_a_search_would_use():
    arms = [_arm({"activation_checkpointing": on}, 6 - 4 * on) for on in (False, True)]

    assert _lines(*arms, searched=(8, 16, 32))[-3] == "  with activation checkpointing ✓ up to 32"
