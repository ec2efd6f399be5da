"""ViT-S/16 on images that are already in memory: attention and large matrix products on pictures."""

import importlib.util

import torch
from resnet50 import CLASSES, SIDE, SMALL, dataset, loss  # noqa: F401 - agreed names

NEEDS = "timm or torchvision"
PATCH = 16
DEPTH, HEADS, WIDTH = (2, 2, 64) if SMALL else (12, 6, 384)


def model():
    if importlib.util.find_spec("timm"):
        from timm.models.vision_transformer import VisionTransformer

        return VisionTransformer(
            img_size=SIDE, patch_size=PATCH, num_classes=CLASSES, embed_dim=WIDTH, depth=DEPTH, num_heads=HEADS
        )
    from torchvision.models import VisionTransformer

    return VisionTransformer(
        image_size=SIDE, patch_size=PATCH, num_layers=DEPTH, num_heads=HEADS, hidden_dim=WIDTH, mlp_dim=4 * WIDTH,
        num_classes=CLASSES,
    )  # fmt: skip


def optimizer(params):
    return torch.optim.AdamW(params, lr=1e-3, weight_decay=0.05)
