"""TF32, cuDNN's choice, kernels of attention and fused updates on a real CUDA device: offered, set and seen."""

import pytest
import torch

from autotune.core.records import Config
from autotune.core.requests import InspectRequest
from autotune.knobs import defaults, knob, plan_of
from autotune.launch.subprocess import SubprocessLauncher
from autotune.precision.arithmetic import full_precision, reference_phrase
from autotune.precision.judge import judge
from autotune.precision.records import PrecisionCheckRequest
from autotune.targets import resolve
from autotune.targets.base import check_effect
from autotune.testing.knob_contract import circumstances
from tests.targets_support import watch
from tests.worlds import config

TARGET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 128, 4, stride=4)
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(128, 2, 256, dropout=0.0, batch_first=True), 2)
        self.head = nn.Linear(128, 4)
    def forward(self, images):
        return self.head(self.layers(self.patches(images).flatten(2).mT).mean(1))

def model(): return Net()

def dataset():
    draws = torch.Generator().manual_seed(7)
    labels = torch.randint(4, (2048,), generator=draws)
    centres = torch.randn(4, 3, 32, 32, generator=draws)
    return torch.utils.data.TensorDataset(0.3 * centres[labels] + torch.randn(2048, 3, 32, 32, generator=draws), labels)

def optimizer(params): return torch.optim.AdamW(params, lr=1e-3)
"""


@pytest.fixture
def target(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(TARGET)
    return str(path)


@pytest.fixture
def found(target, tmp_path):
    return _inspected(target, tmp_path / "inspection")


def _inspected(target, folder):
    folder.mkdir()
    return SubprocessLauncher().run(InspectRequest(target=target, device="cuda:0"), folder)


def test_what_is_offered_fits_the_device_and_the_model(found):
    domains = {
        name: knob(name).domain(circumstances(found.environment, facts=found.facts))
        for name in ("fused_optimizer", "tf32", "cudnn_benchmark", "sdpa_backend")
    }

    assert found.facts.optimizer.usual == "foreach"
    assert domains["fused_optimizer"] == (None, "fused")
    assert domains["tf32"] == ((False, True) if torch.cuda.get_device_capability()[0] >= 8 else (False,))
    assert domains["cudnn_benchmark"] == (False, True)
    assert set(found.facts.attention) == {"float32", "bfloat16", "float16"}
    assert domains["sdpa_backend"][0] is None


def _trained(target, **values):
    asked = Config(values=defaults() | {"batch_size": 32, **values})
    session = resolve(target).open(asked, plan_of(asked.values, "cuda:0"), lambda phase: None)
    session.train(watch(3))
    check_effect(session, asked.values)
    return session.observed()


def test_every_value_that_is_offered_trains_and_is_seen(target, found, tmp_path):
    launcher = SubprocessLauncher()
    for name in ("fused_optimizer", "tf32", "cudnn_benchmark", "sdpa_backend"):
        for value in knob(name).domain(circumstances(found.environment, facts=found.facts)):
            dtype = "bfloat16" if name == "sdpa_backend" else None
            if dtype and value not in (None, *found.facts.attention[dtype]):
                continue
            request = PrecisionCheckRequest(
                target=target,
                reference=config(batch_size=32),
                candidate=config(batch_size=32, amp_dtype=dtype, **{name: value}),
                device="cuda:0",
            )
            folder = tmp_path / f"{name}-{value}"
            folder.mkdir()

            verdict = judge(request, launcher.run(request, folder))

            assert verdict.verdict == "ok", (name, value, verdict.reason.text)


def test_tf32_that_the_code_sets_is_the_reference_and_is_named(target, tmp_path):
    path = tmp_path / "own.py"
    path.write_text(TARGET.replace("class Net", 'torch.set_float32_matmul_precision("high")\n\nclass Net'))

    facts = _inspected(str(path), tmp_path / "own").facts

    assert facts.calls_attention and facts.found == {"tf32": True}
    assert full_precision(config(batch_size=32), facts)["tf32"] is True
    assert reference_phrase(facts) == "your code's own arithmetic (TF32 products)"


def test_a_fused_update_is_seen(target):
    assert _trained(target, fused_optimizer="fused").optimizer_implementation == "fused"
