"""Trainings as the user names them, and what is measured for each: contestants of a race, or a profile's training.

model.py, pkg.train, model.py:build    training code, with the settings that it declares
"python train.py --bs 64"              a command
studies/model                          the target of a study with its recommended settings
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from os import PathLike, fspath
from pathlib import Path

from msgspec import structs

from autotune.core.records import Config, Environment, StudyRequest, TargetFacts, Value
from autotune.errors import EnvironmentUnfit, NoRecommendation, RaceFailed, TargetError, UsageError
from autotune.knobs import knob
from autotune.knobs.base import Circumstances
from autotune.knobs.parsing import typed
from autotune.launch.base import Launcher
from autotune.preparation.prepare import inspect, settle
from autotune.preparation.settings import Settings
from autotune.sampler.space import canonical
from autotune.sentences import first_few
from autotune.study.disk import STUDIES, is_study
from autotune.study.recommendation import load_result
from autotune.targets import resolve, source
from autotune.targets.commands.command import ACCUMULATION, PREFIX, Command, is_command
from autotune.targets.commands.placeholder import escaped, names_a_knob
from autotune.targets.commands.recognition.typed_target import typed_target

MOST_NAMED_STUDIES = 5  # studies named in an error
Name = str | PathLike[str] | Sequence[str]  # of a training


@dataclass(frozen=True, kw_only=True)
class NamedTraining:
    """A training as it was named, before it is inspected."""

    label: str
    target: str
    values: Mapping[str, Value] = field(default_factory=dict)  # recommended by a study
    changed: Mapping[str, Value] = field(default_factory=dict)  # values that were asked for
    revision: str = ""  # of the code; empty for the working tree
    ranks: int = 1  # processes that train together, as in the study; a command starts its own

    def with_changed_values(self, changed: Mapping[str, Value]) -> NamedTraining:
        """Return the same training with other values of knobs."""
        return replace(self, label=f"{self.label} with {typed(changed)}", changed=changed)

    def at(self, revision: str) -> NamedTraining:
        """Return the same training with the code of another revision."""
        return replace(self, label=f"{self.label} at {revision}", revision=revision)


@dataclass(frozen=True, kw_only=True)
class SettledTraining:
    """A training after its inspection: its configuration is the baseline of its request."""

    label: str
    commit: str
    request: StudyRequest
    launcher: Launcher
    inspection_seconds: float  # that looking at it took


def named_training(name: Name) -> NamedTraining:
    """Return the training that `name` names. Raises `TargetError`, and `UsageError` for a study without an answer."""
    if isinstance(name, Sequence) and not isinstance(name, str):
        words = [str(word) for word in name]
        target = typed_target(words, {}, is_typed_command=True).text
        return NamedTraining(label=_with_todays_values(" ".join(words), words), target=target)
    text = fspath(name)
    if is_study(Path(text)) or is_study(STUDIES / text):
        try:
            best = load_result(text)
        except NoRecommendation as error:
            raise UsageError(str(error)) from error  # the exit status of `StudyError` would be that of a verdict
        ranks = best.facts.ranks if best.facts and not is_command(best.target) else 1
        return NamedTraining(label=text, target=best.target, values=best.params, ranks=ranks)
    is_typed_command = len(text.split()) > 1 and not _is_file(text)
    target = typed_target([f"{PREFIX}{text}" if is_typed_command else text], {}, is_typed_command=False).text
    try:
        resolve(target)  # a missing file is an error before a folder is made for the race
    except TargetError as error:
        if is_typed_command or text.endswith(".py"):
            raise
        raise TargetError(f"There is no study {text}. {error} {_studies()}") from error
    if target.isidentifier() and not Path(target).exists() and find_spec(target) is None:
        raise TargetError(
            f"{text} is neither a study nor a module. The name was probably mistyped, or is that of a file without its "
            f".py. {_studies()}"
        )
    label = _with_todays_values(text, Command.split(text)) if is_typed_command else text
    return NamedTraining(label=label, target=target)


def _with_todays_values(label: str, words: list[str]) -> str:
    """Return the label of a command, with today's values in place of its placeholders."""
    if "{" not in label:
        return label
    command = Command.of(words if any(map(names_a_knob, words)) else list(map(escaped, words)))
    defaults = {one.knob.name: one.knob.default for one in command.placeholders if one.knob}
    return " ".join(command.recommended(defaults | command.baseline))


