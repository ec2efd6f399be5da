"""What is settled before anything is measured: baseline, held global batch, memory, faults of the inspection."""

import pytest

import autotune
from autotune.core.records import Limit
from autotune.core.results import Failure, Inspection, Outcome
from autotune.errors import EnvironmentUnfit, TargetError, UsageError
from autotune.preparation.prepare import baseline_config, error_of_failure, inspect, memory_bounds, settle
from autotune.preparation.settings import Settings
from autotune.testing import ENVIRONMENT, FakeLauncher
from tests.worlds import GIB, config, environment, facts

MIB = 2**20


def _settings(**changes):
    return Settings.of(target="model.py", **changes)


def _baseline(settings=None, **of):
    return baseline_config(settings or _settings(), facts(**of))


def _held(settings=None, **of):
    return settle(settings or _settings(), ENVIRONMENT, facts(**of))[0].goal.global_batch


def test_who_declares_nothing_is_assumed_to_run_the_defaults():
    assert _baseline() == (config(), True)


def test_what_is_declared_is_what_is_run():
    assert _baseline(baseline={"batch_size": 128, "num_workers": 4}) == (config(batch_size=128, num_workers=4), False)


def test_a_word_on_the_command_line_goes_before_the_target():
    settings = _settings(baseline={"batch_size": 16})

    assert _baseline(settings, baseline={"batch_size": 128, "num_workers": 4})[0] == config(
        batch_size=16, num_workers=4
    )


@pytest.mark.parametrize(
    ("of", "batch", "accumulation"),
    [
        ({"dataset_samples": 10}, 10, 1),
        ({"global_batch_size": 256}, 32, 8),
        ({"global_batch_size": 16}, 16, 1),
        ({"global_batch_size": 100}, 25, 4),
        ({"global_batch_size": 7}, 7, 1),
        ({"global_batch_size": 256, "baseline": {"batch_size": 64}}, 64, 4),
        ({"global_batch_size": 256, "baseline": {"batch_size": 64, "gradient_accumulation_steps": 1}}, 64, 1),
        ({"global_batch_size": 100, "baseline": {"batch_size": 64}}, 64, 1),
        ({"global_batch_size": 64, "baseline": {"gradient_accumulation_steps": 4}}, 16, 4),
        ({"global_batch_size": 64, "baseline": {"gradient_accumulation_steps": 3}}, 32, 3),
    ],
)
def test_accumulation_makes_up_a_declared_global_batch(of, batch, accumulation):
    assert _baseline(**of)[0] == config(batch_size=batch, gradient_accumulation_steps=accumulation)


def test_accumulation_makes_up_a_global_batch_that_is_asked_for():
    settings = _settings(global_batch=256)

    assert _baseline(settings, baseline={"batch_size": 64})[0].gradient_accumulation_steps == 4
    assert _baseline(settings, global_batch_size=64)[0] == config(batch_size=32, gradient_accumulation_steps=8)


def test_a_baseline_that_cannot_be_meant_is_an_error():
    with pytest.raises(UsageError, match=r"baseline is wrong: batch_size must .* got 0\. .*\. Correct it"):
        _baseline(_settings(baseline={"batch_size": 0}))


@pytest.mark.parametrize(
    ("settings", "of", "held"),
    [
        ({}, {}, None),
        ({}, {"baseline": {"batch_size": 64, "gradient_accumulation_steps": 2}}, 128),
        ({}, {"global_batch_size": 256}, 256),
        ({}, {"baseline": {"num_workers": 4}}, None),  # a batch that nobody named is not what the model learned with
        ({"global_batch": "keep"}, {}, 32),
        ({"global_batch": "free"}, {"global_batch_size": 256}, None),
        ({"global_batch": 512}, {"global_batch_size": 256}, 512),
        ({"baseline": {"batch_size": 64}}, {}, 64),
    ],
)
def test_the_global_batch_is_held_if_anybody_said_what_it_is(settings, of, held):
    assert _held(_settings(**settings), **of) == held


@pytest.mark.parametrize("wish", ["free", 512])
def test_a_global_batch_that_the_command_says_itself_is_not_another(wish):
    settings = Settings.of(target="-- python train.py --bs {batch_size=8} --total-batch-size 32", global_batch=wish)
    today = {"batch_size": 8, "gradient_accumulation_steps": 4}

    with pytest.raises(UsageError, match="the command says its global batch itself, which is 32 samples today"):
        settle(settings, ENVIRONMENT, facts(baseline=today, owns_loop=True))


