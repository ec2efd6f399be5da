"""The target's data in a program: how the loader is made, what a batch unpacks to, how its loss is computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from autotune.core.records import BatchLayout, TargetFacts
from autotune.harmless import python
from autotune.knobs.wording import IMAGE_DIMENSIONS
from autotune.targets.commands.command import is_command

CODE_WIDTH = 100  # characters of a call that stays on one line
OWN_STEP, TRAINING_STEP = "your step(model, batch, optimizers)", "your training_step"
# Dataset, collate and sampler of targets whose file need not have them by these names, and where they are.
OF_FRAMEWORKS = {
    "lightning": (("dataset", "collate_fn", "sampler"), "the loader that your train_dataloader() returns"),
    "hf": (("train_dataset", "data_collator", "sampler"), "your Trainer"),
}
OF_A_LOADER = ("pin_memory", "persistent_workers", "prefetch_factor")  # handed to a dataloader() that takes them


@dataclass(frozen=True, kw_only=True)
class ExportedData:
    """The target's data and loss, in the names that its file agreed upon."""

    kind: Literal["dataset", "iterable", "dataloader", "batch", "script"] = "dataset"
    layout: BatchLayout | None = None  # None: of an earlier version, which took pairs for granted
    takes_workers: bool = True
    has_collate: bool = False
    has_sampler: bool = False
    has_loss: bool = False  # written as `loss(model, batch)`, not inferred
    own_training: str = ""  # the user's own code that takes the steps; empty: a loop that is written here can
    is_shared_out: bool = False  # among processes, of which each makes this loader
    framework: str = ""  # of the target's code; empty: a file of functions

    @property
    def is_pair(self) -> bool:
        """Whether a batch is `inputs, targets`, and the loss a function of the model's output and the targets."""
        return self.layout in (None, "pair") and not (self.has_loss or self.own_training)

    @property
    def sharing(self) -> str:
        """What of the user's own gave each rank its share when it was measured; empty where autotune did."""
        return {"iterable": "dataset()", "dataloader": "dataloader()"}.get(self.kind, "")

    @property
    def is_sampled(self) -> bool:
        """Whether its loader has a `DistributedSampler` that this module writes."""
        return self.is_shared_out and self.kind == "dataset" and not self.has_sampler

    @property
    def origin(self) -> tuple[str, ...]:
        """Comments on the target's own dataset, collate and sampler where its file may not have them by name."""
        if self.framework not in OF_FRAMEWORKS:
            return ()
        names, owner = OF_FRAMEWORKS[self.framework]
        used = {"dataset": True, "collate": self.has_collate, "sampler": self.has_sampler}
        parts = [(f"`{one}`", name) for (one, is_used), name in zip(used.items(), names, strict=True) if is_used]
        missing, theirs = (" and ".join(texts) for texts in zip(*parts, strict=True))
        return f"# {missing}: where your file has no such name,", f"# take {theirs} of {owner}"

    @property
    def batch(self) -> str:
        """The name or names of a batch."""
        return "inputs, targets" if self.is_pair else "batch"

    @property
    def loss(self) -> str:
        """The Python expression of a batch's loss."""
        if self.is_pair:
            return "loss_fn(model(inputs), targets)"
        if self.layout == "dict" and not self.has_loss:
            return "model(**batch).loss"
        own = "what your training_step returns" if self.framework == "lightning" else "your loss(model, batch)"
        return f"loss_fn(model, batch)  # {own}"

    def arrival(self, device: str, images: tuple[str, ...], *, pinned: bool) -> tuple[str, tuple[str, ...]]:
        """Return the steps from a batch to its loss: a function that the program defines, and statements; or neither.

        It is copied to `device`, "" where no copy is needed. `images` are methods for tensors of four dimensions: all
        others stay as they are, as in a probe.
        """
        # Without waiting only from pinned memory: on MPS others lose data (pytorch#139550).
        copied = f"to({python(device)}{', non_blocking=True' if pinned else ''})" if device else ""
        if self.kind == "script":  # which copies its batches by itself
            return "", ()
        if not copied and not images:
            return "", ()
        if self.is_pair:
            first = (f"inputs, targets = inputs.{copied}, targets.{copied}",) if copied else ()
            last = (f"inputs, targets = [{_converted('x', images)} for x in (inputs, targets)]",) if images else ()
            return "", (*first, *last)
        if self.layout in ("pair", "tensor"):
            name, whole = {"pair": ("x", "type(batch)({} for x in batch)"), "tensor": ("batch", "{}")}[self.layout]
            parts = [f"{name}.{copied}"] * bool(copied) + [_converted(name, images)] * bool(images)
            return "", tuple(f"batch = {whole.format(part)}" for part in parts)
        if copied:
            return _throughout("moved", copied, images, others=f"to({python(device)})"), ("batch = moved(batch)",)
        return _throughout("converted", "", images), ("batch = converted(batch)",)

    def loader(self, options: Mapping[str, str], spread: str = "") -> str:
        """The statement that makes the loader, with options of a DataLoader or an expression of all of them."""
        if self.kind == "batch":
            size = options["batch_size"]
            return f"# make a loader of your data here, of batches of {size}: the study timed a synthetic one alone"
        if self.kind == "script":
            return f"# the loader that your script makes, with {', '.join(_named(options))}"
        if self.kind == "dataloader":
            return self._own_loader(options)
        parts = ["dataset"]
        if self.has_sampler:
            parts.append("sampler=sampler(dataset)")
        elif self.kind == "dataset":
            parts.append("sampler=DistributedSampler(dataset, drop_last=True)" if self.is_sampled else "shuffle=True")
        parts += ["collate_fn=collate"] * self.has_collate
        made = _called("DataLoader", *parts, *([f"**{spread}"] if spread else _named(options)))
        notes = ["# drop_last: a last batch that is short is left out, as it was when measured"] * (
            "drop_last" in options
        )
        notes += self.origin
        if self.layout == "dict" and not self.has_collate:
            notes.append("# if it is a Hugging Face dataset, add collate_fn=transformers.default_data_collator")
        return "\n".join((*notes, f"loader = {made}"))

    def _own_loader(self, options: Mapping[str, str]) -> str:
        names = ("batch_size", "num_workers") if self.takes_workers else ("batch_size",)
        made = f"loader = {_called('dataloader', *_named({name: options[name] for name in names}))}"
        more = ", ".join(_named({name: options[name] for name in OF_A_LOADER if name in options}))
        return f"# it was measured with {more}, if it takes them\n{made}" if more else made


