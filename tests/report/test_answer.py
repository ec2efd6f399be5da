"""The answer on a terminal: what stands in its fifteen lines, and what only --verbose tells."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console
from rich.text import Text

from autotune.core import codec
from autotune.core.codes import Code
from autotune.core.notices import notice
from autotune.core.results import LossVerdict
from autotune.knobs import KNOBS, defaults
from autotune.report import phrases
from autotune.report.answer import MOST_ANSWER_LINES, answer_block, sentences
from autotune.report.essentials import essential
from autotune.report.losses import losses_phrase
from autotune.study.recommendation import Change, Confirmation, Recommendation, RunnerUp, Undecided, read_best
from autotune.testing.knob_contract import CPU, circumstances
from autotune.testing.machine import ENVIRONMENT
from tests.reporting import GIB, config, measured, recommendation, trial, view
from tests.worlds import earlier, facts

BASE = config(64, gradient_accumulation_steps=1)
BEST = config(64, amp_dtype="bfloat16", channels_last=True)
HALFWAY = config(64, amp_dtype="bfloat16")
MATCH = {"candidate": "bf16", "reference": "fp32", "difference": 0.002, "steps": 50, "batch": 64, "allowed": 0.02}
BF16 = LossVerdict(
    verdict="ok", values={"amp_dtype": "bfloat16"}, reason=notice(Code.LOSSES_MATCH, **MATCH), batch_size=64, steps=50,
    seeds=1, difference=0.002, allowed=0.02,
)  # fmt: skip
SPREAD = notice(Code.RATES_SPREAD, spread=0.13)
LOADER = notice(Code.LOADER_BOUND_SEARCH_SHORT, wait_share=0.34, workers=8)
NORM = notice(Code.BATCH_NORM, now=32, before=64)


def answer(**changes: Any) -> Recommendation:
    """The answer of a small study: bf16 and channels_last are twice as fast."""
    settings: dict[str, Any] = {
        "study": "studies/digits", "model": "digits", "params": BEST.values, "baseline": BASE.values,
        "samples_per_second": 2000.0, "baseline_samples_per_second": 1000.0, "relative_half_width": 0.03,
        "speedup": 2.0, "speedup_low": 1.9, "speedup_high": 2.1, "global_batch_size": 64,
        "baseline_global_batch_size": 64, "warnings": (), "runners_up": (), "loss_verdicts": (BF16,),
        "stability": BF16.reason,
    }  # fmt: skip
    return recommendation(**(settings | changes))


def probed(best: Recommendation, **rates: float) -> Any:
    """The study with the baseline, the recommendation, and bf16 alone at these samples/s."""
    between = [trial(2, HALFWAY, measured(rates["halfway"]))] if rates else []
    ends = (trial(0, BASE, measured(1000.0), "baseline"), trial(1, BEST, measured(2000.0)))
    return view((*ends, *between), best)


def test_a_longer_budget_is_advised_once() -> None:
    warning = notice(Code.NOT_CONFIRMED)
    open_ = answer(params=BASE.values, undecided=RIVAL, **OPEN | {"warnings": (warning,)})

    told = answer_block(open_, probed(open_)).plain

    assert "There was no time to confirm this" in told
    assert told.count("--time-budget") == 1
    assert answer_block(answer(warnings=(warning,))).plain.count("--time-budget") == 1


def test_where_nothing_was_compared_the_answer_says_what_to_do_once() -> None:
    sampled, tried = notice(Code.SAMPLED, measured=1, total=288), notice(Code.ONLY_BASELINE_TRIED)
    kept = {"params": BASE.values, "undecided": None, "speedup": 1.0, "speedup_low": 1.0, "speedup_high": 1.0}
    everything = notice(Code.ALL_MEASURED, measured=1, better="faster")
    alone, whole = (answer(**kept, certificate=one, warnings=(tried,)) for one in (sampled, everything))

    told = answer_block(alone).plain

    assert told.startswith("Undecided: nothing else could be compared with your baseline, which is kept.")
    assert "Next" in told
    assert told.count("--time-budget") == 1
    assert "Next" not in answer_block(whole).plain


def test_which_probes_were_left_out_is_for_verbose() -> None:
    listed = "probe 17 at 39,200 samples/s (other processes kept 0.9 cores busy)"
    best = answer(warnings=(notice(Code.PROBES_LEFT_OUT, count=4, probes=listed),))

    told = " ".join(answer_block(best).plain.split())

    assert "leaves out 4 probes that something slowed. Close other work while a search runs." in told
    assert "probe 17" not in told
    assert "probe 17" in " ".join(answer_block(best, verbose=True).plain.split())


def lines(block: Text) -> list[str]:
    return block.plain.splitlines()


def printed(block: Text) -> str:
    stream = io.StringIO()
    Console(file=stream).print(block, soft_wrap=True)
    return stream.getvalue()


def test_a_plain_win_is_told_in_this_form() -> None:
    best = answer(warnings=(SPREAD, NORM))

    assert (
        answer_block(best, probed(best, halfway=1500.0)).plain
        == """\
