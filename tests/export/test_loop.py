"""The printed loops are carried out: for every kind of data, over epochs, with what the target brings of its own."""

from __future__ import annotations

import ast
import itertools
import re
from collections import UserDict, namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from autotune.core import codec
from autotune.core.records import CheckLine, Value
from autotune.errors import UsageError
from autotune.export import deepspeed, huggingface, lightning, loop
from autotune.export.data import data_of
from autotune.export.recipe import ASSUMED
from autotune.export.torch import Tuned
from autotune.knobs.wording import Framework
from autotune.report.page import render
from autotune.targets.batches import layout
from tests.commandline import run_here
from tests.exporting import PROGRAMS, TRAINERS, exported
from tests.reporting import ENVIRONMENT, FACTS, recommendation, request, view, written

DOCUMENT = Path(__file__).parents[2] / "docs" / "using-the-answer.md"
MICRO, STEPS, MICRO_BATCHES = 4, 4, 7  # seven micro-batches an epoch leave three over
ACCUMULATED: dict[str, Value] = {"batch_size": MICRO, "gradient_accumulation_steps": STEPS}
OWN_LOSS = (CheckLine(name="loss", text="loss(model, batch)"),)


def rows() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(3, generator=generator), torch.randint(2, (), generator=generator))
        for _ in range(MICRO * MICRO_BATCHES)
    ]


class Stream(IterableDataset[Any]):
    """The rows one after the other."""

    def __iter__(self) -> Iterator[Any]:
        return iter(rows())


