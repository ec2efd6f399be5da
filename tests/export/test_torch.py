"""The recommendation inside a plain training loop."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from autotune.core import codec
from autotune.core.records import Value
from autotune.errors import EnvironmentMismatch, EnvironmentUnfit, StudyNotFound, UsageError
from autotune.export.torch import Tuned, apply
from autotune.knobs import KNOBS
from autotune.machine.environment import cpu_name, torch_version, usable_cores
from autotune.machine.host import cpu_native_dtypes
from autotune.targets.checkpointing import Checkpointed
from tests.reporting import ENVIRONMENT, recommendation

SAMPLES = 32


def cpu(**values: Value) -> Tuned:
    """Settings applied on the CPU."""
    return Tuned(values, device="cpu")


def data() -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(SAMPLES, 3, 8, 8, generator=generator)
    return TensorDataset(images, torch.randint(5, (SAMPLES,), generator=generator))


def network() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 5))


def train(tuned: Tuned, epochs: int = 3) -> tuple[list[float], list[Tensor]]:
    """The loop that users write, the same for all settings: losses by micro-batch, and the parameters in the end."""
    model = tuned.prepare(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = tuned.grad_scaler()
    losses = []
    for _ in range(epochs):
        for number, batch in enumerate(DataLoader(data(), **tuned.dataloader_kwargs()), start=1):
            images, classes = tuned.to_device(batch)
            with tuned.autocast():
                loss = nn.functional.cross_entropy(model(images), classes)
            scaler.scale(loss / tuned["gradient_accumulation_steps"]).backward()
            if number % tuned["gradient_accumulation_steps"] == 0:
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
            losses.append(loss.item())
    return losses, [parameter.detach() for parameter in model.parameters()]


@pytest.mark.parametrize(("batch_size", "accumulation"), [(16, 2), (8, 4), (1, 32)])
def test_accumulation_equals_the_big_batch(batch_size: int, accumulation: int) -> None:
    _, big = train(cpu(batch_size=SAMPLES))

    _, accumulated = train(cpu(batch_size=batch_size, gradient_accumulation_steps=accumulation))

    for one, other in zip(big, accumulated, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("amp_dtype", [None, "bfloat16", "float16"])
@pytest.mark.parametrize("channels_last", [False, True])
def test_one_loop_learns_with_every_dtype_and_layout(amp_dtype: str | None, channels_last: bool) -> None:
    plain, _ = train(cpu(batch_size=SAMPLES), epochs=4)

    tuned, _ = train(cpu(batch_size=SAMPLES, amp_dtype=amp_dtype, channels_last=channels_last), epochs=4)

    assert tuned[-1] < tuned[0]
    assert tuned == pytest.approx(plain, rel=0.02)


@pytest.mark.parametrize("amp_dtype", ["bfloat16", "float16"])
def test_autocast_computes_in_the_tuned_dtype(amp_dtype: str) -> None:
    tuned = cpu(amp_dtype=amp_dtype)

    with tuned.autocast():
        computed = torch.ones(4, 4) @ torch.ones(4, 4)

    assert computed.dtype == getattr(torch, amp_dtype)


def test_without_a_dtype_autocast_changes_nothing() -> None:
    with cpu().autocast():
        computed = torch.ones(4, 4) @ torch.ones(4, 4)

    assert computed.dtype == torch.float32


@pytest.mark.parametrize(("amp_dtype", "scales"), [(None, False), ("bfloat16", False), ("float16", True)])
def test_only_float16_is_scaled(amp_dtype: str | None, scales: bool) -> None:
    assert cpu(amp_dtype=amp_dtype).grad_scaler().is_enabled() == scales


def test_model_and_images_take_the_tuned_layout() -> None:
    tuned = cpu(channels_last=True)

    model = tuned.prepare(network())
    images, classes = tuned.to_device(data()[:4])

    assert model[0].weight.is_contiguous(memory_format=torch.channels_last)
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert classes.shape == (4,)


def test_blocks_of_the_prepared_model_compute_again_and_its_weights_keep_their_names() -> None:
    deep = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(3)))
    names = list(deep.state_dict())

    model = cpu(activation_checkpointing=True).prepare(deep)

    assert all(isinstance(block, Checkpointed) for block in model)
    assert list(model.state_dict()) == names


def test_every_tensor_of_a_nested_batch_is_moved_and_other_things_stay() -> None:
    pair = namedtuple("pair", "x y")  # the untyped kind is what users' collations make
    image = torch.zeros(2, 3, 4, 4)
    batch = {"pair": pair(image, [image, "name"]), "both": (image, None), "count": 3}

    moved = cpu(channels_last=True).to_device(batch)

    assert type(moved["pair"]) is pair
    assert (moved["pair"].y[1], moved["both"][1], moved["count"]) == ("name", None, 3)
    for tensor in (moved["pair"].x, moved["pair"].y[0], moved["both"][0]):
        assert tensor.is_contiguous(memory_format=torch.channels_last)


def test_short_batches_are_dropped_as_when_measured() -> None:
    loader = DataLoader(data(), **cpu(batch_size=12, num_workers=0).dataloader_kwargs())

    sizes = [len(classes) for _, classes in loader]

    assert sizes == [12, 12]


def test_the_loader_gets_the_tuned_workers() -> None:
    loader = DataLoader(data(), **cpu(batch_size=8, num_workers=2).dataloader_kwargs())

    assert (loader.num_workers, loader.persistent_workers) == (2, True)


def test_settings_are_a_dict_with_every_knob_that_survives_json() -> None:
    tuned = cpu(batch_size=8, amp_dtype="bfloat16")

    assert isinstance(tuned, dict)
    assert list(tuned) == [knob.name for knob in KNOBS]
    assert json.loads(json.dumps(tuned)) == dict(tuned)


def test_a_knob_of_a_newer_version_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="warp_speed"):
        cpu(warp_speed=9)


def test_an_impossible_value_is_refused_with_the_rule() -> None:
    with pytest.raises(UsageError, match="at least 1, got 0"):
        cpu(batch_size=0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_missing_gpu_is_said_and_not_replaced_by_the_cpu() -> None:
    with pytest.raises(EnvironmentUnfit, match="device='cpu'"):
        Tuned({}, device="cuda")


def test_the_module_is_imported_without_torch() -> None:
    code = "import sys, autotune.export.torch; sys.exit('torch' in sys.modules or 'optuna' in sys.modules)"

    finished = subprocess.run([sys.executable, "-c", code], check=False)

    assert finished.returncode == 0


def kept(folder: Path, params: dict[str, Value] | None = None, **changes: str) -> Path:
    """What a search on this machine's CPU would have left in `folder`."""
    environment = replace(
        ENVIRONMENT, device="cpu", device_name=cpu_name(), cpu=cpu_name(), torch=torch_version() or "",
        usable_cores=usable_cores(), native_dtypes=cpu_native_dtypes(), driver=None,
    )  # fmt: skip
    params = params or {"batch_size": 16, "gradient_accumulation_steps": 2}
    codec.write(folder / "best.json", recommendation(params=params, environment=replace(environment, **changes)))
    return folder


