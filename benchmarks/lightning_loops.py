"""One LightningModule trained by our loop and by its Trainer, in turn: rates, and which of two settings is faster.

    python -m benchmarks.lightning_loops [ROUNDS]

Prints, for a small perceptron and the network of `same_model/`, the median samples/s of a batch and of four
micro-batches in its place. Needs lightning. One thread, so that a busy machine disturbs all alike. On a GPU: not run.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import time
import warnings
from pathlib import Path
from statistics import median

import torch

from autotune.core.records import Config
from autotune.knobs import defaults, plan_of
from autotune.targets import resolve
from autotune.targets.base import Order, Step
from autotune.testing.target_contract import Recorder

SECONDS, UNCOUNTED = 1.2, 4  # of one run, and its first steps
TRAINER = "\n\nfrom lightning import Trainer\n\ndef trainer():\n    return Trainer()\n"
PERCEPTRON = """
import torch
from lightning import LightningModule
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Net(LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 10))
    def training_step(self, batch, batch_idx):
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.log("loss", loss)
        return loss
    def configure_optimizers(self): return torch.optim.AdamW(self.parameters())
    def train_dataloader(self):
        return DataLoader(TensorDataset(torch.randn(20000, 64), torch.randint(10, (20000,))), 64, shuffle=True)
"""
CELLS = {"perceptron": (256, 64), "same_model": (64, 16)}  # a batch, and a quarter of it


class Clock(Recorder):
    """A watch that lets a loop train for some seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []
        self.end = time.perf_counter() + SECONDS

    def step(self, step: Step) -> Order:
        """Note the time."""
        self.times.append(time.perf_counter())
        return Order.STOP if self.times[-1] > self.end and len(self.times) > 2 * UNCOUNTED else Order.CONTINUE

    def rate(self, samples: int) -> float:
        """Samples per second, without the first steps."""
        return samples * (len(self.times) - UNCOUNTED) / (self.times[-1] - self.times[UNCOUNTED - 1])


def measured(file: Path, batch: int, accumulated: int) -> float:
    config = Config(values=defaults() | {"batch_size": batch, "gradient_accumulation_steps": accumulated})
    session = resolve(str(file)).open(config, plan_of(config.values, "cpu"), lambda _: None)
    clock = Clock()
    session.train(clock)
    return clock.rate(batch * accumulated)


def main(rounds: int) -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        place, same = Path(folder), Path(__file__).parent / "same_model"
        (place / "parts.py").write_text((same / "parts.py").read_text())
        texts = {"perceptron": PERCEPTRON, "same_model": (same / "lightning_module.py").read_text()}
        for name, text in texts.items():
            files = {"our loop": place / f"{name}.py", "Trainer": place / f"{name}_trainer.py"}
            files["our loop"].write_text(text)
            files["Trainer"].write_text(text + TRAINER)
            whole, part = CELLS[name]
            cells = [(whole, 1), (part, whole // part)]
            rates: dict[tuple[str, tuple[int, int]], list[float]] = {}
            for number in range(rounds):
                for cell in cells[:: 1 if number % 2 else -1]:
                    for form, file in files.items():
                        rates.setdefault((form, cell), []).append(measured(file, *cell))
            for form in files:
                first, second = (rates[form, cell] for cell in cells)
                ratio = median(b / a for a, b in zip(first, second, strict=True))
                said = ", ".join(f"{c[0]}x{c[1]} {median(rates[form, c]):.0f}/s" for c in cells)
                print(f"{name}, {form}: {said}; second against first {ratio:.2f}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 7)