class Noted(torch.optim.SGD):
    """Keeps the gradients of every step that it takes."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, lr=0.1)
        self.gradients: list[Tensor] = []

    def step(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        """Noted."""
        self.gradients.append(torch.cat([p.grad.flatten() for group in self.param_groups for p in group["params"]]))
        return super().step(*args, **kwargs)


def network() -> nn.Module:
    torch.manual_seed(2)
    return nn.Linear(3, 2)


def carried_out(text: str, **more: Any) -> Noted:
    """Two epochs of the printed program on the rows, in their order."""
    model = network()
    optimizer = Noted(model.parameters())
    names = {
        "model": model, "dataset": rows(), "loss_fn": nn.functional.cross_entropy, "optimizer": optimizer, "epochs": 2,
        **more,
    }  # fmt: skip
    exec(text.replace("shuffle=True", "shuffle=False"), names)
    return optimizer


def reference(epochs: int = 2) -> list[Tensor]:
    """The gradients of steps that take the whole global batch each, whichever epochs it lies in."""
    model = network()
    optimizer = Noted(model.parameters())
    window = MICRO * STEPS
    stream = list(itertools.chain.from_iterable(itertools.repeat(rows(), epochs)))
    for first in range(0, len(stream) - window + 1, window):
        inputs, targets = zip(*stream[first : first + window], strict=True)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(torch.stack(inputs)), torch.stack(targets)).backward()
        optimizer.step()
    return optimizer.gradients


def assert_same(found: list[Tensor], expected: list[Tensor]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_what_an_epoch_leaves_over_is_part_of_the_next_step_and_of_no_other() -> None:
    text = loop.text(exported(values=ACCUMULATED))

    found = carried_out(text)

    assert_same(found.gradients, reference())


@pytest.mark.parametrize("is_page", [False, True])
@pytest.mark.parametrize("most", [0.01, 1e6])
def test_gradients_are_clipped_at_the_end_of_a_step_where_the_target_clips_them(
    monkeypatch: pytest.MonkeyPatch, most: float, is_page: bool
) -> None:
    import autotune

    parts = ("clip_grad_norm", "scheduler", "ema")
    text = loop.text(exported(values=ACCUMULATED, update=parts))
    if is_page:
        text = loop.with_autotune("studies/resnet", replace(FACTS, update=parts))
        monkeypatch.setattr(autotune, "apply", lambda study: Tuned(dict(ACCUMULATED), device="cpu"))

    found = carried_out(text, clip_grad_norm=most)

    kept = [one * min(1.0, most / float(one.norm())) for one in reference()[:1]]
    assert_same(found.gradients[:1], kept)
    assert "# here step() of your scheduler and update_parameters(model) of your ema" in text


def test_scaled_gradients_are_unscaled_before_they_are_clipped() -> None:
    half: dict[str, Value] = {"amp_dtype": "float16"}
    text = loop.text(exported(values=half, device="cuda", update=("clip_grad_norm",)))

    assert "scaler.unscale_(optimizer)\n        torch.nn.utils.clip_grad_norm_(" in text


def test_an_epoch_shorter_than_a_step_still_trains() -> None:
    text = loop.text(exported(values={**ACCUMULATED, "gradient_accumulation_steps": 10}))

    assert len(carried_out(text).gradients) == 1


@pytest.mark.parametrize("data", [None, "iterable", "dataloader"])
def test_the_loop_of_the_page_takes_the_same_steps(monkeypatch: pytest.MonkeyPatch, data: Any) -> None:
    import autotune

    page = loop.with_autotune("studies/resnet", data and replace(FACTS, data=data))
    monkeypatch.setattr(autotune, "apply", lambda study: Tuned(dict(ACCUMULATED), device="cpu"))

    def dataloader(batch_size: int, num_workers: int) -> Any:
        return DataLoader(rows(), batch_size=batch_size, num_workers=num_workers)  # type: ignore[arg-type]

    more = {"dataset": Stream()} if data == "iterable" else {}
    found = carried_out(page, dataloader=dataloader, **more)

    assert_same(found.gradients, reference())


def test_the_loop_of_the_documents_takes_the_same_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    import autotune

    (text,) = re.findall(r"```python\n(tuned = autotune.apply.*?)```", DOCUMENT.read_text(), re.DOTALL)
    monkeypatch.setattr(autotune, "apply", lambda study: Tuned(dict(ACCUMULATED), device="cpu"))

    found = carried_out(text, DataLoader=DataLoader, autotune=autotune)

    assert_same(found.gradients, reference())


@pytest.mark.parametrize("data", ["dataset", "iterable", "dataloader", "batch"])
def test_the_page_imports_what_its_loop_takes_and_no_more(data: Any) -> None:
    page = loop.with_autotune("studies/resnet", replace(FACTS, data=data))

    assert ("import DataLoader" in page) == ("DataLoader(" in page) == (data in ("dataset", "iterable"))


def test_the_counter_is_explained_in_the_same_words_everywhere() -> None:
    loops = DOCUMENT.read_text(), loop.text(exported(values=ACCUMULATED)), loop.with_autotune("resnet", None)

    assert [text.count(loop.COUNTER) for text in loops] == [1] * 3
    assert [text.count("micro_batches = 0") for text in loops] == [1] * 3


def test_a_stream_is_not_shuffled_by_its_loader() -> None:
    text = loop.text(exported(values=ACCUMULATED, data="iterable"))

    assert_same(carried_out(text, dataset=Stream()).gradients, reference())


@pytest.mark.parametrize("data", ["iterable", "dataset"])
def test_the_page_shuffles_what_can_be_shuffled(data: Literal["iterable", "dataset"]) -> None:
    page = render(view((), recommendation(), facts=replace(FACTS, data=data)))

    assert ("shuffle=True" in page) == (data == "dataset")


def test_a_sampler_of_the_targets_own_orders_the_samples() -> None:
    def sampler(dataset: Any) -> Any:
        return torch.utils.data.SequentialSampler(dataset)

    text = loop.text(exported(values=ACCUMULATED, has_sampler=True))

    assert_same(carried_out(text, sampler=sampler).gradients, reference())


def test_dicts_are_joined_by_the_targets_collate_and_have_the_models_own_loss() -> None:
    class Own(nn.Linear):
        """Computes its loss, as models of transformers do."""

        def forward(self, inputs: Tensor, labels: Tensor) -> Any:  # type: ignore[override]
            loss = nn.functional.cross_entropy(super().forward(inputs), labels)
            return type("Output", (), {"loss": loss})

    def collate(samples: Any) -> dict[str, Tensor]:
        return {
            "inputs": torch.stack([one["x"] for one in samples]),
            "labels": torch.stack([one["y"] for one in samples]),
        }

    torch.manual_seed(2)
    model = Own(3, 2)
    optimizer = Noted(model.parameters())
    text = loop.text(exported(values=ACCUMULATED, has_collate=True, batch_layout="dict"))

    carried_out(text, model=model, optimizer=optimizer, collate=collate, dataset=[{"x": x, "y": y} for x, y in rows()])

    assert_same(optimizer.gradients, reference())


@pytest.mark.parametrize("layout", ["pair", "tuple", "dict", "tensor", "other"])
def test_a_loss_of_the_targets_own_gets_model_and_batch(layout: Any) -> None:
    def loss_fn(model: Any, batch: Any) -> Tensor:
        inputs, targets = batch.values() if layout == "dict" else batch
        return nn.functional.cross_entropy(model(inputs), targets)

    text = loop.text(
        exported(values=ACCUMULATED, check_lines=OWN_LOSS, batch_layout=layout, has_collate=layout == "dict")
    )
    text = text

    def collate(samples: Any) -> Any:
        inputs, targets = zip(*samples, strict=True)
        return {"inputs": torch.stack(inputs), "targets": torch.stack(targets)}

    assert_same(carried_out(text, loss_fn=loss_fn, collate=collate).gradients, reference())


Pixels = namedtuple("Pixels", "images labels")  # the untyped kind is what users' collations make


class Encoding(UserDict[str, Any]):
    """A mapping that is no dict, and that can be moved as a whole, as transformers' is."""

    def to(self, device: str) -> Encoding:
        """Never asked: its tensors are moved one by one."""
        raise AssertionError


