"""What `autotune profile --verify` finds in trainings of models that nobody here wrote, and what the edit gives.

python -m benchmarks.profile_foreign [NAME ...] [--rounds 40] [--resume FILE] [--show]

The trainings in `foreign/` are around transformers, Lightning's demos, torchmetrics and scikit-learn. What was found
first is edited as the slow line says, and both are trained in a plain loop in turn, as `benchmarks.slow_lines` does.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import torch

from autotune.core.records import Config
from autotune.knobs import defaults
from autotune.profile.judge import expensive_lines
from autotune.profile.table import profile_block
from benchmarks.slow_lines import held_against, resumed

TRAININGS = Path(__file__).parent / "foreign"
EDITS = {  # training -> what is written, and what instead; none: nothing to edit was found
    "vit_digits": [("return Digits()", "data = Digits()\n    return [data[index] for index in range(512)]")],
    "resnet_digits": [("    measure(output.logits.detach(), batch[1])\n", "")],
    "mnist_example": [("return Digits()", "data = Digits()\n    return [data[index] for index in range(1024)]")],
    "llama_step": [("set_to_none=False", "set_to_none=True")],
    "bert_classifier": [("return Texts()", "data = Texts()\n    return [data[index] for index in range(512)]")],
    "bert_masked": [("return Texts()", "data = Texts()\n    return [data[index] for index in range(512)]")],
    "gpt2_language_model": [("return Blocks()", "data = Blocks()\n    return [data[index] for index in range(512)]")],
    "lightning_transformer": [],
    "lightning_lstm": [],
}


def main() -> None:
    """Profile, edit and train, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--resume", type=Path, help="a file that rows are added to; what is in it is not run again")
    parser.add_argument("--show", action="store_true", help="also print what the terminal shows of each profile")
    options = parser.parse_args()
    torch.set_num_threads(1)
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    sys.path.insert(0, str(TRAININGS))
    print("| training | first finding | reported | left out by `--verify` | edited | ms a step |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in options.names or EDITS:
        print(resumed(options.resume, name, lambda name=name: row(name, options.rounds, options.show)), flush=True)


def row(name: str, rounds: int, is_shown: bool) -> str:
    """Return the line of one training."""
    profiled, true, step = held_against(TRAININGS / f"{name}.py", EDITS[name], rounds, verify=True)
    if is_shown and profiled.parts:
        print(profile_block(name, Config(values=defaults()), "cpu", profiled).plain, file=sys.stderr)
    found = expensive_lines(profiled)
    edited = f"{true:.0%}" if EDITS[name] else ""
    if not found:
        return f"| {name} | none | | | {edited} | {1000 * step:.0f} |"
    first = found[0]
    share = (
        [f"{one / profiled.seconds:.0%}" for one in (first.gain.low, first.gain.seconds, first.gain.high)]
        if (first.gain)
        else []
    )
    tried = f"{share[1]} ({share[0]} to {share[2]})" if share else f"no: {first.unverified}"
    place = first.place.rpartition("/")[2]
    told = f"{first.seconds / profiled.seconds:.0%}"
    return f"| {name} | {first.kind}, {place} | {told} | {tried} | {edited} | {1000 * step:.0f} |"


if __name__ == "__main__":
    main()