def data_of(facts: TargetFacts | None, target: str = "") -> ExportedData:
    """Return the exported form of the data in `facts`; most targets' for an earlier version, of which nothing is known.

    Of a command nothing more is said: its script makes batches and losses by itself, and was measured as it is.
    """
    if is_command(target):
        return ExportedData(kind="script")
    if facts is None:
        return ExportedData()
    return ExportedData(
        kind=facts.data,
        layout=facts.batch_layout,
        takes_workers=facts.takes_workers,
        has_collate=facts.has_collate,
        has_sampler=facts.has_sampler,
        has_loss=any(one.name == "loss" and not one.inferred for one in facts.check_lines),
        framework=facts.framework,
        own_training=OWN_STEP if "step" in facts.update else TRAINING_STEP * facts.owns_loop,
    )


def _converted(name: str, images: tuple[str, ...]) -> str:
    """The tensor `name` after the methods for images, if it is one."""
    return f"{'.'.join((name, *images))} if {name}.dim() == {IMAGE_DIMENSIONS} else {name}"


def _throughout(name: str, copied: str, images: tuple[str, ...], others: str = "") -> str:
    """A function that does with a batch as a probe does (`targets.batches.move`), and needs no autotune."""
    here = f"batch.{copied}" if copied else "batch"
    tensor = (
        [f"batch = {here}"] * bool(copied) + [f"return {_converted('batch', images)}"] if images else [f"return {here}"]
    )
    return "\n".join(
        [
            f"def {name}(batch):  # in containers of the same types",
            "    if torch.is_tensor(batch):",
            *(f"        {line}" for line in tensor),
            "    if isinstance(batch, (list, tuple)):",
            f"        parts = [{name}(part) for part in batch]",
            '        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)',
            "    if isinstance(batch, Mapping):",
            f"        return type(batch)({{key: {name}(part) for key, part in batch.items()}})",
            f'    return batch.{others} if hasattr(batch, "to") else batch' if others else "    return batch",
        ]
    )


def call(function: str, *parts: str, **arguments: Any) -> str:
    """A call in Python, on one line where it fits. `parts` are arguments in Python, `arguments` are values by name."""
    return _called(function, *parts, *_named({name: python(value) for name, value in arguments.items()}))


def _named(arguments: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in arguments.items()]


def _called(function: str, *parts: str) -> str:
    line = f"{function}({', '.join(parts)})"
    if len(line) <= CODE_WIDTH:
        return line
    return "\n".join([f"{function}(", *(f"    {part}," for part in parts), ")"])
