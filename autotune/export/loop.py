"""The recommendation as a plain PyTorch loop that needs no autotune."""

from __future__ import annotations

from autotune.export.recipe import OPTIMIZER, Recipe, loader, program


def text(found: Recipe) -> str:
    """Python about `model`, `dataset`, `loss_fn` and `optimizer`; batches are pairs of tensors."""
    return program(
        found,
        ("from torch.utils.data import DataLoader",),
        f'model = model.to("{found.device}")',
        *found.model,
        loader(found),
        f'scaler = torch.amp.GradScaler("{found.device}")' * found.scaler,
        OPTIMIZER,
        "for step, (images, labels) in enumerate(loader, 1):",
        *(f"    {line}" for line in _step(found)),
    )


def _step(found: Recipe) -> tuple[str, ...]:
    """One micro-batch; every so many of them the optimizer's turn."""
    device, steps = found.device, found.accumulation_steps
    forward = "loss = loss_fn(model(images), labels)"
    scaled = f"loss / {steps}" if steps > 1 else "loss"
    update = ("scaler.step(optimizer)", "scaler.update()") if found.scaler else ("optimizer.step()",)
    update = (*update, "optimizer.zero_grad()")
    return (
        f'images, labels = images.to("{device}", non_blocking=True), labels.to("{device}", non_blocking=True)',
        *found.batch,
        *((f"with {', '.join(found.contexts)}:", f"    {forward}") if found.contexts else (forward,)),
        f"{f'scaler.scale({scaled})' if found.scaler else f'({scaled})' if steps > 1 else scaled}.backward()",
        *((f"if step % {steps} == 0:", *(f"    {line}" for line in update)) if steps > 1 else update),
    )
