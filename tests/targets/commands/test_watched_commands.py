"""What becomes of commands in the hands of a probe: each kind of training, and each way to be none."""

from __future__ import annotations

import math
import re
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from autotune.child.lifeline import Progress
from autotune.core.records import Config, TargetFacts, Value
from autotune.core.results import Failure
from autotune.errors import TargetError
from autotune.failures.words import ended_early
from autotune.knobs import defaults, plan_of
from autotune.precision.child import compare_losses
from autotune.precision.records import PrecisionCheckRequest
from autotune.targets import resolve
from autotune.targets.base import Step, check_effect
from autotune.targets.commands.command import Command
from autotune.targets.commands.recognition.recognise import recognise
from autotune.targets.commands.watching import probe_log, tally
from autotune.testing.target_contract import Recorder, clean_imports
from tests.targets_support import watch

HEAD = """
import itertools, sys, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.randn(64, 4), torch.randint(2, (64,)))
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def batches(size=8, **options):
    for epoch in itertools.count():
        yield from DataLoader(data, size, drop_last=True, **options)

def step(x, y):
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
TRAIN = "for x, y in batches(): step(x, y)\n"


def test_a_rank_that_goes_on_for_the_others_keeps_what_its_script_was_given(tmp_path, monkeypatch):
    monkeypatch.setattr("autotune.targets.commands.watching.command_loop.world_size", lambda: 2)
    (tmp_path / "late.py").write_text("")
    told, enough = tmp_path / "told", tmp_path / "enough"
    text = f"""
import time
from pathlib import Path
for x, y in batches():
    step(x, y)
    time.sleep(0.01)
    if Path({str(enough)!r}).exists(): break
import late
Path({str(told)!r}).write_text(sys.argv[1])
"""
    config = Config(values=defaults() | {"batch_size": 8})
    with clean_imports():
        session = resolve(command(tmp_path, text, "--its-own")).open(
            config, plan_of(config.values, "cpu"), lambda phase: None
        )
        session.train(watch(2))

        enough.touch()
        give_up = time.monotonic() + 20
        while not (told.exists() and told.read_text()) and time.monotonic() < give_up:
            time.sleep(0.02)
        session._loop.going_on.close()

    assert told.read_text() == "--its-own"


class FakeTime:
    """A clock that goes on as it is told."""

    now = 0.0

    @classmethod
    def perf_counter(cls) -> float:
        return cls.now


CLOSURE = """\
    def closure():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        return loss
    optimizer.step(closure)
