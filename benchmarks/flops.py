"""FLOP that a model needs for one sample, forward and backward, counted on one real step; started by `stages.py`.

    python -m benchmarks.flops benchmarks/catalogue/unet.py cuda

prints one line of JSON. Products and convolutions count two for each multiplication with its addition; what is added
up, normalised or looked up counts nothing. Attention is counted as the two products that it is, the masked half
included: the fused kernels, of which the counter does not know every one, are switched off.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.data import default_collate
from torch.utils.flop_counter import FlopCounterMode

from autotune.targets.batches import move

SAMPLES = 2  # BatchNorm does not train on one; the count grows by the sample


def counted(target: Any, device: str) -> dict[str, Any]:
    """FLOP of one sample, and whether most of them are in convolutions."""
    model, dataset = target.model().to(device).train(), target.dataset()
    join = getattr(target, "collate", default_collate)
    batch = move(join([dataset[index] for index in range(SAMPLES)]), lambda tensor: tensor.to(device), device)
    counter = FlopCounterMode(display=False)
    with counter, sdpa_kernel(SDPBackend.MATH):
        target.loss(model, batch).backward()
    total = counter.get_total_flops()
    convolved = sum(
        flops for operation, flops in counter.get_flop_counts()["Global"].items() if "conv" in str(operation)
    )
    return {"flops_per_sample": total / SAMPLES, "convolves": convolved > total / 2}


def main() -> None:
    place, device = Path(sys.argv[1]), sys.argv[2]
    sys.path.insert(0, str(place.parent))  # what the file imports lies beside it
    print(json.dumps(counted(importlib.import_module(place.stem), device)), flush=True)


if __name__ == "__main__":
    main()
