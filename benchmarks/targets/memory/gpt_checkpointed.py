"""The small GPT again, its blocks under activation checkpointing."""

from gpt import Transformer, batch, loss, optimizer

__all__ = ["batch", "loss", "model", "optimizer"]


def model():
    return Transformer(checkpointed=True)
