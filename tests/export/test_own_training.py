"""Exports of targets that take their steps by code of their own: settings and loader are printed, and no loop."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from autotune.core.records import CheckLine, Value
from autotune.export import accelerate, lightning, loop
from autotune.export.torch import Tuned
from autotune.knobs.wording import Framework
from tests.commandline import run_here
from tests.exporting import PROGRAMS, exported
from tests.reporting import FACTS, recommendation, written

MICRO, SAMPLES = 4, 16
HALF: dict[str, Value] = {"batch_size": MICRO, "amp_dtype": "bfloat16", "channels_last": True}
OWN_STEP = {
    "update": ("step",),
    "batch_layout": "tuple",
    "check_lines": (CheckLine(name="loss", text="what step() returns"),),
}
OWN_LOOP = {"owns_loop": True, "batch_layout": None}
OWN = pytest.mark.parametrize("own", [OWN_STEP, OWN_LOOP], ids=["step", "loop"])


def needs(library: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(find_spec(library) is None, reason=f"needs {library}, which is tuned for and not needed")


class Gan(nn.Module):
    """Two networks, each with an optimizer of its own."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.generator, self.critic = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 1, 1)


def optimizers_of(model: Gan) -> list[torch.optim.Optimizer]:
    return [torch.optim.SGD(part.parameters(), lr=0.1) for part in (model.critic, model.generator)]


def step(model: Any, batch: Any, optimizers: Any, backward: Any = Tensor.backward) -> None:
    """One step of either network, on a batch of one tensor."""
    (real,) = batch
    for optimizer, loss in zip(
        optimizers,
        (lambda: model.critic(real).mean(), lambda: model.critic(model.generator(real)).square().mean()),
        strict=True,
    ):
        optimizer.zero_grad()
        backward(loss())
        optimizer.step()


def dataset() -> TensorDataset:
    return TensorDataset(torch.randn(SAMPLES, 3, 2, 2, generator=torch.Generator().manual_seed(2)))


