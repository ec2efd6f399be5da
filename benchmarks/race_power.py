"""What `autotune race` can tell: a planted slowdown detected within the budget, equal code called equal.

    python benchmarks/race_power.py [--repeats 20] [--slowdown 0.03] [--noise 0.004 0.01 0.02 0.03] [--budget 300]
    python benchmarks/race_power.py --real [--repeats 20]

Without `--real` the processes are those of the simulated machine (`autotune.testing`): `--noise` is the relative
standard deviation between its probes, beside that of its steps within a window. With it, a scratch repository of git
holds a training whose step is a hundred products of matrices, and the working tree does a few more: the race is
`autotune.race("model.py", baseline_commit="HEAD")`, in real processes. Asked of a tolerance of 2 %, per row: how often
the verdict was the right one (slower; as fast or faster for the equal ones), a wrong one, and undecided.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

import autotune
from autotune.core.records import Config
from autotune.core.requests import Request, ResultT
from autotune.preparation.named_training import NamedTraining
from autotune.races.race import race
from autotune.races.records import RaceResult
from autotune.races.settings import RACE_SECONDS, RaceSettings
from autotune.testing import FakeLauncher, Machine

SLOWDOWN = 0.03
NOISES = (0.004, 0.01, 0.02, 0.03)
PRODUCTS = 100  # of matrices in a step
MODEL = """\
import torch
from torch import nn
from torch.utils.data import TensorDataset

PRODUCTS = {products}
FACTOR = torch.randn(160, 160) / 160

def model(): return nn.Linear(8, 2)
def dataset(): return TensorDataset(torch.randn(4096, 8), torch.randint(2, (4096,)))
def loss(model, batch):
    with torch.no_grad():
        product = FACTOR
        for _ in range(PRODUCTS): product = product @ FACTOR
    return nn.functional.cross_entropy(model(batch[0]), batch[1])
baseline = {{"batch_size": 64, "num_workers": 0}}
"""


@dataclass(frozen=True, kw_only=True)
class SlowerMachine(Machine):
    """A machine on which everything takes longer."""

    slowdown: float = 0.0  # share of the rate that is lost

    def step_seconds(self, config: Config) -> float:
        """True seconds of one optimizer step."""
        return super().step_seconds(config) / (1 - self.slowdown)


class Simulated:
    """A simulated machine that trains each target at a speed of its own; one clock for all."""

    def __init__(self, slowdowns: dict[str, float], *, noise: float, seed: int) -> None:
        self._launchers = {
            target: FakeLauncher(machine=SlowerMachine(slowdown=lost, noise_between_probes=noise), seed=seed)
            for target, lost in slowdowns.items()
        }

    def clock(self) -> float:
        """Simulated seconds."""
        return sum(one.clock() for one in self._launchers.values())

    def run(self, request: Request[ResultT], folder: Path) -> ResultT:
        """Answer for the target of the request."""
        return self._launchers[request.target or ""].run(request, folder)


def simulated(
    folder: Path, slowdowns: Iterable[float], *, noise: float = 0.004, seed: int = 0, seconds: float = RACE_SECONDS
) -> RaceResult:
    """Race simulated contestants in `folder`, which lose these shares of the baseline's rate."""
    lost = {"base.py": 0.0, **{f"other{at}.py": share for at, share in enumerate(slowdowns)}}
    machine = Simulated(lost, noise=noise, seed=seed)
    settings = RaceSettings(folder=folder, time_budget_seconds=seconds)
    named = [NamedTraining(label=target, target=target) for target in lost]
    return race(named, settings, lambda _: machine, lambda _: None, machine.clock, lambda _: None)


def real(folder: Path, slowdown: float, seconds: float) -> RaceResult:
    """Race the working tree of a scratch repository in `folder`, which loses this share, against its only commit."""
    folder.mkdir()
    (folder / "model.py").write_text(MODEL.format(products=PRODUCTS))
    author = ("-c", "user.name=race", "-c", "user.email=race@example.org")
    for words in (("init", "-q"), ("add", "."), (*author, "commit", "-q", "-m", "The code of then")):
        subprocess.run(("git", *words), cwd=folder, check=True)
    (folder / "model.py").write_text(MODEL.format(products=round(PRODUCTS / (1 - slowdown))))
    with chdir(folder):
        return autotune.race("model.py", baseline_commit="HEAD", time_budget=seconds, device="cpu")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--slowdown", type=float, default=SLOWDOWN)
    parser.add_argument("--noise", type=float, nargs="+", default=NOISES)
    parser.add_argument("--budget", type=float, default=RACE_SECONDS, help="seconds of each race")
    parser.add_argument("--real", action="store_true")
    asked = parser.parse_args()
    print("| machine | planted | right | wrong | undecided | rounds, mean | seconds, longest |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for noise in [None] if asked.real else asked.noise:
        for slowdown in (asked.slowdown, 0.0):
            with tempfile.TemporaryDirectory(prefix="race-power-") as place:
                folders = [Path(place) / str(repeat) for repeat in range(asked.repeats)]
                results = [
                    real(folder, slowdown, asked.budget)
                    if noise is None
                    else simulated(folder, [slowdown], noise=noise, seed=repeat, seconds=asked.budget)
                    for repeat, folder in enumerate(folders)
                ]
            print(_row("processes" if noise is None else f"simulated, noise {noise:.1%}", slowdown, results))


def _row(machine: str, slowdown: float, results: list[RaceResult]) -> str:
    found = Counter("ok" if one.verdict in ("as fast", "faster") else one.verdict for one in results)
    right = found["slower" if slowdown else "ok"]
    rounds = sum(len(one.standings[0].rounds) for one in results) / len(results)
    wrong = len(results) - right - found["undecided"]
    seconds = max(one.seconds for one in results)
    cells = (machine, f"{slowdown:.0%}", right, wrong, found["undecided"], f"{rounds:.1f}", f"{seconds:.0f}")
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    main()
