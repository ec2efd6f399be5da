"""`malloc`: the allocator of host memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from autotune.core.records import Value
from autotune.knobs.base import Circumstances, MemoryEffect, Plan, Reach, allowed
from autotune.knobs.choice import ChoiceKnob
from autotune.knobs.influence import NEUTRAL, Factor, Influence
from autotune.knobs.observed import Observed

VARIABLE = "LD_PRELOAD"
# By sonames, which the dynamic loader finds wherever they are installed: Debian's packages libjemalloc2 and
# libtcmalloc-minimal4, Fedora's jemalloc and gperftools-libs.
LIBRARIES = {"jemalloc": "libjemalloc.so.2", "tcmalloc": "libtcmalloc_minimal.so.4"}
SYMBOLS = {"jemalloc": "mallctl", "tcmalloc": "tc_malloc"}  # that only they define, and preloaded for all
OF_C = "libc"  # what is seen where none of them was preloaded


class Malloc(ChoiceKnob):
    """The library that is preloaded, or None: the C library's malloc, or what the user preloads.

    Not offered where LD_PRELOAD is set: what the user preloads stays.
    """

    name = "malloc"
    alias = "malloc"
    option_help = "The host's malloc, by LD_PRELOAD: none,jemalloc,tcmalloc."
    label = "malloc"
    memory = MemoryEffect.CHANGES
    reach = Reach.PROCESS
    choices: ClassVar[Mapping[Value, str]] = {name: name for name in LIBRARIES}

    def domain(self, circumstances: Circumstances) -> tuple[Value, ...]:
        """Return the libraries that are installed, for a CPU, unless the environment preloads something."""
        environment = circumstances.environment
        is_offered = environment.device_kind == "cpu" and VARIABLE not in environment.variables
        return allowed((None, *environment.mallocs) if is_offered else (None,), circumstances.limit)

    def phrase(self, value: Value) -> str:
        """Return `LD_PRELOAD=libjemalloc.so.2`, or nothing."""
        return "".join(f"{name}={text}" for name, text in self.environ(value).items())

    def influence(self, value: Value) -> Influence:
        """Return a step that may be shorter, and memory that is given back later."""
        return NEUTRAL if value is None else OTHER

    def environ(self, value: Value) -> dict[str, str]:
        """Return the variable of the dynamic loader."""
        return {} if value is None else {VARIABLE: LIBRARIES[str(value)]}

    def seen(self, observed: Observed) -> tuple[Value, ...]:
        """Return the library; and None where that is not asked for: what the user preloads may be one of them."""
        if observed.malloc is None:
            return ()
        return (None,) if observed.malloc == OF_C else (None, observed.malloc)

    def apply(self, value: Value, plan: Plan) -> None:
        """Do nothing: the dynamic loader has read the variable before Python began."""


OTHER = Influence(fixed_time=Factor(1.0, 0.1), sample_time=Factor(0.95, 0.15), sample_memory=Factor(1.0, 0.1))