"""


def command(folder: Path, text: str, arguments: str = "") -> str:
    (folder / "train.py").write_text(HEAD + text)
    return f"-- python {folder / 'train.py'} {arguments}"


def inspect(folder: Path, text: str, arguments: str = "", *, lasts: bool = False) -> TargetFacts:
    with clean_imports():
        return resolve(command(folder, text, arguments)).inspect("cpu", None, lambda phase: None, lasts=lasts)


def refused(folder: Path, text: str, arguments: str = "", *, lasts: bool = False) -> str:
    with pytest.raises(TargetError) as caught:
        inspect(folder, text, arguments, lasts=lasts)
    return str(caught.value)


def steps(folder: Path, text: str, count: int = 3, arguments: str = "", **values: Value) -> list[Step]:
    """The first steps, after it was looked at whether they are what was asked for."""
    config, told = Config(values=defaults() | {"batch_size": 8} | values), watch(count)
    with clean_imports():
        session = resolve(command(folder, text, arguments)).open(
            config, plan_of(config.values, "cpu"), lambda phase: None
        )
        session.train(told)
    check_effect(session, config.values)
    return told.steps


def test_what_a_command_does_today_is_its_baseline(tmp_path):
    text = """
    for number, (x, y) in enumerate(batches(16), 1):
        with torch.autocast("cpu", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        if number % 2 == 0:
            optimizer.step()
    """
    facts = inspect(tmp_path, "if True:\n" + text)

    said = {"batch_size": 16, "gradient_accumulation_steps": 2, "amp_dtype": "bfloat16", "num_workers": 0}
    assert facts.baseline is not None
    assert said.items() <= facts.baseline.items()
    assert (facts.name, facts.parameter_count, facts.data, facts.dataset_samples) == ("Linear", 10, "dataset", 64)


def test_the_first_line_of_a_message_is_whole_without_what_the_program_wrote_last(tmp_path, monkeypatch):
    monkeypatch.setattr(probe_log, "_LOG", tmp_path / "log.txt")
    (tmp_path / "log.txt").write_text("epoch 9\n")

    assert probe_log.with_last_lines("It ended.") == "It ended.\nIts last lines:\n    epoch 9"


@pytest.mark.parametrize(
    ("ending", "is_enough", "ends_well"),
    [("", True, True), ("sys.exit()", True, True), ("", False, False), ("sys.exit(1)", True, False)],
)
def test_a_training_that_comes_to_its_normal_end_counts_if_enough_was_measured(
    tmp_path, monkeypatch, ending, is_enough, ends_well
):
    monkeypatch.setattr(Recorder, "ended", lambda self: is_enough)
    text = f"for x, y in itertools.islice(batches(), 3): step(x, y)\n{ending}\n"

    if ends_well:
        assert len(steps(tmp_path, text, count=10)) == 3
    else:
        remedy = "correct what ends it" if ending else r"Let it train for [\d,]+ steps or more"
        with pytest.raises(TargetError, match=rf"(?s)exit status \d after 3 optimizer steps.* {remedy}"):
            steps(tmp_path, text, count=10)


def test_a_training_that_is_too_short_for_a_probe_is_refused_where_it_is_asked_to_last(tmp_path):
    text = "for x, y in itertools.islice(batches(), 3): step(x, y)"

    assert inspect(tmp_path, text).name == "Linear"
    assert re.search(
        r"ended with exit status 0 after 3 optimizer steps, before it was measured\. It has probably too little to do: "
        r"it trained for .*, and measuring takes about 4\.5 s\. Let it train for [\d,]+ steps or more",
        refused(tmp_path, text, lasts=True),
    )


def test_one_step_is_no_plural(tmp_path):
    said = refused(tmp_path, "step(*next(iter(batches())))", lasts=True)

    assert "after 1 optimizer step, before it was measured" in said
    assert ended_early(Failure(phase="warm-up", message=said, evidence=""))


def test_a_training_that_lasts_is_looked_at_as_one_that_need_not(tmp_path):
    lasting, short = (inspect(tmp_path, TRAIN, lasts=lasts) for lasts in (True, False))

    assert lasting.step is not None and short.step is not None
    assert lasting.baseline == short.baseline
    assert lasting.step.trainable_parameters == short.step.trainable_parameters


def test_what_comes_before_the_first_step_is_no_part_of_its_seconds(tmp_path, monkeypatch):
    monkeypatch.setattr(tally, "time", FakeTime)
    text = f"""
    from {tally.__name__} import time
    time.now = 1000.0  # imports and data
    with torch.no_grad():
        model(data[0][0])  # an evaluation
    time.now = 2000.0
    x, y = next(batches())
    loss = nn.functional.cross_entropy(model(x), y)
    time.now = 2003.0
    loss.backward()
    optimizer.step()
    """

    assert inspect(tmp_path, "if True:\n" + text).step.seconds == 3.0


def test_what_it_does_not_take_is_held(tmp_path):
    facts = inspect(tmp_path, TRAIN)

    assert "batch_size" not in facts.settable
    assert "amp_dtype" not in facts.settable
    assert "num_workers" in facts.settable  # its loader leaves them out, so that a probe can give them


def test_workers_that_the_script_sets_itself_are_left_alone(tmp_path):
    facts = inspect(tmp_path, "for x, y in batches(num_workers=0): step(x, y)\n")

    assert "num_workers" not in facts.settable


def test_workers_are_given_from_outside_where_the_script_leaves_them_open(tmp_path):
    taken = steps(tmp_path, TRAIN, num_workers=1)

    assert [step.samples for step in taken] == [8, 8, 8]


ARGUED = "for x, y in batches(int(sys.argv[2])): step(x, y)\n"


def test_an_argument_that_arrives_is_measured(tmp_path):
    taken = steps(tmp_path, ARGUED, arguments="--batch-size {batch_size=8}", batch_size=16)

    assert [step.samples for step in taken] == [16, 16, 16]


@pytest.mark.parametrize(
    ("text", "values", "words"),
    [
        (TRAIN, {"batch_size": 16}, "train.py was given batch_size 16 and trained with batch_size 8"),
        (TRAIN, {"gradient_accumulation_steps": 4}, "steps 4 and trained with gradient_accumulation_steps 1"),
        (TRAIN, {"amp_dtype": "bfloat16"}, "train.py was given amp bfloat16 and trained with no autocast"),
        ("with torch.autocast('cpu'):\n  " + TRAIN, {}, "was given no autocast and trained with amp bfloat16"),
        ("model.bfloat16()\nfor x, y in batches(): step(x.bfloat16(), y)\n", {}, "trained with amp bfloat16"),
        ("for x, y in batches(num_workers=0): step(x, y)\n", {"num_workers": 1}, "1 loader worker and trained with no"),
        (f"torch.set_num_threads(2)\n{TRAIN}", {"num_threads": 3}, "3 torch threads and trained with 2 torch threads"),
        (TRAIN, {"activation_checkpointing": True}, "given activation checkpointing and trained with activation_check"),
        (
            "model.image = nn.Conv2d(3, 4, 3)\noptimizer = torch.optim.SGD(model.parameters())\n" + TRAIN,
            {"channels_last": True},
            "was given channels_last and trained with channels_last nchw",
        ),
    ],
)
def test_a_setting_that_did_not_arrive_is_never_measured(tmp_path, text, values, words):
    arguments = "{batch_size} {gradient_accumulation_steps} {amp_dtype:short}"

    with pytest.raises(TargetError, match=words):
        steps(tmp_path, text, arguments=arguments, **values)


def test_a_batch_that_is_larger_than_the_dataset_is_told_with_the_size_of_the_dataset(tmp_path):
    larger = "while True:\n    for x, y in DataLoader(data, int(sys.argv[2])): step(x, y)\n"

    assert refused(tmp_path, larger, "--batch-size {batch_size=9000}") == (
        "train.py was given batch_size 9,000, and its dataset has 64 samples: no batch can be larger. The batch was "
        "probably meant for a larger dataset. Give it 64 or less."
    )
    other = refused(tmp_path, TRAIN, "--batch-size {batch_size=9000}")
    assert "was given batch_size 9000 and trained with batch_size 8. It probably ignores" in other


OF_THE_MODEL = """
import argparse
from torch.utils.checkpoint import checkpoint
parser = argparse.ArgumentParser()
parser.add_argument("--channels-last", action="store_true")
parser.add_argument("--grad-checkpointing", action="store_true")
parser.add_argument("--reentrant", action="store_true")
args = parser.parse_args()
parts = [nn.Sequential(nn.Conv2d(n, 4, 3), nn.ReLU()) for n in (3, 4)]
model = nn.Sequential(*parts)
if args.channels_last:
    model = model.to(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, in DataLoader(TensorDataset(torch.randn(800, 3, 9, 9)), 8):
    assert all(type(one) is nn.Sequential for one in parts) and x.is_contiguous()
    x.requires_grad_()
    y = checkpoint(model, x, use_reentrant=args.reentrant) if args.grad_checkpointing else model(x)
    y.mean().backward()
    optimizer.step()
"""


@pytest.mark.parametrize("values", [{}, {"channels_last": True}, {"activation_checkpointing": True}])
@pytest.mark.parametrize("typed", ["", "--grad-checkpointing", "--grad-checkpointing --reentrant --channels-last"])
def test_what_arguments_do_to_a_model_is_left_to_them(tmp_path, typed, values):
    target = recognise(Command.split(command(tmp_path, OF_THE_MODEL, typed))).command
    arguments = " ".join(target.text.split()[3:])

    facts = inspect(tmp_path, OF_THE_MODEL, arguments)

    today = {"channels_last": "--channels" in typed, "activation_checkpointing": "--grad" in typed}
    assert facts.baseline is not None and facts.settable is not None
    assert today.items() <= facts.baseline.items()
    assert today.keys() <= set(facts.settable)
    assert len(steps(tmp_path, OF_THE_MODEL, arguments=arguments, **values)) == 3


OF_ITS_INPUT = OF_THE_MODEL.replace("    model = model.to(memory_format=torch.channels_last)", "    pass").replace(
    "    x.requires_grad_()", "    x = x.to(memory_format=torch.channels_last) if CONVERTS else x"
)


@pytest.mark.parametrize("converts", ["args.channels_last", "True"])
@pytest.mark.parametrize("value", [False, True])
def test_a_script_that_converts_its_input_alone_trains_in_that_format(tmp_path, converts, value):
    text = OF_ITS_INPUT.replace("CONVERTS", converts)
    target = recognise(Command.split(command(tmp_path, text, "--channels-last"))).command
    arguments = " ".join(target.text.split()[3:])

    taken = steps(tmp_path, text, arguments=arguments, channels_last=value)

    assert len(taken) == 3
    with pytest.raises(TargetError, match="given channels_last and trained with channels_last nchw"):
        steps(tmp_path, OF_ITS_INPUT.replace("CONVERTS", "False"), arguments=arguments, channels_last=True)


@pytest.mark.parametrize("typed", ["--grad-checkpointing", "--grad-checkpointing --reentrant --channels-last"])
def test_what_a_script_does_to_its_model_unasked_is_its_baseline(tmp_path, typed):
    facts = inspect(tmp_path, OF_THE_MODEL, typed)

    assert facts.baseline is not None and facts.settable is not None
    assert facts.baseline["activation_checkpointing"] is True
    assert facts.baseline["channels_last"] is ("--channels" in typed)
    assert not {"activation_checkpointing", "channels_last"} & set(facts.settable)
    assert len(steps(tmp_path, OF_THE_MODEL, arguments=typed, **facts.baseline)) == 3


AS_TIMM = """
import argparse
from contextlib import suppress
from functools import partial
parser = argparse.ArgumentParser()
parser.add_argument("-b", "--batch-size", type=int, default=8)
parser.add_argument("--amp", action="store_true", default=False)
parser.add_argument("--amp-dtype", default="float16", type=str)
args = parser.parse_args()
amp_autocast = suppress
if args.amp:
    assert args.amp_dtype in ("float16", "bfloat16")
    amp_dtype = torch.bfloat16 if args.amp_dtype == "bfloat16" else torch.float16
    amp_autocast = partial(torch.autocast, device_type="cpu", dtype=amp_dtype)
for x, y in batches(args.batch_size):
    with amp_autocast():
        loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
@pytest.mark.parametrize(("typed", "today"), [("", None), ("--amp --amp-dtype bfloat16", "bfloat16")])
def test_a_script_as_timms_trains_in_the_dtype_that_is_asked_for(tmp_path, typed, today, dtype):
    words = Command.split(command(tmp_path, AS_TIMM, typed))
    target = recognise(words).command

    with clean_imports():
        facts = resolve(target.text).inspect("cpu", None, lambda phase: None)
    assert facts.baseline is not None
    assert facts.baseline["amp_dtype"] == today
    arguments = " ".join(target.text.split()[3:])
    assert len(steps(tmp_path, AS_TIMM, arguments=arguments, amp_dtype=dtype)) == 3


TOLD_THE_GLOBAL_BATCH = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--device-batch-size", type=int)
parser.add_argument("--total-batch-size", type=int)
args = parser.parse_args()
micro_batches = args.total_batch_size // args.device_batch_size
for number, (x, y) in enumerate(batches(args.device_batch_size), 1):
    nn.functional.cross_entropy(model(x), y).backward()
    if number % micro_batches == 0:
        optimizer.step()
"""
MICRO_BATCH = "--device-batch-size {batch_size=8}"


@pytest.mark.parametrize(
    ("arguments", "text", "steps", "is_derived"),
    [
        ("--total-batch-size 32", TOLD_THE_GLOBAL_BATCH, 4, True),
        ("--total-batch-size 8", TOLD_THE_GLOBAL_BATCH, 1, False),  # one that is ignored would look like this
        ("", TOLD_THE_GLOBAL_BATCH.replace("args.total_batch_size", "32"), 4, False),
    ],
)
def test_accumulation_that_a_script_derives_follows_the_micro_batch(tmp_path, arguments, text, steps, is_derived):
    facts = inspect(tmp_path, text, f"{MICRO_BATCH} {arguments}")

    assert facts.baseline is not None
    assert facts.baseline["gradient_accumulation_steps"] == steps
    assert facts.settable is not None
    assert ("gradient_accumulation_steps" in facts.settable) is is_derived


def test_accumulation_that_a_script_derives_is_checked(tmp_path):
    arguments = f"{MICRO_BATCH} --total-batch-size 32"
    values: dict[str, Value] = {"batch_size": 16, "gradient_accumulation_steps": 2}

    taken = steps(tmp_path, TOLD_THE_GLOBAL_BATCH, arguments=arguments, **values)

    assert [step.samples for step in taken] == [32, 32, 32]
    with pytest.raises(TargetError, match="steps 4 and trained with gradient_accumulation_steps 2"):
        steps(tmp_path, TOLD_THE_GLOBAL_BATCH, arguments=arguments, **values | {"gradient_accumulation_steps": 4})


def test_two_optimizers_that_take_turns_make_one_step(tmp_path):
    text = """
critic = nn.Linear(2, 1)
other = torch.optim.Adam(critic.parameters())
for x, _ in batches():
    other.zero_grad()
    critic(torch.randn(8, 2)).mean().backward()
    (-critic(model(x).detach()).mean()).backward()
    other.step()
    optimizer.zero_grad()
    critic(model(x)).mean().backward()
    optimizer.step()
"""
    taken = steps(tmp_path, text)

    assert [(step.samples, step.micro_batches) for step in taken] == [(8, 1)] * 3


def test_all_batches_of_a_step_may_be_fetched_before_it_begins(tmp_path):
    text = """
ready = batches()
for number in itertools.count():
    for x, y in [next(ready) for _ in range(20)]: nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
"""
    taken = steps(tmp_path, text, gradient_accumulation_steps=20)

    assert [(step.samples, step.micro_batches) for step in taken] == [(160, 20)] * 3


def test_without_a_loader_a_closure_that_is_called_again_is_one_batch(tmp_path):
    text = (
        """
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=5)
for number in itertools.count():
    x, y = data[:8]
"""
        + CLOSURE
    )
    assert [(step.samples, step.micro_batches) for step in steps(tmp_path, text)] == [(8, 1)] * 3


def test_without_a_loader_the_batches_of_another_optimizer_are_not_counted(tmp_path):
    text = """
critic = nn.Linear(2, 1)
other = torch.optim.Adam(critic.parameters())
while True:
    made = model(torch.randn(8, 4))
    critic(made.detach()).mean().backward()
    other.step()
    critic(made).mean().backward()
    optimizer.step()
"""
    assert [(step.samples, step.micro_batches) for step in steps(tmp_path, text)] == [(8, 1)] * 3


def test_batches_of_an_evaluation_are_not_counted(tmp_path):
    text = """
held_out = TensorDataset(torch.randn(64, 4), torch.randint(2, (64,)))
for x, y in batches():
    step(x, y)
    with torch.no_grad():
        for more, _ in DataLoader(held_out, 32): model(more)
"""
    assert [(step.samples, step.micro_batches) for step in steps(tmp_path, text)] == [(8, 1)] * 3


EVALUATED = """
import time
from autotune.targets.commands.watching import pauses

clock = 0.0
class Clock:
    def perf_counter(): return clock
pauses.time = Clock  # the evaluation's clock: only it goes on, by whole seconds

held_out = TensorDataset(torch.randn(64, 4), torch.randint(2, (64,)))
for number, (x, y) in enumerate(batches()):
    model.train()
    step(x, y)
    if number % EVERY == 0:
        {evaluation}
"""
EVALUATIONS = {
    "evaluation": "model.eval(); clock += 3",
    "in a wrapper": "nn.Sequential(model).eval(); clock += 3",
    "checkpoint": "import io; torch.save(Slow(), io.BytesIO())",
}
SLOW = """
class Slow:
    def __getstate__(self):
        global clock
        clock += 3
        return {}
"""


@pytest.mark.parametrize("evaluation", EVALUATIONS.values(), ids=EVALUATIONS)
def test_an_evaluation_between_two_steps_is_no_part_of_a_step(tmp_path, evaluation):
    text = SLOW + EVALUATED.format(evaluation=evaluation).replace("EVERY", "2")

    taken = steps(tmp_path, text, 6)

    assert [step.paused_seconds for step in taken] == [0, 3, 0, 3, 0, 3]


@pytest.mark.parametrize("begun", [0, 4])
def test_an_evaluation_of_the_data_that_are_trained_on_is_no_part_of_a_step(tmp_path, begun):
    text = (
        EVALUATED.replace("{evaluation}", "evaluate()")
        .replace("EVERY", "2")
        .replace(
            "clock = 0.0",
            f"""
clock = 0.0
@torch.no_grad()
def evaluate():
    global clock
    model.eval()
    for x, _ in DataLoader(data, 32):
        model(x)
        clock += 1.5
    model.train()
for _ in range({begun}): evaluate()
""",
        )
    )

    taken = steps(tmp_path, text, 6)

    assert [step.paused_seconds for step in taken] == [0, 3, 0, 3, 0, 3]
    assert [(step.samples, step.micro_batches) for step in taken] == [(8, 1)] * 6


@pytest.mark.parametrize(
    ("evaluation", "every"),
    [
        ("model.eval(); clock += 3", "1"),  # in every step, it belongs to the step
        ("nn.BatchNorm1d(4).eval(); clock += 3", "2"),  # a layer, or another model
        ("model.eval(); clock += 3; model(x).sum().backward()", "2"),  # training in that mode
    ],
)
def test_what_belongs_to_a_step_stays_in_it(tmp_path, evaluation, every):
    text = EVALUATED.format(evaluation=evaluation).replace("EVERY", every)

    taken = steps(tmp_path, text, 6)

    assert [step.paused_seconds for step in taken][2:] == [0, 0, 0, 0]


def test_gradients_that_come_within_the_step_are_seen(tmp_path):
    text = (
        """
for x, y in batches():
"""
        + CLOSURE
    )
    facts = inspect(tmp_path, text)

    assert facts.step.parameters_with_gradient == facts.step.trainable_parameters == 2


def test_a_step_without_a_gradient_belongs_to_no_batch(tmp_path):
    text = (
        HEAD
        + """
for number, (x, y) in enumerate(itertools.chain.from_iterable(DataLoader(data, 8) for _ in range(99))):
    optimizer.zero_grad()
    if number % 3:
        nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
"""
    )

    taken = steps(tmp_path, text, 6)

    assert [(step.samples, step.micro_batches) for step in taken] == [(8, 1)] * 6
    assert all(math.isfinite(step.loss) for step in taken)


def test_a_step_before_the_loop_that_only_silences_a_scheduler_leaves_the_count_of_the_first_one(tmp_path):
    text = (
        HEAD
        + """
optimizer.step()
while True:
    for _ in range(4):
        nn.functional.cross_entropy(model(torch.randn(8, 4)), torch.randint(2, (8,))).backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    )

    assert inspect(tmp_path, text).baseline["gradient_accumulation_steps"] == 4