def image() -> Tensor:
    return torch.zeros(2, 3, 4, 4)


def batches_of_the_loss(text: str, loader: list[Any]) -> list[Any]:
    """What the loss of a program is given, of the batches of its loader."""
    given: list[Any] = []

    def loss_fn(model: Any, batch: Any) -> Tensor:
        given.append(batch)
        return sum(parameter.sum() for parameter in model.parameters())

    carried_out(text, loss_fn=loss_fn, loader=loader, optimizer=torch.optim.SGD(network().parameters()), epochs=1)
    return given


BATCHES = {
    "pair": [image(), torch.zeros(2)],
    "tuple of images and masks": (image(), image()),
    "pair without images": [torch.zeros(2, 3, 4), torch.zeros(2, 3, 4, 4, 4)],
    "single tensor": image(),
    "single volume": torch.zeros(2, 3, 4, 4, 4),
    "named tuple": Pixels(image(), torch.zeros(2)),
    "list of images, list of dicts": ([image(), image()], [{"boxes": torch.zeros(2, 4)}, {"boxes": torch.zeros(1, 4)}]),
    "dict with nested values": {
        "image": image(),
        "targets": {"masks": (image(), None), "names": ["a", "b"]},
        "count": 2,
    },
    "mapping": Encoding(image=image()),
    "list in a tuple": ([image()], 3),
}


@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize("values", [{}, {"channels_last": True}], ids=["plain", "channels_last"])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_the_loss_gets_the_batch_in_the_containers_that_a_probe_gives_it(
    monkeypatch: pytest.MonkeyPatch, device: str, values: dict[str, Value], batch: Any
) -> None:
    facts = {"check_lines": OWN_LOSS, "batch_layout": layout(batch, is_unpacked=False), "data": "batch"}
    (given,) = batches_of_the_loss(loop.text(exported(values=values, device=device, **facts)), [batch])

    monkeypatch.setattr("autotune.export.torch._require", lambda device: None)  # no machine has a device called meta
    assert_alike(given, Tuned(values, device=device).to_device(batch))