def test_a_study_of_this_machine_is_applied_without_a_warning(tmp_path: Path) -> None:
    tuned = apply(kept(tmp_path))

    assert (tuned["batch_size"], tuned["amp_dtype"], tuned.device.type) == (16, None, "cpu")


def test_a_study_of_another_machine_is_applied_with_a_warning(tmp_path: Path) -> None:
    with pytest.warns(EnvironmentMismatch, match="Zeta 9") as caught:
        tuned = apply(kept(tmp_path, cpu="Zeta 9"))

    assert tuned["batch_size"] == 16
    assert {warning.filename for warning in caught} == {__file__}  # at the line that called


def test_the_warning_is_off_without_the_check(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        apply(kept(tmp_path, cpu="Zeta 9"), check=False)

    assert caught == []


def test_what_is_no_study_is_refused_in_words() -> None:
    with pytest.raises(UsageError, match=r"got an object of type dict\..*autotune\.apply\('studies/NAME'\)"):
        apply({"batch_size": 8})  # type: ignore[arg-type]


@pytest.fixture
def threads() -> Iterator[None]:
    """Torch's thread count is given back."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_the_tuned_number_of_threads_computes(threads: None) -> None:
    other = 1 if torch.get_num_threads() > 1 else 2

    cpu(num_threads=other).prepare(network())

    assert torch.get_num_threads() == other


def test_an_optimizer_updates_as_it_was_measured() -> None:
    optimizer = torch.optim.AdamW(network().parameters())

    assert cpu().prepare_optimizer(optimizer) is optimizer
    assert optimizer.param_groups[0]["fused"] is None
    assert cpu(fused_optimizer="fused").prepare_optimizer(optimizer).param_groups[0]["fused"] is True


PASSIVE: dict[str, Value] = {"batch_size": 16, "omp_wait_policy": "passive"}


def test_a_variable_that_python_was_started_without_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)

    with pytest.warns(EnvironmentMismatch, match="export OMP_WAIT_POLICY=passive"):
        tuned = apply(kept(tmp_path, PASSIVE))
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    again = apply(tmp_path)  # started with it: no warning, which would be an error

    assert tuned["omp_wait_policy"] == again["omp_wait_policy"] == "passive"


def test_a_variable_that_python_was_started_with_is_not_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True")

    assert apply(kept(tmp_path, {**PASSIVE, "omp_wait_policy": None, "allocator": "expandable_segments"}))


def test_a_study_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(StudyNotFound):
        apply(tmp_path / "nowhere")
