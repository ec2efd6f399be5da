"""The heap of this process: malloc says what is in use, and what it keeps."""

import gc

import pytest
import torch

from autotune.machine.heap import held_bytes

SIZE = 50_000  # bytes of one block: too small to be mapped alone, so that malloc keeps it when it is freed


@pytest.fixture(autouse=True)
def glibc():
    if held_bytes() is None:
        pytest.skip("malloc does not tell what it holds: not glibc 2.33 or later")


def test_what_is_handed_out_is_used_and_what_is_freed_before_the_last_is_kept():
    gc.collect()
    before = held_bytes()

    blocks = [torch.ones(SIZE // 4) for _ in range(200)]
    full = held_bytes()
    last = blocks.pop()
    blocks.clear()
    after = held_bytes()

    assert full.used - before.used >= 200 * SIZE
    assert after.used <= full.used - 199 * SIZE
    assert after.kept >= full.kept + 199 * SIZE
    assert last.numel() == SIZE // 4


def test_the_resident_set_has_the_pages_of_files():
    found = held_bytes()

    assert found.resident > found.files > 2**20
