"""What `autotune profile` says that a planted line costs, against what leaving it out really gives.

python -m benchmarks.slow_lines [NAME ...] [--rounds 5]

Each training of `tests/slow` is profiled once. Then probes of it as it is and of it mended run in turn, in processes
of their own; the difference of their steps is the truth. Both medians of the rounds.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import median

from autotune.core.records import Config
from autotune.core.requests import ProbeBudget, ProbeRequest, ProfileRequest
from autotune.knobs import defaults
from autotune.launch.subprocess import SubprocessLauncher
from autotune.profile.judge import findings

TRAININGS = Path(__file__).parents[1] / "tests" / "slow" / "trainings"
BATCHES = {"fills_with_zeros": 8}
MENDED = {  # training -> what is written, and what instead
    "reads_predictions": (
        "    history[:] = distances.repeat(8, 1).tolist()  # planted\n",
        "    distances.repeat(8, 1)\n",
    ),
    "tensor_in_every_step": ("weights = torch.tensor(WEIGHTS)", "weights = MADE"),
    "collects_garbage": ("    gc.collect()  # planted\n", ""),
    "saves_every_step": ("    torch.save(model.state_dict(), io.BytesIO())  # planted\n", ""),
    "fills_with_zeros": ("set_to_none=False", "set_to_none=True"),
    "untrained_parameters": (
        "    return torch.optim.SGD(model[-1]",
        "    model[:-1].requires_grad_(False)\n    return torch.optim.SGD(model[-1]",
    ),
    "float64_crept_in": (".double()", ""),
    "python_metric": ("    count_pairs(target.tolist() * 4)\n", ""),
    "slow_samples": ("index % 32 == 0", "index % 32 == 32"),
}
WINDOW = ProbeBudget(min_seconds=2.0, max_seconds=2.0)


def main() -> None:
    """Profile and probe, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(MENDED))
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(
        "| training | finding | told ms | true ms | told / true | ms per step |\n| --- | --- | --- | --- | --- | --- |"
    )
    for name in options.names:
        print(row(name, options.rounds), flush=True)


def row(name: str, rounds: int) -> str:
    """Return the line of one training."""
    text = (TRAININGS / f"{name}.py").read_text()
    written, instead = MENDED[name]
    assert written in text, f"{name} was changed"
    mended = (
        text.replace(written, instead).replace("def model", "MADE = torch.tensor(WEIGHTS)\n\n\ndef model")
        if (name == "tensor_in_every_step")
        else text.replace(written, instead)
    )
    config = Config(values={**defaults(), "batch_size": BATCHES.get(name, 256)})
    with tempfile.TemporaryDirectory() as place, SubprocessLauncher() as launcher:
        folder = Path(place)
        (folder / "as_it_is.py").write_text(text)
        (folder / "mended.py").write_text(mended)
        target = str(folder / "as_it_is.py")
        profiled = launcher.run(ProfileRequest(target=target, config=config, device="cpu"), _new(folder))
        steps: dict[str, list[float]] = {"as_it_is": [], "mended": []}
        for number in range(rounds):
            for one in sorted(steps, reverse=bool(number % 2)):
                asked = ProbeRequest(target=str(folder / f"{one}.py"), config=config, device="cpu", budget=WINDOW)
                measured = launcher.run(asked, _new(folder)).measurement
                assert measured is not None, one
                steps[one].append(sum(measured.step_seconds) / measured.steps)
    first = findings(profiled)[0]
    true = median(steps["as_it_is"]) - median(steps["mended"])
    step = 1000 * profiled.seconds
    return (
        f"| {name} | {first.kind} | {1000 * first.seconds:.1f} | {1000 * true:.1f} | {first.seconds / true:.2f} "
        f"| {step:.1f} |"
    )


def _new(folder: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=folder))


if __name__ == "__main__":
    main()
