"""Does it matter in which form a training is tuned? One model in five forms, searched and trained in one plain loop.

    python -m benchmarks.same_model [--seconds 90] [--trained 20] [--rounds 5] [--only functions,bare] [--fresh]

From the root of the repository, with lightning, transformers and accelerate installed; a form whose framework is not is
named and left out. Every form is searched over the same knobs with the same global batch; then the five recommendations
and the baseline are trained in turn in `benchmarks/plain_loop.py`, which knows none of the forms. They agree if no
ratio to the best of them is further from 1 than the rounds of one configuration are from each other.

Every search and every round is kept in `studies/same_model/measured.json` as soon as it is there: the same command goes
on where it was stopped, and prints the table again once all is there. With the usual options it takes some 20 minutes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

import autotune
from autotune.core.records import Value
from autotune.units import counted
from benchmarks.same_model.parts import BATCH
from benchmarks.surfaces import plain
from benchmarks.surfaces.tasks import Task
from benchmarks.surfaces.words import described, heading, here, row, share_of

HERE, STUDIES = Path("benchmarks/same_model"), Path("studies/same_model")
KNOBS = ("batch_size", "gradient_accumulation_steps", "num_workers")  # that all five forms can be given
FORMS: Mapping[str, tuple[str | list[str], str]] = {  # the target, and the package that it needs
    "functions": (str(HERE / "functions.py"), "torch"),
    "lightning": (str(HERE / "lightning_module.py"), "lightning"),
    "trainer": (str(HERE / "hugging_face.py"), "transformers"),
    "accelerate": (["python", str(HERE / "accelerated.py"), "--batch-size", str(BATCH)], "accelerate"),
    "bare": (["python", str(HERE / "bare.py"), "--batch-size", str(BATCH)], "torch"),
}
TASK = Task(
    name="same_model", what="one model in five forms", target=str(HERE / "functions.py"), global_batch=BATCH,
    memory_limit=None, usual=BATCH,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Searched:
    """What a search of one form came to."""

    params: Mapping[str, Value]
    promised: float  # samples/s
    probes: int
    seconds: float


class Kept:
    """What was measured with these options so far, in a file."""

    def __init__(self, place: Path, options: Mapping[str, float]) -> None:
        self._place, self._options = place, dict(options)
        self.answers: dict[str, Searched] = {}
        self.rounds: list[dict[str, float]] = []  # samples/s, by form
        if place.is_file() and (read := json.loads(place.read_text()))["options"] == self._options:
            self.answers = {form: Searched(**answer) for form, answer in read["answers"].items()}
            self.rounds = read["rounds"]

    def write(self) -> None:
        """Keep it, in place of what was there."""
        answers = {form: asdict(answer) for form, answer in self.answers.items()}
        self._place.parent.mkdir(parents=True, exist_ok=True)
        new = self._place.with_suffix(".new")
        new.write_text(json.dumps({"options": self._options, "answers": answers, "rounds": self.rounds}, indent=1))
        new.replace(self._place)


def searched(form: str, seconds: float) -> Searched:
    """Search one form. Raises what `autotune.search` raises."""
    target, _ = FORMS[form]
    shutil.rmtree(STUDIES / form, ignore_errors=True)
    began = time.monotonic()
    found = autotune.search(
        target, study=STUDIES / form, time_budget=seconds, device="cpu", global_batch=BATCH, tune=KNOBS
    )
    return Searched(
        params=found.params,
        promised=found.samples_per_second,
        probes=found.probes,
        seconds=time.monotonic() - began,
    )


def chosen(names: str) -> list[str]:
    """The forms that can run here; says of the others why not."""
    wanted = list(FORMS) if names == "all" else names.split(",")
    missing = [form for form in wanted if find_spec(FORMS[form][1]) is None]
    for form in missing:
        print(f"{form}: not run, {FORMS[form][1]} is not installed", file=sys.stderr)
    return [form for form in wanted if form not in missing]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=90.0, help="time budget of each search")
    parser.add_argument("--trained", type=float, default=20.0, help="seconds of each plain loop")
    parser.add_argument("--rounds", type=int, default=5, help="of plain loops")
    parser.add_argument("--only", default="all", help=", ".join(FORMS))
    parser.add_argument("--fresh", action="store_true", help="begin again, whatever was kept")
    options = parser.parse_args()
    forms = chosen(options.only)
    place = STUDIES / "measured.json"
    if options.fresh:
        place.unlink(missing_ok=True)
    kept = Kept(place, {"seconds": options.seconds, "trained": options.trained})
    for form in (one for one in forms if one not in kept.answers):
        print(f"{form}: searched for {options.seconds:g} s", file=sys.stderr, flush=True)
        try:
            kept.answers[form] = searched(form, options.seconds)
        except autotune.AutotuneError as error:  # the others are worth their time
            print(f"{form}: {error}", file=sys.stderr)
            continue
        kept.rounds = []  # of other forms
        kept.write()
    answers = {form: kept.answers[form] for form in forms if form in kept.answers}
    if not answers:
        sys.exit("no form was searched")
    configs = {form: answer.params for form, answer in answers.items()} | {"baseline": TASK.baseline}
    ran = trained(kept, configs, options.trained, options.rounds)
    print(
        f"{here()}; searches of {options.seconds:g} s, plain loops of {options.trained:g} s, {options.rounds} rounds\n"
    )
    report(answers, ran)


def trained(
    kept: Kept, configs: Mapping[str, Mapping[str, Value]], seconds: float, rounds: int
) -> dict[str, plain.Trained]:
    """Train all in turn until there are so many rounds, every other one backwards, and keep each."""
    if any(configs.keys() - rates.keys() for rates in kept.rounds):
        kept.rounds = []
    while len(kept.rounds) < rounds:
        print(f"plain loops: round {len(kept.rounds) + 1} of {rounds}", file=sys.stderr, flush=True)
        order = list(configs) if len(kept.rounds) % 2 == 0 else list(reversed(configs))
        ran = plain.in_turn(TASK, {form: configs[form] for form in order}, seconds, 1)
        if died := [f"{form}: {one.died}" for form, one in ran.items() if one.died]:
            sys.exit("\n".join(died))
        kept.rounds.append({form: one.rates[0] for form, one in ran.items()})
        kept.write()
    return {form: plain.Trained(rates=[rates[form] for rates in kept.rounds[:rounds]]) for form in configs}


def report(answers: Mapping[str, Searched], ran: Mapping[str, plain.Trained]) -> None:
    """Print the table, and in a sentence how far the recommendations are apart."""
    best = max(answers, key=lambda form: ran[form].rate or 0.0)
    print(heading("form", "probes", "recommended", "promised", "in the plain loop", "/ best of them", "/ baseline"))
    for form, answer in answers.items():
        print(
            row(
                form, f"{answer.probes} in {answer.seconds:.0f} s", described(answer.params), f"{answer.promised:,.0f}",
                f"{ran[form].rate:,.0f} samples/s", share_of(plain.ratios(ran[form], ran[best])),
                share_of(plain.ratios(ran[form], ran["baseline"])),
            )
        )  # fmt: skip
    worst = min(statistics.median(plain.ratios(ran[form], ran[best])) for form in answers)
    noise = max(spread(ran[form].rates) for form in answers)
    different = len({tuple(sorted(answer.params.items(), key=str)) for answer in answers.values()})
    print(
        f"\n{counted(different, 'recommendation')} of {counted(len(answers), 'form')}; the slowest has {worst:.1%} of "
        f"the rate of the fastest, and rounds of one configuration spread by {noise:.1%} (half of the range)"
    )


def spread(rates: list[float]) -> float:
    """Half the range of one configuration's rounds, relative to their median."""
    return (max(rates) - min(rates)) / 2 / statistics.median(rates)


if __name__ == "__main__":
    main()
