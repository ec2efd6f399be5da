"""The words for people on how a process failed, and in which part of its work. Pure."""

from __future__ import annotations

import re

from autotune.core.results import Failure

_WHEN = {
    "start": "before its code was loaded",
    "load": "while its code was loaded",
    "build": "while model and data were made",
    "warm-up": "in its first steps",
    "alone": "while computing and loading were measured alone",
    "measure": "in steps that were measured",
    "worst": "in a step with the largest batch",
    "validate": "in its evaluation",
    "done": "after its last step",
}
_ENDED_EARLY = re.compile(
    r"ended (its training|with exit status 0 after [\d,]+ optimizer steps?,) before it was measured|"
    r"ended with exit status 0 before all ranks were measured"
)
_END = re.compile(r"killed by|exit status")
_SAID_AGAIN = re.compile(r"given up in phase [\w-]+(: )?|^Fatal Python error: | without a result$")
_SUBJECTS = {"killed by": "its process was ", "exit status": "its process ended with ", "no sign": "it gave "}


def when_it_was(phase: str) -> str:
    """Return the phase of a process in a person's words: `while model and data were made`."""
    return _WHEN.get(phase, f"in phase {phase}")


def ended_early(failure: Failure | None) -> bool:
    """Return whether a training ended well and before a probe had enough of it: that is no error."""
    return failure is not None and _ENDED_EARLY.search(failure.message) is not None


def what_happened(failure: Failure, place: str) -> str:
    """Return what happened, how the process ended if that adds something, and the user's line `place` if any."""
    message, evidence = (_SAID_AGAIN.sub("", text).strip(" .") for text in (failure.message, failure.evidence))
    subject = next((words for start, words in _SUBJECTS.items() if message.startswith(start)), "")
    message = evidence if message in evidence and _END.match(evidence) else message  # the evidence says more
    how = f" ({evidence})" if _END.search(evidence) and evidence.partition(",")[0] not in message else ""
    told = f"{subject}{message}{how}"
    return f"{told}, at {place}" if place and place.partition(" in ")[0] not in told else told
