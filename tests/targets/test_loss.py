"""The loss is inferred where exactly one reading fits, and asked for everywhere else."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from autotune.errors import TargetError
from autotune.targets.loss import InferredLoss, checked_loss, choose_loss

GENERATOR = torch.Generator().manual_seed(0)


def floats(*shape: int) -> Tensor:
    return torch.randn(shape, generator=GENERATOR)


def classes(most: int, *shape: int) -> Tensor:
    return torch.randint(most, shape, generator=GENERATOR)


@pytest.mark.parametrize(
    ("output", "target"),
    [
        (floats(4, 10), classes(10, 4)),
        (floats(4, 4), classes(4, 4)),  # one dimension is second and last at once: nothing to confuse
        (floats(4, 10), classes(10, 4).to(torch.int32)),
        (floats(4, 10), classes(10, 4).to(torch.uint8)),
        (floats(2, 3, 5, 6), classes(3, 2, 5, 6)),  # segmentation
        (floats(2, 3, 7), classes(3, 2, 7)),
    ],
)
def test_integer_targets_mean_cross_entropy_with_classes_in_dimension_one(output: Tensor, target: Tensor) -> None:
    name, loss = choose_loss(output, target)

    assert name == "cross_entropy"
    torch.testing.assert_close(loss(output, target), F.cross_entropy(output, target.long()))


def test_classes_in_the_last_dimension_are_recognised_too() -> None:
    output, target = floats(2, 7, 11), classes(11, 2, 7)  # a language model

    name, loss = choose_loss(output, target)

    assert name == "cross_entropy over the last dimension"
    torch.testing.assert_close(loss(output, target), F.cross_entropy(output.transpose(1, 2), target))


def test_ignored_targets_stay_ignored() -> None:
    output, target = floats(2, 7, 11), torch.full((2, 7), -100)
    target[0, 0] = 3

    _, loss = choose_loss(output, target)

    torch.testing.assert_close(loss(output, target), -output[0, 0].log_softmax(0)[3])


def test_floating_targets_of_the_same_shape_mean_squared_error() -> None:
    output, target = floats(4, 3), floats(4, 3)

    name, loss = choose_loss(output, target)

    assert name == "mse_loss"
    torch.testing.assert_close(loss(output, target), (output - target).square().mean())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool])
def test_targets_of_zeros_and_ones_mean_binary_cross_entropy(dtype: torch.dtype) -> None:
    output, target = floats(4, 3), (floats(4, 3) > 0).to(dtype)

    name, loss = choose_loss(output, target)

    assert name == "binary_cross_entropy_with_logits"
    torch.testing.assert_close(loss(output, target), F.binary_cross_entropy_with_logits(output, target.float()))


def test_classes_that_fit_two_ways_are_refused() -> None:
    with pytest.raises(TargetError, match=r"fits two ways for output \(2, 6, 6\) and target \(2, 6\)"):
        choose_loss(nn.Conv1d(4, 6, 1)(floats(2, 4, 6)), classes(6, 2, 6))


@pytest.mark.parametrize(
    ("output", "target"),
    [
        (floats(4, 1), floats(4)),  # the broadcast to (4, 4) that trains nonsense
        (floats(4, 3), classes(2, 4, 3)),
        (floats(2, 3, 5), classes(3, 2, 4)),
        (floats(4, 3), floats(3, 4)),
    ],
)
def test_what_fits_nothing_is_asked_for(output: Tensor, target: Tensor) -> None:
    with pytest.raises(TargetError, match=r"no loss fits .* write loss\(model, batch\)"):
        choose_loss(output, target)


def test_a_model_that_returns_no_tensor_is_asked_for() -> None:
    with pytest.raises(TargetError, match="the model returned a tuple"):
        InferredLoss()(lambda x: (x, x), (floats(4, 3), floats(4, 3)))


@pytest.mark.parametrize(
    ("batch", "found"),
    [
        (floats(4, 3), "batch is a Tensor"),
        ((floats(4, 3),), "batch is a tuple of 1 item"),
        ([{"x": floats(4, 3)}, floats(4)], r"batch is a list of \(dict, Tensor\)"),
    ],
)
def test_batches_of_another_form_are_asked_for(batch: object, found: str) -> None:
    with pytest.raises(TargetError, match=rf"{found}.*\(inputs, target\).*Write loss\(model, batch\)"):
        InferredLoss()(lambda x: x, batch)


def test_a_dictionary_goes_to_a_model_that_has_a_loss_of_its_own() -> None:
    class Output:
        loss = torch.tensor(2.0)

    loss = InferredLoss()

    assert loss(lambda ids, labels: Output(), {"ids": floats(1), "labels": floats(1)}) == 2.0
    assert loss(lambda ids, labels: {"loss": 3.0}, {"ids": floats(1), "labels": floats(1)}) == 3.0
    assert loss.explanation == "the model's own .loss, inferred from a batch with ids, labels"


def test_the_choice_of_the_first_batch_is_kept() -> None:
    loss = InferredLoss()
    zeros = torch.zeros(4, 3)
    loss(lambda x: x, (floats(4, 3), floats(4, 3)))

    value = loss(lambda x: x, (zeros + 2, zeros))

    assert value == 4.0  # squared error; zeros alone would have looked like binary classes
    assert loss.explanation.startswith("mse_loss, inferred from output (4, 3) and target float32 (4, 3)")


def test_a_loss_of_one_element_counts_as_scalar() -> None:
    loss = checked_loss(torch.ones(1, requires_grad=True), training=True)

    assert loss.shape == ()


def test_validation_needs_no_gradient() -> None:
    assert checked_loss(torch.tensor(1.0), training=False) == 1.0
