"""Prepares a search: inspects target and machine, and settles what exactly will be searched."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from autotune.core.records import Config, Declaration, Environment, Goal, StudyRequest, TargetFacts, Value
from autotune.core.requests import InspectRequest
from autotune.core.results import Failure, Inspection, Outcome
from autotune.core.run_length import epochs_of
from autotune.errors import AutotuneError, EnvironmentUnfit, TargetError, UsageError
from autotune.failures.log_excerpt import excerpt, stopped_at
from autotune.failures.words import what_happened, when_it_was
from autotune.knobs import KNOBS, check
from autotune.knobs.declared import declare
from autotune.launch.base import LOG, Launcher
from autotune.machine.host import USABLE_FRACTION, host_memory
from autotune.objectives import completed, objective_of
from autotune.preparation.declared_values import declared_baseline, with_declared, with_todays_defaults
from autotune.preparation.settings import Settings, options
from autotune.sampler.space import SearchSpace, build
from autotune.study import disk
from autotune.targets.commands.command import Command, is_command
from autotune.targets.source import digest_of
from autotune.units import format_bytes, parse_bytes

LEAST_HEADROOM_BYTES = 512 * 2**20  # of a whole device: for other processes, fragmentation, the context
HEADROOM_FRACTION = 0.05  # a judgement, not a measurement (docs/notes/memory.md 2)
LEAST_LIMIT_BYTES = 2**20  # a smaller number lacks its unit: torch alone takes hundreds of times as much


def inspect(
    target: str, device: str | None, seed: int, folder: Path, launcher: Launcher, *, keeps_log: bool = True,
    memory_limit: str | None = None, declared: tuple[Declaration, ...] = (), ranks: int = 1, lasts: bool = False,
    error_of: Callable[[Inspection], AutotuneError] | None = None,
) -> tuple[Environment, TargetFacts, float]:  # fmt: skip
    """Return what a child process finds out about machine and target in `folder`, and the seconds that it took.

    `keeps_log`: the folder will stay there. `lasts`: a command must train for as long as a probe needs at least. Raises
    `TargetError` with the frames of the user's code, `EnvironmentUnfit`, or `UsageError` for a `memory_limit` that the
    target exceeds before it trains. If the inspection fails and `error_of` is given, raise the error that it returns.
    """
    asked = InspectRequest(target=target, device=device, seed=seed, declared=declared, ranks=ranks, lasts=lasts)
    inspection = launcher.run(asked, disk.make(folder))
    if inspection.failure is not None and error_of is not None:
        raise error_of(inspection)
    if inspection.failure is not None:
        raise error_of_failure(inspection.outcome, inspection.failure, folder / LOG if keeps_log else None)
    assert inspection.environment is not None and inspection.facts is not None, "no failure, yet no facts"
    used = inspection.process_bytes
    if memory_limit and used is not None and asked_limit(memory_limit, inspection.environment.device_bytes) < used:
        raise UsageError(
            f"--memory-limit {memory_limit} is less than the {format_bytes(used)} that {target} holds before its first "
            f"step: Python, torch, model and data. No batch can be trained in that. Give more, or leave it out."
        )
    return inspection.environment, inspection.facts, inspection.elapsed_seconds


def settle(settings: Settings, environment: Environment, facts: TargetFacts) -> tuple[StudyRequest, SearchSpace]:
    """Return the request and the space of the study. Raises `UsageError` if the settings leave nothing to search.

    From here on the knobs that the target declares are knobs in this context.
    """
    declare(*facts.declared)
    settings = with_declared(settings)
    facts = with_todays_defaults(facts, settings)
    declare(*facts.declared)
    baseline, assumed = baseline_config(settings, facts)
    limit, enforced, headroom = memory_bounds(settings, environment)
    answers = {
        **{one.goal: settings.given(one) for one in options() if one.goal},
        "objective_options": settings.objective_options,
        "global_batch": held_global_batch(settings, facts, baseline),
        "memory_limit_bytes": limit if settings.memory_limit else None,
        "limits": settings.limits,
    }
    goal = Goal(**{name: value for name, value in answers.items() if value is not None})
    check_options(settings)
    objective_of(goal).check(goal, environment, facts)
    check_run_length(goal, facts)
    goal = completed(goal)
    can_take = [Command.parse(settings.target).can_take] if is_command(settings.target) else []
    space = build(facts, environment, goal, baseline, *can_take)
    request = StudyRequest(
        target=settings.target,
        goal=goal,
        environment=environment,
        facts=facts,
        baseline=space.canonical(baseline),
        baseline_assumed=assumed,
        domains=space.domains,
        memory_limit_bytes=limit,
        enforced_limit_bytes=enforced,
        headroom_bytes=headroom,
        seed=settings.seed,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        target_digest=digest_of(settings.target),
    )
    return request, space


def check_options(settings: Settings) -> None:
    """Raise `UsageError` if an option of another objective is given."""
    for one in options():
        value = settings.given(one)
        if one.objectives and settings.objective not in one.objectives and value is not None:
            raise UsageError(
                f"{one.flag} {one.write(value)} has no effect with --objective {settings.objective}. It belongs to "
                f"{' and '.join(one.objectives)}. Add --objective {one.objectives[-1]}, which was probably meant, or "
                f"leave {one.flag} out."
            )


def check_run_length(goal: Goal, facts: TargetFacts) -> None:
    """Raise `UsageError` if the planned run is given in epochs, and the length of an epoch is unknown."""
    if goal.run_length and epochs_of(goal.run_length) is not None and facts.dataset_samples is None:
        raise UsageError(
            f"--run-length {goal.run_length} says epochs, and the samples of an epoch are not known. The data are "
            f"probably a stream or synthetic. Say how long the run may take: --run-length 12h."
        )


def baseline_config(settings: Settings, facts: TargetFacts) -> tuple[Config, bool]:
    """Return the baseline, and whether it had to be assumed (DataLoader's defaults with a batch of 32).

    An assumed batch never exceeds the dataset. If the global batch to hold is larger than the declared one,
    accumulation makes up the rest, or the micro-batch if accumulation was declared. Declared values are never changed,
    so the baseline may violate what is held: it then only serves for comparison, and cannot be recommended.
    """
    declared = declared_baseline(settings, facts)
    values = {**{knob.name: knob.default for knob in KNOBS}, **facts.found, **declared}
    try:
        check(values)
    except ValueError as error:
        raise UsageError(
            f"The baseline is wrong: {error}. It was probably mistyped. Correct it in the target or in --baseline."
        ) from error
    held = settings.global_batch if isinstance(settings.global_batch, int) else facts.global_batch_size
    held = held and held // facts.ranks
    if "batch_size" not in declared:
        values["batch_size"] = _assumed_batch(int(values["batch_size"] or 1), held, facts, declared)
    batch = int(values["batch_size"] or 1)
    if held is not None and held % batch == 0 and "gradient_accumulation_steps" not in declared:
        values["gradient_accumulation_steps"] = held // batch
    return Config(values={knob.name: values[knob.name] for knob in KNOBS}), not declared


def _assumed_batch(usual: int, held: int | None, facts: TargetFacts, declared: dict[str, Value]) -> int:
    """Return the micro-batch if none was declared: the usual one, or the one that makes up the held global batch."""
    most = min(usual, facts.samples_of_a_rank or usual)
    if held is None:
        return most
    steps = int(declared.get("gradient_accumulation_steps") or 0)
    if steps and held % steps == 0:
        return held // steps
    return max(size for size in range(1, min(most, held) + 1) if held % size == 0)


def _check_global_batch(settings: Settings, facts: TargetFacts, baseline: Config) -> None:
    """Raise `UsageError` if the global batch asked for differs from the one that an argument of the command sets."""
    today = baseline.global_batch_size() * facts.ranks
    if settings.global_batch in (None, "keep", today) or not is_command(settings.target):
        return
    if Command.parse(settings.target).derives_accumulation:
        raise UsageError(
            f"--global-batch {settings.global_batch} is not possible: the command says its global batch itself, which "
            f"is {today} samples today. Its script derives the accumulation from that. Change that argument, and leave "
            f"--global-batch out."
        )


def held_global_batch(settings: Settings, facts: TargetFacts, baseline: Config) -> int | None:
    """Return the samples per optimizer step to hold, or None to search them too.

    If the user does not say, they are held if the target declares them: a tuner must not change what the model learns
    without saying so. A baseline without a batch size does not hold the global batch.
    """
    wish = settings.global_batch
    _check_global_batch(settings, facts, baseline)
    if isinstance(wish, int):
        return wish
    if settings.exact and wish == "free":
        raise UsageError(
            "--exact holds the global batch, --global-batch free searches it. The two exclude each other. Leave one "
            "of them out."
        )
    if settings.exact:
        wish = "keep"
    unsaid = facts.global_batch_size is None and "batch_size" not in declared_baseline(settings, facts)
    if wish == "free" or (wish is None and unsaid):
        return None
    return facts.global_batch_size or baseline.global_batch_size() * facts.ranks


def memory_bounds(settings: Settings, environment: Environment) -> tuple[int, int | None, int]:
    """Return the bytes that count as all memory, those that the child process enforces, and those to keep free."""
    total = environment.device_bytes
    asked = asked_limit(settings.memory_limit, total) if settings.memory_limit else None
    if asked is not None and asked > total:
        raise UsageError(
            f"--memory-limit {settings.memory_limit} is more than the {format_bytes(total)} of "
            f"{environment.device_name}. A limit can only make a machine smaller. Give less, or leave it out."
        )
    limit = asked or total
    enforced = asked
    if environment.device_kind == "cpu":
        enforced = _enforced_on_host(settings, environment, asked)
    return limit, enforced, headroom_bytes(limit, settings.headroom, of_device=asked is None)


def headroom_bytes(limit: int, fraction: float | None, *, of_device: bool) -> int:
    """Return the bytes of `limit` to keep free; without a `fraction` a default, which is larger for a whole device."""
    if fraction is not None:
        return int(limit * fraction)
    least = min(LEAST_HEADROOM_BYTES, limit // 4) if of_device else 0
    return max(int(limit * HEADROOM_FRACTION), least)


def _enforced_on_host(settings: Settings, environment: Environment, asked: int | None) -> int | None:
    """Return the bytes that the kernel may grant a probe, which only Linux can enforce. Raises `UsageError`."""
    if environment.platform.startswith("Linux"):
        return asked or int(host_memory().available_bytes * USABLE_FRACTION)  # without a limit it may kill any process
    if asked is not None:
        raise UsageError(
            f"--memory-limit {settings.memory_limit} cannot be enforced on the CPU under {environment.platform}. Its "
            f"kernel limits no process, and compresses memory where Linux would refuse it. Leave the limit out, or "
            f"search on Linux."
        )
    return None


def asked_limit(text: str, total: int) -> int:
    """Return the bytes that --memory-limit asks for on a device with `total` bytes. Raises `UsageError`."""
    try:
        asked = parse_bytes(text, total)
    except ValueError as error:
        raise UsageError(f"--memory-limit: {error}. It was probably mistyped. Correct it, or leave it out.") from error
    if asked < LEAST_LIMIT_BYTES:
        raise UsageError(
            f"--memory-limit {text} is {asked:,} bytes, and nothing trains in less than 1 MiB. The unit was probably "
            f"forgotten. Write 8GiB, 8000MB or 90%."
        )
    return asked


_HOW = {
    Outcome.CRASHED: "crashed",
    Outcome.TIMEOUT: "was given up",
    Outcome.DEVICE_FAULT: "met a fault of the device",
    Outcome.COMPILE_FAILED: "could not be compiled",
    Outcome.OOM_DEVICE: "ran out of memory",
    Outcome.OOM_HOST: "ran out of memory",
    Outcome.OOM_SHM: "ran out of shared memory",
    Outcome.TOO_LARGE: "is too large for a kernel",
    Outcome.UNSTABLE: "does not learn",
}
_ADVICE = {
    Outcome.CRASHED: "If it also ends so without autotune, correct that first.",
    Outcome.TIMEOUT: "If one of its steps really takes longer, give --step-timeout 30m.",
    Outcome.DEVICE_FAULT: "CUDA_LAUNCH_BLOCKING=1 before the command shows the line that called the kernel.",
    Outcome.COMPILE_FAILED: "torch.compile probably lacks a compiler, or fails on this model: --baseline compile=none.",
    Outcome.UNSTABLE: "Correct that in your code, such as the learning rate or the dtype.",
}


def error_of_failure(outcome: Outcome, failure: Failure, log: Path | None) -> TargetError | EnvironmentUnfit:
    """Return the error of a failure that ends a search; the words of the user's code first, the log last."""
    if outcome is Outcome.ENVIRONMENT:
        asks = (
            f"{failure.user_frame}: {failure.message}. The target uses a device that this machine or its torch "
            f"lacks. Select it with --device; `autotune doctor` lists what there is."
        )
        return EnvironmentUnfit(asks if failure.user_frame else failure.message)
    where = f"\nFull log: {log}" if log else ""
    if outcome is Outcome.USER_ERROR:
        return TargetError(f"{failure.message}{where}", traceback=failure.traceback)
    if outcome is Outcome.INVALID_CONFIG:
        why = "" if failure.evidence in failure.message else f" ({failure.evidence})"
        return TargetError(
            f"The target cannot run as it is: {failure.message}{why}.{where}", traceback=failure.traceback
        )
    told = what_happened(failure, "" if failure.user_frame else stopped_at(failure.traceback))
    return TargetError(
        f"The target {_HOW.get(outcome, 'failed')} {when_it_was(failure.phase)}: {told}. It has to run once as it is "
        f"before it can be tuned. {_ADVICE.get(outcome, 'A smaller --baseline batch=... may do.')}{where}",
        traceback=failure.traceback if failure.user_frame else excerpt(failure.traceback),
    )
