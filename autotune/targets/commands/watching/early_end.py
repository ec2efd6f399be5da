"""Says why a command ended before there was enough to measure."""

from __future__ import annotations

from autotune.core.requests import ProbeBudget
from autotune.harmless import cropped
from autotune.targets.commands.watching.probe_log import last_lines, with_last_lines
from autotune.targets.commands.watching.tally import Tally
from autotune.targets.commands.watching.unseen_parts import BY_HAND, TELL
from autotune.targets.commands.watching.witness import Witness
from autotune.units import counted, format_seconds

_USUAL = ProbeBudget()
# Of training for a probe: its warm-up and its longest window; steps that take long need the least number of them.
_NEEDED_SECONDS = _USUAL.min_warmup_seconds + _USUAL.max_seconds
_NEEDED_STEPS = 2 * (_USUAL.min_warmup_steps + _USUAL.min_steps)
LONGEST_LAST_LINE = 160  # characters of the program's last line in a message's first line


def why_ended_early(label: str, witness: Witness, status: object, *, others_wait: bool = False) -> str:
    """Return why there was not enough to measure, in three sentences and the program's own last lines.

    `others_wait`: enough of this rank was measured, and not of others, which may wait for its next step.
    """
    ended = f"{label} ended with exit status {status if status is not None else 0}"
    # On the first line of the message, which tables show.
    said = last_lines().splitlines()[-1:] if isinstance(status, int) and status else []
    last = f'Its last line: "{cropped(said[0].strip(), LONGEST_LAST_LINE)}". ' if said else ""
    elsewhere = f": it started {witness.exits.started}" if witness.exits.started else ""
    if witness.tally.steps:
        when = f"after {counted(witness.tally.steps, 'optimizer step')}, before it was measured"
        if others_wait:  # its later steps were not counted
            when = "before all ranks were measured"
        text = f"{ended} {when}. {last}{_why_after_steps(witness.tally, status, others_wait=others_wait)}"
    elif witness.tally.backwards and witness.optimizers.are_made:
        text = (
            f"{ended} after {counted(witness.tally.backwards, 'call')} of backward(), before its optimizer took a "
            f"step. {last}It probably accumulates over more batches than it has, or updates parameters by hand. Give "
            f"it more data, or {TELL}."
        )
    elif witness.tally.backwards:
        text = BY_HAND.format(label)
    else:
        text = (
            f"{ended} and did not train: there was no backward pass and no optimizer step. {last}It probably needs "
            f"other arguments, or trains in another process{elsewhere}. Run it by itself, and name the command that "
            f"trains; if it trains without backward(), as by torch.func, {TELL}."
        )
    return with_last_lines(text)


def _why_after_steps(tally: Tally, status: object, *, others_wait: bool) -> str:
    if status not in (0, None):
        return "It probably met an error of its own. Run it by itself, and correct what ends it."
    if others_wait:
        return (
            "It has probably too little to do, or takes fewer steps than other ranks. Let it train for longer: "
            "autotune ends it by itself."
        )
    return (
        f"It has probably too little to do: it trained for {format_seconds(tally.trained_seconds)}, and measuring "
        f"takes about {format_seconds(_NEEDED_SECONDS)}. Let it train for {_enough(tally):,} steps or more: autotune "
        f"ends it by itself."
    )


def _enough(tally: Tally) -> int:
    """Return how many optimizer steps suffice for a probe, rounded to two digits: at least twice those it took."""
    factor = max(2.0, _NEEDED_SECONDS / tally.trained_seconds)
    return int(float(f"{max(_NEEDED_STEPS, tally.steps * factor):.2g}"))