def test_the_loss_of_a_step_is_that_of_all_its_micro_batches(tmp_path):
    text = """
for number, (x, y) in enumerate(batches(), 1):
    ((model(x).sum() * 0 + 3.0) / 4).backward()
    if number % 4 == 0: optimizer.step()
"""
    assert inspect(tmp_path, text).step.loss == 3.0


def test_updates_by_hand_are_told_long_before_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(
        sys.modules[__name__], "HEAD", HEAD.replace("optimizer = torch.optim.SGD(model.parameters(), lr=0.1)", "")
    )
    text = "for x, y in batches():\n  model(x).sum().backward()\n"

    assert "steps no optimizer of torch.optim. Its updates are probably written by hand" in refused(tmp_path, text)


def test_without_a_loader_a_batch_is_what_the_model_is_given(tmp_path):
    text = """
with torch.no_grad(): model(torch.randn(50, 4))
while True: step(torch.randn(24, 4), torch.randint(2, (24,)))
"""
    facts = inspect(tmp_path, text)

    assert (facts.data, facts.baseline["batch_size"], facts.tunes_workers) == ("batch", 24, False)
    assert [step.samples for step in steps(tmp_path, text, batch_size=24)] == [24] * 3


@pytest.mark.parametrize(("asked", "size"), [(8, 8), (24, 24), (8, 9)])
def test_batches_whose_second_dimension_is_of_samples_are_known_by_what_was_asked_for(tmp_path, asked, size):
    text = f"""
model = nn.LSTM(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    model(torch.randn(35, {size}, 4), (torch.zeros(1, {size}, 2), torch.zeros(1, {size}, 2)))[0].sum().backward()
    optimizer.step()
"""
    if asked == size:
        assert [step.samples for step in steps(tmp_path, text, arguments="{batch_size}", batch_size=asked)] == [
            size
        ] * 3
    else:
        with pytest.raises(
            TargetError, match=r"was given batch_size 8, and its model was called with an input of shape"
        ):
            steps(tmp_path, text, arguments="{batch_size}", batch_size=asked)