@pytest.mark.parametrize(
    ("settings", "total", "bounds"),
    [
        ({}, 16 * GIB, (16 * GIB, None, int(0.05 * 16 * GIB))),
        ({}, 4 * GIB, (4 * GIB, None, 512 * MIB)),
        ({}, GIB, (GIB, None, 256 * MIB)),
        ({"memory_limit": "8GiB"}, 16 * GIB, (8 * GIB, 8 * GIB, int(0.05 * 8 * GIB))),
        ({"memory_limit": "50%"}, 16 * GIB, (8 * GIB, 8 * GIB, int(0.05 * 8 * GIB))),
        ({"headroom": 0.25}, 16 * GIB, (16 * GIB, None, 4 * GIB)),
        ({"headroom": 0.0}, 16 * GIB, (16 * GIB, None, 0)),
    ],
)
def test_memory_is_bounded_by_the_device_or_by_the_user(settings, total, bounds):
    assert memory_bounds(_settings(**settings), environment(device_bytes=total)) == bounds


MAC = environment(device="cpu", platform="Darwin 24.6.0")


def test_on_the_cpu_a_bound_below_what_is_available_is_always_enforced():
    import psutil

    limit, enforced, _ = memory_bounds(_settings(), environment(device="cpu", device_bytes=2**60))

    assert limit == 2**60
    assert 0 < enforced < psutil.virtual_memory().total


def test_where_no_kernel_can_enforce_a_bound_none_is_and_a_limit_is_refused():
    assert memory_bounds(_settings(), MAC) == (16 * GIB, None, int(0.05 * 16 * GIB))
    with pytest.raises(UsageError, match=r"--memory-limit 8GiB cannot be enforced on the CPU under Darwin 24\.6\.0\. "):
        memory_bounds(_settings(memory_limit="8GiB"), MAC)


@pytest.mark.parametrize("device", ["mps", "xpu:0"])
def test_a_limit_is_enforced_on_every_accelerator(device):
    on = environment(device=device, platform="Darwin 24.6.0")

    assert memory_bounds(_settings(memory_limit="8GiB"), on)[:2] == (8 * GIB, 8 * GIB)


@pytest.mark.parametrize("given", ["17GiB", "much", "101%", "8", "100KiB"])
def test_a_memory_limit_that_cannot_be_meant_is_an_error(given):
    with pytest.raises(UsageError, match="--memory-limit"):
        memory_bounds(_settings(memory_limit=given), ENVIRONMENT)


def test_the_request_holds_all_that_makes_trials_comparable():
    settings = _settings(limits={"num_workers": Limit(values=(0, 2))}, tune=("num_workers",), seed=7, stability="off")

    request, space = settle(settings, ENVIRONMENT, facts(baseline={"batch_size": 64}))

    assert request.domains == space.domains
    assert request.goal.tune == ("num_workers",)
    assert (request.goal.stability, request.seed, request.target) == ("off", 7, "model.py")
    assert request.baseline == config(batch_size=64)
    assert len(space.configs) == 2


class _Unfortunate(FakeLauncher):
    """An inspection that ends badly."""

    def __init__(self, outcome):
        super().__init__()
        self._bad = outcome

    def run(self, request, folder):
        failure = Failure(phase="load", message="no module named nonsense", evidence="ImportError", traceback="in user")
        return Inspection(outcome=self._bad, failure=failure)


def _inspected(outcome, place, **options):
    return inspect("model.py", None, 0, place, _Unfortunate(outcome), **options)


class _Bare(FakeLauncher):
    """A machine on which the process holds so much before its first step."""

    def __init__(self, process_bytes):
        super().__init__()
        self._bytes = process_bytes

    def run(self, request, folder):
        return Inspection(environment=environment(device="cpu"), facts=facts(), process_bytes=self._bytes)


def test_a_limit_that_the_bare_process_exceeds_is_refused_before_any_probe(tmp_path):
    with pytest.raises(
        UsageError, match=r"^--memory-limit 200MiB is less than the 242 MiB that model\.py .* Give more"
    ) as it:
        inspect("model.py", None, 0, tmp_path, _Bare(242 * MIB), memory_limit="200MiB")

    assert it.value.exit_code == 2


@pytest.mark.parametrize(("held", "limit"), [(242 * MIB, "300MiB"), (242 * MIB, None), (None, "200MiB")])
def test_a_limit_that_the_bare_process_keeps_or_that_nobody_can_tell_is_not(tmp_path, held, limit):
    assert inspect("model.py", None, 0, tmp_path, _Bare(held), memory_limit=limit)[1] == facts()


