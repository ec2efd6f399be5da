"""Blocks that are computed again in the backward pass: the same training, with less kept."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from autotune.targets.checkpointing import (
    Checkpointed,
    blocks,
    checkpoint_blocks,
    checkpointable_blocks,
    selective_contexts,
)
from tests.targets_support import DATASET, HEAD, inspect
from tests.worlds import config


class Block(nn.Module):
    """Keeps much, counts batches in two ways, and draws random numbers."""

    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(4, 4, 3, padding=1)
        self.norms = nn.ModuleList([nn.BatchNorm2d(4), nn.BatchNorm2d(4, momentum=None)])
        self.dropout = nn.Dropout(0.3)

    def forward(self, x, *, scale):
        return x + scale * self.dropout(self.norms[1](torch.relu(self.norms[0](self.convolution(x)))))


class Net(nn.Module):
    """Three blocks and a head."""

    def __init__(self, block=Block):
        super().__init__()
        self.blocks, self.head = nn.ModuleList(block() for _ in range(3)), nn.Linear(4, 2)

    def forward(self, x):
        for block in self.blocks:
            x = block(x, scale=torch.tensor(2.0))
        return self.head(x.mean((2, 3)))


POLICIES = ({}, {"every": 2}, {"every": 3}, {"selective": True})


def _pair(**policy):
    torch.manual_seed(0)
    plain = Net()
    return plain, checkpoint_blocks(copy.deepcopy(plain), **policy)


def _trained(model, *, half=False):
    """Losses of two accumulated micro-batches, then gradients and the whole state."""
    torch.manual_seed(1)
    losses = []
    for _ in range(2):
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            loss = model(torch.randn(8, 4, 6, 6)).float().square().mean()
        loss.backward()
        losses.append(loss.detach())
    return [*losses, *(p.grad for p in model.parameters()), *model.state_dict().values()]


def _kept_bytes(model):
    sizes = []

    def keep(tensor):
        sizes.append(tensor.numel() * tensor.element_size())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(torch.randn(8, 4, 6, 6))
    return sum(sizes)


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("half", [False, True])
def test_losses_gradients_and_statistics_are_the_same_to_the_bit(half, policy):
    plain, checkpointed = _pair(**policy)

    expected, found = _trained(plain, half=half), _trained(checkpointed, half=half)

    assert all(map(torch.equal, expected, found))
    assert plain.blocks[0].norms[1].num_batches_tracked == 2


def test_much_less_is_kept_for_the_backward_pass():
    plain, checkpointed = _pair()

    assert _kept_bytes(checkpointed) < 0.5 * _kept_bytes(plain)


@pytest.mark.parametrize(
    ("policy", "treated"),
    [({}, [True] * 3), ({"every": 2}, [True, False, True]), ({"every": 3}, [True, False, False])],
)
def test_only_so_many_blocks_are_recomputed(policy, treated):
    _, checkpointed = _pair(**policy)

    assert [isinstance(block, Checkpointed) for block in checkpointed.blocks] == treated


def _convolutions(model):
    """How often a convolution is computed in a forward and backward pass, its gradients not counted."""
    with FlopCounterMode(display=False) as counted:
        model(torch.randn(8, 4, 6, 6)).sum().backward()
    per = counted.get_flop_counts()["Global"]
    return per[torch.ops.aten.convolution] // (8 * 36 * 4 * 4 * 9 * 2)


@pytest.mark.filterwarnings("ignore:A saved_tensors_hooks context:FutureWarning")  # torch 2.14: of `_kept_bytes`
def test_selectively_the_cheap_is_recomputed_and_the_dear_is_kept():
    plain, selective = _pair(selective=True)
    _, full = _pair()

    assert [_convolutions(model) for model in (plain, selective, full)] == [3, 3, 6]
    assert _kept_bytes(selective) < _kept_bytes(plain)


@pytest.mark.parametrize("every", [0, -1, 1.5, True, "2"])
def test_a_number_of_blocks_that_is_none_is_refused(every):
    with pytest.raises(ValueError, match="every must be a whole number of at least 1"):
        checkpoint_blocks(Net(), every=every)


def test_nothing_is_recomputed_where_nothing_is_trained():
    _, checkpointed = _pair()
    evaluated = copy.deepcopy(checkpointed).eval()

    assert _kept_bytes(evaluated) > 2 * _kept_bytes(checkpointed)
    with torch.no_grad():
        assert not checkpointed(torch.randn(8, 4, 6, 6)).requires_grad


def test_the_state_dict_keeps_its_names():
    plain, checkpointed = _pair()

    assert list(checkpointed.state_dict()) == list(plain.state_dict())


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_trains_its_own_weights(copied, policy):
    plain, checkpointed = _pair(**policy)

    twin = copied(checkpointed)

    assert all(map(torch.equal, _trained(plain), _trained(twin)))
    assert all(parameter.grad is None for parameter in checkpointed.parameters())
    assert type(twin.blocks[0]) is type(checkpointed.blocks[0]) and isinstance(twin.blocks[0], Block)


def test_twice_is_once():
    _, checkpointed = _pair()
    before = type(checkpointed.blocks[0])

    checkpoint_blocks(checkpointed)

    assert type(checkpointed.blocks[0]) is before
    assert len(blocks(checkpointed)) == 3


def test_a_block_that_writes_into_its_input_is_an_error_and_no_wrong_gradient():
    class Writing(nn.Module):
        def __init__(self):
            super().__init__()
            self.inside = nn.Linear(6, 6)

        def forward(self, x, *, scale):
            return self.inside(x.mul_(scale)).sin()

    model = checkpoint_blocks(Net(Writing))

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        model(torch.randn(8, 4, 6, 6).add(1)).sum().backward()


def _stage(*parts):
    return nn.Sequential(*parts)


def _layers(count=2):
    return nn.Sequential(nn.Linear(4, 4), *[nn.ReLU()] * count)


class Mixture(nn.Module):
    """A block with experts inside."""

    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(_layers() for _ in range(2))

    def forward(self, x):
        return sum(expert(x) for expert in self.experts)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (_layers(), []),
        (nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, batch_first=True), 3), ["TransformerEncoderLayer"] * 3),
        (_stage(_stage(Block(), Block()), _stage(Block(), Block()), nn.Linear(4, 2)), ["Block"] * 4),
        (_stage(_layers(), _layers(), nn.Flatten()), ["Sequential"] * 2),
        (_stage(Net(), nn.Linear(2, 2)), ["Block"] * 3),  # not the backbone as a whole
        (nn.ModuleList([Mixture(), Mixture()]), ["Mixture"] * 2),  # not their experts
        (nn.ModuleList([nn.ModuleList([Block(), _layers()])]), ["Block", "Sequential"]),
    ],
    ids=["layers only", "transformer", "stages", "nested", "backbone and head", "experts", "a list of lists"],
)
def test_blocks_are_what_containers_repeat(model, expected):
    assert [type(block).__name__ for block in blocks(model)] == expected
    assert checkpointable_blocks(model) == len(expected)


class Switched(Net):
    """A model that checkpoints by itself, as those of Hugging Face do."""

    supports_gradient_checkpointing = True
    is_gradient_checkpointing = False

    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs):
        assert gradient_checkpointing_kwargs == {"use_reentrant": False}
        self.is_gradient_checkpointing = True


def test_a_model_with_a_switch_of_its_own_is_switched_and_left_alone():
    model = nn.Sequential(Switched(), nn.Sequential(_layers(), _layers()))

    checkpoint_blocks(model)

    assert model[0].is_gradient_checkpointing
    assert not any(isinstance(block, Checkpointed) for block in model[0].blocks)
    assert all(isinstance(block, Checkpointed) for block in model[1])


class GradientCheckpointingLayer(nn.Linear):
    """A layer as transformers has them from 4.53 on."""

    gradient_checkpointing = True


class Layered(Switched):
    """A model of such layers, whose switch remembers what it was asked."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(GradientCheckpointingLayer(2, 2) for _ in range(5))

    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs):
        self.asked = gradient_checkpointing_kwargs