OBSERVED = """
while True:
    loss = sum(model(torch.randn(4)).sum() for _ in range(int(sys.argv[-1] if len(sys.argv) > 1 else 8)))
    loss.backward()
    optimizer.step()
"""  # one observation in each call, as in reinforcement learning


def test_a_batch_that_was_guessed_from_a_shape_accuses_nobody_of_ignoring_its_setting(tmp_path):
    assert refused(tmp_path, OBSERVED, "--batch-size {batch_size=8}") == (
        "train.py was given batch_size 8, and its model was called with an input of shape (4,). Without a DataLoader "
        "the first dimension, 4, is taken for the batch size, and that is a guess: the input may be one sample, its "
        "samples may be another dimension, or train.py ignores the setting. The measurement would have a wrong name: "
        "report the samples of each optimizer step, autotune.step(loss=loss, samples=...), or leave the batch size "
        "out, --map batch=no."
    )


def test_the_loss_of_a_command_whose_micro_batch_may_change_is_told_to_be_unknown(tmp_path):
    both = "--batch-size {batch_size=8} --accum {gradient_accumulation_steps=1}"
    told, untold = (
        [one for one in inspect(tmp_path, TRAIN, arguments).check_lines if one.name == "loss"]
        for arguments in (both, "--batch-size {batch_size=8}")
    )

    assert [one.override for one in told] == ["if it is none (pairs of a batch, a sum), --fix batch=8"]
    assert untold == []


