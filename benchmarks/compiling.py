"""What torch.compile is worth on a CPU, and what it takes: a target plain and compiled, in turn, in one process.

    python benchmarks/compiling.py benchmarks/targets/resnet.py 32 default [FOLDER]

prints the processor time of a step compiled over that of a plain one (median of seven turns of both, one thread, with
the lowest and the highest), and the processor seconds of compiling: Python's, and those of the C++ compiler. Processor
time, because it stands still while others use the cores. `FOLDER` keeps the generated code: a second run is warm.
"""

import importlib.util
import os
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

TURNS, SECONDS = 7, 1.0  # of a turn of each


def main(path: str, batch_size: int, mode: str) -> None:
    import torch

    from autotune.targets.checkpointing import blocks
    from autotune.targets.compiling import compile_model

    torch.set_num_threads(1)
    spec = importlib.util.spec_from_file_location("target", path)
    target = importlib.util.module_from_spec(spec)
    sys.modules["target"] = target  # where Dynamo looks for it
    spec.loader.exec_module(target)
    loader = torch.utils.data.DataLoader(target.dataset(), batch_size, shuffle=True, drop_last=True)
    batch = next(iter(loader))

    def trained(model):
        torch.manual_seed(0)
        optimizer = target.optimizer(model.parameters())

        def step():
            began = time.process_time()
            target.loss(model, batch).backward()
            optimizer.step()
            optimizer.zero_grad()
            return time.process_time() - began

        return step

    plain, compiled = trained(target.model()), trained(model := compile_model(target.model(), mode))
    print(f"{Path(path).stem}, batch {batch_size}, {mode}, {len(blocks(model))} blocks", flush=True)
    plain()
    children = processor_seconds_of_children()
    first = compiled()
    children = processor_seconds_of_children() - children
    compiled()
    print(f"  compiling: {first:.0f} s of Python and {children:.0f} s of the C++ compiler", flush=True)
    ratios = [turn(compiled) / turn(plain) for _ in range(TURNS)]
    seen = torch._dynamo.utils.counters
    print(
        f"  a step takes {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) of a plain one's "
        f"{1e3 * turn(plain):.1f} ms; {seen['stats']['unique_graphs']} graphs, {seen['graph_break'].total()} breaks"
    )


def turn(step) -> float:
    """Return the median processor seconds of the steps of one turn."""
    found = []
    while sum(found) < SECONDS or len(found) < 3:
        found.append(step())
    return statistics.median(found)


def processor_seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="autotune-") as own:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = sys.argv[4] if len(sys.argv) > 4 else own
        from autotune.child.compilations import write_to_cache

        write_to_cache()
        main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