def trained(names: dict[str, Any], **backward: Any) -> list[bool]:
    """Whether the user's own loop changed critic and generator, on the loader of the export."""
    before = [one.detach().clone() for one in (names["model"].critic.weight, names["model"].generator.weight)]
    batches = list(names["loader"])
    for batch in batches:
        step(names["model"], batch, names["optimizers"], **backward)
    assert [len(batch[0]) for batch in batches] == [MICRO] * (SAMPLES // MICRO)
    after = names["model"].critic.weight, names["model"].generator.weight
    return [not torch.equal(one, other) for one, other in zip(before, after, strict=True)]


@OWN
def test_the_plain_export_sets_up_what_the_users_own_loop_trains(own: dict[str, Any]) -> None:
    model = Gan()
    names: dict[str, Any] = {"model": model, "dataset": dataset(), "optimizers": optimizers_of(model)}

    exec(loop.text(exported(Framework.TORCH, {"batch_size": MICRO}, **own)), names)

    assert trained(names) == [True, True]


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@needs("accelerate")
@OWN
def test_accelerate_prepares_every_optimizer_of_the_users_own_loop(own: dict[str, Any]) -> None:
    model = Gan()
    names: dict[str, Any] = {"model": model, "dataset": dataset(), "optimizers": optimizers_of(model)}

    exec(accelerate.text(exported(Framework.ACCELERATE, HALF | {"channels_last": False}, **own)), names)

    assert len(names["optimizers"]) == 2
    assert trained(names, backward=names["accelerator"].backward) == [True, True]


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@needs("lightning")
def test_lightning_trains_a_module_that_optimizes_manually(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lightning import LightningModule

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization, self.gan, self.seen = False, Gan(), list[int]()

        def training_step(self, batch: Any, index: int) -> None:
            self.seen.append(len(batch[0]))
            step(self.gan, batch, self.optimizers(), self.manual_backward)

        def configure_optimizers(self) -> Any:
            return optimizers_of(self.gan)

    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"model": Module(), "dataset": dataset()}

    text = lightning.text(exported(Framework.LIGHTNING, {"batch_size": MICRO}, **OWN_LOOP))
    exec(text, names)
    names["trainer"].fit_loop.max_epochs = 1
    names["trainer"].fit(names["model"], names["loader"])

    assert names["model"].seen == [MICRO] * (SAMPLES // MICRO)
    assert "# your training_step stays as it is" in text


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("framework", PROGRAMS)
@OWN
def test_no_program_invents_a_loop_a_loss_or_a_pair(own: dict[str, Any], framework: Framework, device: str) -> None:
    text = PROGRAMS[framework].text(exported(framework, HALF, device, **own))

    tree = ast.parse(text)
    assert not [node for node in tree.body if isinstance(node, ast.For)]
    assert not {"loss_fn", "optimizer", "epochs"} & {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert "inputs" not in text and "targets" not in text


def test_what_was_measured_in_the_users_own_loop_is_said() -> None:
    values: dict[str, Value] = {**HALF, "amp_dtype": "float16", "gradient_accumulation_steps": 2}

    plain = loop.text(exported(Framework.TORCH, values, "cuda", **OWN_LOOP))
    prepared = accelerate.text(exported(Framework.ACCELERATE, values, "cuda", **OWN_LOOP))
    of_step = loop.text(exported(Framework.TORCH, HALF, **OWN_STEP))

    assert '# around forward passes and losses: with torch.autocast("cuda", dtype=torch.float16):' in plain
    assert "# for each batch: batch = moved(batch)" in plain and "def moved(" in plain
    assert "# as the backward pass of a loss: scaler.scale(loss).backward()" in plain
    assert "# accumulation: 2 micro-batches for each optimizer step" in plain
    assert "# accumulation: with accelerator.accumulate(model):" in prepared
    assert "# your step(model, batch, optimizers) and the loop around it stay as they are" in of_step
    assert "# as the backward pass of a loss: loss.backward()" in of_step  # torch's optimizers have no backward()
    assert "# around forward passes and losses: with torch.autocast(" in of_step
    assert "backward" not in loop.text(exported(Framework.TORCH, HALF, **OWN_LOOP))


@OWN
def test_the_page_shows_no_loop_in_place_of_the_users_own(monkeypatch: pytest.MonkeyPatch, own: dict[str, Any]) -> None:
    import autotune

    model = Gan()
    names: dict[str, Any] = {"model": model, "dataset": dataset(), "optimizers": optimizers_of(model)}
    monkeypatch.setattr(autotune, "apply", lambda study: Tuned({"batch_size": MICRO}, device="cpu"))

    page = loop.with_autotune("studies/resnet", replace(FACTS, **own))
    exec(page, names)

    assert trained(names) == [True, True]
    assert ("# accumulation" in page) == (own is OWN_LOOP)  # of a step() it is always 1


@pytest.mark.parametrize(
    ("framework", "owns_loop", "has"),
    [("lightning", True, "a LightningModule"), ("lightning", False, "a LightningModule"),
     ("hf", True, "a Hugging Face Trainer"), ("torch", False, "")],
)  # fmt: skip
def test_without_a_framework_that_of_the_target_is_exported(
    tmp_path: Path, framework: str, owns_loop: bool, has: str
) -> None:
    best = recommendation()
    here = replace(best.environment, device="cpu")
    facts = replace(FACTS, framework=framework, owns_loop=owns_loop)
    written(tmp_path / "study", (), replace(best, environment=here, facts=facts))

    chosen = run_here(tmp_path, "export", "study")
    named = run_here(tmp_path, "export", "study", "--to", framework)

    assert chosen.returncode == 0 and chosen.stdout == named.stdout
    said = f"exported for {framework}, because model.py has {has}; --to names another\n" if has else ""
    assert (chosen.stderr, named.stderr) == (said, "")


def test_a_script_with_training_arguments_is_still_exported_as_its_command(tmp_path: Path) -> None:
    facts = replace(FACTS, framework="hf", owns_loop=True, is_program=True)
    written(tmp_path / "study", (), recommendation(target="-- python train.py --bs {batch_size=4}", facts=facts))

    shown = run_here(tmp_path, "export", "study")

    assert shown.stdout.startswith("python train.py --bs ") and "exported for" not in shown.stderr
