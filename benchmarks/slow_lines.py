"""What `autotune profile` says that a planted line costs, against what leaving it out really gives.

python -m benchmarks.slow_lines [NAME ...] [--rounds 40] [--resume FILE] [--verify]

Each training of `tests/slow` is profiled once, in a process of its own; with `--verify`, what leaving the line out
gained there is held against the truth, too, or it is said why it was not left out. Then a plain loop in this process
trains it as it is and mended, one step of each in turn: the difference of the medians is the truth. All are shares of
a step, for the machine may be busier during the one than during the other.
"""

from __future__ import annotations

import argparse
import inspect
import itertools
import os
import runpy
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.utils.data import DataLoader

from autotune.core.records import Config
from autotune.knobs import defaults
from autotune.launch.subprocess import SubprocessLauncher
from autotune.profile.judge import expensive_lines
from autotune.profile.records import ProfileRequest, ProfileResult

MOST_SECONDS, FEWEST_ROUNDS = 8.0, 8  # of a plain loop: meant for twelve minutes for all trainings
TRAININGS = Path(__file__).parents[1] / "tests" / "slow" / "trainings"
MENDED = {  # training -> what is written, and what instead; without those that grow: their cost is another in each step
    "casts_back_and_forth": ("    features = features.to(torch.bfloat16).to(torch.float32)  # planted\n", ""),
    "clones_inputs": ("wide.clone()", "wide"),
    "collates_slowly": (
        "        for column, value in enumerate(inputs.tolist()):\n"
        "            joined[row, column] = value  # planted\n",
        "        joined[row] = inputs\n",
    ),
    "collects_garbage": ("    gc.collect()  # planted\n", ""),
    "copies_the_model": ('    earlier["model"] = deepcopy(model)  # planted\n', ""),
    "decodes_slowly": ('[float(word) for word in line.split(",")]', "[0.25] * 1024"),
    "evaluates_every_step": (
        '    with torch.no_grad():\n        seen["correct"] = model(inputs).argmax(1) == target  # planted\n',
        "",
    ),
    "fills_with_zeros": ("set_to_none=False", "set_to_none=True"),
    "float64_crept_in": (".double()", ""),
    "is_deterministic": ("torch.use_deterministic_algorithms(True)", ""),
    "logs_every_step": (
        '    rows = [{"row": row, "scores": [0.5] * 100} for row in range(200)]\n'
        "    log.seek(0)\n    json.dump(rows, log)  # planted\n    log.flush()\n",
        "",
    ),
    "looks_for_anomalies": ("torch.autograd.set_detect_anomaly(True)", ""),
    "loops_over_samples": (
        "        scores = []\n        for row in range(len(x)):\n"
        "            scores.append(self.head(hidden[row]))  # planted\n        return torch.stack(scores)\n",
        "        return self.head(hidden)\n",
    ),
    "multiplies_odd_sizes": ("INPUTS, WORDS = 7, 4097", "INPUTS, WORDS = 8, 4104"),
    "prints_tensors": ('    print("scores", scores.detach())  # planted\n', ""),
    "python_metric": ("    count_pairs(target.tolist() * 4)\n", ""),
    "reads_predictions": (
        "    history[:] = distances.repeat(32, 1).tolist()  # planted\n",
        "    distances.repeat(32, 1)\n",
    ),
    "rereads_the_file": (
        "        with self.file.open() as text:\n"
        "            return self.inputs[index], json.load(text)[str(index)]  # planted\n",
        "        return self.inputs[index], index % 10\n",
    ),
    "saves_every_step": ("    torch.save(model.state_dict(), io.BytesIO())  # planted\n", ""),
    "schedules_in_python": ("in range(20_000):", "in range(1):"),
    "sleeps_every_step": ("    time.sleep(0.005)  # planted\n", ""),
    "slow_samples": ("index % 32 == 0", "index % 32 == 32"),
    "sorts_the_history": ("    running_median()\n", ""),
    "starts_a_process": ("    memory_in_use()\n", ""),
    "takes_rows_one_by_one": (
        "        return self.rows[index], self.targets[index]\n",
        "        return self.rows[index], self.targets[index]\n\n"
        "    def __getitems__(self, indices):\n        return [self.rows[indices], self.targets[indices]]\n\n\n"
        "def collate(batch):\n    return batch\n",
    ),
    "tensor_in_every_step": ("torch.tensor(WEIGHTS)", "torch.ones(7)"),
    "trains_two_networks": (
        "    loss = F.softplus(-model.critic(made)).mean()\n    generator.backward(loss)  # planted\n",
        "    model.critic.requires_grad_(False)\n    loss = F.softplus(-model.critic(made)).mean()\n"
        "    generator.backward(loss)\n    model.critic.requires_grad_(True)\n",
    ),
    "untrained_parameters": (
        "    return torch.optim.SGD(model[-1]",
        "    model[:-1].requires_grad_(False)\n    return torch.optim.SGD(model[-1]",
    ),
    "watches_activations": ("    made[1].register_forward_hook(note)\n", ""),
    "watches_gradients": ("    made[2].weight.register_hook(note)\n", ""),
}