digits trains 2.00× faster than your baseline (1.90 to 2.10), with the same global batch of 64.

  Change    amp_dtype      bfloat16  was fp32   1.50×, single probes, alone
            channels_last  yes       was no     1.33× faster (1.24 to 1.43), single probes
  Kept      batch_size 64 × 1 · no loader workers · all else as it is
  Speed     2,000 samples/s ± 3%, baseline 1,000, measured 3 times on Example GPU
  Memory    49 GiB of 80 GiB (39% free) · waiting for data 1%
  Losses    bf16 matches fp32: 0.2% apart after 50 paired steps
  !         BatchNorm now sees micro-batches of 32 instead of 64, which changes its statistics. Keep
            batch_size 64 where that matters (--fix batch=64, or --exact).
  !         Repeats of one configuration scatter by 13% (standard deviation): this machine is busy
            or throttled. Smaller gains are not reliable. Search again when the machine is quiet.
  Use it    autotune.load_best("studies/digits") · autotune export studies/digits --to torch
  More      autotune best studies/digits --verbose · autotune report studies/digits"""
    )


def test_a_baseline_that_stays_is_told_without_changes() -> None:
    lost = RunnerUp(config=BEST, samples_per_second=900.0, reason=notice(Code.SLOWER, share=0.1, worse="slower"))
    kept = answer(
        params=BASE.values, samples_per_second=1000.0, speedup=1.0, speedup_low=1.0, speedup_high=1.0,
        runners_up=(lost,), stability=notice(Code.LOSSES_FINITE, reference="full precision", steps=240),
    )  # fmt: skip

    assert (
        answer_block(kept, probed(kept)).plain
        == """\
Keep your baseline: no configuration was measurably faster.

  Settings  batch_size 64 × 1 · no autocast · no loader workers · all else as it is
  Speed     1,000 samples/s ± 3%, measured 3 times on Example GPU
  Memory    49 GiB of 80 GiB (39% free) · waiting for data 1%
  Losses    full precision; losses finite over 240 optimizer steps
  More      autotune best studies/digits --verbose · autotune report studies/digits"""
    )


def test_where_nothing_was_declared_a_changed_global_batch_comes_first() -> None:
    changed = notice(Code.GLOBAL_BATCH_CHANGED, now=256, before=32, factor=8.0, learning_rate_factor=2.83)
    knee = notice(Code.GLOBAL_BATCH_UNDECLARED, batch=256, share=0.96)
    numbers = {"speedup": 1.7, "low": 1.65, "high": 1.75, "samples_per_second": 1700.0}
    today = notice(Code.FASTER_WITH_BASELINE_BATCH, batch=32, **numbers)
    free = answer(
        baseline_assumed=True, baseline=config(32).values, params=config(256).values, global_batch_size=256,
        baseline_global_batch_size=32, warnings=(LOADER,),
        stability=notice(Code.LOSSES_FINITE, reference="full precision", steps=240),
        global_batch_change=changed, reasons=(knee, today),
    )  # fmt: skip

    assert (
        answer_block(free).plain
        == """\
With a global batch of 256 instead of 32: digits trains 2.00× faster than the assumed default (1.90
to 2.10).
Another global batch changes what the model learns. Learning rate to start from: 2.8 times today's.
No batch size was declared: 256 reaches 96% of the fastest; hold yours with --global-batch SIZE.
If you train with 32 today: 1.70× (1.65 to 1.75), 1,700 samples/s without changing it.

  Change    batch_size  256 × 1  was 32 × 1   2.00× faster (1.90 to 2.10)
  Kept      no autocast · no loader workers · all else as it is
  Speed     2,000 samples/s ± 3%, baseline 1,000, measured 3 times on Example GPU
  Memory    49 GiB of 80 GiB (39% free) · waiting for data 1%
  Losses    full precision; losses finite over 240 optimizer steps
  !         Training waits for data 34% of the time. Search longer (up to 8 workers are allowed), or
            make the samples cheaper.
  Use it    autotune.load_best("studies/digits") · autotune export studies/digits --to torch
  More      autotune best studies/digits --verbose · autotune report studies/digits"""
    )


OPEN = {
    "samples_per_second": 1000.0, "relative_half_width": 0.4, "speedup": 1.0, "speedup_low": 1.0, "speedup_high": 1.0,
    "warnings": (SPREAD,), "stability": notice(Code.LOSSES_FINITE, reference="full precision", steps=240),
}  # fmt: skip
RIVAL = Undecided(
    config=BEST, gain=1.46, gain_low=0.9, gain_high=2.37, rounds=3, rounds_needed=6, minutes_needed=2
)  # fmt: skip


def test_what_noise_left_open_is_called_undecided_and_says_what_it_would_take() -> None:
    open_ = answer(params=BASE.values, undecided=RIVAL, **OPEN)

    assert (
        answer_block(open_, probed(open_)).plain
        == """\
