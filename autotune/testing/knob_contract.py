"""The contract of all knobs: a base class of tests.

class TestMyKnob(KnobContract):
    knob = MyKnob()
"""

from __future__ import annotations

import ast
import math
import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar
from unittest import SkipTest

import msgspec
from msgspec.structs import replace

from autotune.core.records import Environment, Limit, Value
from autotune.knobs import KNOBS, defaults, knob, worker_knob
from autotune.knobs.base import Circumstances, Knob, MemoryEffect, Plan
from autotune.knobs.influence import Factor
from autotune.knobs.wording import Framework
from autotune.testing import ten_steps
from autotune.testing.machine import ENVIRONMENT, FACTS

SMALL = replace(FACTS, dataset_samples=300, checkpointable_blocks=12)
CPU = replace(ENVIRONMENT, device="cpu", device_name="Fake CPU", usable_cores=6, default_threads=6)
NONSENSE: tuple[Any, ...] = ("nonsense", -1, 1.5, [], object)


def circumstances(environment: Environment = ENVIRONMENT, **changes: Any) -> Circumstances:
    """Return circumstances for a domain: a small data set, on the simulated GPU unless `environment` is given."""
    return Circumstances(**{"facts": SMALL, "environment": environment, "global_batch": None, **changes})


class KnobContract:
    """A base class: derive from it and set `knob`; pytest runs the tests on a simulated GPU and a simulated CPU."""

    knob: Knob
    PLACES: ClassVar[tuple[Environment, ...]] = (ENVIRONMENT, CPU)

    def test_its_domain_is_finite_without_repetition_and_checked(self) -> None:
        for here in self.PLACES:
            values = self.knob.domain(circumstances(here))

            assert 1 <= len(values) < 100
            assert len({repr(value) for value in values}) == len(values)
            for value in values:
                self.knob.check(value)

    def test_an_ordered_domain_ascends(self) -> None:
        for here in self.PLACES if self.knob.ordered else ():
            domain = self.knob.domain(circumstances(here))
            positions = [self.knob.position(value, circumstances(here)) for value in domain]

            assert positions == sorted(set(positions))

    def test_the_values_of_its_domain_do_different_things(self) -> None:
        for here in self.PLACES:
            domain = self.knob.domain(circumstances(here))

            last = {one.name: one.domain(circumstances(here))[-1] for one in KNOBS}  # some matter beside workers only,
            usual = {one.name: one.default for one in KNOBS}  # others without autocast only
            written = [
                [self.knob.canonical({**others, self.knob.name: value}, circumstances(here)) for value in domain]
                for others in (last, usual)
            ]

            assert list(domain) in written

    def test_its_default_is_a_value_it_accepts(self) -> None:
        self.knob.check(self.knob.default)

    def test_nonsense_is_refused_with_rule_and_value(self) -> None:
        for nonsense in NONSENSE:
            self._refused(self.knob.check, nonsense)
        self._refused(self.knob.parse, "nonsense")

    def test_what_it_shows_differs_between_values_and_is_short(self) -> None:
        for here in self.PLACES:
            shown = [self.knob.show(value) for value in self.knob.domain(circumstances(here))]

            assert len(set(shown)) == len(shown)
            assert max(map(len, shown)) <= 9
        assert len(self.knob.label) <= 13

    def test_its_values_survive_json_and_typing(self) -> None:
        for value in self._values():
            read = msgspec.json.decode(msgspec.json.encode(value))
            assert read == value
            self.knob.check(read)  # an equal value in another object
            assert self.knob.parse(str(value).lower()) == value

    def test_an_explicit_list_is_its_domain(self) -> None:
        listed = self.knob.domain(circumstances())[:1]

        assert self.knob.domain(circumstances(limit=Limit(values=listed))) == listed

    def test_caution_and_phrase_are_defined_for_every_value(self) -> None:
        for value in self._values():
            assert all(isinstance(text, str) for text in self.knob.environ(value).values())
            assert math.isfinite(self.knob.caution(value)) and self.knob.caution(value) >= 0
            assert isinstance(self.knob.phrase(value), str)
            assert self.knob.phrase(value) or value == self.knob.default, "an answer would not name it"
        assert isinstance(self.knob.memory, MemoryEffect)

    def test_what_it_expects_of_a_value_are_factors_against_a_known_one(self) -> None:
        for here in self.PLACES:
            values = self.knob.domain(circumstances(here))
            for value in values:
                said = self.knob.influence(value)
                factors = [factor for factor in vars(said).values() if isinstance(factor, Factor)]

                assert len(factors) == 6
                assert all(0.1 < factor.center < 10 and 0 <= factor.spread < 2 for factor in factors)
                assert said.relative_to is None or said.relative_to in values[: values.index(value)]

    def test_of_threads_it_says_a_count_or_nothing(self) -> None:
        for here in self.PLACES:
            said = {self.knob.computing_threads(value, 4) for value in self.knob.domain(circumstances(here))}

            assert said == {None} or all(isinstance(count, int) and count >= 1 for count in said)

    def test_every_value_trains(self) -> None:
        """Applied alone, each value leaves a plan with which a step can be taken."""
        import torch

        threads = torch.get_num_threads()
        try:
            for value in self._values():
                plan = Plan(device="cpu")
                self.knob.apply(value, plan)
                assert math.isfinite(_loss_of_a_step(plan))
                assert plan.accumulation_steps >= 1
        finally:
            torch.set_num_threads(threads)

    def test_what_it_says_to_compute_alike_it_does(self) -> None:
        """Ten optimizer steps with each value end where those with the default do, except for rounding.

        This uses an accelerator if there is one. Values that change the arithmetic are left to the precision check of
        each search.
        """
        place, device = _here()
        facts = circumstances(place, global_batch=ten_steps.GLOBAL_BATCH)
        values = [value for value in self.knob.domain(facts) if value != self.knob.default]
        assert not (self.knob.numerics and self.knob.is_exact(SMALL)), "--exact would search it"
        if not self.knob.is_exact(SMALL):
            raise SkipTest(f"{self.knob.name} says that it changes the arithmetic: its losses are compared in a search")
        if not values:
            raise SkipTest(f"{self.knob.name} has one value on {device}")

        usual = self._beside(values, facts)
        configs = [_at_the_same_global_batch({**usual, self.knob.name: value}) for value in values]
        found = ten_steps.differences(self.knob, configs, usual, device)

        wrong = [f"{self.knob.name} {value}: {text}" for value, text in zip(values, found, strict=True) if text]
        assert not wrong, "; ".join(wrong)

    def test_whatever_it_changes_every_framework_is_told(self) -> None:
        for here in self.PLACES:
            for value in self.knob.domain(circumstances(here)):
                for framework in Framework:
                    self._is_told(value, framework, here.device_kind)

    def test_every_format_has_a_word_of_its_own_for_each_value(self) -> None:
        for words in self.knob.formats.values():
            assert set(words) == set(self.knob.formats.get("", words))  # "" is the name of no format
            assert len(set(words.values())) == len(words)
            for value in words:
                self.knob.check(value)
        assert set(self.knob.value_names.values()) <= set(self.knob.formats.get("", ()))

    def test_a_commands_argument_of_its_name_means_it(self) -> None:
        if self.knob.arguments:
            assert re.fullmatch(self.knob.arguments, self.knob.name)
            assert not (self.knob.doubtful and re.fullmatch(self.knob.doubtful, self.knob.name))

    def test_it_can_be_pickled_because_it_holds_nothing(self) -> None:
        assert type(pickle.loads(pickle.dumps(self.knob))) is type(self.knob)

    def _values(self) -> Iterator[Value]:
        for here in self.PLACES:
            yield from self.knob.domain(circumstances(here))

    def _beside(self, values: Sequence[Value], facts: Circumstances) -> dict[str, Value]:
        """Return the default together with values of other knobs with which all `values` have an effect."""
        usual = {**defaults(), "batch_size": facts.global_batch, self.knob.name: self.knob.default}
        domains = {one.name: one.domain(facts) for one in KNOBS if one.name not in ("batch_size", self.knob.name)}
        loading = {worker_knob().name: 1} if self.knob is not worker_knob() else {}
        for others in ({}, loading, {name: domain[-1] for name, domain in domains.items() if not knob(name).numerics}):
            beside = _at_the_same_global_batch({**usual, **others})
            if all(self.knob.canonical({**beside, self.knob.name: value}, facts) == value for value in values):
                return beside
        raise AssertionError(f"no value of another knob lets all values of {self.knob.name} do something")

    def _refused(self, function: Callable[[Any], object], nonsense: object) -> None:
        try:
            function(nonsense)
        except ValueError as error:
            assert self.knob.name in str(error), error
        else:
            raise AssertionError(f"{self.knob.name} accepted {nonsense!r}")

    def _is_told(self, value: Value, framework: Framework, device: str) -> None:
        plan = Plan(device=device)
        self.knob.apply(value, plan)
        said = self.knob.wording(value, framework, device)

        for statement in (*said.setup, *said.model, *(f"part.{method}" for method in said.images)):
            ast.parse(statement)
        assert bool(said.images) == bool(plan.batch_transforms)
        assert bool(said.model) == bool(plan.model_transforms)
        if plan.forward_contexts:
            assert said.context or said.arguments
        if value == self.knob.default:
            assert (said.setup, said.model, said.images, said.context, said.scaler) == ((), (), (), "", False)


