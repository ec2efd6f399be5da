"""What the later knobs are worth in a whole search: each target searched without and with them, and the answers raced.

    python benchmarks/with_new_knobs.py [--targets resnet,small_bert] [--seconds 60] [--racing 60] [--repeats 1]

`FORMER` are the knobs of the first version. Both searches have the same budget, so that knobs which cost more probes
than they are worth show as a ratio below 1. Every other repeat searches with all knobs first.
"""

from __future__ import annotations

import argparse
import platform
import tempfile
from pathlib import Path

import autotune
from autotune.core.records import Value
from autotune.knobs import KNOBS, defaults
from autotune.machine.environment import torch_version
from autotune.machine.host import cpu_name, usable_cores

FORMER = (
    "batch_size", "gradient_accumulation_steps", "amp_dtype", "num_workers", "channels_last",
    "activation_checkpointing", "num_threads", "omp_wait_policy",
)  # fmt: skip
PLACES = Path(__file__).parent / "targets", Path(__file__).parent.parent / "examples"
TARGETS = ("resnet", "masked_lm", "tabular", "jpeg_cnn", "digits_cnn", "char_transformer")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--seconds", type=float, default=60.0, help="of each search")
    parser.add_argument("--racing", type=float, default=60.0, help="seconds of the race between both answers, at most")
    parser.add_argument("--repeats", type=int, default=1)
    options = parser.parse_args()
    print(
        f"{cpu_name()}, {usable_cores()} cores, {platform.platform(terse=True)}, Python {platform.python_version()}, "
        f"torch {torch_version()}; searches of {options.seconds:.0f} s\n"
    )
    print("| target | without them | with them | with / without, raced |\n| --- | --- | --- | --- |", flush=True)
    for name in options.targets.split(","):
        for repeat in range(options.repeats):
            with tempfile.TemporaryDirectory(prefix="autotune-") as folder:
                print(compared(name, Path(folder), options.seconds, options.racing, repeat), flush=True)


def compared(name: str, folder: Path, seconds: float, racing: float, repeat: int) -> str:
    """Return the row of one target."""
    target = next(place / f"{name}.py" for place in PLACES if (place / f"{name}.py").exists())
    answers: dict[str, dict[str, Value]] = {}
    for way in ("without", "with") if repeat % 2 == 0 else ("with", "without"):
        found = autotune.search(
            target, study=folder / way, time_budget=seconds, seed=repeat, tune=FORMER if way == "without" else None
        )
        answers[way] = found.params
    row = f"| {name} | {described(answers['without'])} | {described(answers['with'])} |"
    if answers["without"] == answers["with"]:
        return f"{row} the same answer |"
    raced = autotune.race(folder / "without", folder / "with", time_budget=racing, folder=folder / "race")
    other = raced.standings[1]
    return f"{row} {other.ratio:.2f} ({other.ratio_low:.2f} to {other.ratio_high:.2f}) |"


def described(values: dict[str, Value]) -> str:
    """Return what differs from PyTorch's own, in the words of tables."""
    usual = defaults()
    batch = f"{values['batch_size']}×{values['gradient_accumulation_steps']}"
    rest = [
        f"{one.label} {one.show(values[one.name])}"
        for one in KNOBS
        if one.name not in FORMER[:2] and values[one.name] != usual[one.name]
    ]
    return ", ".join((batch, *rest))


if __name__ == "__main__":
    main()
