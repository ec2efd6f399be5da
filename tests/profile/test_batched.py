"""The operations of a loop, taken again alone: they change nothing of the training."""

import pytest
import torch
from torch import distributed, nn
from torch.nn import functional as F  # noqa: N812

from autotune.profile.measuring.batched import MOST_ELEMENTS, Sample

WEIGHT = nn.Parameter(torch.ones(3, 4))


@pytest.mark.parametrize(
    ("func", "arguments"),
    [
        (F.linear, (torch.ones(4), WEIGHT)),
        (F.conv2d, (torch.ones(1, 3, 8, 8), nn.Parameter(torch.ones(2, 3, 3, 3)))),
        (torch.Tensor.__setitem__, (torch.zeros(8, 3), (2, torch.tensor(1)), 1.0)),
        (torch.Tensor.grad.__get__, (WEIGHT,)),
    ],
    ids=["vectors", "images", "a value", "an attribute"],
)
def test_an_operation_of_a_loop_is_taken_again_alone_and_on_everything(func, arguments):
    alone = Sample.of(func, arguments, {}).alone(32)

    assert alone.seconds >= 0
    assert 0 <= alone.joined_share <= 1


def test_among_ranks_nothing_is_taken_again(tmp_path):
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        assert Sample.of(F.linear, (torch.ones(4), WEIGHT), {}) is None
    finally:
        distributed.destroy_process_group()


def test_an_operation_whose_result_grows_with_the_square_of_its_calls_is_not_taken_on_everything():
    vector = torch.ones(300)  # joined, 256 of them would make 44 GiB

    assert Sample.of(torch.outer, (vector, vector), {}).alone(256).joined_share == 0.0


def test_a_call_with_a_generator_of_the_trainings_is_not_taken_again():
    assert Sample.of(torch.rand, (3,), {"generator": torch.Generator()}) is None


def test_what_shapes_do_not_allow_at_once_is_not_left():
    assert Sample.of(torch.matmul, (torch.ones(2, 3), torch.ones(3)), {}).alone(5).joined_share == 0.0


@pytest.mark.parametrize("where", ["arguments", "options", "list"])
def test_what_an_operation_changes_in_place_stays_as_it_is(where):
    parameter = nn.Parameter(torch.ones(3))
    func, arguments, options = {
        "arguments": (torch.Tensor.mul_, (parameter, 2.0), {}),
        "options": (torch.mul, (torch.ones(3), 2.0), {"out": parameter.data}),
        "list": (torch._foreach_mul_, ([parameter.data], 2.0), {}),
    }[where]

    Sample.of(func, arguments, options).alone(4)

    assert parameter.tolist() == [1.0, 1.0, 1.0]


def test_random_operations_leave_the_random_state_as_it_is():
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)

    Sample.of(F.dropout, (torch.ones(4), 0.5), {}).alone(4)

    assert torch.equal(expected, torch.rand(3))


def test_what_needs_gradients_or_is_too_large_is_not_taken_again():
    assert Sample.of(torch.Tensor.retain_grad, (torch.ones(1),), {}).alone(4) is None
    assert Sample.of(torch.neg, (torch.ones(1).expand(MOST_ELEMENTS),), {}) is None
