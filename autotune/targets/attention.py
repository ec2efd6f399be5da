"""Finds the attention kernels that a model can use, from its calls of `scaled_dot_product_attention` in one step."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from autotune.knobs.sdpa_backend import KERNELS
from autotune.targets.switches import enabled

BACKENDS = {name: getattr(SDPBackend, one.backend) for name, one in KERNELS.items()}
DTYPES = ("float32", "bfloat16", "float16")  # of a call without autocast, and with it
_CALL = torch.nn.functional.scaled_dot_product_attention
_NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")


class Attention(TorchFunctionMode):
    """A mode that notes the calls of this thread, and asks torch about their shapes without computing."""

    def __init__(self) -> None:
        super().__init__()
        self._is_restricted = False  # the user's code has disabled kernels
        self._usable: dict[str, set[str]] = {}
        self._chosen: dict[str, set[str]] = {}
        self._known: set[str] = set()

    def __enter__(self) -> Self:
        """Begin to watch. Inside Python functions of torch the mode is off: they look the function up by name."""
        torch.nn.functional.scaled_dot_product_attention = self._called
        super().__enter__()  # type: ignore[no-untyped-call]  # torch 2.13
        return self

    def __exit__(self, *ended: Any) -> None:
        """End watching, and put torch's function back."""
        super().__exit__(*ended)  # type: ignore[no-untyped-call]  # torch 2.13
        torch.nn.functional.scaled_dot_product_attention = _CALL

    def _called(self, *args: Any, **kwargs: Any) -> Any:
        self._look({**dict(zip(_NAMES, args, strict=False)), **kwargs})
        return _CALL(*args, **kwargs)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note the shapes of the call's tensors, and carry the call out."""
        if func is _CALL:
            self._look({**dict(zip(_NAMES, args, strict=False)), **(kwargs or {})})
        return func(*args, **(kwargs or {}))

    @property
    def was_called(self) -> bool:
        """Whether any call of `scaled_dot_product_attention` was seen."""
        return bool(self._known)

    def found(self) -> dict[str, tuple[str, ...]]:
        """Return, by dtype, the kernels that can take every call, without one that torch chooses for all calls anyway.

        Empty if the user's code has disabled some kernels: then it has made the choice.
        """
        if self._is_restricted:
            return {}
        return {
            dtype: tuple(name for name in BACKENDS if name in usable and {name} != self._chosen[dtype])
            for dtype, usable in self._usable.items()
        }

    def _look(self, call: dict[str, Any]) -> None:
        signature = repr([_described(value) for value in call.values()])
        if signature in self._known:
            return
        self._known.add(signature)
        self._is_restricted |= len(enabled()) < len(KERNELS)
        for dtype in DTYPES:
            asked = {name: _of_dtype(value, dtype) for name, value in call.items()}
            usable = {name for name, backend in BACKENDS.items() if _choice(asked, backend) == backend.value}
            self._usable[dtype] = self._usable.get(dtype, usable) & usable
            chosen = _choice(asked, None)
            names = {name for name, backend in BACKENDS.items() if backend.value == chosen} or {"math"}
            self._chosen.setdefault(dtype, set()).update(names)


def _choice(call: Mapping[str, Any], backend: SDPBackend | None) -> int | None:
    """Return torch's choice for the call, by number, if only `backend` is enabled; None if that cannot take it."""
    with torch._C.DisableTorchFunction(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns why each kernel was not taken
        try:
            if backend is None:
                return int(torch._fused_sdp_choice(**call))
            with sdpa_kernel(backend):
                return int(torch._fused_sdp_choice(**call))
        except (RuntimeError, TypeError):
            return None


def _of_dtype(value: Any, dtype: str) -> Any:
    """Return an empty tensor like this with the dtype that autocast gives attention; other values unchanged."""
    if not isinstance(value, Tensor):
        return value
    floats = value.dtype == torch.float32
    like = torch.empty_like(value, dtype=getattr(torch, dtype) if floats else None)
    return like.requires_grad_(value.requires_grad)


def _described(value: Any) -> Any:
    return (
        (tuple(value.shape), value.stride(), value.dtype, value.requires_grad) if isinstance(value, Tensor) else value
    )
