"""The examples do what their first lines say, on their real data."""

from __future__ import annotations

import importlib
import json
import os
import runpy
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest
import torch
from torch.utils.data import DataLoader

from autotune.errors import StudyNotFound
from autotune.export.torch import Tuned

pytestmark = pytest.mark.slow  # trains them

EXAMPLES = Path(__file__).parent.parent / "examples"
TARGETS = ("digits_cnn", "char_transformer", "slow_loader", "remote_store")
BATCH = 4


@pytest.fixture(autouse=True)
def _beside_the_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """They import each other as scripts do."""
    monkeypatch.syspath_prepend(str(EXAMPLES))


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """One example, as its importer sees it."""
    yield importlib.import_module(request.param)


def test_a_target_learns_from_its_own_data(target: ModuleType) -> None:
    torch.manual_seed(0)
    model = target.model()
    optimizer = target.optimizer(model.parameters())
    batch = next(iter(DataLoader(target.dataset(), batch_size=BATCH)))

    first = target.loss(model, batch)
    for _ in range(10):
        optimizer.zero_grad()
        target.loss(model, batch).backward()
        optimizer.step()

    assert first.shape == ()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert target.loss(model, batch) < first


@pytest.fixture(scope="module")
def imported() -> dict[str, list[Any]]:
    """Of each target: the threads that importing it started, and whether autotune was there then; in one process."""
    code = (
        "import importlib, json, sys, threading\nfound = {}\n"
        f"for name in {TARGETS}:\n"
        "    before = threading.active_count()\n"
        "    importlib.import_module(name)\n"
        "    found[name] = [threading.active_count() - before, 'autotune' in sys.modules]\n"
        "print(json.dumps(found))"
    )
    finished = subprocess.run([sys.executable, "-c", code], cwd=EXAMPLES, capture_output=True, text=True, check=True)
    return dict(json.loads(finished.stdout))


def test_importing_a_target_does_no_work(target: ModuleType, imported: dict[str, list[Any]]) -> None:
    assert imported[target.__name__] == [0, False]


def test_a_digit_is_an_enlarged_image_with_its_class() -> None:
    digits = importlib.import_module("digits_cnn")

    image, digit = digits.dataset()[0]

    assert (image.shape, image.dtype) == ((1, 32, 32), torch.float32)
    assert 0 <= image.min() < image.max() <= 1
    assert digit in range(10)


def test_held_out_digits_are_not_trained_on() -> None:
    digits = importlib.import_module("digits_cnn")

    trained, held_out = digits.dataset(), digits.validation()

    assert (len(trained), len(held_out)) == (1437, 360)
    seen = {scan.numpy().tobytes() for scan in trained.scans}
    assert not any(scan.numpy().tobytes() in seen for scan in held_out.scans)


def test_text_is_followed_by_itself_one_byte_later() -> None:
    text = importlib.import_module("char_transformer").dataset()

    here, following = text[len(text) - 1]

    assert (here.shape, following.shape) == ((128,), (128,))
    assert here[1:].tolist() == following[:-1].tolist()
    assert len(text) > 5000  # so that no batch size is near the whole of it


def test_the_transformer_sees_no_later_byte() -> None:
    model = importlib.import_module("char_transformer").model().eval()
    text = torch.arange(128).unsqueeze(0)
    changed = text.clone()
    changed[0, 64:] = 0

    with torch.no_grad():
        before, after = model(text), model(changed)

    torch.testing.assert_close(before[:, :64], after[:, :64])
    assert not torch.equal(before[:, 64:], after[:, 64:])


@pytest.fixture
def slow() -> Iterator[Any]:
    """The example, whose storage and connection end with this process and not before."""
    module = importlib.import_module("slow_loader")
    yield module
    module._connection(os.getpid(), module.serve()).close()


def test_a_fetched_image_is_the_scanned_one(slow: Any) -> None:
    from sklearn.datasets import load_digits

    image, digit = slow.dataset()[17]

    scan = torch.from_numpy(load_digits().images[17] / 16).float()
    torch.testing.assert_close(image[0, ::4, ::4], scan, rtol=0, atol=1 / 255)
    assert digit == load_digits().target[17]


def test_workers_fetch_over_connections_of_their_own_and_leave_no_process(slow: Any) -> None:
    images = slow.dataset()
    alone = [images[index] for index in range(24)]  # this process has its own connection open when it forks
    children = set(psutil.Process().children(recursive=True))

    loader = DataLoader(images, batch_size=8, num_workers=2, persistent_workers=True)
    with closing(iter_batches(loader, 3)) as batches:
        fetched = list(batches)
    workers = set(psutil.Process().children(recursive=True)) - children
    del loader, batches
    _, alive = psutil.wait_procs(list(workers), timeout=20)

    assert len(workers) == 2
    assert alive == []
    torch.testing.assert_close(torch.cat([image for image, _ in fetched]), torch.stack([image for image, _ in alone]))


def iter_batches(loader: DataLoader[object], count: int) -> Iterator[list[torch.Tensor]]:
    """The first batches."""
    for _, batch in zip(range(count), loader, strict=False):
        yield batch


def test_a_dataset_starts_no_second_storage() -> None:
    slow = importlib.import_module("slow_loader")
    slow.dataset()
    threads = threading.active_count()

    slow.dataset()

    assert threading.active_count() <= threads  # one of another test may have ended


def test_the_storage_ends_with_its_process() -> None:
    code = "import slow_loader; print(slow_loader.dataset()[0][1], flush=True)"

    finished = subprocess.run(
        [sys.executable, "-c", code], cwd=EXAMPLES, capture_output=True, text=True, check=False, timeout=120
    )

    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "0\n", "")


@pytest.mark.parametrize("settings", [{"batch_size": 64}, {"batch_size": 16, "gradient_accumulation_steps": 4}])
def test_training_with_the_settings_reads_97_percent(settings: dict[str, int]) -> None:
    script = importlib.import_module("train_with_best")

    steps, accuracy = script.train(Tuned(settings, device="cpu"))

    assert accuracy >= 0.97
    assert 0 < steps <= 30 * 1437 // 64


def test_the_training_script_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["train_with_best.py", "no/such/study"])

    with pytest.raises(StudyNotFound, match="no/such/study"):  # Python ends with it, and with exit status 1
        runpy.run_path(str(EXAMPLES / "train_with_best.py"), run_name="__main__")
