"""`autotune.step`: where a program calls it, its steps are those that it tells; elsewhere it does nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import autotune
from autotune.core.records import Config
from autotune.core.requests import ProbeBudget, ProbeRequest
from autotune.core.results import Outcome
from autotune.knobs import defaults
from autotune.targets.commands.watching import told_steps
from tests.targets.commands.test_watched_commands import HEAD, TRAIN, command, inspect, refused, steps

BY_HAND = """
import autotune
while True:
    x = torch.randn(24, 4)
    loss = model(x).square().mean()
    weights = list(model.parameters())
    for one, gradient in zip(weights, torch.autograd.grad(loss, weights)):
        one.data -= 0.01 * gradient
    autotune.step(loss=loss, samples=len(x))
"""
CRITIC = """
from autotune import step as told
critic = nn.Linear(2, 1)
other = torch.optim.Adam(critic.parameters())
for number, (x, _) in enumerate(batches(), 1):
    other.zero_grad()
    (-critic(model(x).detach()).mean()).backward()
    other.step()
    if number % 5 == 0:
        optimizer.zero_grad()
        critic(model(x)).mean().backward()
        optimizer.step()
        told(LOSS)
"""


def test_updates_that_no_optimizer_makes_are_told(tmp_path):
    taken = steps(tmp_path, BY_HAND, batch_size=24)

    assert [(step.samples, step.micro_batches, step.steps) for step in taken] == [(24, 1, 1)] * 3
    assert all(0 < float(step.loss) < 10 for step in taken)


def test_what_is_told_is_the_baseline_and_the_model_is_found(tmp_path):
    facts = inspect(tmp_path, BY_HAND)

    assert facts.baseline is not None and facts.baseline["batch_size"] == 24
    assert (facts.name, facts.parameter_count) == ("Linear", 10)
    assert facts.step is not None and facts.step.loss is not None


@pytest.mark.parametrize("line", ["import autotune", "import autotune as tuning", "from autotune import step as told"])
def test_it_may_be_imported_within_a_function(tmp_path, line):
    """Its critic steps before the first call: what is awaited is known from the text alone."""
    name = {"import autotune": "autotune.step", "import autotune as tuning": "tuning.step"}.get(line, "told")
    loop = CRITIC.replace("from autotune import step as told", line).replace("told(LOSS)", f"{name}()")
    text = "def main():" + loop.replace("\n", "\n    ") + "\nmain()\n"

    taken = steps(tmp_path, text, gradient_accumulation_steps=5)

    assert [(step.samples, step.micro_batches) for step in taken] == [(40, 5)] * 3


@pytest.mark.parametrize(
    "line",
    [
        "import looping",
        "import math, looping",
        "from loops import (  # of ours\n        other,\n        looping,\n    )",
    ],
)
def test_a_loop_in_a_module_that_is_imported_within_a_function_is_looked_into(tmp_path, line):
    loop = HEAD + "def train():" + CRITIC.replace("LOSS", "").replace("\n", "\n    ")
    (tmp_path / "loops").mkdir()
    (tmp_path / "loops" / "other.py").touch()
    for place in (tmp_path, tmp_path / "loops"):
        (place / "looping.py").write_text(loop)

    taken = steps(tmp_path, f"def main():\n    {line}\n    looping.train()\nmain()\n", gradient_accumulation_steps=5)

    assert [(step.samples, step.micro_batches) for step in taken] == [(40, 5)] * 3


@pytest.mark.parametrize(
    ("folder", "text"),
    [
        ("", "LIMIT = 3\n"),
        ("dist-packages", "def told():\n    import autotune\n    autotune.step()\n"),
    ],
)
def test_a_library_is_not_parsed(tmp_path, monkeypatch, folder, text):
    """Those of one script of transformers took 15 s of each probe where they lay in a folder of Debian or their own."""
    parsed, parse = list[str](), told_steps._parsed
    monkeypatch.setattr(told_steps, "_parsed", lambda text: parsed.append(text) or parse(text))
    (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / folder / "library.py").write_text(text)

    taken = steps(tmp_path, f"sys.path.append({str(tmp_path / folder)!r})\nimport library\n{TRAIN}")

    assert [(step.samples, step.micro_batches) for step in taken] == [(8, 1)] * 3
    assert parsed == []


@pytest.mark.parametrize("loss", ["", "loss=0.5, samples=40"])
def test_a_critic_that_steps_five_times_belongs_to_one_step(tmp_path, loss):
    text = CRITIC.replace("LOSS", loss)

    taken = steps(tmp_path, text, gradient_accumulation_steps=5)

    assert [(step.samples, step.micro_batches) for step in taken] == [(40, 5)] * 3
    assert not loss or [float(step.loss) for step in taken] == pytest.approx([0.5] * 3)


def test_gradients_without_a_backward_pass_take_the_batches_of_the_loader(tmp_path):
    text = """
