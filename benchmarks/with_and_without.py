"""What knobs are worth to a search: with them and without, in turn, and their answers in a plain loop, in turn.

    python -m benchmarks.with_and_without [--knob malloc=none,glibc] [--knob fused_optimizer] [--only resnet]
    python -m benchmarks.with_and_without --device cuda --folder benchmarks/catalogue --only unet --knob compile_mode

With: each knob may take the values that are listed, or what is offered by default. Without: each is held at its
default. Each search is a process of its own with the same time budget. The answers, and the baseline, are then trained
in a plain loop that knows nothing of autotune; ratios are geometric means over the rounds of loops, with their 95 %
interval.
"""

from __future__ import annotations

import argparse
import math
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from scipy.stats import t as student

import autotune
from autotune.core.records import Config
from autotune.knobs import defaults, knob
from autotune.knobs.parsing import option
from benchmarks.fidelity import trained
from benchmarks.surfaces.words import described, heading, here, row


def searched(target: Path, study: Path, seconds: int, *options: str) -> autotune.Recommendation:
    """The answer of one search."""
    words = [sys.executable, "-m", "autotune", "search", str(target), "-t", f"{seconds}s", "--study", str(study), "-q"]
    ended = subprocess.run([*words, *options], capture_output=True, text=True, check=False)
    if ended.returncode:
        print(ended.stdout, ended.stderr, file=sys.stderr)
    return autotune.load_result(study)


def interval(ratios: list[float]) -> str:
    """Geometric mean and its 95 % interval."""
    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.mean(logs)
    half = student.ppf(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else 0.0
    return f"{math.exp(mean):.2f} ({math.exp(mean - half):.2f} to {math.exp(mean + half):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--knob", action="append", metavar="NAME[=VALUE,...]", help="may be repeated; left out: malloc=none,glibc"
    )
    parser.add_argument("--folder", type=Path, default="benchmarks/targets", help="of the targets")
    parser.add_argument("--only", default="resnet,masked_lm,tabular,jpeg_cnn")
    parser.add_argument("--baseline", help="as autotune search takes it [default: what each target declares]")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=int, default=45, help="of each search")
    parser.add_argument("--rounds", type=int, default=2, help="of searches")
    parser.add_argument("--studies", type=Path, help="a folder for the searches [default: they are not kept]")
    parser.add_argument("--loops", type=int, default=3, help="rounds of plain loops")
    options = parser.parse_args()
    plain = argparse.Namespace(seconds=3, steps=5, device=options.device)
    common = ["--device", options.device, *(["--baseline", options.baseline] if options.baseline else [])]
    offered, held = list(common), list(common)
    for asked in options.knob or ["malloc=none,glibc"]:
        name, _, values = asked.partition("=")
        limit = option(knob(name).alias)
        offered += [limit, values] if values else []
        held += ["--fix", f"{knob(name).alias}={str(knob(name).default).lower()}"]
    ways = {"with": offered, "without": held}
    print(f"{here()}; searches of {options.seconds} s")
    print(f"with: {' '.join(offered)}; without: {' '.join(held)}\n")
    print(heading("target", "answer with", "without", "with / without", "with / baseline", "probes"))
    for name in options.only.split(","):
        target = options.folder / f"{name}.py"
        for number in range(options.rounds):
            with tempfile.TemporaryDirectory() as temporary:
                studies = (options.studies or Path(temporary)) / f"{name}-{number}"
                order = list(ways) if number % 2 == 0 else list(reversed(ways))
                found = {way: searched(target, studies / way, options.seconds, *ways[way]) for way in order}
            for way, best in found.items():  # training them may be interrupted
                print(
                    f"{name}, {way}: {described(best.params)}, {best.samples_per_second:.4g} samples/s", file=sys.stderr
                )
            loops = {way: best.params for way, best in found.items()} | {"baseline": found["with"].baseline}
            rates: dict[str, list[float]] = {way: [] for way in loops}
            for turn in range(options.loops):
                for way in loops if turn % 2 == 0 else reversed(loops):
                    rates[way].append(trained(str(target), Config(values=defaults() | loops[way]), plain))
            ratios = {
                way: interval([one / other for one, other in zip(rates["with"], rates[way], strict=True)])
                for way in ("without", "baseline")
            }
            said = [described(found[way].params) for way in ("with", "without")]
            probes = " / ".join(str(found[way].probes) for way in ("with", "without"))
            print(row(name, *said, ratios["without"], ratios["baseline"], probes), flush=True)


if __name__ == "__main__":
    main()
