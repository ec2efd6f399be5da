"""The arithmetics that were unstable in too many probes to be tried again, or that a comparison of losses refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from autotune.core.records import Config, Value
from autotune.knobs import KNOBS

MOST_UNSTABLE = 2  # probes of one arithmetic: a single one may be due to its batch
Arithmetic = frozenset[tuple[str, Value]]  # the values that differ from full precision, by knob name


class NumericalStability:
    """What the probes of a study say of each arithmetic: whether its losses are finite."""

    def __init__(self) -> None:
        self._numerics = [knob for knob in KNOBS if knob.numerics]
        self._unstable: Counter[Arithmetic] = Counter()
        self._stable: Counter[Arithmetic] = Counter()
        self._compared: set[Arithmetic] = set()
        self._refused: set[Arithmetic] = set()

    def note(self, config: Config, *, is_stable: bool) -> None:
        """Note a probe of `config`."""
        (self._stable if is_stable else self._unstable)[self._arithmetic(config.values)] += 1
        self._refused = {*self._compared, *filter(self._is_unstable, self._unstable)}

    def refuse(self, values: Mapping[str, Value]) -> None:
        """Refuse the arithmetic with these values, by knob name, whatever its probes say."""
        self._compared.add(self._arithmetic(values))
        self._refused |= self._compared

    def refuses(self, config: Config) -> bool:
        """Return whether the arithmetic of `config` is refused, or makes all changes of one that is."""
        if not self._refused:  # asked for every configuration, before every probe
            return False
        own = self._arithmetic(config.values)
        return any(one <= own for one in self._refused)

    def _is_unstable(self, one: Arithmetic) -> bool:
        """Whether most of its probes were unstable. Of full precision, whose refusal ends a search, all probes were."""
        if not one:
            return self._unstable[one] >= MOST_UNSTABLE and not self._stable.total()
        return self._unstable[one] >= max(MOST_UNSTABLE, self._stable[one] + 1)

    def _arithmetic(self, values: Mapping[str, Value]) -> Arithmetic:
        made = ((knob, values.get(knob.name, knob.default)) for knob in self._numerics)
        return frozenset((knob.name, value) for knob, value in made if value != knob.default)
