"""`malloc`: the allocator of host memory, and what it does with memory that is freed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from autotune.core.codes import Code
from autotune.core.notices import Notice, notice
from autotune.core.records import Environment, Value
from autotune.knobs.base import Circumstances, MemoryEffect, Plan, Reach, allowed
from autotune.knobs.choice_knob import ChoiceKnob
from autotune.knobs.influence import NEUTRAL, Factor, Influence
from autotune.knobs.observed import Observed

GLIBC, JEMALLOC, TCMALLOC = "glibc", "jemalloc", "tcmalloc"
PRELOAD, TUNABLES = "LD_PRELOAD", "GLIBC_TUNABLES"
# By sonames, which the dynamic loader finds wherever they are installed: Debian's packages libjemalloc2 and
# libtcmalloc-minimal4, Fedora's jemalloc and gperftools-libs.
LIBRARIES = {JEMALLOC: "libjemalloc.so.2", TCMALLOC: "libtcmalloc_minimal.so.4"}
SYMBOLS = {JEMALLOC: "mallctl", TCMALLOC: "tc_malloc"}  # that only they define
OWN = "auto"  # observed if none of the values was set
# Tensors of more than 32 MiB are mapped anew for every step, and smaller ones given back when they are freed. Every
# page of them is then a fault, a fifth of the time of a small CNN (decisions/0084).
KEEPING = {"mmap_threshold": 1 << 30, "trim_threshold": 1 << 62}  # of blocks in bytes; of free bytes at the end: never
LEAST_GLIBC = (2, 35)  # earlier ones forbid a threshold above half a heap, 32 MiB (malloc.c, do_set_mmap_threshold)
SETTINGS: Mapping[str, Mapping[str, str]] = {
    GLIBC: {TUNABLES: ":".join(f"glibc.malloc.{name}={value}" for name, value in KEEPING.items())},
    # As it is, it gives the memory of large tensors back, and had ten times as many faults as glibc.
    JEMALLOC: {PRELOAD: LIBRARIES[JEMALLOC], "MALLOC_CONF": "oversize_threshold:0,dirty_decay_ms:-1,muzzy_decay_ms:-1"},
    TCMALLOC: {PRELOAD: LIBRARIES[TCMALLOC]},
}
VARIABLES = (PRELOAD, TUNABLES, "MALLOC_CONF", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")
# tcmalloc took 0.73 to 0.83 of the time of a step where glibc that keeps took 0.76 to 0.86 (decisions/0059), but it has
# to be preloaded, which reaches every program that the training starts.
BEST_FIRST = (GLIBC, TCMALLOC)
# Of the time of a sample: from 0.60 (a perceptron, decisions/0059) to 0.98 (masked_lm at batch 16, decisions/0084).
KEPT = Influence(fixed_time=Factor(0.97, 0.08), sample_time=Factor(0.88, 0.12), sample_memory=Factor(1.0, 0.1))


def after_start(environ: Mapping[str, str]) -> dict[str, str]:
    """Return those of the variables that a process can be given while it runs, by `set_after_start` of targets/."""
    return {name: text for name, text in SETTINGS[GLIBC].items() if environ.get(name) == text}


class Malloc(ChoiceKnob):
    """None leaves the allocator as it is; other values keep freed memory for the next step.

    They do so by glibc or by a preloaded library. It is offered on CPUs: glibc, else the best library installed
    (decisions/0084), unless the user's environment configures the allocator. On accelerators torch has its own
    allocator for tensors.
    """

    name = "malloc"
    alias = "malloc"
    option_help = "On a CPU, a malloc that keeps freed memory: none,glibc,jemalloc,tcmalloc."
    label = "malloc"
    spares_faults = True
    former = (None,)  # it was on request
    memory = MemoryEffect.UNSEEN
    reach = Reach.PROCESS
    choices: ClassVar[Mapping[Value, str]] = {name: name for name in SETTINGS}

    def domain(self, circumstances: Circumstances) -> tuple[Value, ...]:
        """Return None and the best allocator that is installed."""
        environment = circumstances.environment
        is_free = environment.device_kind == "cpu" and not set(VARIABLES).intersection(environment.variables)
        best = [name for name in BEST_FIRST if name in (environment.mallocs)][:1]
        return allowed((None, *best) if is_free else (None,), circumstances.limit)

    def lacking(self, value: Value, circumstances: Circumstances) -> str:
        """Return the library, or the version of glibc, that is missing; empty: nothing."""
        if value in circumstances.environment.mallocs:
            return ""
        of_glibc = "glibc " + ".".join(map(str, LEAST_GLIBC)) + " or later"
        return f"{LIBRARIES.get(str(value), of_glibc)} is not installed"

    def offer(self, environment: Environment) -> Notice | None:
        """Return which allocators are installed, or which variables of the user's configure one already."""
        if environment.device != "cpu" or not (environment.mallocs or environment.variables):
            return None
        if own := tuple(name for name in VARIABLES if name in environment.variables):
            return notice(Code.SET_BY_ENVIRONMENT, variables=own)
        missing = tuple(library for name, library in LIBRARIES.items() if name not in environment.mallocs)
        return notice(Code.VALUES_OFFERED, values=environment.mallocs, missing=missing or None)

    def phrase(self, value: Value) -> str:
        """Return the allocator in words, such as `tcmalloc`; empty for the user's own."""
        return "" if value is None else "glibc that keeps freed memory" if value == GLIBC else str(value)

    def influence(self, value: Value) -> Influence:
        """Return the prior of an allocator that keeps freed memory, with shorter steps; None changes nothing."""
        return NEUTRAL if value is None else KEPT

    def environ(self, value: Value) -> dict[str, str]:
        """Return the variables, which the dynamic loader and the library read before Python begins."""
        return {} if value is None else dict(SETTINGS[str(value)])

    def seen(self, observed: Observed) -> tuple[Value, ...]:
        """Return the allocator of the process, and None, because the user may have set it."""
        if observed.malloc is None:
            return ()
        return (None,) if observed.malloc == OWN else (None, observed.malloc)

    def apply(self, value: Value, plan: Plan) -> None:
        """Do nothing: the variables were read before Python began."""
