"""The operations of known models, counted, against the closed formula: forward and backward pass, exactly.

A product of (m, k) and (k, n) takes 2mkn; the backward pass takes two such products for each, but one where the input
needs no gradient. Embeddings, norms, activations and what is added take none. Attention is counted whole, also where
half of it is masked.
"""

import os

import pytest
import torch
from torch import nn

from autotune.profile.measuring.flops import operations_counted
from autotune.profile.measuring.traffic import Traffic

BATCH, TOKENS, WIDTH, LAYERS, WORDS, INNER, HEADS = 2, 16, 32, 3, 100, 64, 4
IDS = torch.randint(WORDS, (BATCH, TOKENS), generator=torch.Generator().manual_seed(0))
SIZES = {"num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "hidden_size": WIDTH, "intermediate_size": INNER}


@pytest.fixture(scope="module")
def transformers():
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    return pytest.importorskip("transformers")


def flops(model, **batch):
    with operations_counted("cpu") as counter:
        model.train()(**batch).loss.backward()
    return counter.get_total_flops()


def encoder(tokens, projections, mlp):
    """Forward pass of all layers: projections of attention, its two products, and the perceptron."""
    linear = 2 * BATCH * tokens * WIDTH * (projections + mlp)
    return LAYERS * (linear + 2 * (2 * BATCH * tokens * tokens * WIDTH))


def test_bert_takes_what_its_formula_says(transformers):
    model = transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=WORDS, **SIZES))

    head = 2 * BATCH * TOKENS * WIDTH * (WIDTH + WORDS)
    assert flops(model, input_ids=IDS, labels=IDS) == 3 * (encoder(TOKENS, 4 * WIDTH, 2 * INNER) + head)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_gpt2_takes_what_its_formula_says(transformers, attention):
    config = transformers.GPT2Config(
        vocab_size=WORDS, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, n_positions=TOKENS, bos_token_id=0,
        eos_token_id=0, attn_implementation=attention,
    )  # fmt: skip

    model = transformers.GPT2LMHeadModel(config)

    head = 2 * BATCH * TOKENS * WIDTH * WORDS
    assert flops(model, input_ids=IDS, labels=IDS) == 3 * (encoder(TOKENS, 4 * WIDTH, 2 * 4 * WIDTH) + head)


def test_llama_with_fewer_heads_for_keys_takes_what_its_formula_says(transformers):
    config = transformers.LlamaConfig(vocab_size=WORDS, num_key_value_heads=HEADS // 2, **SIZES)

    model = transformers.LlamaForCausalLM(config)

    projections = 2 * WIDTH + 2 * WIDTH // 2  # queries and output; keys and values of half the heads
    head = 2 * BATCH * TOKENS * WIDTH * WORDS
    assert flops(model, input_ids=IDS, labels=IDS) == 3 * (encoder(TOKENS, projections, 3 * INNER) + head)


def test_a_vision_transformer_takes_what_its_formula_says(transformers):
    config = transformers.ViTConfig(image_size=32, patch_size=8, num_labels=10, **SIZES)

    model = transformers.ViTForImageClassification(config)

    patches = 2 * BATCH * 16 * (3 * 8 * 8) * WIDTH
    rest = encoder(16 + 1, 4 * WIDTH, 2 * INNER) + 2 * BATCH * WIDTH * 10
    images = torch.randn(BATCH, 3, 32, 32)
    assert flops(model, pixel_values=images, labels=torch.tensor([1, 2])) == 2 * patches + 3 * rest


# Of ResNet-18 on 64 x 64 pixels: how often, channels in and out, kernel, and pixels of the output's side.
STEM = (1, 3, 64, 7, 32)
BLOCKS = (
    (4, 64, 64, 3, 16),
    (1, 64, 128, 3, 8), (1, 64, 128, 1, 8), (3, 128, 128, 3, 8),
    (1, 128, 256, 3, 4), (1, 128, 256, 1, 4), (3, 256, 256, 3, 4),
    (1, 256, 512, 3, 2), (1, 256, 512, 1, 2), (3, 512, 512, 3, 2),
)  # fmt: skip


def convolutions(*layers, groups=1):
    return sum(
        often * 2 * BATCH * made * side * side * (given // groups) * kernel * kernel
        for often, given, made, kernel, side in layers
    )


class Block(nn.Module):
    def __init__(self, given, made, stride):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(given, made, 3, stride, 1, bias=False), nn.BatchNorm2d(made), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(made, made, 3, 1, 1, bias=False), nn.BatchNorm2d(made))
        self.short = nn.Conv2d(given, made, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x):
        return torch.relu(self.second(self.first(x)) + self.short(x))


class ResNet18(nn.Module):
    def __init__(self):
        super().__init__()
        widths = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1)]
        widths += [(128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1)]
        self.layers = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
            *(Block(*one) for one in widths), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10),
        )  # fmt: skip

    def forward(self, x):
        return self.layers(x)


def test_resnet_18_takes_what_its_formula_says():
    model, images = ResNet18(), torch.randn(BATCH, 3, 64, 64)

    with operations_counted("cpu") as counter:
        model(images).sum().backward()

    head = 2 * BATCH * 512 * 10
    assert counter.get_total_flops() == 2 * convolutions(STEM) + 3 * (convolutions(*BLOCKS) + head)


def test_the_resnet_18_of_transformers_takes_the_same(transformers):
    config = transformers.ResNetConfig(
        embedding_size=64, hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic", num_labels=10
    )

    model = transformers.ResNetForImageClassification(config)

    images = torch.randn(BATCH, 3, 64, 64)
    expected = 2 * convolutions(STEM) + 3 * (convolutions(*BLOCKS) + 2 * BATCH * 512 * 10)
    assert flops(model, pixel_values=images, labels=torch.tensor([1, 2])) == expected


def test_bytes_are_those_that_operations_read_and_write_and_views_move_none():
    a, b = torch.randn(64, 32), torch.randn(32, 16)

    with Traffic() as traffic:
        a.view(32, 64).t()
        a @ b

    assert (traffic.calls, traffic.bytes) == (1, 4 * (64 * 32 + 32 * 16 + 64 * 16))


@pytest.mark.parametrize(("given", "groups", "stride"), [(4, 1, 1), (4, 1, 2), (8, 4, 2), (8, 8, 1)])
def test_a_convolution_of_groups_takes_a_share_of_each_pass(given, groups, stride):
    layer = nn.Conv2d(given, 8, 3, stride, 1, groups=groups)

    with operations_counted("cpu") as counter:
        layer(torch.randn(BATCH, given, 8, 8, requires_grad=True)).sum().backward()

    assert counter.get_total_flops() == 3 * convolutions((1, given, 8, 3, 8 // stride), groups=groups)


@pytest.mark.parametrize("groups", [1, 4])
def test_a_transposed_convolution_takes_its_kernel_for_each_pixel_that_it_is_given(groups):
    layer = nn.ConvTranspose2d(8, 4, 3, 2, groups=groups)

    with operations_counted("cpu") as counter:
        layer(torch.randn(BATCH, 8, 6, 6, requires_grad=True)).sum().backward()

    assert counter.get_total_flops() == 3 * (2 * BATCH * 6 * 6 * 8 * (4 // groups) * 9)