@pytest.mark.parametrize(
    ("text", "arguments", "guess"),
    [
        (OBSERVED, "", 4),
        (OBSERVED, "--batch-size {batch_size=4}", 4),  # an input of one dimension may be one sample
        (
            f"model = nn.Embedding(9, 2)\noptimizer = torch.optim.SGD(model.parameters())\n{OBSERVED}".replace(
                "randn(4)", "randint(9, (4,))"
            ),
            "--batch-size {batch_size=4}",
            None,
        ),
        (OBSERVED.replace("randn(4)", "randn(6, 4)"), "", 6),
        (OBSERVED.replace("randn(4)", "randn(8, 4)"), "--batch-size {batch_size=8}", None),
        (f"import autotune\n{OBSERVED}    autotune.step(samples=8)\n", "", None),
        (TRAIN, "", None),
    ],
    ids=["vector", "vector of the size asked for", "indices", "matrix", "size asked for", "reported", "loader"],
)
def test_a_batch_that_was_guessed_from_a_shape_needs_attention(tmp_path, text, arguments, guess):
    (said,) = [one for one in inspect(tmp_path, text, arguments).check_lines if one.name == "data"]

    assert said.needs_attention is (guess is not None)
    if guess:
        assert said.text == (
            f"no DataLoader; the first dimension of what the model was called with, {guess}, is taken for the batch: "
            "report samples by autotune.step(samples=...) if that is wrong"
        )