def test_of_a_model_with_a_switch_every_second_layer_is_left_on():
    model = checkpoint_blocks(Layered(), every=2)

    assert [layer.gradient_checkpointing for layer in model.layers] == [True, False, True, False, True]
    assert model.asked == {"use_reentrant": False}


def test_of_a_model_with_a_switch_the_dear_is_kept():
    model = checkpoint_blocks(Layered(), selective=True)

    assert model.asked == {"use_reentrant": False, "context_fn": selective_contexts}
    assert all(layer.gradient_checkpointing for layer in model.layers)


def test_an_old_switch_that_knows_all_or_nothing_refuses_a_part():
    with pytest.raises(ValueError, match="recomputes all of its blocks or none"):
        checkpoint_blocks(Switched(), every=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "on"), [({}, [True] * 4), ({"every": 2}, [True, False] * 2), ({"selective": True}, [True] * 4)], ids=str
)
def test_a_model_of_transformers_trains_alike_with_every_policy(policy, on):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    small = transformers.GPT2Config(vocab_size=50, n_positions=16, n_embd=32, n_layer=4, n_head=2)
    plain = transformers.GPT2LMHeadModel(small).train()
    recomputing = checkpoint_blocks(copy.deepcopy(plain), **policy)
    tokens = torch.randint(50, (4, 16))

    def trained(model):
        torch.manual_seed(1)  # of its dropout
        loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        return [loss.detach(), *(parameter.grad for parameter in model.parameters())]

    assert all(map(torch.equal, trained(plain), trained(recomputing)))
    assert [layer.gradient_checkpointing for layer in recomputing.transformer.h] == on