def may_declare(name: Name, knob: str) -> bool:
    """Return whether the training may declare a knob of that name; False if there is no such training."""
    try:
        one = named_training(name)
    except TargetError:
        return False
    return knob in one.values or source.may_declare(one.target, knob)


def inspect_training(
    one: NamedTraining, target: str, device: str | None, seed: int, folder: Path, launcher: Launcher
) -> tuple[Environment, TargetFacts, float]:
    """Return what one real step of the training in `folder` shows, and the seconds that it took.

    Raises `RaceFailed` if it does not run.
    """
    try:
        return inspect(target, device, seed, folder, launcher, ranks=one.ranks)
    except TargetError as error:
        raise RaceFailed(
            f"{one.label} does not train, so the race ends. Correct it, or leave it out. {error}",
            traceback=error.traceback,
        ) from error
    except EnvironmentUnfit as error:
        raise EnvironmentUnfit(f"{one.label}: {error}") from error


def settle_training(
    one: NamedTraining, target: str, commit: str, seed: int, found: tuple[Environment, TargetFacts, float],
    launcher: Launcher,
) -> SettledTraining:  # fmt: skip
    """Return the training with its configuration. Raises `UsageError` if its settings cannot be set."""
    environment, facts, seconds = found
    values, is_held = _with_derived({**one.values, **one.changed}, target, facts)
    settings = Settings.of(
        target=target, device=environment.device, baseline=values, global_batch="keep" if is_held else "free",
        headroom=0.0, stability="off", seed=seed,
    )  # fmt: skip
    request, _ = settle(settings, environment, facts)
    _check_effect(one, request, facts)
    digest = "" if commit else request.target_digest
    return SettledTraining(
        label=one.label, commit=commit, request=structs.replace(request, target_digest=digest), launcher=launcher,
        inspection_seconds=seconds,
    )  # fmt: skip


def _check_effect(one: NamedTraining, request: StudyRequest, facts: TargetFacts) -> None:
    """Raise `UsageError` for a setting that was asked for and has no effect."""
    here = Circumstances(facts=facts, environment=request.environment, global_batch=None)
    asked = {**request.baseline.values, **one.changed}
    known = canonical(Config(values=asked), here).values  # one of two values that mean the same
    for name, value in one.changed.items():
        is_settable = facts.settable is None or name in facts.settable
        reason = "" if value == request.baseline[name] else knob(name).idle(asked, here)
        if is_settable and not reason and request.baseline[name] in (value, known[name]):
            continue
        why = f"The reason: {reason}" if reason else "Its code or its command probably decides that by itself"
        training = one.label.removesuffix(f" with {typed(one.changed)}")
        raise UsageError(
            f"{name}={value} has no effect on {training}. {why}. `autotune check` lists what can be set; leave this "
            f"out."
        )


def _studies() -> str:
    """Return a sentence with the studies that there are, to choose from."""
    names = sorted(one.name for one in STUDIES.iterdir() if is_study(one)) if STUDIES.is_dir() else []
    if not names:
        return f"There are no studies in {STUDIES} here."
    return f"The studies in {STUDIES} are {first_few(names, MOST_NAMED_STUDIES)}."


def _is_file(text: str) -> bool:
    with suppress(OSError):  # a command can be too long for a file name
        return Path(text).is_file()
    return False


def _with_derived(values: Mapping[str, Value], target: str, facts: TargetFacts) -> tuple[dict[str, Value], bool]:
    """Return the settings with the accumulation that the script derives from them, and whether it does."""
    if not (target.startswith(PREFIX) and Command.parse(target).derives_accumulation):
        return dict(values), False
    today: dict[str, Value] = {"batch_size": 1, ACCUMULATION: 1, **(facts.baseline or {})}
    samples, batch = int(today["batch_size"] or 1) * int(today[ACCUMULATION] or 1), values.get("batch_size")
    if isinstance(batch, int) and batch > 0 and samples % batch == 0:
        return {**values, ACCUMULATION: samples // batch}, True
    return dict(values), True
