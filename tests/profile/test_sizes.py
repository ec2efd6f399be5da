"""Products that a slightly larger weight makes faster: which are seen, which are timed, and what is told."""

import time
from collections import Counter

import pytest
import torch
from torch import nn

from autotune.profile.advice import seen
from autotune.profile.measuring import sizes
from autotune.profile.measuring.sizes import Product, Products

WHOLE = Product(7, 32, 64, torch.float32)
ODD = Product(7, 30, 50_257, torch.float32)


def test_the_weight_is_rounded_up_and_the_batch_is_not():
    assert ODD.larger(8) == Product(7, 32, 50_264, torch.float32)
    assert ODD.larger(64) == Product(7, 64, 50_304, torch.float32)
    assert WHOLE.larger(8) == WHOLE


def _counted(*, calls=1):
    """What was counted in a step of a layer of 30 x 10, with its backward pass."""
    part = ["forward"]
    layer, samples = nn.Linear(30, 10), torch.randn(7, 30)
    products = Products([layer], lambda: part[0])
    with products:
        loss = sum(layer(samples).sum() for _ in range(calls))
        part[0] = "backward"
        loss.backward()
    return products


def test_products_of_the_forward_pass_are_counted_with_their_line():
    (((line, product), count),) = _counted(calls=2).counts.items()

    assert (product, count) == (Product(7, 30, 10, torch.float32), 2)
    assert "layer(samples)" in line.text


@pytest.mark.parametrize(
    ("work", "found"),
    [
        (lambda model, x: nn.functional.linear(x, model[0].weight), [True]),
        (lambda model, x: torch.addmm(torch.zeros(10), x, model[1].weight), [False]),
        (lambda model, x: x @ torch.randn(30, 12), []),  # no weight of the model: a size of the data
        (lambda model, x: torch.eye(7).to_sparse() @ x, []),
    ],
    ids=["without a bias", "stored the other way", "of two batches", "sparse"],
)
def test_only_products_with_a_weight_of_the_model_count(work, found):
    model = nn.ModuleList([nn.Linear(30, 10), nn.Linear(10, 30)])
    products = Products([model], lambda: "forward")
    with products:
        work(model, torch.randn(7, 30))

    assert [product.is_transposed for _, product in products.counts] == found


def test_a_product_that_no_line_of_the_users_asks_for_is_told_without_one(kernels):
    kernels(whole=0.01, odd=0.03)
    products = _counted()
    products.counts = Counter({(None, product): count for (_, product), count in products.counts.items()})

    (found,) = products.slower_than_larger(flops=1, step_seconds=1e-9, device="cpu")

    assert (found.place, found.code) == ("", "")


@pytest.fixture
def kernels(monkeypatch):
    """A device whose products take the given seconds where the weight is, or is not, in multiples of 8."""

    def install(whole, odd):
        def training(product, device):
            return lambda: time.sleep(whole if product == product.larger(8) else odd)

        monkeypatch.setattr(sizes, "_training", training)

    return install


def test_a_larger_weight_that_is_faster_is_told_with_what_it_saves(kernels):
    kernels(whole=0.01, odd=0.03)

    (found,) = _counted(calls=2).slower_than_larger(flops=3 * 2 * 2 * 7 * 30 * 10, step_seconds=0.008, device="cpu")

    assert found.kind == "sizes" and found.count == 2
    assert 0.3 * 2 * 0.02 < found.seconds < 4 * 2 * 0.02
    assert "a weight of 32 × 16 instead of 30 × 10 would be faster, 2 times a step" in seen(found)


def _timed(monkeypatch, **seconds):
    """Products whose two weights, `of_30_and_32` rows and so on, take those seconds when they are timed in turn."""
    monkeypatch.setattr(
        sizes,
        "_in_turn",
        lambda one, other, device: [*seconds[f"of_{one.inner}_and_{other.inner}"]] * sizes.SIZE_ROUNDS,
    )


