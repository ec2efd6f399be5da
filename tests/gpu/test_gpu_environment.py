"""NVML and torch must tell the same of the same GPU; run wherever a GPU is at hand."""

from __future__ import annotations

import msgspec
import pytest
import torch

from autotune.core.records import Environment
from autotune.export.torch import Tuned
from autotune.machine.environment import gpus, mismatches, nvml_problem, visible_gpus
from tests.machine.test_environment import here


def measured() -> Environment:
    """The first GPU as torch describes it."""
    gpu = torch.cuda.get_device_properties(0)
    return msgspec.structs.replace(
        here(), device="cuda:0", device_name=gpu.name, device_bytes=gpu.total_memory, cuda=torch.version.cuda
    )


def test_nvml_lists_the_card_that_torch_describes() -> None:
    uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"

    assert nvml_problem() is None
    assert uuid in [gpu.uuid for gpu in gpus()]


def test_a_card_fits_its_own_measurement() -> None:
    assert mismatches(measured()) == ()


@pytest.mark.parametrize("value", ["", "-1"])
def test_hidden_cards_are_not_visible(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)

    assert gpus() != ()
    assert visible_gpus() == ()


def test_a_smaller_card_of_the_same_name_does_not_fit() -> None:
    smaller = msgspec.structs.replace(measured(), device_bytes=measured().device_bytes // 2)

    assert mismatches(smaller) != ()


@pytest.mark.parametrize("amp_dtype", [None, "bfloat16", "float16"])
def test_model_and_batch_meet_on_the_card_in_the_tuned_form(amp_dtype: str | None) -> None:
    tuned = Tuned({"amp_dtype": amp_dtype, "channels_last": True}, device="cuda")
    model = tuned.prepare(torch.nn.Conv2d(3, 8, 3))
    images, _ = tuned.to_device((torch.randn(4, 3, 16, 16), None))

    with tuned.autocast():
        features = model(images)

    assert features.is_cuda
    assert features.is_contiguous(memory_format=torch.channels_last)
    assert features.dtype == getattr(torch, amp_dtype or "float32")
    assert tuned.grad_scaler().is_enabled() == (amp_dtype == "float16")
