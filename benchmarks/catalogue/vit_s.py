"""ViT-S/16 on images that are already in memory: attention and large matrix products on pictures."""

import torch
from resnet50 import CLASSES, SIDE, SMALL, dataset, loss  # noqa: F401 - agreed names
from timm.models.vision_transformer import VisionTransformer

NEEDS = "timm", "torchvision"
PATCH = 16
DEPTH, HEADS, WIDTH = (2, 2, 64) if SMALL else (12, 6, 384)


def model():
    return VisionTransformer(
        img_size=SIDE, patch_size=PATCH, num_classes=CLASSES, embed_dim=WIDTH, depth=DEPTH, num_heads=HEADS
    )


def optimizer(params):
    return torch.optim.AdamW(params, lr=1e-3, weight_decay=0.05)
