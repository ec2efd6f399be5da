"""The recommendation as an `Accelerator` and the loader for it, and as the file that starts its processes."""

from __future__ import annotations

from typing import Any

from autotune.export.data import call
from autotune.export.recipe import Recipe, assembled, epochs, loader

MADE = "accelerate:Accelerator"  # from `arguments`


def text(found: Recipe) -> str:
    """Python about `model`, `dataset`, `loss_fn`, `optimizer` and `epochs`. For Accelerate 1.

    The prepared model autocasts by itself, the loss beside it does not: hence the context, around both and no more.
    """
    return assembled(
        found,
        ("from accelerate import Accelerator", "from torch.utils.data import DataLoader"),
        f"accelerator = {call('Accelerator', **arguments(found))}",
        *found.model,
        loader(found),
        found.optimizer_line,
        "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",
        *epochs(
            found,
            *found.batch,
            "with accelerator.accumulate(model):",
            "    with accelerator.autocast():",
            f"        loss = {found.data.loss}",
            "    accelerator.backward(loss)  # divided by the accumulation, and scaled",
            "    optimizer.step()",
            "    optimizer.zero_grad()",
        ),
    )


def arguments(found: Recipe) -> dict[str, Any]:
    """Return the arguments of `Accelerator(...)`, by name."""
    return {
        **found.arguments,
        "gradient_accumulation_steps": found.accumulation_steps,
        **({"cpu": True} if found.device == "cpu" else {}),
    }


def values(found: Recipe) -> dict[str, Any]:
    """Return what `accelerate launch --config_file` reads: how many processes start here, and their precision.

    Without mpirun, MULTI_CPU starts one process (1.15); MULTI_GPU starts all, which `use_cpu` then keeps on the CPU.
    """
    return {
        "distributed_type": "MULTI_GPU" if found.world_size > 1 else "NO",
        "num_processes": found.world_size,
        "num_machines": 1,
        "machine_rank": 0,
        "use_cpu": found.device == "cpu",
        "mixed_precision": found.arguments["mixed_precision"],
    }