def test_the_largest_weight_has_to_be_faster_than_the_one_between(monkeypatch):
    by_chance = (0.03, 0.019)  # other work came between the products of 30 rows and those of 64
    _timed(monkeypatch, of_30_and_32=(0.03, 0.02), of_32_and_64=(0.02, 0.02), of_30_and_64=by_chance)

    found, gained = sizes.faster_larger(Product(7, 30, 10, torch.float32), "cpu", 0.03)

    assert found is not None and (found.inner, gained) == (32, pytest.approx(0.01))


def test_what_the_largest_weight_saves_beside_the_one_between_is_added(monkeypatch):
    _timed(monkeypatch, of_30_and_32=(0.03, 0.02), of_32_and_64=(0.02, 0.01))

    found, gained = sizes.faster_larger(Product(7, 30, 10, torch.float32), "cpu", 0.03)

    assert found is not None and (found.inner, gained) == (64, pytest.approx(0.02))


def test_where_the_one_between_is_no_faster_the_largest_is_held_against_the_weight_as_it_is(monkeypatch):
    _timed(monkeypatch, of_30_and_32=(0.03, 0.03), of_30_and_64=(0.03, 0.02))

    found, gained = sizes.faster_larger(Product(7, 30, 10, torch.float32), "cpu", 0.03)

    assert found is not None and (found.inner, gained) == (64, pytest.approx(0.01))


def test_where_both_multiples_give_one_size_it_is_timed_once(monkeypatch):
    timed = []
    monkeypatch.setattr(
        sizes, "_in_turn", lambda one, other, device: timed.append(other) or [0.03, 0.02] * sizes.SIZE_ROUNDS
    )

    sizes.faster_larger(Product(7, 63, 63, torch.float32), "cpu", 0.03)

    assert timed == [Product(7, 64, 64, torch.float32)]


def test_one_that_is_no_faster_is_not_told(kernels):
    kernels(whole=0.003, odd=0.003)

    assert _counted().slower_than_larger(flops=1, step_seconds=1e-9, device="cpu") == []


def test_what_cannot_be_worth_a_hundredth_of_a_step_is_not_even_timed(kernels):
    kernels(whole=0.0, odd=60.0)

    assert _counted().slower_than_larger(flops=1000 * 3 * 2 * 7 * 30 * 10, step_seconds=1.0, device="cpu") == []


def test_products_are_timed_for_real_on_this_device():
    seconds = sizes._in_turn(Product(64, 33, 17, torch.float32), Product(64, 40, 24, torch.float32), "cpu")

    assert len(seconds) >= 12 and all(one > 0 for one in seconds)


def test_of_a_product_that_memory_would_not_hold_some_rows_are_timed_and_the_rest_is_like_them(kernels):
    kernels(whole=0.01, odd=0.03)
    head = Product(2**20, 63, 50_257, torch.float32)

    other, seconds = sizes.faster_larger(head, "cpu", 1e-6)

    rows = head.larger(64).most_rows(1e-6)
    assert 0 < rows < head.rows
    assert other is not None and other.rows == head.rows
    assert 0.3 < seconds / (0.02 * head.rows / rows) < 4


def test_a_weight_that_is_too_large_for_that_is_not_timed(kernels):
    kernels(whole=0.0, odd=60.0)

    assert sizes.faster_larger(Product(8, 2**20 - 1, 1023, torch.float32), "cpu", 0.1) == (None, 0.0)


def test_timing_draws_nothing_from_the_random_generator_of_the_training():
    before = torch.get_rng_state()

    sizes._in_turn(Product(4, 3, 5, torch.float32), Product(4, 8, 8, torch.float32), "cpu")

    assert torch.equal(torch.get_rng_state(), before)


def test_of_a_slow_product_so_many_rows_are_timed_as_patience_allows():
    head = Product(4096, 768, 50_257, torch.float32)

    assert head.most_rows(seconds=14.0) == 0  # of 12 rows little could be said
    assert 64 <= head.most_rows(seconds=2.0) < 100
    assert head.most_rows(seconds=0.04) < 4096  # by memory