def _here() -> tuple[Environment, str]:
    import torch

    few = replace(CPU, usable_cores=2, default_threads=1)  # more would show nothing more, and take longer
    return (ENVIRONMENT, "cuda:0") if torch.cuda.is_available() else (few, "cpu")


def _at_the_same_global_batch(values: dict[str, Value]) -> dict[str, Value]:
    steps = int(values["gradient_accumulation_steps"] or 1)
    batch = min(int(values["batch_size"] or 1), ten_steps.GLOBAL_BATCH // steps)
    return {**values, "batch_size": batch, "gradient_accumulation_steps": ten_steps.GLOBAL_BATCH // batch}


def _loss_of_a_step(plan: Plan) -> float:
    """Return the loss of a small convolution after forward and backward, on the CPU with the settings of the plan."""
    import torch

    model: Any = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.LazyLinear(2))
    batch: Any = torch.randn(2, 3, 8, 8)
    model(batch)
    for switch in plan.setup:
        switch()
    for transform in plan.model_transforms:
        model = transform(model)
    for transform in plan.batch_transforms:
        batch = transform(batch)
    contexts = [make() for make in plan.forward_contexts]
    for context in contexts:
        context.__enter__()
    loss = model(batch).float().mean()
    for context in reversed(contexts):
        context.__exit__(None, None, None)
    loss.backward()
    return float(loss.detach())