def assert_alike(found: Any, expected: Any) -> None:
    """The same containers of the same tensors: device, and order in memory."""
    assert type(found) is type(expected)
    if isinstance(found, Tensor):
        assert (found.shape, found.dtype, found.device) == (expected.shape, expected.dtype, expected.device)
        assert found.stride() == expected.stride()
    elif isinstance(found, dict | UserDict):
        assert_alike([*found.items()], [*expected.items()])
    elif isinstance(found, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_alike(one, other)
    else:
        assert found == expected


def test_what_moves_itself_is_asked_to() -> None:
    class Graph:
        """Of a library of graphs."""

        def to(self, device: str) -> str:
            """Tells where it is asked to go."""
            return f"on {device}"

    text = loop.text(
        exported(values=ACCUMULATED, device="meta", check_lines=OWN_LOSS, batch_layout="other", data="batch")
    )
    given = batches_of_the_loss(text, [Graph(), [Graph()]])

    assert given == ["on meta", ["on meta"]]


@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize("framework", TRAINERS)
def test_where_a_framework_moves_the_batch_only_its_images_are_converted(framework: Framework, batch: Any) -> None:
    facts = {"device": "cuda", "check_lines": OWN_LOSS, "batch_layout": layout(batch, is_unpacked=False)}
    text = TRAINERS[framework].text(exported(framework, {"channels_last": True}, **facts))

    names = {"batch": batch}
    kept = [part for part in ast.parse(text).body if isinstance(part, ast.FunctionDef) or _imports_what_is_here(part)]
    exec(compile(ast.Module(kept, []), "export", "exec"), names)
    exec(for_each_batch(text), names)
    assert_alike(names["batch"], Tuned({"channels_last": True}, device="cpu").to_device(batch))


def _imports_what_is_here(part: ast.stmt) -> bool:
    """Nothing of the framework is needed for what is done with a batch."""
    return isinstance(part, ast.Import | ast.ImportFrom) and ast.unparse(part).split()[1] in (
        "torch",
        "collections.abc",
    )


def for_each_batch(text: str) -> str:
    """The statements about a batch, which a program has in its loop, or in remarks where the framework has the loop."""
    lines = [
        line.strip().removeprefix("# in your data_collator: ").removeprefix("# in your training_step: ")
        for line in text.splitlines()
    ]
    return "\n".join(line for line in lines if line.startswith(("batch = ", "inputs, targets = ")))


@pytest.mark.parametrize("framework", TRAINERS)
def test_a_plain_pair_needs_no_function_for_its_images(framework: Framework) -> None:
    text = TRAINERS[framework].text(
        exported(framework, {"channels_last": True}, check_lines=OWN_LOSS, batch_layout="pair")
    )

    assert "def " not in text
    assert len(for_each_batch(text).splitlines()) == 1


@pytest.mark.parametrize("rank", [2, 3, 4, 5])
@pytest.mark.parametrize("own_loss", [(), OWN_LOSS], ids=["inferred", "own"])
def test_inputs_of_any_rank_are_trained_on_and_only_images_are_converted(rank: int, own_loss: Any) -> None:
    inputs, targets = torch.zeros(2, 3, *[4] * (rank - 2)), torch.zeros(2, 1, 4, 4)
    seen: list[Tensor] = []

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, inputs: Tensor) -> Tensor:
            seen.append(inputs)
            return self.weight * inputs.sum()

    def loss_fn(output: Any, targets: Any) -> Tensor:
        if own_loss:
            model, (inputs, targets) = output, targets
            output = model(inputs)
        seen.append(targets)
        return torch.as_tensor(output + targets.sum())

    text = loop.text(
        exported(
            values={"channels_last": True},
            check_lines=own_loss,
            batch_layout="pair",
            data="batch",
            dataset_samples=None,
        )
    )
    model = Model()
    carried_out(
        text, model=model, optimizer=Noted(model.parameters()), loss_fn=loss_fn, loader=[[inputs, targets]], epochs=1
    )

    expected = Tuned({"channels_last": True}, device="cpu").to_device([inputs, targets])
    for found, wanted in zip(seen, expected, strict=True):
        assert found.stride() == wanted.stride()


def test_deepspeed_has_the_conversion_beside_its_file() -> None:
    facts = {"device": "cuda", "check_lines": OWN_LOSS, "batch_layout": "tuple"}

    beside = "\n".join(deepspeed.lines_beside(exported(Framework.DEEPSPEED, {"channels_last": True}, **facts)))

    assert "def converted(batch):" in beside and "batch = converted(batch)" in beside


@pytest.mark.parametrize("own_loss", [(), OWN_LOSS], ids=["inferred", "own"])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_plain_batches_are_moved_without_a_function(device: str, own_loss: Any) -> None:
    plain = "pair" if not own_loss else "tensor"
    text = loop.text(exported(values={"channels_last": True}, device=device, batch_layout=plain, check_lines=own_loss))

    assert "def " not in text


@pytest.mark.parametrize("takes_workers", [True, False])
def test_a_loader_of_the_targets_own_is_called_as_it_was_measured(takes_workers: bool) -> None:
    asked: list[dict[str, Any]] = []

    def dataloader(batch_size: int, **more: Any) -> Any:
        asked.append({"batch_size": batch_size, **more})
        inputs, targets = zip(*rows(), strict=True)
        return DataLoader(TensorDataset(torch.stack(inputs), torch.stack(targets)), batch_size=batch_size)

    text = loop.text(exported(values=ACCUMULATED, data="dataloader", takes_workers=takes_workers, dataset_samples=None))

    assert_same(carried_out(text, dataloader=dataloader).gradients, reference())
    assert asked == [{"batch_size": MICRO} | ({"num_workers": 0} if takes_workers else {})]


def test_a_synthetic_batch_leaves_the_loader_to_the_reader() -> None:
    text = loop.text(exported(values=ACCUMULATED, data="batch", dataset_samples=None))

    made = carried_out(text, loader=DataLoader(rows(), batch_size=MICRO))  # type: ignore[arg-type]

    assert "DataLoader" not in text and f"batches of {MICRO}" in text
    assert_same(made.gradients, reference())


@pytest.mark.parametrize("device", ["cpu", "mps", "xpu", "cuda"])
@pytest.mark.parametrize("layout", ["pair", "dict", None])
def test_only_pinned_memory_is_copied_without_waiting(device: str, layout: Any) -> None:
    text = loop.text(exported(values=ACCUMULATED, device=device, batch_layout=layout))

    assert ("non_blocking=True" in text) == ("pin_memory=True" in text) == (device == "cuda")


