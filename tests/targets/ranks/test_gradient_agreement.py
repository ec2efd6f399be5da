"""The checksum by which ranks compare tensors."""

import pytest
import torch

from autotune.targets.ranks.gradient_agreement import tensor_checksum


def _drawn(seed: int, count: int) -> torch.Tensor:
    torch.manual_seed(seed)
    return torch.randperm(count)


@pytest.mark.parametrize("count", [2, 10, 100, 1000])
def test_the_same_values_in_another_order_are_other_values(count: int) -> None:
    first = _drawn(0, count)
    other = next(one for one in (_drawn(seed, count) for seed in range(1, 20)) if not torch.equal(one, first))

    assert tensor_checksum(first) != tensor_checksum(other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8, torch.bool, torch.complex64])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (64,), (5, 40)])
def test_equal_tensors_are_equal_however_they_lie_in_memory(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    one = torch.randn(shape).to(dtype)
    other = one.t().contiguous().t() if one.dim() == 2 else one.clone()

    assert tensor_checksum(one) == tensor_checksum(other)
    if one.numel():
        assert tensor_checksum(one) != tensor_checksum(torch.logical_not(one).to(dtype))


def test_opposite_changes_of_two_classes_are_seen_whatever_the_scales_of_both():
    """The bits of 0.6 move twice as far as those of 1.2: their sum with the weights 1 and 2 stays the same."""
    step = 2.0**-24
    for scale in (0.3, 0.6, 1.2):
        before, after = torch.tensor([0.6, scale]), torch.tensor([0.6 + 8 * step, scale - 8 * step])

        assert tensor_checksum(before) != tensor_checksum(after)
