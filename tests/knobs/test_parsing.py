"""What may be searched of a knob means the same in a target, in `autotune.search` and on the command line."""

import inspect
import os
import subprocess
import sys

import pytest

from autotune.cli.search import search
from autotune.core.records import Limit
from autotune.knobs import KNOBS
from autotune.knobs.parsing import full_name, limit, listed, option, range_between


@pytest.mark.parametrize(
    ("name", "written", "meant"),
    [
        ("batch_size", (8, 64), Limit(low=8, high=64)),
        ("batch_size", [8, 64], Limit(values=(8, 64))),
        ("batch_size", (8, 16, 64), Limit(values=(8, 16, 64))),
        ("batch_size", range(8, 11), Limit(values=(8, 9, 10))),
        ("batch_size", 64, Limit(values=(64,))),
        ("num_threads", (1, None), Limit(values=(1, None))),
        ("channels_last", (False, True), Limit(values=(False, True))),
        ("amp_dtype", (None, "bfloat16"), Limit(values=(None, "bfloat16"))),
        ("amp_dtype", "bfloat16", Limit(values=("bfloat16",))),
    ],
)
def test_python_writes_ranges_values_or_one_value(name, written, meant):
    assert limit(name, written) == meant


@pytest.mark.parametrize(
    ("name", "written", "words"),
    [
        ("batch_size", (64, 8), "from 64 to 8 is empty, its ends are swapped"),
        ("batch_size", (0, 8), "at least 1, got 0"),
        ("batch_size", [8, "many"], "got 'many'"),
        ("batch_size", [], "no value left"),
        ("amp_dtype", (1, 2), "amp_dtype must be"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_values(name, written, words):
    with pytest.raises(ValueError, match=words):
        limit(name, written)


def test_what_shares_no_weights_is_called_ddp_and_not_auto_which_would_choose():
    strategy = next(knob for knob in KNOBS if knob.name == "strategy")

    assert [strategy.show(one) for one in (None, "zero2")] == ["ddp", "zero2"]
    assert [strategy.parse(one) for one in ("ddp", "none", "fsdp")] == [None, None, "fsdp"]


def test_an_open_end_is_no_bound():
    assert range_between("batch_size", None, 8) == Limit(high=8)
    assert range_between("batch_size", 8, None) == Limit(low=8)
    assert listed("num_threads", [None]) == Limit(values=(None,))


def test_a_knob_is_found_by_both_names_and_guessed_from_a_third():
    assert full_name("batch") == full_name("batch_size") == "batch_size"
    with pytest.raises(ValueError, match=r"there is no knob 'batchsize'\. .*\. Did you mean batch_size\?"):
        full_name("batchsize")
    with pytest.raises(ValueError, match=r"no knob 'speed'\. .*\. Use one of batch_size \(batch\), "):
        full_name("speed")


def test_the_heading_of_a_column_leads_to_its_knob():
    with pytest.raises(ValueError, match=r"no knob 'optim'\. It is the column heading of the knob fused_optimizer"):
        full_name("optim")


def test_the_options_that_errors_advise_exist():
    typed = inspect.signature(search).parameters

    for knob in KNOBS:
        assert option(knob.name).removeprefix("--").replace("-", "_") in typed


def test_a_set_has_one_order_in_every_process() -> None:
    code = "from autotune.knobs.parsing import limit; print(limit('amp_dtype', {'bfloat16', 'float16', None}).values)"

    found = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True,
            check=True,
        ).stdout
        for seed in "0123"
    }  # fmt: skip

    assert found == {"('bfloat16', 'float16', None)\n"}


def test_the_size_of_torchs_own_buckets_may_be_typed_as_a_number():
    bucket = next(knob for knob in KNOBS if knob.name == "bucket_cap_mb")

    assert [bucket.parse(one) for one in ("25", "none", "50")] == [None, None, 50]