TWO = """
encoder = nn.Sequential(nn.Conv1d(1, 2, 3), nn.Flatten())
class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.out = nn.BatchNorm1d(4), nn.Linear(4, 2)
    def forward(self, x):
        return self.out(self.norm(x))
decoder = Decoder()
"""
BOTH = """
for x, y in batches():
    nn.functional.cross_entropy(decoder(encoder(x.unsqueeze(1))), y).backward()
    for one in optimizers: one.step()
    for one in optimizers: one.zero_grad()
"""
IN_TURN = """
for x, y in batches():
    for one in optimizers:
        code = encoder(x.unsqueeze(1))
        nn.functional.cross_entropy(decoder(code.detach() if one is optimizers[0] else code), y).backward()
        one.step()
        encoder.zero_grad(), decoder.zero_grad()
"""
PARENT = """
class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
parent = Both()
"""


def _of(*parts: str) -> str:
    return f"optimizers = [{', '.join(f'torch.optim.Adam({one})' for one in parts)}]\n"


@pytest.mark.parametrize(
    ("text", "name", "parameters", "tensors"),
    [
        (TWO + _of("encoder.parameters()", "decoder.parameters()") + BOTH, "Decoder and Sequential", 26, 6),
        (TWO + _of("decoder.parameters()", "encoder.parameters()") + IN_TURN, "Decoder and Sequential", 26, 6),
        (TWO + _of("[*encoder.parameters(), *decoder.parameters()]") + BOTH, "Decoder and Sequential", 26, 6),
        (TWO + PARENT + _of("encoder.parameters()", "decoder.parameters()") + BOTH, "Both", 26, 6),
        (
            f"{TWO}encoder, decoder = map(nn.DataParallel, (encoder, decoder))\n"
            f"{_of('encoder.parameters()', 'decoder.parameters()')}{BOTH}",
            "Decoder and Sequential", 26, 6,
        ),
        (TWO + "encoder.requires_grad_(False)\n" + _of("[*encoder.parameters(), *decoder.parameters()]") + BOTH,
         "Decoder", 18, 4),
        (
            "layers = [nn.Linear(4, 4) for _ in range(5)]\nencoder = lambda x: [x := one(x) for one in layers][-1]\n"
            "decoder = lambda x: x.squeeze(1)\n" + _of(*(f"layers[{at}].parameters()" for at in range(5))) + BOTH,
            "Linear, Linear and 3 more modules", 100, 10,
        ),
    ],
    ids=["together", "in turn", "one optimizer", "one parent", "wrapped", "frozen", "many"],
)  # fmt: skip
def test_all_modules_that_the_optimizers_train_are_the_model(tmp_path, text, name, parameters, tensors):
    facts = inspect(tmp_path, text)

    assert (facts.name, facts.parameter_count) == (name, parameters)
    assert facts.step is not None
    assert (facts.step.parameters_with_gradient, facts.step.trainable_parameters) == (tensors, tensors)
    assert facts.has_batch_norm is ("Decoder" in text)