class _Optimizer:
    """What a step of the user's own is handed."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.step, self.zero_grad = optimizer.step, optimizer.zero_grad

    def backward(self, loss: Any, **options: Any) -> None:
        loss.backward(**options)


def main() -> None:
    """Profile and train, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--resume", type=Path, help="a file that rows are added to; what is in it is not run again")
    parser.add_argument(
        "--verify", action="store_true", help="profile with --verify, and hold its gain against it, too"
    )
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in MENDED]
    if unknown:
        parser.error(f"no such training: {', '.join(unknown)}")
    torch.set_num_threads(1)
    sys.path.insert(0, str(TRAININGS))
    columns = ["training", "finding", "reported", "true", "reported / true", "ms a step"]
    columns += ["verified", "verified / true"] * options.verify
    print(f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}")
    for name in options.names or MENDED:
        print(resumed(options.resume, name, lambda name=name: row(name, options.rounds, options.verify)), flush=True)


def resumed(file: Path | None, name: str, make: Callable[[], str]) -> str:
    """Return the row of `name` in `file`; make it and add it there if there is none."""
    known = file.read_text().splitlines() if file is not None and file.exists() else []
    for line in known:
        if line.startswith(f"| {name} |"):
            return line
    made = make()
    if file is not None:
        with file.open("a") as rows:
            rows.write(f"{made}\n")
    return made


def row(name: str, rounds: int, verify: bool) -> str:
    """Return the line of one training."""
    profiled, true, step = held_against(TRAININGS / f"{name}.py", [MENDED[name]], rounds, verify=verify)
    if not (found := expensive_lines(profiled)):
        return f"| {name} | none | | {true:.0%} | | {1000 * step:.0f} |{' | |' * verify}"
    first = found[0]
    told = first.seconds / profiled.seconds
    cells = [name, first.kind, f"{told:.0%}", f"{true:.0%}", f"{told / true:.2f}", f"{1000 * step:.0f}"]
    if verify and first.gain is not None:
        gained = first.gain.seconds / profiled.seconds
        cells += [f"{gained:.0%}", f"{gained / true:.2f}"]
    elif verify:
        cells += [first.unverified or "–", ""]
    return f"| {' | '.join(cells)} |"


def held_against(
    file: Path, edits: list[tuple[str, str]], rounds: int, *, verify: bool = False
) -> tuple[ProfileResult, float, float]:
    """Return the profile of a training, by what share edits really make it faster, and the seconds of a step.

    In turn, one step of each that counts; no longer than `MOST_SECONDS`, but for the fewest rounds.
    """
    text = file.read_text()
    for written, instead in edits:
        assert written in text, f"{file.name} was changed"
        text = text.replace(written, instead)
    with tempfile.TemporaryDirectory() as place, SubprocessLauncher() as launcher:
        mended = Path(place) / "mended.py"
        mended.write_text(text)
        trainings = [Plain(one) for one in (file, mended)]
        config = Config(values={**defaults(), "batch_size": trainings[0].batch_size, "num_threads": 1})
        asked = ProfileRequest(target=str(file), config=config, device="cpu", seconds=1.0, verify=verify)
        profiled = launcher.run(asked, Path(place))
        seconds: tuple[list[float], list[float]] = ([], [])
        ends = time.perf_counter() + MOST_SECONDS
        for number in range(rounds):
            if number >= FEWEST_ROUNDS and time.perf_counter() > ends:
                break
            for training, taken in zip(trainings, seconds, strict=True):
                training.step()  # after a step of the other, caches are its
                began = time.perf_counter()
                training.step()
                taken.append(time.perf_counter() - began)
    before, after = (sum(sorted(taken)[len(taken) // 8 : len(taken) - len(taken) // 8]) for taken in seconds)  # trimmed
    return profiled, 1 - after / before, median(seconds[0])


class Plain:
    """A training in a plain loop, with the settings of torch that it makes."""

    def __init__(self, file: Path) -> None:
        torch.autograd.set_detect_anomaly(False)
        torch.use_deterministic_algorithms(False)
        self._module = module = runpy.run_path(str(file))
        self._settings = torch.is_anomaly_enabled(), torch.are_deterministic_algorithms_enabled()
        self.batch_size = module.get("baseline", {}).get("batch_size", 64)
        self._model = module["model"]().train()
        make = module.get("optimizer", lambda params: torch.optim.SGD(params, lr=0.01, momentum=0.9))
        takes_model = "model" in inspect.signature(make).parameters
        made = make(self._model if takes_model else list(self._model.parameters()))
        self._optimizers = made if isinstance(made, list) else [made]
        self._scheduler = module["scheduler"](made) if "scheduler" in module else None
        loader = DataLoader(
            module["dataset"](), batch_size=self.batch_size, shuffle=True, drop_last=True,
            collate_fn=module.get("collate"),
        )  # fmt: skip
        self._batches = itertools.chain.from_iterable(itertools.repeat(loader))

    def step(self) -> None:
        """Take one optimizer step."""
        torch.autograd.set_detect_anomaly(self._settings[0])
        torch.use_deterministic_algorithms(self._settings[1])
        batch = next(self._batches)
        with Path(os.devnull).open("w") as nothing, redirect_stdout(nothing):
            self._train(batch)
        if self._scheduler is not None:
            self._scheduler.step()

    def _train(self, batch: Any) -> None:
        if "step" in self._module:
            self._module["step"](self._model, batch, [_Optimizer(one) for one in self._optimizers])
            return
        self._module.get("loss", _loss)(self._model, batch).backward()
        for one in self._optimizers:
            one.step()
            one.zero_grad()


def _loss(model: Any, batch: Any) -> Any:
    return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])


if __name__ == "__main__":
    main()
