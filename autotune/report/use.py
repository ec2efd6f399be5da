"""Ways to use an answer, each complete and ready to copy: a command, programs for each framework, the dict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from autotune.core.records import Value
from autotune.errors import UsageError
from autotune.export.loop import with_autotune
from autotune.export.programs import exported_text
from autotune.export.recipe import recipe
from autotune.harmless import python, shell_word
from autotune.knobs.wording import Framework
from autotune.report import phrases
from autotune.report.essentials import essential
from autotune.study.recommendation import Recommendation
from autotune.study.view import StudyView, facts_of
from autotune.targets.commands.recommended_command import recommended_command

TITLES = {
    Framework.TORCH: "PyTorch",
    Framework.HUGGING_FACE: "Transformers",
    Framework.LIGHTNING: "Lightning",
    Framework.ACCELERATE: "Accelerate",
    Framework.DEEPSPEED: "DeepSpeed",
    Framework.TORCHTITAN: "torchtitan",
}


@dataclass(frozen=True, kw_only=True)
class UsageTab:
    """One tab: the text to copy, and a note about it."""

    name: str  # of the tab, for programs
    title: str
    text: str
    note: str = ""
    is_program: bool = False  # whose lines may not be broken


def usage_tabs(best: Recommendation, view: StudyView) -> list[UsageTab]:
    """Return the ways to use the answer, the most usual one first."""
    study, command = view.folder.as_posix(), recommended_command(best.target, best.params, best.baseline, best.facts)
    found = []
    if command:
        lines = "\n".join(f"{one}," for one in command.arguments)
        note = f"For the script's own TrainingArguments; autotune run {shell_word(study)} sets them without."
        written = UsageTab(name="arguments", title="TrainingArguments", text=lines, note=note, is_program=True)
        found += [written] if lines else []
        found.append(UsageTab(name="command", title="Command", text=command.text, note=command.missing))
    else:
        before = "In the shell, before Python starts: " + "; ".join(phrases.exports(best.params))
        note = before if phrases.exports(best.params) else ""
        if view.request.facts.ranks == 1:  # `apply` joins no other processes: the programs do
            lines = with_autotune(study, view.request.facts)
            found.append(UsageTab(name="autotune", title="Your loop", text=lines, note=note, is_program=True))
        found += _programs(best, view)
    first = "run {}" if command else f"export {{}} --to {_framework(found, view)}"
    shell = [line.format(shell_word(study)) for line in (first, "show {} --sort speed", "best {} --verbose")]
    matter, others = essential(best)
    whole = f"The same as autotune.load_best({python(study)})"
    note = f"{whole}, which also names what stays as torch has it: {', '.join(others)}"
    return [
        *found,
        UsageTab(name="dict", title="Dict", text=_literal(matter), note=f"{note if others else whole}."),
        UsageTab(name="shell", title="Shell", text="\n".join(f"autotune {line}" for line in shell)),
    ]


def _framework(tabs: list[UsageTab], view: StudyView) -> str:
    """Return the name of the user's own framework, or of the first that has a tab if its export is refused."""
    own, taken = view.request.facts.framework, [tab.name for tab in tabs if tab.name in set(Framework)]
    return own if own in taken or not taken else taken[0]


def _programs(best: Recommendation, view: StudyView) -> list[UsageTab]:
    """Return the program of `autotune export` for each framework, without those that it refuses."""
    whole = replace(best, facts=facts_of(best, view))
    found = []
    for framework, title in TITLES.items():
        try:
            text = exported_text(framework, recipe(whole, framework)).rstrip("\n")
        except UsageError:
            continue
        found.append(UsageTab(name=framework.value, title=title, text=text, is_program=True))
    return found


def _literal(values: Mapping[str, Value]) -> str:
    lines = "".join(f"    {python(name)}: {python(value)},\n" for name, value in values.items())
    return f"{{\n{lines}}}"