Undecided between your baseline and 64×1 bf16 nhwc, measured 1.46× as fast (0.90 to 2.37): your
baseline is kept.

  Settings  batch_size 64 × 1 · no autocast · no loader workers · all else as it is
  Speed     1,000 samples/s ± 40%, measured 3 times on Example GPU
  Memory    49 GiB of 80 GiB (39% free) · waiting for data 1%
  Losses    full precision; losses finite over 240 optimizer steps
  !         Repeats of one configuration scatter by 13% (standard deviation): this machine is busy
            or throttled.
  Next      About 6 rounds instead of 3 would decide: run the same command again with --time-budget
            2m, or when the machine is quiet. Probes are kept.
  More      autotune best studies/digits --verbose · autotune report studies/digits"""
    )


def test_that_other_work_slowed_the_search_is_said_once() -> None:
    """As seen beside a load: three warnings and the next step asked for a quiet machine."""
    slowed = notice(Code.CONFIRMATION_INTERFERENCE, rounds=("64×1 bf16 in 2 of 2",))
    warnings = (SPREAD, slowed, LOADER, notice(Code.INTERFERENCE_THROUGHOUT), notice(Code.PROBES_LEFT_OUT, count=1))
    open_ = answer(params=BASE.values, undecided=RIVAL, **OPEN | {"warnings": warnings})

    told = lines(answer_block(open_, probed(open_)))

    assert [line[12:40] for line in told if line.startswith("  !")] == [slowed.text[:28], LOADER.text[:28]]
    assert sum("quiet" in line for line in told) == 1
    assert "3 more warnings: autotune best studies/digits --verbose" in told[-1]
    assert all(one.text in answer_block(open_, probed(open_), width=None, verbose=True).plain for one in warnings)


def test_a_quiet_machine_is_asked_for_where_the_next_step_is_another() -> None:
    slowed = notice(Code.LONE_RATE_INTERFERENCE, rounds=("64×1 fp32 in 1 of 1",))
    failed = notice(Code.ALL_TRIED, measured=3, total=3, crashed=2)
    alone = answer(params=BASE.values, certificate=failed, **OPEN | {"warnings": (slowed,)})

    told = answer_block(alone, probed(alone)).plain

    assert "Find out why the others do not run" in told
    assert "Close other work" in told.replace("\n           ", "")


def test_what_is_recommended_while_it_is_open_claims_nothing() -> None:
    rival = msgspec.structs.replace(RIVAL, gain=1.07, gain_low=0.99, gain_high=1.16, rounds_needed=None)
    found = answer(undecided=rival, speedup=1.07, speedup_low=1.01, speedup_high=1.13)

    assert phrases.headline(found) == (
        "undecided between your baseline and 64×1 bf16 nhwc, measured 1.07× as fast (0.99 to 1.16); it is recommended: "
        "at worst it is 1% slower"
    )
    assert not phrases.is_better(found)
    assert "Use it" in answer_block(found).plain
    assert "when the machine is quiet, with a longer --time-budget" in phrases.what_would_tell(found)


@pytest.mark.parametrize("rounds_needed", [6, None])
def test_after_a_change_of_the_code_the_next_step_is_to_begin_anew(rounds_needed: int | None) -> None:
    changed, rival = (
        notice(Code.CODE_CHANGED, file="train.py"),
        msgspec.structs.replace(RIVAL, rounds_needed=rounds_needed),
    )

    told = phrases.what_would_tell(answer(undecided=rival, warnings=(changed,)))

    assert "Run the same command again with --fresh" in told
    assert "Probes are kept" not in told


@pytest.mark.parametrize(("ran", "open_by", "speed"), [
    (3, "measured 1.46× as fast in 1 of 3 rounds", "measured in 1 of 3 rounds"),
    (1, "measured 1.46× as fast in single probes", "by a single probe"),
])  # fmt: skip
def test_rounds_that_interference_left_one_of_are_called_rounds_throughout(ran: int, open_by: str, speed: str) -> None:
    slowed = notice(Code.SLOWED_ROUNDS, configuration="64×1", slowed=ran, rounds=ran)
    doubt = notice(Code.CONFIRMATION_INTERFERENCE, rounds=(slowed,))
    rival = msgspec.structs.replace(RIVAL, rounds=1)

    found = answer(params=BASE.values, undecided=rival, rounds=1, **{**OPEN, "warnings": (doubt,)})

    told = " ".join(answer_block(found).plain.split())
    assert open_by in told
    assert speed in told
    assert f"interference in too many probes: 64×1 in {ran} of {ran}." in told


def test_what_an_earlier_version_left_open_is_still_told(tmp_path: Path) -> None:
    why = notice(Code.FASTER_NOT_SIGNIFICANT, share=0.46, better="faster")
    lost = (RunnerUp(config=BEST, samples_per_second=1460.0, reason=why),)
    codec.write(tmp_path / "best.json", answer(params=BASE.values, runners_up=lost, **OPEN))

    assert phrases.undecided_phrase(read_best(tmp_path / "best.json")).endswith(
        "64×1 bf16 nhwc, measured 1.46× as fast"
    )


def test_a_baseline_that_needs_too_much_memory_is_no_yardstick() -> None:
    shapes = notice(Code.LARGEST_BATCH_UNTRIED, free_share=0.1)
    bound = answer(
        baseline=config(512).values, params=config(128, gradient_accumulation_steps=4).values, speedup=None,
        speedup_low=None, speedup_high=None, baseline_samples_per_second=None, peak_bytes=71 * GIB,
        headroom_fraction=0.11, global_batch_size=512, baseline_global_batch_size=512, warnings=(shapes,),
        stability=notice(Code.LOSSES_FINITE, reference="full precision", steps=240),
    )  # fmt: skip

    assert (
        answer_block(bound, probed(bound)).plain
        == """\