import autotune as tuning
for x, y in batches():
    def loss_of(weights): return nn.functional.cross_entropy(torch.func.functional_call(model, weights, (x,)), y)
    weights = {name: one.detach() for name, one in model.named_parameters()}
    gradients, loss = torch.func.grad_and_value(loss_of)(weights)
    for name, one in model.named_parameters(): one.data -= 0.1 * gradients[name]
    tuning.step(loss=loss.item())
"""
    taken = steps(tmp_path, text)

    assert [(step.samples, step.micro_batches) for step in taken] == [(8, 1)] * 3
    assert all(0 < float(step.loss) < 10 for step in taken)


def test_a_script_that_imports_autotune_for_something_else_is_counted_as_ever(tmp_path):
    text = "import autotune\nassert autotune.load_best\nfor x, y in batches(): step(x, y)\n"

    assert [(step.samples, step.micro_batches) for step in steps(tmp_path, text)] == [(8, 1)] * 3


def test_a_call_that_never_comes_is_not_waited_for(tmp_path):
    text = "import autotune\nfor x, y in batches():\n    step(x, y)\n    if x is None: autotune.step()\n"

    assert [(step.samples, step.micro_batches) for step in steps(tmp_path, text)] == [(8, 1)] * 3


def test_a_skipped_step_of_a_scaler_is_told_as_one(tmp_path):
    text = """
import autotune
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**60, growth_interval=1)
for x, y in batches():
    scaler.scale(model(x).sum() * 1e30).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    autotune.step()
"""
    assert [step.skipped for step in steps(tmp_path, text)] == [1, 1, 1]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("samples=0", "called autotune.step() with samples=0."),
        ("samples=True", "called autotune.step() with samples=True."),
        ("samples='8'", "called autotune.step() with samples='8'."),
        ("loss=torch.ones(3), samples=8", "called autotune.step() with a loss that is no number"),
        ("loss='low', samples=8", "called autotune.step() with a loss that is no number"),
        ("", "called autotune.step() with no samples. They are those that the step trained on, and no DataLoader"),
    ],
)
def test_what_cannot_be_meant_is_told(tmp_path, call, words):
    text = f"import autotune\nwhile True:\n    try: autotune.step({call})\n    except Exception: pass\n"

    assert f"train.py {words}" in refused(tmp_path, text)


def test_a_batch_that_was_not_arrived_is_seen_in_what_is_told(tmp_path):
    with pytest.raises(autotune.TargetError, match="was given batch_size 16 and trained with batch_size 24"):
        steps(tmp_path, BY_HAND, arguments="{batch_size=24}", batch_size=16)


def test_loops_that_cannot_be_seen_into_are_told_of_it(tmp_path):
    hand = BY_HAND.replace("autotune.step(loss=loss, samples=len(x))", "").replace("while True", "for _ in range(3)")
    backward = "for x, y in itertools.islice(batches(), 3): nn.functional.cross_entropy(model(x), y).backward()\n"

    assert "autotune.step(loss=loss, samples=len(batch))" in refused(tmp_path, backward)
    told = refused(tmp_path, hand)
    assert "did not train" in told
    assert (
        "if it trains without backward(), as by torch.func, write autotune.step(loss=loss, samples=len(batch))" in told
    )


@pytest.mark.slow
def test_a_probe_measures_what_is_told(tmp_path, forking_launcher):
    request = ProbeRequest(
        target=command(tmp_path, BY_HAND), device="cpu", config=Config(values=defaults() | {"batch_size": 24}),
        budget=ProbeBudget(min_warmup_seconds=0.1, min_seconds=0.2, max_seconds=0.3, max_loader_seconds=0.1),
    )  # fmt: skip

    (tmp_path / "probe").mkdir()
    result = forking_launcher.run(request, tmp_path / "probe")

    assert result.outcome is Outcome.OK, result
    assert result.measurement is not None
    assert set(result.measurement.samples) == {24 * result.measurement.steps_per_block}


def test_outside_of_a_probe_it_does_nothing_and_imports_nothing():
    program = """
import sys, timeit
import autotune
autotune.step()
autotune.step(loss=object(), samples="many")  # not looked at
heavy = {"torch", "optuna", "msgspec", "numpy"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parent)
