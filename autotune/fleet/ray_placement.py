"""Decides which resources of a Ray cluster one worker gets, and how many workers fit. Imports no Ray.

A worker measures a device, and two probes on one machine disturb each other. So a worker has a GPU with its share of
the node's processors, or, where no GPU is measured, all processors of a node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from autotune.units import counted

Resources = Mapping[str, float]  # of a node, or those that are free in a cluster: by Ray's name, such as CPU and GPU


@dataclass(frozen=True, kw_only=True)
class WorkerResources:
    """What Ray reserves for each worker, and for how many the cluster has room if nobody else uses it."""

    cpus: int
    gpus: int
    room: int

    @property
    def bundle(self) -> dict[str, float]:
        """The resources of one worker, as a placement group takes them."""
        return {name: float(number) for name, number in (("CPU", self.cpus), ("GPU", self.gpus)) if number}

    @property
    def strategy(self) -> Literal["SPREAD", "STRICT_SPREAD"]:
        """One worker on a node where it measures the processors; else as many as there are GPUs, and spread out."""
        return "SPREAD" if self.gpus else "STRICT_SPREAD"

    def free(self, available: Resources) -> int:
        """Return for how many workers there can be room at most, by what is `available` in all of the cluster."""
        return min((int(available.get(name, 0) // number) for name, number in self.bundle.items()), default=0)

    def __str__(self) -> str:
        words = [counted(number, name) for number, name in ((self.gpus, "GPU"), (self.cpus, "CPU")) if number]
        return " and ".join(words)


def worker_resources(nodes: Sequence[Resources], device: str | None, gpus: int = 1) -> WorkerResources:
    """Return the resources of each worker on these nodes; `device`: what the search was told to measure, if anything.

    `gpus`: how many train together in a worker that measures GPUs. A study belongs to one class of machines, so that
    the resources are those on the most common kind of node.
    """
    kinds = [(int(one.get("CPU", 0)), int(one.get("GPU", 0))) for one in nodes]
    on_gpus = any(there for _, there in kinds) if device is None else device in ("cuda", "xpu")
    if on_gpus:
        return _of_gpus([(cpus, there) for cpus, there in kinds if there], gpus)
    return _of_nodes([cpus for cpus, _ in kinds if cpus])


def _of_gpus(kinds: Sequence[tuple[int, int]], each: int) -> WorkerResources:
    workers: Counter[tuple[int, int]] = Counter()
    for kind in kinds:
        workers[kind] += kind[1] // each
    (all_cpus, all_gpus), _ = workers.most_common(1)[0] if workers else ((0, 1), 0)
    cpus = all_cpus * each // all_gpus
    room = sum(min(gpus // each, there // cpus) if cpus else gpus // each for there, gpus in kinds)
    return WorkerResources(cpus=cpus, gpus=each, room=room)


def _of_nodes(cpus: Sequence[int]) -> WorkerResources:
    often = Counter(cpus)
    usual = max(often, key=lambda number: (often[number], number), default=0)
    return WorkerResources(cpus=usual, gpus=0, room=sum(one >= usual for one in cpus))