def test_an_error_in_the_target_is_shown_in_the_users_own_words_with_the_log(tmp_path):
    with pytest.raises(TargetError, match=r"^no module named nonsense\nFull log: .*log\.txt$") as caught:
        _inspected(Outcome.USER_ERROR, tmp_path)

    assert caught.value.traceback == "in user"
    assert caught.value.exit_code == 2


def test_a_log_that_will_not_stay_is_not_pointed_to(tmp_path):
    with pytest.raises(TargetError) as caught:
        _inspected(Outcome.USER_ERROR, tmp_path, keeps_log=False)

    assert "log" not in str(caught.value)


def test_a_machine_that_lacks_what_was_asked_is_unfit(tmp_path):
    with pytest.raises(EnvironmentUnfit):
        _inspected(Outcome.ENVIRONMENT, tmp_path)


def test_a_target_that_asks_for_another_device_is_shown_its_line():
    failure = Failure(phase="build", message="no CUDA", evidence="", user_frame="model.py:3 in model")

    said = str(error_of_failure(Outcome.ENVIRONMENT, failure, None))

    assert said.startswith("model.py:3 in model: no CUDA. The target uses a device that")


def test_any_other_end_says_how_and_where():
    failure = Failure(phase="build", message="killed by signal 11", evidence="exit status -11")

    error = error_of_failure(Outcome.CRASHED, failure, None)

    assert isinstance(error, TargetError)
    said = "crashed while model and data were made: its process was killed by signal 11 (exit status -11). It has to"
    assert said in str(error)


def test_a_crash_is_told_with_the_users_line_and_without_our_own_frames(tmp_path):
    (script := tmp_path / "train.py").write_text("import os; os.abort()\n")
    stack = f'  File "{script}", line 1 in <module>\n  File "{autotune.__file__}", line 3 in inspect\n'
    log = f"epoch 1\nFatal Python error: Aborted\n\nCurrent thread 0x01 (most recent call first):\n{stack}"
    message, evidence = "Fatal Python error: Aborted", "killed by SIGABRT"
    failure = Failure(phase="warm-up", message=message, evidence=evidence, traceback=log)

    error = error_of_failure(Outcome.CRASHED, failure, None)

    assert f"crashed in its first steps: Aborted (killed by SIGABRT), at {script}:1 in <module>." in str(error)
    assert error.traceback.splitlines() == ["epoch 1", f'  File "{script}", line 1 in <module>']


@pytest.mark.parametrize(
    ("outcome", "message", "evidence", "told"),
    [
        (Outcome.CRASHED, "killed by SIGKILL", "killed by SIGKILL, not by autotune: by a person",
         "crashed in its evaluation: its process was killed by SIGKILL, not by autotune: by a person. It"),
        (Outcome.CRASHED, "train.py:3 is stuck", "", "crashed in its evaluation: train.py:3 is stuck. It"),
        (Outcome.COMPILE_FAILED, "no compiler", "", "--baseline compile=none."),
        (Outcome.DEVICE_FAULT, "illegal access", "", "CUDA_LAUNCH_BLOCKING=1 before the command"),
        (Outcome.OOM_SHM, "no space", "", "ran out of shared memory in its evaluation"),
    ],
)  # fmt: skip
def test_how_it_ended_is_told_once_and_with_advice_for_it(outcome, message, evidence, told):
    log = 'Current thread 0x01 (most recent call first):\n  File "train.py", line 3 in <module>\n'
    failure = Failure(phase="validate", message=message, evidence=evidence, traceback=log * (":3" in message))

    assert told in str(error_of_failure(outcome, failure, None))


def test_a_setting_of_today_that_cannot_run_is_told_once_without_our_own_words():
    failure = Failure(phase="warm-up", message="ValueError: batch_size=0", evidence="batch_size=0")

    assert (
        str(error_of_failure(Outcome.INVALID_CONFIG, failure, None))
        == "The target cannot run as it is: ValueError: batch_size=0."
    )


def test_a_share_is_told_as_it_is_typed():
    with pytest.raises(UsageError, match=r"^--within 10% has no effect here\. .* held at 64\."):
        settle(_settings(within=0.1), ENVIRONMENT, facts(global_batch_size=64))


def test_the_global_batch_of_ranks_is_that_of_all():
    today = {"batch_size": 32, "gradient_accumulation_steps": 2}

    assert _held(baseline=today, ranks=2) == 128
    assert _baseline(_settings(global_batch=256), baseline={"batch_size": 32}, ranks=2)[0] == config(
        batch_size=32, gradient_accumulation_steps=4
    )
