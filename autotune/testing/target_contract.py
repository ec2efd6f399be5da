"""The contract of all kinds of targets: a base class of tests.

class TestMyKind(TargetContract):
    text = MY_FILE
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from autotune.core.records import Config, TargetFacts, Value
from autotune.errors import TargetError
from autotune.knobs import defaults, plan_of
from autotune.targets import Target, resolve
from autotune.targets.base import Order, Session, Step


class Recorder:
    """A watch that answers with `orders`, and stops when they are used up."""

    def __init__(self, *orders: Order, steps_at_once: int = 1) -> None:
        self._orders, self.steps_at_once = list(orders), steps_at_once
        self.steps: list[Step] = []
        self.loads: list[int] = []
        self.micro_steps: list[bool] = []  # whether each one exchanged gradients
        self.epochs = self.micro_batches = self.updates = 0
        self.first_batches: list[float] = []

    def first_batch(self, seconds: float) -> None:
        self.first_batches.append(seconds)

    def epoch(self) -> None:
        self.epochs += 1

    def step(self, step: Step) -> Order:
        self.steps.append(step)
        return self._next()

    def ended(self) -> bool:
        return False

    def micro_step(self, *, exchanges: bool) -> Order:
        self.micro_steps.append(exchanges)
        return self._next()

    def micro_batch(self) -> None:
        self.micro_batches += 1

    def update(self) -> None:
        self.updates += 1

    def loaded(self, samples: int) -> Order:
        self.loads.append(samples)
        return self._next()

    def _next(self) -> Order:
        return self._orders.pop(0) if self._orders else Order.STOP


@contextmanager
def clean_imports() -> Iterator[None]:
    """Restore `sys.path` and `sys.modules` when the `with` block ends, as if it had imported nothing."""
    path, modules = list(sys.path), set(sys.modules)
    try:
        yield
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - modules:
            file = getattr(sys.modules[name], "__file__", None) or ""
            if not any(part in file for part in ("site-packages", "lib/python")) and not name.startswith("autotune"):
                del sys.modules[name]


class TargetContract:
    """A base class: derive from it and give in `text` a file of the kind; pytest runs the tests, on the CPU.

    The file has at least 48 samples, all of one shape, and a model without random numbers of its own in the forward
    pass, trained by default in batches of 8 with 1 micro-batch per optimizer step.
    """

    text: str

    def test_an_inspection_finds_model_and_data_and_takes_a_step(self, tmp_path: Path) -> None:
        facts = self._facts(tmp_path)

        assert facts.name and facts.parameter_count > 0
        assert facts.dataset_samples is None or facts.dataset_samples >= 48
        assert facts.step is not None and facts.step.loss is not None
        assert facts.step.parameters_with_gradient == facts.step.trainable_parameters > 0
        assert facts.check_lines

    def test_every_step_has_the_samples_that_were_asked_for(self, tmp_path: Path) -> None:
        for batch, accumulated in ((4, 1), (4, 2), (16, 1)):
            steps = self._steps(tmp_path, 3, batch_size=batch, gradient_accumulation_steps=accumulated)

            assert [step.samples for step in steps] == [batch * accumulated] * 3
            assert [step.micro_batches for step in steps] == [accumulated] * 3

    def test_it_stops_when_it_is_told_and_goes_on_over_epochs(self, tmp_path: Path) -> None:
        told = Recorder(*[Order.CONTINUE] * 13)

        self._open(tmp_path, batch_size=16).train(told)

        assert len(told.steps) == 14
        assert told.epochs >= 1 or (self._facts(tmp_path).dataset_samples or 0) > 14 * 16
        assert len(told.first_batches) == 1

    def test_steps_are_told_together_where_that_is_asked_for(self, tmp_path: Path) -> None:
        told = Recorder(Order.CONTINUE, steps_at_once=3)

        self._open(tmp_path, batch_size=4).train(told)

        assert [(step.steps, step.samples) for step in told.steps] == [(3, 12), (3, 12)]

    def test_accumulation_runs_in_cycles_of_two_where_that_will_do_and_in_full_where_it_cannot(
        self, tmp_path: Path
    ) -> None:
        from autotune.child.run import seed_all

        config = self._config(batch_size=4, gradient_accumulation_steps=8)
        plan = plan_of(config.values, "cpu")
        plan.short_cycles = True
        with clean_imports():
            session = self._target(tmp_path).open(config, plan, lambda name: seed_all(1))
        told = Recorder(Order.CONTINUE)
        session.train(told)

        cycle = 8 if self._facts(tmp_path).owns_loop else 2
        assert plan.micro_batches_per_step == cycle
        assert [(step.micro_batches, step.samples) for step in told.steps] == [(cycle, 4 * cycle)] * 2
        assert told.updates == (0 if cycle == 8 else 4)

    def test_a_loss_is_the_mean_of_a_step_as_a_tensor_of_no_dimension(self, tmp_path: Path) -> None:
        for accumulated in (1, 4):
            step = self._steps(tmp_path, 1, batch_size=4, gradient_accumulation_steps=accumulated)[0]

            assert step.loss.dim() == 0 and not step.loss.requires_grad
            assert 0.01 < float(step.loss) < 10

    def test_a_dtype_is_that_of_the_forward_pass(self, tmp_path: Path) -> None:
        import torch

        seen: list[bool] = []
        for dtype in (None, "bfloat16"):
            self._watched(tmp_path, lambda _: seen.append(torch.is_autocast_enabled("cpu")), amp_dtype=dtype)

        assert seen == [False, True]

    def test_workers_load_where_they_are_asked_for(self, tmp_path: Path) -> None:
        import torch

        asked: list[int] = []

        def noted(loader: Any, *arguments: Any, **named: Any) -> None:
            before(loader, *arguments, **named)
            asked.append(loader.num_workers)

        loaders: Any = torch.utils.data.DataLoader
        before, loaders.__init__ = loaders.__init__, noted
        try:
            self._steps(tmp_path, 1, batch_size=8, num_workers=1)
        finally:
            loaders.__init__ = before

        assert 1 in asked or not self._facts(tmp_path).tunes_workers

    def test_the_same_seed_takes_the_same_steps(self, tmp_path: Path) -> None:
        """The comparison of half precision with full precision needs the same weights, batches and draws."""
        losses = [[float(step.loss) for step in self._steps(tmp_path, 4, batch_size=8)] for _ in range(2)]

        assert losses[0] == losses[1]

    def test_a_plan_may_change_the_model_before_it_trains(self, tmp_path: Path) -> None:
        seen: list[Any] = []

        self._watched(tmp_path, seen.append)

        assert len(seen) == 1

    def test_what_cannot_be_led_says_so(self, tmp_path: Path) -> None:
        facts, session = self._facts(tmp_path), self._open(tmp_path, batch_size=8)

        assert session.train_worst() >= 0 and session.loss_scale() is None
        assert session.loads <= (not facts.owns_loop)
        try:
            self._target(tmp_path).shape_run(self._config(), "cpu", lambda name: None, shapes_vary=False)
            assert not facts.owns_loop
        except TargetError as error:
            assert facts.owns_loop and str(error)

    def test_one_that_can_be_led_repeats_loads_and_runs_on_shapes(self, tmp_path: Path) -> None:
        from contextlib import nullcontext

        if self._facts(tmp_path).owns_loop:
            return
        session = self._open(tmp_path, batch_size=8)
        told = Recorder(*[Order.REPEAT, Order.LOAD, Order.CONTINUE] if session.loads else [Order.REPEAT])
        tensors: list[Any] = []

        session.train(told)
        target = self._target(tmp_path).shape_run(self._config(), "cpu", lambda name: None, shapes_vary=False)
        target.training({}, 1).step(64, nullcontext(), tensors.append)

        assert len(told.steps) == 2 + session.loads
        assert told.loads == [8] * session.loads
        assert any(64 in tensor.shape for tensor in tensors)

    def test_a_file_that_does_not_run_is_told_with_its_own_line(self, tmp_path: Path) -> None:
        (tmp_path / "broken.py").write_text(f"raise RuntimeError('mine')\n{self.text}")
        with clean_imports():
            try:
                self._named(tmp_path / "broken.py").inspect("cpu", None, lambda name: None)
            except TargetError as error:
                assert "broken.py" in str(error) and "mine" in str(error)
            else:
                raise AssertionError("it was taken")

    def _target(self, folder: Path) -> Target:
        (folder / "model.py").write_text(self.text)
        return self._named(folder / "model.py")

    def _named(self, file: Path) -> Target:
        return resolve(str(file))

    def _facts(self, folder: Path) -> TargetFacts:
        with clean_imports():
            return self._target(folder).inspect("cpu", None, lambda name: None)

    def _config(self, **values: Value) -> Config:
        return Config(values=defaults() | {"batch_size": 8} | values)

    def _open(self, folder: Path, *transforms: Callable[[Any], Any], **values: Value) -> Session:
        from autotune.child.run import seed_all

        config = self._config(**values)
        plan = plan_of(config.values, "cpu")
        plan.model_transforms += transforms
        with clean_imports():
            session = self._target(folder).open(config, plan, lambda name: seed_all(1))
        seed_all(1)
        return session

    def _steps(self, folder: Path, count: int, **values: Value) -> list[Step]:
        told = Recorder(*[Order.CONTINUE] * (count - 1))
        self._open(folder, **values).train(told)
        return told.steps

    def _watched(self, folder: Path, see: Callable[[Any], None], **values: Value) -> None:
        """Take one step of a model that calls `see` in the first forward pass of a part."""

        def watching(model: Any) -> Any:
            part = next(module for module in model.modules() if not list(module.children()))
            part.register_forward_pre_hook(lambda module, _: see(module))
            return model

        self._open(folder, watching, **values).train(Recorder())
