"""Counts the bytes of all live tensors, and gives fake tensors answers where code asks for their contents."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from autotune.memory.workspaces import SCRATCH, WORKSPACES

_TOLIST = FakeTensor.tolist
CUDA_BLOCK = 512  # bytes that the caching allocator rounds up to (torch 2.13, c10/cuda/CUDACachingAllocator)


class Ledger(TorchDispatchMode):  # type: ignore[no-untyped-call]  # of torch 2.13
    """A dispatch mode that counts every storage that an operation makes, until it is freed.

    The count equals that of real tensors to the byte, and that of `torch.distributed._tools.MemTracker`
    (docs/notes/memory.md 4), whose module statistics must be reset after every forward pass and which is as private.
    Not covered: memory that a kernel allocates for itself while it runs, except for the kernels in `workspaces.py`.
    """

    def __init__(self, device: str, *, contents: bool = False) -> None:
        """`contents`: the tensors are real, and values that are read from them are true."""
        super().__init__()  # type: ignore[no-untyped-call]  # the same
        self._contents = contents
        self._device = torch.device(device).type
        self._block = CUDA_BLOCK if self._device == "cuda" else 1
        self._alive: set[int] = set()
        self.bytes = 0
        self.peak_bytes = 0

    def __enter__(self) -> Any:
        """Replace `tolist`: torch asks for each element alone, at 90 us each, minutes for a million (measured)."""
        if not self._contents:
            FakeTensor.tolist = _ones  # type: ignore[method-assign, assignment]
        return super().__enter__()  # type: ignore[no-untyped-call]  # of torch 2.13

    def __exit__(self, *raised: object) -> None:
        if not self._contents:
            FakeTensor.tolist = _TOLIST  # type: ignore[method-assign]
        super().__exit__(*raised)  # type: ignore[no-untyped-call]  # of torch 2.13

    def hold(self, tensor: torch.Tensor, most: int | None = None) -> None:
        """Count the storage of `tensor`, or `most` of its bytes, if it lies on the device and is not counted yet."""
        if tensor.device.type != self._device or tensor.layout is not torch.strided:
            return
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._alive:
            return
        size = storage.nbytes() if most is None else min(most, storage.nbytes())
        size = -(-size // self._block) * self._block
        self._make(key, size)
        weakref.finalize(storage, self._free, key, size).atexit = False

    def restart(self) -> None:
        """Begin a new peak with what is alive now."""
        self.peak_bytes = self.bytes

    def _make(self, key: int, size: int) -> None:
        self._alive.add(key)
        self.bytes += size
        self.peak_bytes = max(self.peak_bytes, self.bytes)

    def _free(self, key: int, size: int) -> None:
        self._alive.discard(key)
        self.bytes -= size

    def _use(self, size: int) -> None:
        """Count bytes that an operation had besides its tensors while it ran."""
        self.peak_bytes = max(self.peak_bytes, self.bytes + size)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation, and count the storages that it made.

        `.item()`, `float(loss)` and `if loss > 0` have no answer without contents: they get 1 or True, so that code
        which checks losses and gradients goes on.
        """
        if func is torch.ops.aten._local_scalar_dense.default and not self._contents:
            return _one(args[0].dtype)
        result = func(*args, **(kwargs or {}))
        if func in WORKSPACES:
            result = WORKSPACES[func](result, args)
        for made in tree_iter(result):
            if isinstance(made, torch.Tensor):
                self.hold(made)
        if func in SCRATCH:  # in addition to its results
            self._use(SCRATCH[func](args))
        return result


def _ones(tensor: torch.Tensor) -> Any:
    """Return a list as `tolist` would, with the same answer for every element."""

    def nested(sizes: torch.Size | tuple[int, ...]) -> Any:
        return [nested(sizes[1:]) for _ in range(sizes[0])] if sizes else one

    one = _one(tensor.dtype)
    return nested(tuple(tensor.shape))


def _one(dtype: torch.dtype) -> bool | int | float:
    if dtype is torch.bool:
        return True
    return 1.0 if dtype.is_floating_point else 1
