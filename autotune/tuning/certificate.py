"""What is known, at the end of a search, of the configurations that were not measured. Pure."""

from __future__ import annotations

LEAST = 0.01  # of a bound that is told: less is within the noise of one probe
UNBELIEVABLE = 1.0  # a bound that says no more than "at most twice as fast" is none


def bound(rest: float | None, better: str = "faster") -> str:
    """The sentence that bounds the rest by the fitted law, empty where it cannot.

    `rest`: by which share no other configuration is expected to be `better` (90 %); None: nobody can tell.
    """
    if rest is None or rest >= UNBELIEVABLE:
        return ""
    return f"No other configuration is expected to be more than {max(rest, LEAST):.0%} {better} (90 %)."


def certificate(measured: int, remaining: int, rest: float | None, better: str = "faster") -> str:
    """Which of three statements holds, the strongest first (docs/notes/search.md 5).

    `measured` configurations were probed, and `remaining` might still be: without those known to fail, or to be no
    better.
    """
    if not remaining:
        return (
            f"all candidates measured: {measured:,} configurations, and no other of the space is left that could fit "
            f"and be {better}"
        )
    if told := bound(rest, better):
        return f"bounded by the fitted law: {told[0].lower()}{told[1:-1]}"
    probed = f"{measured + remaining:,} configurations {'was' if measured == 1 else 'were'} probed"
    return f"only sampled: {measured:,} of {probed}, nothing bounds the others"