def test_a_scaled_loss_is_told_as_it_was(tmp_path):
    text = """
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for x, y in batches():
    loss = nn.functional.cross_entropy(model(x), y)
    scaler.scale(loss * (float("inf") if optimizer.param_groups[0].pop("first", False) else 1)).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
"""
    first = "optimizer.param_groups[0]['first'] = True\n"

    assert [step.skipped for step in steps(tmp_path, text)] == [0, 0, 0]
    assert [step.skipped for step in steps(tmp_path, first + text)] == [1, 0, 0]
    assert float(steps(tmp_path, text)[0].loss) < 10


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("print('nothing to do')\n", r"ended with exit status 0 and did not train: there was no backward pass"),
        ("sys.exit(3)\n", r"ended with exit status 3 and did not train"),
        ("import os\nos._exit(4)\n", r"ended with exit status 4 and did not train"),
        ("raise RuntimeError('mine')\n", r"train\.py:\d+ in <module>: RuntimeError: mine"),
        ("input('continue? ')\n", r"reads the standard input, which is empty in a probe: .*Give the answer as an arg"),
        (
            "for x, y in batches():\n  model(x).sum().backward()\n  if model.weight.grad.norm() > 1e4: break\n",
            r"after [\d,]+ calls of backward\(\), before its optimizer took a step\. It probably accumulates over more",
        ),
        ("import torch.multiprocessing as mp\nmp.spawn(print, nprocs=2)\n", r"trains in processes that it starts its"),
        (
            "import torch.multiprocessing as mp\nmp.start_processes(print, nprocs=2)  # as Lightning for 'ddp_spawn'\n"
            "strategy = 'ddp_spawn_find_unused_parameters_true'\n",
            r'with one device\. Lightning starts them for ddp_spawn \(train\.py:\d+\): write strategy="ddp" there',
        ),
        ("import subprocess\nsubprocess.run(['torchrun', 'x.py'])\n", r"trains in processes that it starts itself"),
        ("import subprocess\nsubprocess.run('deepspeed x.py', shell=True)\n", r"trains in processes that it starts"),
        (
            "import subprocess\nsubprocess.run([sys.executable, 'real.py', '--lr', '1'])\n",
            r"or trains in another process: it started \S+python\S* real.py --lr 1\. Run it by itself, and name the",
        ),
        (
            "import os, subprocess\nos.environ['_AUTOTUNE_OUTPUT'] = '/scratch'\n"
            "subprocess.run([sys.executable, 'real.py', '--out', '/scratch/1'])\n",
            r"it started \S+python\S* real.py --out OUTPUT_DIR/1\.",
        ),
        ("while True:\n  try: raise KeyError\n  except: sys.exit(9)\n", r"ended with exit status 9"),
    ],
)
def test_what_is_no_training_is_told_with_what_to_do(tmp_path, monkeypatch, text, words):
    with Path("/dev/null").open() as empty:
        monkeypatch.setattr(sys, "stdin", empty)

        assert re.search(words, refused(tmp_path, text))


