"""Knobs beside those of the product, for tests of spaces that are larger than today's."""

import sys

from autotune import knobs
from autotune.knobs.base import CountKnob, MemoryEffect
from autotune.knobs.influence import NEUTRAL, UNKNOWN


class Beside(CountKnob):
    """A count from 0; the same as 0 where `only_with` (the name of a knob and its value) does not hold."""

    ordered = False
    default = 0
    least = 0
    memory = MemoryEffect.NONE
    option_help = "Nothing."

    def __init__(self, name, counts, only_with=(), effect=UNKNOWN):
        self.name = self.alias = self.label = name
        self.counts, self.only_with, self.effect = tuple(range(counts)), only_with, effect

    def domain(self, circumstances):
        return self.counts

    def canonical(self, values, circumstances):
        if self.only_with and values[self.only_with[0]] != self.only_with[1]:
            return 0
        return values[self.name]

    def influence(self, value):
        return self.effect if value else NEUTRAL

    def apply(self, value, plan):
        pass


def register(monkeypatch, *beside):
    """Let the product know these knobs for one test."""
    before = knobs.KNOBS
    for module in list(sys.modules.values()):
        if getattr(module, "KNOBS", None) is before:
            monkeypatch.setattr(module, "KNOBS", (*before, *beside))