class Renamed(Switched):
    """The same since transformers 5.23, whose old names warn and go in version 6."""

    is_activation_checkpointing = False

    def activation_checkpointing_enable(self, activation_checkpointing_kwargs):
        assert activation_checkpointing_kwargs == {"use_reentrant": False}
        self.is_activation_checkpointing = True

    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs):
        raise AssertionError("the old name was used")


def test_a_switch_is_called_by_its_newer_name():
    model = Renamed()
    assert checkpointable_blocks(model) == 3

    checkpoint_blocks(model)

    assert model.is_activation_checkpointing
    assert checkpointable_blocks(model) == 0


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_scripted_blocks_are_no_blocks():
    block = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))

    assert checkpointable_blocks(nn.Sequential(block, nn.Linear(4, 4))) == 0


def test_nothing_is_offered_where_the_model_checkpoints_already():
    model = Switched()
    assert checkpointable_blocks(model) == 3

    model.is_gradient_checkpointing = True

    assert checkpointable_blocks(model) == 0


@pytest.mark.parametrize("baseline", [False, True])
def test_inspection_counts_the_blocks_as_the_user_built_them(tmp_path, baseline):
    text = HEAD + DATASET + (
        "class Switch(nn.Sequential):\n"
        "    supports_gradient_checkpointing, is_gradient_checkpointing = True, False\n"
        "    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs):\n"
        "        self.is_gradient_checkpointing = True\n"
        "def block(): return nn.Sequential(nn.Linear(4, 4), nn.ReLU())\n"
        "def model(): return Switch(block(), block(), nn.Linear(4, 2))\n"
    )  # fmt: skip

    found = inspect(tmp_path, text, config(activation_checkpointing=baseline))

    assert found.checkpointable_blocks == 2


def test_nothing_is_offered_where_the_users_code_has_called_it_already():
    _, checkpointed = _pair()

    assert checkpointable_blocks(checkpointed) == 0
