"""The recommendation as arguments of torchtitan."""

from __future__ import annotations

from collections.abc import Iterator

from autotune.errors import UsageError
from autotune.export.recipe import Recipe
from autotune.harmless import comment, shell_word

LOADER = ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers")


def text(found: Recipe) -> str:
    """The flags for torchtitan 0.3, one a line, and what has none. Raises `UsageError` for what it does not support.

    It has no argument for accumulation: that follows from the global batch.
    """
    if found.scaler:
        raise UsageError(
            "torchtitan does not train in float16. It has bfloat16 and float32 only. Search with --amp none,bf16, or "
            "export for another framework."
        )
    remarks = [*found.remarks, *(f"in the code: {line}" for line in (*found.setup, *found.model, *found.batch))]
    return "\n".join([*map(comment, remarks), *(f"{flag} \\" for flag in _flags(found))]).removesuffix(" \\") + "\n"


def _flags(found: Recipe) -> Iterator[str]:
    batch = int(found.loader["batch_size"])
    yield f"--training.local_batch_size {batch}"
    yield f"--training.global_batch_size {batch * found.accumulation_steps * found.world_size}"
    if found.replicated is not None:  # it shares weights out otherwise
        yield f"--parallelism.data_parallel_replicate_degree {found.world_size}"
        yield "--parallelism.data_parallel_shard_degree 1"
    for name, value in found.arguments.items():
        yield f"--{name} {shell_word(str(value))}"
    for name in LOADER:
        value = found.loader.get(name)
        if isinstance(value, bool):
            yield f"--dataloader.{'' if value else 'no-'}{name}"
        elif value is not None:
            yield f"--dataloader.{name} {value}"