Fastest configuration found; your baseline does not run here, so there is no speed-up, with the same
global batch of 512.

  Change    batch_size  128 × 4  was 512 × 1   not measured
  Kept      no autocast · no loader workers · all else as it is
  Speed     2,000 samples/s ± 3%, measured 3 times on Example GPU
  Memory    71 GiB of 80 GiB (11% free) · waiting for data 1%
  Losses    full precision; losses finite over 240 optimizer steps
  !         Batches differ in shape, and the largest was not tried, because this data does not show
            which one it is. 10% of the memory is kept free for it. Write worst_batch(batch_size),
            which returns one such batch, to have it tried.
  Use it    autotune.load_best("studies/digits") · autotune export studies/digits --to torch
  More      autotune best studies/digits --verbose · autotune report studies/digits"""
    )


ALL = (
    SPREAD, LOADER, NORM, notice(Code.SYNTHETIC_BATCHES), notice(Code.INTERFERENCE_THROUGHOUT),
    notice(Code.MEMORY_GROWS, step_bytes=8 << 20, steps_left=1024), earlier("Something else. " * 99),
)  # fmt: skip
EVERYTHING = {
    **config(32, gradient_accumulation_steps=2, amp_dtype="bfloat16", num_workers=8, channels_last=True).values,
    "activation_checkpointing": True, "num_threads": 2, "omp_wait_policy": "passive", "compile_mode": "default",
    "prefetch_factor": 4, "persistent_workers": False, "pin_memory": False, "allocator": "expandable_segments",
    "malloc": "tcmalloc", "activation_memory_budget": 0.5,
    "fused_optimizer": "fused", "tf32": True, "cudnn_benchmark": True, "sdpa_backend": "flash",
}  # fmt: skip
OTHERS = (
    "prefetch_factor", "persistent_workers", "pin_memory", "allocator", "malloc", "omp_wait_policy", "compile_mode",
    "fused_optimizer", "sdpa_backend", "activation_memory_budget",
)  # fmt: skip
SIX = {**EVERYTHING, **dict.fromkeys(OTHERS), "tf32": False, "cudnn_benchmark": False}


@pytest.mark.parametrize("warnings", [ALL[:count] for count in range(len(ALL) + 1)], ids=len)
@pytest.mark.parametrize("params", [BEST.values, SIX], ids=["two changes", "six"])
def test_whatever_there_is_to_say_fifteen_lines_of_100_columns_hold_it(warnings: Any, params: Any) -> None:
    best = answer(warnings=warnings, params=params)

    told = lines(answer_block(best, probed(best, halfway=1500.0)))

    assert len(told) <= MOST_ANSWER_LINES
    assert max(map(len, told)) <= 100
    assert any("Memory grows by 8 MiB" in line for line in told) is (len(warnings) >= 6)  # the costliest is never out
    left = len(warnings) - sum(line.startswith("  !") for line in told)
    assert (f"{left} more warning" in "\n".join(told)) is (left > 0)


OWN = tuple(
    notice(
        Code.SLOW_LINE, place=f"a/long/folder/model.py:{number} in Net.forward", milliseconds=30.0, share=0.3,
        kind="host read", what=".tolist()", count=1.0, line="f()",
    )
    for number in (21, 40)
)  # fmt: skip


@pytest.mark.parametrize("warnings", [ALL[:count] for count in range(len(ALL) + 1)], ids=len)
@pytest.mark.parametrize("params", [BEST.values, SIX], ids=["two changes", "six"])
def test_lines_that_no_setting_mends_take_a_line_each_and_no_more_than_there_is_room_for(
    warnings: Any, params: Any
) -> None:
    best = answer(warnings=warnings, params=params, slow_lines=OWN)

    told = lines(answer_block(best, probed(best, halfway=1500.0)))

    assert len(told) <= MOST_ANSWER_LINES
    assert max(map(len, told)) <= 100
    assert any("Memory grows by 8 MiB" in line for line in told) is (len(warnings) >= 6)
    own = [line for line in told if "a/long/folder/model.py:" in line]
    assert own[:1] == [f"  Your code {CUT}"] * bool(own)
    assert len(own) == 2 or params == SIX


CUT = "a/long/folder/model.py:21: 30.0 ms a step (30%) → keep a tensor (detach), read it now a…"


def test_what_no_setting_mends_is_whole_where_everything_is_told() -> None:
    told = " ".join(answer_block(answer(slow_lines=OWN), verbose=True).plain.split())

    assert (
        "a/long/folder/model.py:21 in Net.forward: 30.0 ms a step (30%), .tolist() reads a tensor on the host, once a "
        "step. Instead: keep a tensor (detach), read it now and then."
    ) in told


def test_at_most_three_warnings_are_told_and_the_costliest_comes_first() -> None:
    told = [line for line in lines(answer_block(answer(warnings=ALL))) if line.startswith("  !")]

    assert [line[12:].split()[0] for line in told] == ["Memory", "BatchNorm", "Other"]


def test_a_warning_that_lists_much_says_what_it_means_in_a_file_too() -> None:
    many = notice(Code.CONFIRMATION_INTERFERENCE, rounds="64×1 in 2 of 2", probes="probe 7 (it waited); " * 20)

    told = lines(answer_block(answer(warnings=(many,)), width=None))

    (warning,) = [line for line in told if line.startswith("  !")]
    assert warning.startswith(
        "  !         Which configuration is faster is not certain, and the rates are probably too low: "
    )
    assert warning.endswith(": 64×1 in 2 of 2.")


def test_a_narrow_terminal_breaks_lines_between_words_and_never_a_command() -> None:
    best = answer(warnings=ALL)

    told = lines(answer_block(best, probed(best, halfway=1500.0), width=80))

    assert [line for line in told if len(line) > 80 and "autotune" not in line] == []
    assert "            autotune export studies/digits --to torch" in told


def test_a_file_gets_whole_lines() -> None:
    best = answer(warnings=(SPREAD,))

    assert f"  !         {SPREAD.text}" in lines(answer_block(best, width=None))


def test_verbose_keeps_all_of_it_and_adds_the_rest() -> None:
    lost = RunnerUp(config=HALFWAY, samples_per_second=1500.0, reason=earlier("25% slower"))
    best = answer(warnings=ALL, runners_up=(lost,))

    told = printed(answer_block(best, probed(best, halfway=1500.0), verbose=True))

    assert [one.text for one in ALL if " ".join(one.text.split()) not in " ".join(told.split())] == []
    assert [name for name in best.params if not re.search(rf"\b{name}\b", told)] == []
    assert "batch_size: 64" in told and "as torch has it: activation_checkpointing," in told
    assert "64×1 bf16 nchw: 1,500 samples/s, 25% slower" in told
    assert "layout nchw → nhwc: 1.33× faster (1.24 to 1.43), single probes" in told
    assert "tolerance 2.0%" in told
    assert "torch 2.13.0 · 2026-11-21" in told
    assert "more warning" not in told


def test_what_matters_is_listed_whatever_it_is_and_what_the_baseline_already_has() -> None:
    own = BASE.values | {"compile_mode": "default", "tf32": True}
    best = answer(baseline=own, params=own | {"amp_dtype": "bfloat16", "tf32": False})

    matter, others = essential(best)
    told = answer_block(best).plain

    assert list(matter) == [
        "batch_size", "gradient_accumulation_steps", "amp_dtype", "num_workers", "compile_mode", "tf32",
    ]  # fmt: skip
    assert {**matter, **dict.fromkeys(others)}.keys() == best.params.keys()
    assert "Kept      batch_size 64 × 1 · no loader workers · torch.compile (default) · all else as it is" in told
    assert "tf32" in told.partition("Kept")[0]


def test_each_thing_is_said_once() -> None:
    doubt = notice(Code.PRECISION_UNDECIDED, reference="full precision", why="bf16 may or may not match fp32")
    unclear = answer(
        warnings=(doubt,), stability=notice(Code.LOSSES_NOT_CLEARED, reference="full precision", steps=240),
        loss_verdicts=(LossVerdict(
            verdict="inconclusive", values={"amp_dtype": "bfloat16"}, batch_size=64, steps=50, seeds=3,
            reason=notice(Code.LOSSES_UNDECIDED, **MATCH, low=0.01, high=0.05)),),
    )  # fmt: skip

    for best, word in ((answer(), "bf16"), (unclear, "bf16"), (answer(), "baseline (")):
        assert answer_block(best).plain.count(word) == 1
    assert "undecided whether bf16 learns as fp32 does: 50 paired steps of 3 seeds are too noisy to tell" in (
        losses_phrase(unclear)
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "bf16 matches fp32: 0.2% apart after 50 paired steps"),
        ({"difference": 1e-5}, "bf16 matches fp32: less than 0.1% apart after 50 paired steps"),
        (
            {"allowed": 0.15, "difference": 0.1},
            "bf16 and fp32 could not be told apart in 50 paired steps: noisy, 15% would not show",
        ),
        (
            {"allowed": 0.15, "seeds": 3},
            "bf16 and fp32 could not be told apart in 50 paired steps of 3 seeds: noisy, 15% would not show",
        ),
    ],
)
def test_losses_are_one_clause(changes: dict[str, Any], said: str) -> None:
    fields = {name: getattr(BF16, name) for name in BF16.__struct_fields__} | changes

    assert losses_phrase(answer(loss_verdicts=(LossVerdict(**fields),))) == said


def test_the_verdict_on_a_precision_that_is_not_recommended_is_not_told_of_the_answer() -> None:
    finite = notice(Code.LOSSES_FINITE, reference="full precision", steps=240)

    assert losses_phrase(answer(params=BASE.values, stability=finite)) == finite.text


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        (
            {"halfway": 1500.0},
            ["1.50×, single probes, alone", "1.33× faster (1.24 to 1.43), single probes"],
        ),
        (
            {"halfway": 1990.0},
            ["1.99×, single probes, alone", "1.01×, not significant (0.93 to 1.08), single probes"],
        ),
        ({}, ["not measured", "not measured"]),
    ],
)
def test_a_change_is_worth_what_was_measured_without_it(rates: dict[str, float], expected: list[str]) -> None:
    best = answer()

    told = lines(answer_block(best, probed(best, **rates)))

    assert [line.rpartition("   ")[2] for line in told[2:4]] == expected


@pytest.mark.parametrize(
    ("beside", "why", "told"),
    [
        ({"num_workers": 4}, Code.CHANGE_WITHOUT_TIME, "1.60×, single probes, beside workers 4"),
        ({"num_workers": 4, "num_threads": 1}, Code.CHANGE_WITHOUT_TIME, "not measured: no time was left"),
        ({"num_workers": 4}, Code.CHANGE_CRASHED, "not measured: it crashed, or took the search down with it, twice"),
    ],
)
def test_a_change_without_time_is_told_as_two_probes_saw_it_that_differ_from_the_answer_in_one_setting_more(
    beside: dict[str, Any], why: Code, told: str
) -> None:
    half = Change(values={"amp_dtype": "bfloat16"}, before={"amp_dtype": None}, kept=True, untested=notice(why))
    layout = Change(values={"channels_last": True}, before={"channels_last": False}, kept=True, ratio=0.8)
    best = answer(changes=(half, layout))
    trials = [trial(0, BASE, measured(1000.0), "baseline"), trial(1, BEST, measured(2000.0))]
    for number, (dtype, rate) in enumerate([(None, 1250.0), ("bfloat16", 2000.0)]):
        values = {**beside, "amp_dtype": dtype, "channels_last": True}
        trials.append(trial(2 + number, config(64, **values), measured(rate)))

    assert lines(answer_block(best, view(tuple(trials), best), width=None))[2].partition("fp32")[2].strip() == told


def test_the_only_change_has_the_factor_of_the_answer() -> None:
    """As seen: 2.68 and 2.48, because the change was measured beside another one that was dropped."""
    beside = Change(
        values={"amp_dtype": "bfloat16"},
        before={"amp_dtype": None},
        kept=True,
        ratio=0.6,
        ratio_low=0.5,
        ratio_high=0.7,
    )
    best = answer(params=HALFWAY.values, changes=(beside,), rounds=4)

    assert lines(answer_block(best, probed(best)))[2].endswith("was fp32   2.00× faster (1.90 to 2.10)")


def test_what_cannot_stay_without_a_change_is_told_beside_it() -> None:
    """As the kernel `math`, which is for half precision on a CPU: without bf16 both are gone."""
    params = BEST.values | {"num_workers": 8, "prefetch_factor": 4}
    workers = Change(values={"num_workers": 8}, before={"num_workers": 0}, kept=True, ratio=0.6)
    layout = Change(values={"channels_last": True}, before={"channels_last": False}, kept=True, ratio=0.8)
    best = answer(params=params, changes=(workers, layout), rounds=4)

    told = lines(answer_block(best, probed(best)))

    assert told[2].endswith("1.67×, together with prefetch_factor 4")
    assert told[3].endswith("1.25×")


@pytest.mark.parametrize(("rounds", "shown"), [((2000.0, 1990.0), "3%"), ((2200.0, 1800.0), "20%")])
def test_a_speed_is_no_more_precise_than_its_own_rounds(rounds: tuple[float, ...], shown: str) -> None:
    own = Confirmation(
        config=BEST, samples_per_second=2000.0, rounds=rounds, trials=(1, 2), peak_bytes=1, data_wait_share=0.0
    )

    assert f"  Speed     2,000 samples/s ± {shown}," in answer_block(answer(confirmations=(own,))).plain


def test_losses_that_there_was_no_time_to_compare_are_told_once_with_what_to_do() -> None:
    why = notice(Code.NOT_COMPARED_IN_TIME, reference="full precision")
    doubt = notice(Code.PRECISION_UNDECIDED, reference="full precision", why=why, hold="--fix amp=none")
    losses = notice(Code.LOSSES_NOT_COMPARED, reference="full precision", steps=12)

    told = lines(answer_block(answer(warnings=(doubt, SPREAD), loss_verdicts=(), stability=losses), width=None))

    assert (
        "  Losses    undecided whether bf16 learns as fp32 does: no time was left to compare them. Search longer "
        "(--time-budget), or keep yours (--fix amp=none)."
    ) in told
    assert [line[12:19] for line in told if line.startswith("  !")] == ["Repeats"]


def test_without_probes_nothing_is_said_of_the_worth_of_changes() -> None:
    assert lines(answer_block(answer()))[2].endswith("was fp32")


def test_what_has_to_be_set_before_python_starts_is_a_line_to_copy() -> None:
    passive = answer(params=BEST.values | {"num_threads": 2, "omp_wait_policy": "passive"})

    (line,) = [line for line in lines(answer_block(passive)) if "export " in line and "--to" not in line]

    assert line == "  Set       export OMP_WAIT_POLICY=passive   (in the shell, before Python starts)"
    assert "OMP_WAIT" not in answer_block(answer()).plain


def test_what_is_said_of_a_long_line_to_copy_stands_below_it() -> None:
    text = lines(answer_block(answer(params=BEST.values | {"malloc": "glibc"})))
    at = next(number for number, line in enumerate(text) if line.startswith("  Set"))

    assert text[at].endswith("glibc.malloc.trim_threshold=4611686018427387904")
    assert text[at + 1] == "            (in the shell, before Python starts)"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"speedup": 1.02, "speedup_low": 0.98, "speedup_high": 1.06},
            "Fastest allowed configuration, not measurably faster than your baseline (1.02×, 0.98 to 1.06), "
            "with the same global batch of 64.",
        ),
        (
            {"speedup": 0.63, "speedup_low": 0.54, "speedup_high": 0.74},
            "Fastest allowed configuration, slower than your baseline (0.63×, 0.54 to 0.74), with the same global",
        ),
        (
            {"speedup": 0.14, "speedup_low": None, "speedup_high": None, "rounds": 1},
            "Fastest allowed configuration, slower than your baseline (0.14×), with the same global batch of 64.",
        ),
        (
            {"speedup": 0.97, "speedup_low": None, "speedup_high": None, "rounds": 1},
            "Fastest allowed configuration, not measurably faster than your baseline (0.97×), with the same global",
        ),
        ({"params": BASE.values, "runners_up": ()}, "Keep your baseline: nothing else could be compared with it."),
        (
            {"speedup_low": None, "speedup_high": None, "rounds": 1},
            "digits trains 2.00× faster than your baseline, with the same global batch of 64.",
        ),
        ({"model": "\x1b[31m\nx"}, "x trains 2.00× faster than your baseline"),
    ],
)
def test_the_sentence_is_honest_about(changes: dict[str, object], expected: str) -> None:
    assert expected in " ".join(lines(answer_block(answer(**changes)))[:2])


def test_a_learning_rate_from_the_noise_scale_is_told_for_both_optimizers() -> None:
    changed = notice(
        Code.GLOBAL_BATCH_CHANGED_NOISE_SCALE, now=256, before=64, factor=4.0, sgd_factor=3.1, adam_factor=1.8
    )

    told = sentences(answer(global_batch_size=256, global_batch_change=changed))

    changes = "Another global batch changes what the model learns."
    assert told[1] == f"{changes} Learning rate to start from: 3.1 (SGD) or 1.8 (Adam) times today's."


def test_the_next_commands_can_be_pasted_whatever_the_study_is_called() -> None:
    text = printed(answer_block(answer(study='my studies/[a] :x: "b"')))

    assert "autotune best 'my studies/[a] :x: \"b\"' --verbose" in text
    assert 'load_best("my studies/[a] :x: \\"b\\"")' in text


@pytest.mark.parametrize("framework", ["lightning", "hf", "torch"])
def test_the_program_that_is_offered_is_of_the_users_own_framework(framework: str) -> None:
    assert f"--to {framework}" in printed(answer_block(answer(facts=facts(framework=framework))))
    assert "--to torch" in printed(answer_block(answer(facts=None)))  # of an earlier version


def test_a_layout_that_no_configuration_has_is_not_told_of_those_that_lost() -> None:
    plain, nhwc = config(512, num_workers=4), config(256, channels_last=True)
    lost = [RunnerUp(config=one, samples_per_second=9.0, reason=earlier("slower")) for one in (plain, nhwc)]
    params = config(1024, num_workers=4).values

    alone = printed(answer_block(answer(params=params, runners_up=tuple(lost[:1])), verbose=True))
    both = printed(answer_block(answer(params=params, runners_up=tuple(lost)), verbose=True))

    assert "Others    512×1 workers 4: 9.00 samples/s" in alone
    assert "512×1 workers 4 nchw: 9.00" in both and "256×1 workers 0 nhwc: 9.00" in both


@pytest.mark.parametrize("rounds", [1, 3])
def test_what_was_compared_in_single_probes_is_not_said_to_be_compared_in_rounds(rounds: int) -> None:
    reason = notice(Code.FASTER_BESIDE_OTHERS, share=0.93, better="faster")
    lost = RunnerUp(config=HALFWAY, samples_per_second=9.0, reason=reason)

    told = " ".join(printed(answer_block(answer(rounds=rounds, runners_up=(lost,)), verbose=True)).split())

    assert "93% faster, while other processes held the baseline's cores" in told
    assert ("Compared in the rounds that both ran" in told) is (rounds > 1)


def test_one_that_ran_in_a_few_rounds_has_the_rate_of_these() -> None:
    """Beside the mean of the baseline over all rounds its factor would make a rate that no probe had."""
    lost = RunnerUp(config=HALFWAY, samples_per_second=45_600.0, reason=earlier("4% slower"))
    ran = Confirmation(
        config=HALFWAY, samples_per_second=45_600.0, rounds=(25_000.0, 25_300.0), trials=(7, 9), peak_bytes=GIB,
        data_wait_share=0.0,
    )  # fmt: skip

    told = printed(answer_block(answer(runners_up=(lost,), confirmations=(ran,)), verbose=True))

    assert "64×1 bf16 nchw: 25,100 samples/s, 4% slower" in told
    assert "45,600" not in told
    assert "samples/s are those of each one's own rounds" in " ".join(told.split())


def test_what_was_dropped_is_no_change_of_the_answer_and_told_to_who_asks() -> None:
    earned, nothing = {"ratio": 0.65, "ratio_low": 0.63, "ratio_high": 0.67}, {"ratio_low": 0.9, "ratio_high": 1.1}
    changes = (
        Change(values={"channels_last": True}, before={"channels_last": False}, kept=False, ratio=0.99, **nothing),
        Change(values={"amp_dtype": "bfloat16"}, before={"amp_dtype": None}, kept=True, **earned),
    )
    best = answer(params=HALFWAY.values, changes=changes)

    short, whole = (printed(answer_block(best, verbose=verbose)) for verbose in (False, True))

    assert "  Change    amp_dtype  bfloat16  was fp32   2.00× faster (1.90 to 2.10)" in short
    assert "channels_last" not in short
    assert "dropped: layout nchw → nhwc: 1.01×, not significant (0.91 to 1.11)" in " ".join(whole.split())


EXCHANGING = facts(ranks=2, exposed_communication=0.3)


def test_every_knob_has_a_value_that_can_be_shown() -> None:
    others = {
        one.name: value
        for one in KNOBS
        if EVERYTHING[one.name] == one.default
        for here in (circumstances(ENVIRONMENT), circumstances(CPU), circumstances(CPU, facts=EXCHANGING))
        for value in one.domain(here)
        if value != one.default
    }
    best = answer(params=EVERYTHING | others, baseline=defaults() | BASE.values)

    told = answer_block(best, width=200).plain

    assert [name for name in defaults() if name != "gradient_accumulation_steps" and name not in told] == []
