"""How much a training loses beside other processes, and the most that the waits of its threads for a core explain.

    python benchmarks/lost_to_load.py [--seconds 2]

Small trainings with one thread and two, with a sleep in each step, and with a loader worker. Each is timed alone,
beside one, two and four busy loops twice, and alone again, in a process of its own. `lost` is the faster rate alone
over the rate beside the loops; `at most` is what `HostInterference.most_slowdown` says; `beyond` is the one over the
other, which `SHARED_CORE_SLOWDOWN` (autotune/answer/crowded_out.py) must cover.
"""

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from autotune.core.interference_readings import HostInterference
from autotune.machine.environment import torch_version
from autotune.machine.host import cpu_name, usable_cores
from autotune.machine.interference import interference_between, read_counters

TRAININGS = {  # kind, threads, loader workers, OMP_WAIT_POLICY
    "one thread": ("net", 1, 0, "active"),
    "two threads": ("net", 2, 0, "active"),
    "two that sleep while they wait": ("net", 2, 0, "passive"),
    "one thread, sleeps in a step": ("sleep", 1, 0, "active"),
    "two threads, sleep in a step": ("sleep", 2, 0, "active"),
    "one thread, one worker": ("net", 1, 1, "active"),
}
LOADS = (1, 2, 4)
BUSY = "while True: pass"


@contextmanager
def load(count: int) -> Iterator[None]:
    """Keep that many cores busy, with processes that are not children of this one: those would count as its own."""
    script = f"{sys.executable} -c '{BUSY}' >&2 & echo $!"
    pids = [int(subprocess.check_output(["/bin/sh", "-c", script], text=True)) for _ in range(count)]
    try:
        time.sleep(0.3)
        yield
    finally:
        for pid in pids:
            os.kill(pid, 9)


def training(kind: str, threads: int, workers: int):
    """Return a function that takes one step."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layers = 8 if kind == "net" else 1
            self.layers = nn.Sequential(*(nn.Sequential(nn.Linear(256, 256), nn.ReLU()) for _ in range(layers)))

        def forward(self, x):
            if kind == "sleep":
                time.sleep(0.05)
            return self.layers(x)

    class Rows(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return 10**7

        def __getitem__(self, index: int):
            row = torch.randn(256)
            for _ in range(30):
                row = row.roll(1)
            return row

    torch.set_num_threads(threads)
    net, fixed = Net(), torch.randn(32, 256)
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    batches = iter(torch.utils.data.DataLoader(Rows(), batch_size=32, num_workers=workers)) if workers else None

    def step() -> None:
        batch = next(batches) if batches is not None else fixed
        net(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def timed(step, seconds: float) -> tuple[float, HostInterference]:
    """Return steps per second, and the interference."""
    before, began, steps = read_counters(), time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        step()
        steps += 1
    return steps / (time.perf_counter() - began), interference_between(before, read_counters())


def child(name: str, seconds: float) -> None:
    """Print the rows of one training."""
    kind, threads, workers, _ = TRAININGS[name]
    step = training(kind, threads, workers)
    timed(step, seconds)
    for count in LOADS:
        alone = [timed(step, seconds)[0]]
        with load(count):
            beside = [timed(step, seconds) for _ in range(2)]
        alone.append(timed(step, seconds)[0])
        for rate, found in beside:
            lost, most = max(alone) / rate, found.most_slowdown
            print(
                f"| {name} | {count} | {lost:.2f}× | {found.run_queue_wait_share or 0:.0%} | "
                f"{found.threads_wait_share or 0:.0%} | {most:.2f}× | {lost / most:.2f} |",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each timing")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.seconds)
        return
    print(
        f"{cpu_name()}, {usable_cores()} cores, {platform.platform(terse=True)}, Python {platform.python_version()}, "
        f"torch {torch_version()}\n\n| training | busy loops | lost | main thread waited | all threads waited | "
        "at most | beyond |\n| --- | --- | --- | --- | --- | --- | --- |",
        flush=True,
    )
    for name, (_, _, _, policy) in TRAININGS.items():
        command = [sys.executable, __file__, "--child", name, "--seconds", str(options.seconds)]
        subprocess.run(command, env={**os.environ, "OMP_WAIT_POLICY": policy}, check=True)


if __name__ == "__main__":
    main()