@pytest.mark.parametrize(("kind", "waits"), [("cuda", False), ("mps", True), ("xpu", True), ("cpu", True)])
def test_apply_waits_for_copies_that_could_lose_their_source(
    monkeypatch: pytest.MonkeyPatch, kind: str, waits: bool
) -> None:
    class Copied(Tensor):
        """Notes how it is copied."""

        asked: ClassVar[list[bool]] = []

        def to(self, *args: Any, non_blocking: bool = False, **kwargs: Any) -> Tensor:
            """Stays."""
            self.asked.append(non_blocking)
            return torch.zeros(1)

    monkeypatch.setattr("autotune.export.torch._require", lambda device: None)

    Tuned({}, device=kind).to_device([torch.zeros(1).as_subclass(Copied)])

    assert Copied.asked.pop() is not waits


@pytest.mark.parametrize("framework", TRAINERS)
@pytest.mark.parametrize(
    "facts",
    [
        {"has_collate": True, "batch_layout": "dict"},
        {"has_sampler": True},
        {"data": "iterable"},
        {"data": "dataloader"},
    ],
)
def test_what_the_target_brings_is_told_for_every_framework(framework: Any, facts: dict[str, Any]) -> None:
    text = TRAINERS[framework].text(exported(framework, **facts))

    compile(text, "export", "exec")
    assert ("collate" in text) == ("has_collate" in facts)
    assert ("sampler" in text) == ("has_sampler" in facts)
    assert ("dataloader(" in text) == (facts.get("data") == "dataloader")
    assert "shuffle" not in text or not {"has_sampler", "data"} & facts.keys()


LOADERS = "take dataset and collate_fn of the loader that your train_dataloader() returns"


@pytest.mark.parametrize(
    ("to", "target", "said"),
    [
        (Framework.LIGHTNING, "lightning", LOADERS),
        (Framework.TORCH, "lightning", LOADERS),
        (Framework.HUGGING_FACE, "lightning", LOADERS),
        (Framework.TORCH, "hf", "take train_dataset and data_collator of your Trainer"),
        (Framework.HUGGING_FACE, "hf", ""),  # which stays as it is
        (Framework.LIGHTNING, "torch", ""),
    ],
)
def test_where_parts_are_that_a_file_of_a_framework_need_not_name_is_told(to: Any, target: Any, said: str) -> None:
    text = PROGRAMS[to].text(exported(to, framework=target, has_collate=True))

    compile(text, "export", "exec")
    assert said in text
    assert ("where your file has no such name" in text) == bool(said)
    assert ("collate" in text) == ((to, target) != (Framework.HUGGING_FACE, "hf"))


def test_lightning_has_no_name_for_every_device() -> None:
    with pytest.raises(UsageError, match=r"xpu.*--to torch"):
        lightning.text(exported(Framework.LIGHTNING, device="xpu"))


def test_a_trainer_that_would_take_every_gpu_is_told_of() -> None:
    alone, several = (huggingface.text(exported(Framework.HUGGING_FACE, device=device)) for device in ("cpu", "cuda"))

    assert "CUDA_VISIBLE_DEVICES" in several and "DataParallel" in several
    assert "DataParallel" not in alone


def test_what_an_earlier_version_left_is_exported_as_its_study_says_or_as_pairs(tmp_path: Path) -> None:
    old = recommendation(environment=replace(ENVIRONMENT, device="cpu"))
    written(tmp_path / "studies" / "kept", (), old)
    (tmp_path / "studies" / "kept" / "study.json").unlink()
    written(tmp_path / "studies" / "whole", (), old)
    codec.write(tmp_path / "studies" / "whole" / "study.json", request(facts=replace(FACTS, check_lines=OWN_LOSS)))

    alone, beside = (run_here(tmp_path, "export", name, "--to", "torch").stdout for name in ("kept", "whole"))

    assert old.facts is None
    assert "loss_fn(model(inputs), targets)" in alone and "shuffle=True" in alone
    assert "loss_fn(model, batch)  # your loss(model, batch)" in beside
    assert (ASSUMED in alone, ASSUMED in beside) == (True, False)


def test_the_loss_of_a_lightning_module_is_what_its_training_step_returns() -> None:
    of_a_file, of_a_module = (
        data_of(replace(FACTS, check_lines=OWN_LOSS, framework=framework)).loss for framework in ("", "lightning")
    )

    assert of_a_file == "loss_fn(model, batch)  # your loss(model, batch)"
    assert of_a_module == "loss_fn(model, batch)  # what your training_step returns"
