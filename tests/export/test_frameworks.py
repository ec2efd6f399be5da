"""The recommendation as code: what is printed is carried out, by the framework itself where it is installed."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from autotune.core.records import Value
from autotune.errors import UsageError
from autotune.export import accelerate, deepspeed, huggingface, lightning, loop, making
from autotune.export.recipe import recipe
from autotune.export.torch import Tuned
from autotune.knobs.wording import Framework
from autotune.units import format_speedup
from tests.commandline import environment, run_here
from tests.exporting import PROGRAMS, exported
from tests.reporting import FACTS, recommendation, written

pytestmark = pytest.mark.slow  # trains with every framework that is installed
SAMPLES, MICRO, STEPS = 40, 8, 2
HALF: dict[str, Value] = {
    "batch_size": MICRO, "gradient_accumulation_steps": STEPS, "amp_dtype": "bfloat16", "channels_last": True
}  # fmt: skip
EVERYTHING: dict[str, Value] = {
    **HALF, "amp_dtype": "float16", "num_workers": 2, "activation_checkpointing": True, "num_threads": 3,
    "omp_wait_policy": "passive",
}  # fmt: skip


THEIRS = pytest.mark.filterwarnings("default")  # what they warn of is not ours to mend


def needs(library: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(find_spec(library) is None, reason=f"needs {library}, which is tuned for and not needed")


def images() -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    return TensorDataset(
        torch.randn(SAMPLES, 3, 8, 8, generator=generator), torch.randint(5, (SAMPLES,), generator=generator)
    )


class Watched(nn.Module):
    """A small network that remembers what came in, and in which dtype it computed."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.convolution, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4 * 36, 5)
        self.seen: list[tuple[int, torch.dtype, bool]] = []

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Class scores of a batch of images."""
        found: torch.Tensor = self.convolution(pixels)
        is_channels_last = self.convolution.weight.is_contiguous(memory_format=torch.channels_last)
        self.seen.append((len(pixels), found.dtype, is_channels_last))
        scores: torch.Tensor = self.head(found.flatten(1))
        return scores


def given(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """What a printed loop takes for granted."""
    loss_fn = nn.functional.cross_entropy
    return {"model": model, "dataset": images(), "loss_fn": loss_fn, "optimizer": optimizer, "epochs": 1}


class Counted(torch.optim.SGD):
    """SGD that counts its steps."""

    steps = 0

    def step(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        """Counted."""
        self.steps += 1
        return super().step(*args, **kwargs)


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """Torch's thread count is given back."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("values", [{}, HALF, EVERYTHING], ids=["defaults", "half", "everything"])
@pytest.mark.parametrize("framework", PROGRAMS)
def test_what_is_printed_is_python(framework: Framework, values: dict[str, Value], device: str) -> None:
    text = PROGRAMS[framework].text(exported(framework, values, device))

    names = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}

    assert names <= {
        "torch", "autotune", "model", "dataset", "loader", "loss_fn", "optimizer", "epochs", "loss", "inputs",
        "targets", "epoch", "range", "micro_batches", "DataLoader", "Trainer", "trainer", "Accelerator", "accelerator",
        "TrainingArguments", "args", "scaler", "x",
    }  # fmt: skip


