"""Paired losses on a real CUDA device: the masks of dropout there are what docs/notes/precision.md 2 left open."""

import pytest

from autotune.launch.subprocess import SubprocessLauncher
from autotune.precision.judge import judge
from autotune.precision.records import PrecisionCheckRequest
from tests.worlds import config

TARGET = """
import torch
from torch import nn

def model():
    body = nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.GELU(), nn.Conv2d(32, 32, 3, stride=2), nn.GELU()
    return nn.Sequential(*body, nn.Flatten(), nn.Dropout(DROPOUT), nn.Linear(288, 4))

def dataset():
    draws = torch.Generator().manual_seed(7)
    labels = torch.randint(4, (2048,), generator=draws)
    centres = torch.randn(4, 1, 8, 8, generator=draws)
    return torch.utils.data.TensorDataset(
        0.3 * centres[labels] + torch.randn(2048, 1, 8, 8, generator=draws), labels
    )

def optimizer(params): return torch.optim.SGD(params, lr=0.01, momentum=0.9)
"""


def _compared(place, dtype, text):
    target = place / "model.py"
    target.write_text(text)
    folder = place / "0000"
    folder.mkdir()
    request = PrecisionCheckRequest(
        target=str(target),
        reference=config(batch_size=32),
        candidate=config(batch_size=32, amp_dtype=dtype),
        device="cuda:0",
    )
    return request, SubprocessLauncher().run(request, folder)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_healthy_model_tracks_full_precision_with_and_without_dropout(tmp_path, dtype, dropout):
    verdict = judge(*_compared(tmp_path, dtype, TARGET.replace("DROPOUT", str(dropout))))

    assert (verdict.verdict, verdict.steps) == ("ok", 50), verdict.reason


def test_activations_that_overflow_float16_are_unstable(tmp_path):
    loud = "\ndef loss(model, batch): return nn.functional.cross_entropy(model(batch[0] * 3e5) / 3e5, batch[1])\n"
    text = TARGET.replace("DROPOUT", "0.0").replace("nn.BatchNorm2d(32), ", "")

    verdict = judge(*_compared(tmp_path, "float16", text + loud))

    assert verdict.verdict == "unstable", verdict.reason
