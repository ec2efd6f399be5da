"""The implementations of an optimizer's update, and the arguments by which optimizers of torch.optim are asked."""

from __future__ import annotations

from typing import Any

FOR_LOOP, FOREACH, FUSED = "for-loop", "foreach", "fused"  # as torchtitan names them
LEFT_TO_TORCH = "default"  # what an optimizer says that asks for none of them
ARGUMENTS = ("foreach", "fused")
OPTIONS: dict[str, dict[str, Any]] = {  # torch 2.13, `_foreach_doc` and `_fused_doc`
    FOR_LOOP: {"foreach": False},
    FOREACH: {"foreach": True},
    FUSED: {"fused": True},
}
