"""Whether the measured gradient noise scale says how many samples large batches waste, against really training them.

    [DIGITS_LEARNING_RATE=0.1] python benchmarks/noise_scale.py [--seeds 2] [--target-loss 0.3]

The product's measurement runs in its own process, once per seed. Then branches are trained from weights after as many
steps of the same batch, with every batch and every learning rate of a grid, until the loss over all data is below the
target; of each batch the learning rate counts that needs the fewest samples. To these E = E_min (1 + B / B_crit) is
fitted in logarithms (McCandlish et al. 2018, section 2.3), and B_crit is what the noise scale should predict.
"""

import argparse
import copy
import itertools
import math
import platform
import statistics
import sys
import tempfile
from pathlib import Path

import torch
from scipy.optimize import least_squares
from torch import nn

from autotune.core.records import Config
from autotune.gradient_noise.estimate import estimate
from autotune.gradient_noise.records import NoiseScale, NoiseScaleRequest
from autotune.knobs import defaults
from autotune.launch.subprocess import SubprocessLauncher
from autotune.machine.environment import torch_version
from autotune.machine.host import cpu_name

TARGETS = Path(__file__).parent / "targets"
sys.path.insert(0, str(TARGETS))
import digits_mlp  # noqa: E402 - found only there

BATCH = digits_mlp.baseline["batch_size"]  # before the branches part
BATCHES = (4, 8, 16, 32, 64, 128, 256)
RATES = tuple(0.1 * 2**power for power in range(5))  # from 1.6 on training diverges with every batch
LOST = 3.0  # a branch whose loss is above it will not come back: it is log(10) before training
MOST_SAMPLES = 60_000  # of one branch: then it is given up


def measured(seed: int) -> NoiseScale:
    """The product's estimate for one seed."""
    config = Config(values={**defaults(), **digits_mlp.baseline})
    request = NoiseScaleRequest(target=str(TARGETS / "digits_mlp.py"), config=config, device="cpu", seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        result = SubprocessLauncher(environ={"OMP_NUM_THREADS": "1"}).run(request, Path(folder))
    noise = estimate(result.sample) if result.sample else None
    if noise is None or noise.phi is None:
        raise SystemExit(f"no noise scale: {result.failure or noise}")
    return noise


class Digits:
    """All data in memory, and batches drawn from epochs that are shuffled anew."""

    def __init__(self) -> None:
        self.inputs, self.classes = digits_mlp.dataset().tensors

    def batches(self, size: int, seed: int):
        """Endless; incomplete ones are left out, as in a probe."""
        draws = torch.Generator().manual_seed(seed)
        while True:
            order = torch.randperm(len(self.inputs), generator=draws)
            for start in range(0, len(order) - size + 1, size):
                rows = order[start : start + size]
                yield self.inputs[rows], self.classes[rows]

    def loss(self, model: nn.Module) -> float:
        """Over all data."""
        with torch.no_grad():
            return float(nn.functional.cross_entropy(model(self.inputs), self.classes))


def trained(model: nn.Module, data: Digits, size: int, rate: float, seed: int, *, steps: int, until: float) -> int:
    """Steps of SGD until the loss is below `until`, looked for after every 2 % more of them; `steps` if it never is."""
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    look = 1
    for step, (inputs, classes) in enumerate(itertools.islice(data.batches(size, seed), steps), start=1):
        loss = nn.functional.cross_entropy(model(inputs), classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step >= look and until > 0:
            if (now := data.loss(model)) < until:
                return step
            if not now < LOST:
                return steps
            look = step + max(1, step // 50)
    return steps


def needed(data: Digits, size: int, target: float, seed: int, beginning: int) -> float:
    """Samples that the best learning rate needs from the parting on; infinite if none comes there."""
    torch.manual_seed(seed)
    parting = digits_mlp.model()
    trained(parting, data, BATCH, digits_mlp.LEARNING_RATE, seed, steps=beginning, until=0.0)
    most = MOST_SAMPLES // size
    counts = [trained(copy.deepcopy(parting), data, size, rate, seed + 1, steps=most, until=target) for rate in RATES]
    best = min(counts)
    return math.inf if best >= most else float(best * size)


def critical(samples: dict[int, float]) -> tuple[float, float]:
    """B_crit of the fitted law, and the rms of its residuals in logarithms."""
    sizes = [size for size, count in samples.items() if math.isfinite(count)]

    def residuals(logs):
        least, batch = logs
        return [math.log(samples[size]) - least - math.log1p(size / math.exp(batch)) for size in sizes]

    found = least_squares(residuals, [math.log(min(samples.values())), math.log(32)])
    return math.exp(found.x[1]), math.sqrt(statistics.fmean(value**2 for value in found.fun))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--target-loss", type=float, default=0.3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(
        f"{cpu_name()}, {platform.platform(terse=True)}, Python {platform.python_version()}, torch {torch_version()}; "
        f"digits_mlp, SGD at {digits_mlp.LEARNING_RATE:g}, {options.seeds} seeds\n"
    )
    seeds, data = range(options.seeds), Digits()
    estimates = [measured(seed) for seed in seeds]
    for seed, one in zip(seeds, estimates, strict=True):
        print(f"seed {seed}: noise scale after {one.steps} steps {one.phi:.0f} [{one.low:.0f}, {one.high:.0f}] samples")
    middle = statistics.geometric_mean(one.phi for one in estimates)
    samples = {}
    print(f"\n{'batch':>6}  samples to a loss of {options.target_loss:g}")
    for size in BATCHES:
        counts = [
            needed(data, size, options.target_loss, 100 * seed, one.steps)
            for seed, one in zip(seeds, estimates, strict=True)
        ]
        samples[size] = statistics.geometric_mean(counts)
        print(f"{size:>6}  {samples[size]:,.0f}", flush=True)
    batch, error = critical(samples)
    print(f"\nB_crit of these runs {batch:.0f} samples (residuals {error:.0%}); measured noise scale {middle:.0f}")
    print(f"The noise scale is {middle / batch:.2f} times the critical batch.")


if __name__ == "__main__":
    main()
