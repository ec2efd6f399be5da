"""Images of a remote store behind a local cache: a first epoch that waits for the network, and later ones that do not.

    autotune profile examples/remote_store.py

The store is a file system of fsspec that answers after 15 ms, as one in the same region would. `filecache::` before it
keeps every file that was read on the local disk. So does Alluxio, and it is named in the same way: with `alluxiofs`
installed and a cluster running, `fsspec.filesystem("alluxiofs", etcd_hosts=..., target_protocol="s3")` takes the place
of `filecache`. What `autotune profile` says of its epochs is read with an empty cache and then with a full one.
"""

from __future__ import annotations

import functools
import io
import time
from collections.abc import Iterable
from typing import Any

import fsspec
import numpy as np
import torch
from fsspec.implementations.memory import MemoryFileSystem
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import Dataset

LATENCY_SECONDS = 0.015
ROOT = "remote://digits"

baseline = {"batch_size": 32}


class RemoteStore(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Keeps files in memory, and takes as long as a network to give one."""

    protocol = "remote"

    def get_file(self, rpath: str, lpath: Any, **options: Any) -> None:
        """Wait, then copy one file."""
        time.sleep(LATENCY_SECONDS)
        super().get_file(rpath, lpath, **options)


fsspec.register_implementation("remote", RemoteStore, clobber=True)


class RemoteDigits(Dataset[tuple[Tensor, int]]):
    """Items are a float32 image of shape (1, 8, 8), pixels in 0..1, fetched when asked for, and its class 0..9."""

    def __init__(self) -> None:
        _fill()
        self.classes = load_digits().target.tolist()
        self.store = fsspec.filesystem("filecache", target_protocol="remote", cache_storage="TMP")

    def __len__(self) -> int:
        return len(self.classes)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        with self.store.open(f"{ROOT}/{index}.npy", "rb") as opened:
            pixels = np.load(opened)
        return torch.from_numpy(pixels), self.classes[index]


def dataset() -> RemoteDigits:
    return RemoteDigits()


def model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 64, 128), nn.ReLU(), nn.Linear(128, 10)
    )


def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    images, classes = batch
    return nn.functional.cross_entropy(model(images), classes)


def optimizer(params: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(params, lr=0.01, momentum=0.9)


@functools.cache
def _fill() -> None:
    """Write every image into the store, once in this process."""
    store = fsspec.filesystem("remote")
    for index, scan in enumerate(load_digits().images):
        written = io.BytesIO()
        np.save(written, (scan / 16).astype(np.float32).reshape(1, 8, 8))
        store.pipe_file(f"{ROOT}/{index}.npy", written.getvalue())