@pytest.mark.parametrize("values", [HALF, HALF | {"gradient_accumulation_steps": 1, "amp_dtype": None}])
def test_the_printed_loop_trains_bit_for_bit_as_apply_does(values: dict[str, Value]) -> None:
    tuned = Tuned(values, device="cpu")
    ours = tuned.prepare(Watched())
    descent = torch.optim.SGD(ours.parameters(), lr=0.1)
    torch.manual_seed(3)
    for number, batch in enumerate(DataLoader(images(), shuffle=True, **tuned.dataloader_kwargs()), start=1):
        pixels, labels = tuned.to_device(batch)
        with tuned.autocast():
            loss = nn.functional.cross_entropy(ours(pixels), labels)
        (loss / tuned["gradient_accumulation_steps"]).backward()
        if number % tuned["gradient_accumulation_steps"] == 0:
            descent.step()
            descent.zero_grad()
    model = Watched()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    names = given(model, optimizer)

    torch.manual_seed(3)
    exec(loop.text(exported(Framework.TORCH, values)), names)

    assert model.seen == ours.seen
    for mine, theirs in zip(ours.parameters(), model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


@THEIRS
@needs("transformers")
def test_trainer_takes_the_arguments_and_trains_with_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import Trainer

    class Labelled(Watched):
        def forward(self, pixels: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:  # type: ignore[override]
            return {"loss": nn.functional.cross_entropy(super().forward(pixels), labels)}

    monkeypatch.chdir(tmp_path)
    model = Labelled()
    optimizer = Counted(model.parameters(), lr=0.1)
    names: dict[str, Any] = {"model": model}
    rows = [{"pixels": pixels, "labels": label} for pixels, label in images()]

    exec(huggingface.text(exported(Framework.HUGGING_FACE, HALF | {"num_workers": 2})), names)
    names["args"].num_train_epochs, names["args"].save_strategy = 1, "no"
    trainer = Trainer(
        names["model"], names["args"], train_dataset=rows,
        optimizers=(optimizer, torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)),
    )  # fmt: skip
    trainer.train()

    assert model.seen == [(MICRO, torch.bfloat16, True)] * (SAMPLES // MICRO)
    assert trainer.state.global_step == -(-SAMPLES // MICRO // STEPS)  # the Trainer steps once more at the epoch's end
    made = trainer.get_train_dataloader()
    assert (made.num_workers, made.persistent_workers, made.prefetch_factor) == (2, True, 2)


@THEIRS
@needs("lightning")
def test_lightning_takes_the_arguments_and_trains_with_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lightning import LightningModule

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = Watched()

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            return nn.functional.cross_entropy(self.network(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"model": Module(), "dataset": images()}

    exec(lightning.text(exported(Framework.LIGHTNING, HALF)), names)
    trainer = names["trainer"]
    trainer.fit_loop.max_epochs = 1
    trainer.fit(names["model"], names["loader"])

    assert names["model"].network.seen == [(MICRO, torch.bfloat16, True)] * (SAMPLES // MICRO)
    assert trainer.global_step == -(-SAMPLES // MICRO // STEPS)  # Lightning too steps once more at the epoch's end


@THEIRS
@needs("accelerate")
def test_accelerate_takes_the_arguments_and_trains_with_them() -> None:
    model = Watched()
    optimizer = Counted(model.parameters(), lr=0.1)
    names = given(model, optimizer)

    exec(accelerate.text(exported(Framework.ACCELERATE, HALF)), names)

    assert model.seen == [(MICRO, torch.bfloat16, True)] * (SAMPLES // MICRO)
    assert optimizer.steps == -(-SAMPLES // MICRO // STEPS)  # and so does Accelerate


@THEIRS
@needs("accelerate")
def test_accelerate_computes_forward_and_loss_in_half_precision_and_nothing_else() -> None:
    where: dict[str, set[bool]] = {}

    def note(name: str) -> None:
        where.setdefault(name, set()).add(torch.is_autocast_enabled("cpu"))

    class Noted(torch.optim.SGD):
        def step(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
            note("step")
            return super().step(*args, **kwargs)

    class Passed(torch.autograd.Function):
        """Changes nothing, and notes how it is passed backwards."""

        @staticmethod
        def forward(context: Any, scores: torch.Tensor) -> torch.Tensor:
            note("loss")
            return scores.clone()

        @staticmethod
        def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            note("backward")
            return gradient

    def loss_fn(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(Passed.apply(scores), labels)  # type: ignore[no-untyped-call]

    model = Watched()
    names = given(model, Noted(model.parameters(), lr=0.1)) | {"loss_fn": loss_fn}

    exec(accelerate.text(exported(Framework.ACCELERATE, HALF)), names)

    assert {dtype for _, dtype, _ in model.seen} == {torch.bfloat16}
    assert where == {"loss": {True}, "backward": {False}, "step": {False}}


@needs("deepspeed")
def test_deepspeed_reads_its_configuration() -> None:
    from deepspeed.runtime.config import DeepSpeedConfig

    read = DeepSpeedConfig(json.loads(deepspeed.text(exported(Framework.DEEPSPEED, HALF, "cuda"))))

    assert (read.train_micro_batch_size_per_gpu, read.gradient_accumulation_steps) == (MICRO, STEPS)
    assert read.train_batch_size == MICRO * STEPS
    assert (read.torch_autocast_enabled, read.torch_autocast_dtype) == (True, torch.bfloat16)


def test_a_baseline_that_was_kept_is_said_to_be_one() -> None:
    kept = recommendation()

    found = recipe(replace(kept, baseline=kept.params, speedup=1.0), Framework.TORCH)

    assert "your baseline itself" in found.remarks[0] and "1.00" not in found.remarks[0]
    assert f"{format_speedup(kept.speedup or 0)}× your baseline;" in recipe(kept, Framework.TORCH).remarks[0]


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("clip_grad_norm", "scheduler"), "Your clip_grad_norm and scheduler belong to every optimizer step"),
        (("step", "ema"), "are those of your step(model, batch, optimizers)"),
        (("step", "ema"), "Your ema belongs to every optimizer step"),
    ],
)
def test_what_a_step_has_besides_is_said_where_no_code_has_it(names: tuple[str, ...], words: str) -> None:
    best = replace(recommendation(), facts=replace(FACTS, update=names))

    found = recipe(best, Framework.TORCH)

    assert any(words in remark for remark in found.remarks)


@pytest.mark.parametrize(
    ("values", "words"),
    [({"batch_size": "many"}, "edited by hand"), ({"warp_drive": True}, "no knob called warp_drive")],
)
def test_what_cannot_be_applied_is_not_printed(values: dict[str, Value], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        exported(Framework.TORCH, values)


def test_what_json_cannot_say_stands_beside_it() -> None:
    beside = "\n".join(deepspeed.lines_beside(exported(Framework.DEEPSPEED, EVERYTHING, "cuda")))

    parts = ("OMP_WAIT_POLICY=passive", "set_num_threads(3)", "checkpoint_blocks", "channels_last", "num_workers=2")
    assert [part for part in parts if part not in beside] == []


@pytest.mark.parametrize(
    ("framework", "part"),
    [
        (Framework.TORCH, 'scaler = torch.amp.GradScaler("cuda")'),
        (Framework.HUGGING_FACE, "fp16=True"),
        (Framework.LIGHTNING, 'precision="16-mixed"'),
        (Framework.ACCELERATE, 'mixed_precision="fp16"'),
    ],
)
def test_float16_comes_with_a_scaler_everywhere(framework: Framework, part: str) -> None:
    assert part in PROGRAMS[framework].text(exported(framework, EVERYTHING, "cuda"))


EXPORTS = """
import contextlib, io, json, sys
from autotune.cli import main
found = {}
for framework in sys.argv[1:]:
    sys.argv = ["autotune", "export", "--to", framework]
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        try: main()
        except SystemExit as ending: status = ending.code
        else: status = 0
    found[framework] = [status or 0, out.getvalue(), err.getvalue(), "torch" in sys.modules]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Of each framework: exit status, what the command printed, and whether torch was there then; in one process."""
    home = tmp_path_factory.mktemp("printed")
    written(home / "studies" / "resnet", (), recommendation())
    done = subprocess.run(
        [sys.executable, "-c", EXPORTS, *Framework],
        cwd=home, env=environment(home), capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


@pytest.mark.parametrize("framework", list(Framework))
def test_the_command_prints_it_without_importing_torch(printed: Any, framework: Framework) -> None:
    status, text, remarks, imported = printed[framework]

    assert (status, imported) == (0, False)
    assert str(recommendation().params["batch_size"]) in text
    assert ("Global batch" in remarks) == (framework is Framework.DEEPSPEED)


def test_a_file_takes_it_too(tmp_path: Path) -> None:
    written(tmp_path / "studies" / "resnet", (), recommendation())

    done = run_here(tmp_path, "export", "--to", "deepspeed", "-o", "ds.json")

    assert done.returncode == 0 and "wrote ds.json" in done.stderr
    assert json.loads((tmp_path / "ds.json").read_text())["train_micro_batch_size_per_gpu"]


@pytest.mark.parametrize(
    ("to", "package"), [("hf", "transformers"), ("lightning", "lightning"), ("accelerate", "accelerate")]
)
def test_the_installed_framework_makes_its_object_or_it_is_said_that_none_was_made(
    tmp_path: Path, to: str, package: str
) -> None:
    best = recommendation()
    values = best.params | {"amp_dtype": "bfloat16"}
    written(
        tmp_path / "studies" / "resnet", (),
        replace(best, params=values, environment=replace(best.environment, device="cpu")),
    )  # fmt: skip

    done = run_here(tmp_path, "export", "--to", to, "--check")

    if find_spec(package) is None:
        assert f"not checked: {package} is not installed here" in done.stderr
    else:
        assert f"checked: {package} " in done.stderr, done.stderr
    assert done.returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["studies"]


def test_arguments_that_the_framework_does_not_take_end_with_its_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "strict.py").write_text("class Trainer:\n    def __init__(self, precision): print('chatter')\n")
    (tmp_path / "strict-1.5.dist-info").mkdir()
    (tmp_path / "strict-1.5.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: strict\nVersion: 1.5\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))

    assert making.check("strict:Trainer", {"precision": "16"}) == (
        "checked: strict 1.5 made its Trainer from these arguments"
    )
    with pytest.raises(UsageError, match=r"strict 1.5 does not accept these arguments for Trainer: .*'devices'"):
        making.check("strict:Trainer", {"devices": 1})


def test_what_no_class_takes_is_not_checked(tmp_path: Path) -> None:
    written(tmp_path / "studies" / "resnet", (), recommendation())

    done = run_here(tmp_path, "export", "--to", "json", "--check")

    assert done.returncode == 2 and "Choose hf, lightning, accelerate" in done.stderr
