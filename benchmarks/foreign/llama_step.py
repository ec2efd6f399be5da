"""A Llama-like model from its config, trained by a step of its own that clips as many tutorials do."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

baseline = {"batch_size": 8}
total = {"loss": 0.0}


def model():
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=1000, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2,
        )
    )  # fmt: skip


def dataset():
    return [
        {"input_ids": ids, "labels": ids}
        for ids in torch.randint(1000, (256, 64), generator=torch.Generator().manual_seed(0))
    ]


def optimizer(params):
    return torch.optim.AdamW(params, lr=3e-4)


def step(model, batch, optimizers):
    (optimizer,) = optimizers
    loss = model(**batch).loss
    optimizer.zero_grad(set_to_none=False)
    optimizer.backward(loss)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    total["loss"] += loss.item()
    return loss.detach()