def test_the_last_line_of_one_that_fails_stands_in_the_line_that_tables_show(tmp_path, monkeypatch):
    """A value of a placeholder that the script refuses: its own words say more than all guesses."""
    said = "train.py: error: argument --act: invalid choice: 'swish' (choose from 'relu', 'tanh')"
    (tmp_path / "log.txt").write_text(f"usage: train.py [--act ACT]\n{said}\n")
    monkeypatch.setattr(probe_log, "_LOG", tmp_path / "log.txt")

    first, *rest = refused(tmp_path, "sys.exit(2)\n").splitlines()
    calm = refused(tmp_path, "sys.exit(0)\n").partition("\n")[0]

    assert f'and no optimizer step. Its last line: "{said}". It probably needs' in first
    assert any(line.strip() == said for line in rest)
    assert "Its last line: " not in calm


def test_one_that_ends_before_it_was_measured_says_how(tmp_path):
    text = "for x, y in itertools.islice(batches(), 2): step(x, y)\nsys.exit('no more')\n"

    with pytest.raises(TargetError, match=r"ended with exit status no more after 2 optimizer steps, before it was"):
        steps(tmp_path, text)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("deepspeed train.py", "deepspeed starts other processes in a way that is not watched"),
        ("accelerate test", "accelerate starts other processes in a way that is not watched"),
        ("python -m torch.distributed.run missing.py", "There is no file missing.py"),
        ("python missing.py", "There is no file missing.py"),
        ("python -c 'print()'", "cannot be watched"),
        ("OMP_NUM_THREADS=1 python train.py", "Write it before autotune: OMP_NUM_THREADS=1 autotune search"),
        ("/somewhere/else/bin/python train.py", "Install autotune into the environment of the command"),
        ("cat train.py", "cat is no Python program"),
        ("no-such-command", "There is no command no-such-command"),
    ],
)
def test_a_command_that_cannot_be_watched_is_refused_at_once(words, message):
    with pytest.raises(TargetError, match=message):
        resolve(f"-- {words}").inspect("cpu", None, lambda phase: None)


def test_a_module_and_a_console_script_are_run_like_files(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(HEAD + "assert __name__ == '__main__'\n" + TRAIN)
    tool = tmp_path / "bin" / "tune-me"
    tool.parent.mkdir()
    tool.write_text(f"#!{sys.executable}\n" + HEAD + TRAIN)
    tool.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tool.parent), prepend=":")

    for words in ("python -m mine --lr 1", "tune-me --lr 1"):
        with clean_imports():
            assert resolve(f"-- {words}").inspect("cpu", None, lambda phase: None).name == "Linear"


def test_the_script_finds_itself_as_it_would_alone(tmp_path, monkeypatch):
    before = sys.argv, sys.modules["__main__"], list(sys.path)
    (tmp_path / "beside.py").write_text("NAME = 'beside'\n")
    text = """
import os, beside
import __main__
assert sys.argv[1:] == ["--lr", "1 2"], sys.argv
assert __main__.model is model and __file__ == sys.argv[0]
assert not sys.stdin.read() if not sys.stdin.closed else True
"""
    with Path("/dev/null").open() as empty:
        monkeypatch.setattr(sys, "stdin", empty)
        inspect(tmp_path, text + TRAIN, "--lr '1 2'")

    assert (sys.argv, sys.modules["__main__"], sys.path) == before


def test_a_second_optimizer_that_takes_over_is_followed(tmp_path):
    text = (
        """
for x, y in itertools.islice(batches(), 2): step(x, y)
optimizer = torch.optim.Adam(model.parameters())
"""
        + TRAIN
    )

    assert len(steps(tmp_path, text, count=4)) == 4


PAIRED = """
half = "--bf16" in sys.argv
for x, y in batches(shuffle=True):
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        loss = nn.functional.cross_entropy(nn.functional.dropout(model(x)), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize("text", [PAIRED, "torch.manual_seed(3)\n" + PAIRED], ids=["unseeded", "seeds itself"])
def test_runs_of_a_command_begin_alike_and_see_the_same_batches(tmp_path, text):
    config = Config(values=defaults() | {"batch_size": 8})
    half = Config(values=config.values | {"amp_dtype": "bfloat16"})
    request = PrecisionCheckRequest(
        target=command(tmp_path, text, "{bf16:flag=false}"), reference=config, candidate=half, device="cpu", steps=6
    )

    def losses(role: str) -> list[float]:
        with clean_imports():
            (run,) = compare_losses(replace(request, roles=(role,)), Progress(None)).runs
        assert (run.role, len(run.losses)) == (role, 6)
        return list(run.losses)

    reference = losses("reference")
    assert losses("reference") == reference
    for role, most in (("perturbed", 1e-4), ("candidate", 0.05)):
        assert losses(role) != reference
        assert losses(role) == pytest.approx(reference, abs=most)
