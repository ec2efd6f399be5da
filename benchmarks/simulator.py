"""Random training machines in closed form, for comparing samplers: some that obey the sampler's law, some that do not.

A machine is a model, a device and a host. Its surface has 10,608 configurations: micro-batch 1..4096, workers 0..16,
accumulation 1..8, three dtypes, two memory formats. The family and its ranges follow docs/notes/search.md 1:
compute (alpha^p + (beta b)^p)^(1/p) with p in 1..3, devices on which bfloat16 is slower than float32, layouts that gain
only with autocast, an optimizer step amortised by accumulation, a loader that needs 0.2 to 24 workers, memory that
admits float32 batches of 8 to 4096, 3 % noise.

A misspecified machine breaks the law in five places: 6 % of random algorithm choice per batch, dtype and layout; waves
of 1, 4 or 16 samples; workers that scale sub-linearly up to an I/O cap; up to 15 % of workspace per cell of memory; and
clocks of computing alone that are biased by up to 10 %. Its noise is 5 %, and every twentieth probe is 20 % slow.

The knobs of `simulated_knobs.py` multiply what a machine takes, each by a factor of its own, most of which are 1: half
of the machines have attention, the others convolutions, and only those feel the knobs for them. A misspecified machine
has another 4 % of each pair of compilation and dtype.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.core.records import Value
from autotune.core.results import Outcome
from autotune.sampler.observation import Observation

Floats = NDArray[np.float64]
DTYPES: tuple[Value, ...] = (None, "bfloat16", "float16")
DOMAINS: dict[str, tuple[Value, ...]] = {
    "batch_size": tuple(2**exponent for exponent in range(13)),
    "gradient_accumulation_steps": tuple(range(1, 9)),
    "amp_dtype": DTYPES,
    "num_workers": tuple(range(17)),
    "channels_last": (False, True),
}
GIB = 2**30


@dataclass(frozen=True)
class Surface:
    """The truth about every configuration, in the order in which they were given."""

    rate: Floats  # samples/s, also where it does not fit
    compute_rate: Floats
    loader_rate: Floats
    memory: Floats  # share of the limit
    tensors: Floats  # the part of it that a shape run sees: no workspaces, nothing that is not a tensor

    @property
    def best(self) -> float:
        """The highest rate of a configuration that fits."""
        return float(self.rate[self.memory <= 1].max())


class Machine:
    """One random machine."""

    def __init__(self, seed: int, *, misspecified: bool) -> None:
        self.misspecified = misspecified
        self._chance = chance = np.random.default_rng([seed, misspecified])
        self.limit_bytes = int(chance.choice([8, 12, 16, 24, 40, 80])) * GIB
        self.cores = int(chance.choice([4, 8, 12, 16, 24]))
        self._compute(chance)
        self._memory(chance)
        self._loader(chance)
        self._breakage(chance)
        self._factors = _drawn_factors(np.random.default_rng([seed, misspecified, 58]), misspecified)

    def _compute(self, chance: np.random.Generator) -> None:
        self.fixed = _between(chance, 3e-3, 30e-3)
        self.sample = self.fixed / _between(chance, 4, 512)
        self.sharpness = chance.uniform(1, 3)
        modern = chance.random() < 0.75
        half = chance.uniform(0.3, 0.7) if modern else chance.uniform(1.0, 2.5)
        other = half * chance.uniform(0.92, 1.08) if modern else chance.uniform(0.35, 0.9)
        self.sample_factor = np.array([1.0, half, other])
        self.fixed_factor = np.array([1.0, chance.uniform(1.0, 1.3), chance.uniform(1.05, 1.35)])
        if chance.random() < 0.5:  # convolutions: the layout pays with autocast
            gain = chance.uniform(0.65, 0.95)
            self.layout = np.array([chance.uniform(0.9, 1.1), gain, gain * chance.uniform(0.95, 1.05)])
        else:
            self.layout = np.full(3, chance.uniform(1.0, 1.1))
        self.optimizer = self.fixed * chance.uniform(0.05, 0.6)
        self.thrash = chance.uniform(0, 0.25) if chance.random() < 0.5 else 0.0  # above 95 % of the memory
        self.contention = chance.uniform(0, 0.08)  # of computing, once there are as many workers as cores

    def _memory(self, chance: np.random.Generator) -> None:
        self.static = chance.uniform(0.05, 0.5)
        self.per_sample = (1 - self.static) / _between(chance, 8, 4096)
        activations = chance.uniform(0.5, 0.75)
        self.static_factor = np.array([1.0, chance.uniform(1.0, 1.15), chance.uniform(1.0, 1.15)])
        self.activation_factor = np.array([1.0, activations, activations * chance.uniform(0.98, 1.02)])
        self.layout_memory = chance.uniform(0.93, 1.1)
        own = np.random.default_rng(chance.bit_generator.seed_seq.spawn(1)[0])  # type: ignore[attr-defined]
        self.unseen = own.uniform(0, 0.05), own.uniform(0.93, 1.0)  # context as a share; tensors over what is reserved

    def _loader(self, chance: np.random.Generator) -> None:
        self.workers_needed = _between(chance, 0.2, 24)  # to feed the fastest configuration
        self.decline = 0.01  # per worker beyond the cores
        self.scaling, self.storage = 1.0, np.inf

    def _breakage(self, chance: np.random.Generator) -> None:
        self.noise, self.outliers, self.bias, self.wave = 0.03, 0.0, 1.0, 1
        self.wiggle = np.ones((13, 3, 2))
        self.workspace = np.ones((13, 3, 2))
        if not self.misspecified:
            return
        self.noise, self.outliers, self.bias = 0.05, 0.05, chance.uniform(0.9, 1.1)
        self.wave = int(chance.choice([1, 4, 16]))
        self.wiggle = np.exp(chance.normal(0, 0.06, (13, 3, 2)))
        self.workspace = 1 + chance.uniform(0, 0.15, (13, 3, 2))
        self.scaling, self.storage, self.decline = chance.uniform(0.65, 0.95), _between(chance, 2, 20), 0.02

    def surface(self, columns: dict[str, NDArray[np.int64]]) -> Surface:
        """The truth at configurations given as columns of codes: places in `DOMAINS`, or in a simulated knob's values.

        `num_workers` is given as it is.
        """
        alone = np.indices((len(DOMAINS["batch_size"]), 8, 3, 2)).reshape(4, -1)
        plain = dict(
            zip(("batch_size", "gradient_accumulation_steps", "amp_dtype", "channels_last"), alone, strict=True)
        )
        compute, memory, _, samples = self._computing(plain)  # the loader was made for a training without other knobs
        fed = float((samples / compute)[memory <= 1].max())
        compute, memory, tensors, samples = self._computing(columns)
        workers = columns["num_workers"].astype(float)
        hands = np.minimum(np.minimum(workers, self.cores) ** self.scaling, self.storage)
        hands = hands * (1 - self.decline * np.maximum(0, workers - self.cores))
        loading = samples * self.workers_needed / fed / np.where(workers == 0, 1.0, np.maximum(hands, 1e-9))
        loading = loading * self._factor("loading", columns)
        crowded = compute * np.where(workers >= self.cores, 1 + self.contention, 1.0)
        step = np.where(workers == 0, compute + loading, np.maximum(crowded, loading))
        return Surface(
            rate=samples / step,
            compute_rate=samples / compute,
            loader_rate=samples / loading,
            memory=memory,
            tensors=tensors,
        )

    def _computing(self, columns: dict[str, NDArray[np.int64]]) -> tuple[Floats, Floats, Floats, Floats]:
        """Seconds of computing per optimizer step, memory, what a shape run sees of it, and samples per step."""
        batch, dtype, layout = 2.0 ** columns["batch_size"], columns["amp_dtype"], columns["channels_last"]
        steps = columns["gradient_accumulation_steps"] + 1.0
        cell = (columns["batch_size"], dtype, layout)
        factor = np.where(layout == 1, self.layout_memory, 1.0) * self.activation_factor[dtype]
        factor = factor * self._factor("sample_memory", columns)
        memory = self.static * self.static_factor[dtype] * self._factor("fixed_memory", columns)
        tensors = self.unseen[1] * (memory + self.per_sample * factor * batch) - self.unseen[0]
        memory = memory + self.per_sample * factor * batch * self.workspace[cell]
        waves = np.ceil(batch / self.wave) * self.wave * self.wiggle[cell]
        odd = np.where((dtype > 0) & (batch < 8), 1.08, 1.0)  # tensor cores want multiples of eight
        sample = self.sample * self.sample_factor[dtype] * np.where(layout == 1, self.layout[dtype], 1.0)
        sample = sample * self._factor("sample_time", columns) * self._pairs(columns)
        fixed = self.fixed * self.fixed_factor[dtype] * self._factor("fixed_time", columns)
        power = self.sharpness
        micro = (fixed**power + (sample * waves * odd) ** power) ** (1 / power)
        optimizer = self.optimizer * self._factor("optimizer", columns)
        compute = steps * micro * np.where(memory > 0.95, 1 + self.thrash, 1.0) + optimizer
        return compute, memory, tensors, steps * batch

    def _factor(self, of: str, columns: dict[str, NDArray[np.int64]]) -> Floats:
        found = np.ones(len(columns["batch_size"]))
        for (name, what), factors in self._factors.items():
            if what == of and name in columns:
                found = found * np.array(factors)[columns[name]]
        return found

    def _pairs(self, columns: dict[str, NDArray[np.int64]]) -> Floats:
        table = np.array(self._factors["sim_compile amp_dtype", "pairs"])
        if "sim_compile" not in columns:
            return np.ones(len(columns["batch_size"]))
        found: Floats = table[columns["sim_compile"] * len(DTYPES) + columns["amp_dtype"]]
        return found

    def probe(self, surface: Surface, row: int, chance: np.random.Generator) -> Observation:
        """What one probe of a configuration reports."""
        if surface.memory[row] > 1:
            return Observation(outcome=Outcome.OOM_DEVICE, limit_bytes=self.limit_bytes)
        pace = np.exp(chance.normal(0, self.noise)) * (0.8 if chance.random() < self.outliers else 1.0)
        clock, loader, peak = np.exp(chance.normal(0, [0.01, 0.03, 0.005]))
        return Observation(
            samples_per_second=float(surface.rate[row] * pace),
            compute_samples_per_second=float(surface.compute_rate[row] * pace * clock / self.bias),
            loader_samples_per_second=float(surface.loader_rate[row] * loader),
            memory_bytes=int(min(surface.memory[row] * peak, 1.0) * self.limit_bytes),
            limit_bytes=self.limit_bytes,
        )


def _drawn_factors(own: np.random.Generator, misspecified: bool) -> dict[tuple[str, str], list[float]]:
    """By simulated knob and what it acts on: the factor of each of its values."""
    uniform, normal = own.uniform, own.normal
    has_attention, modern, compiles = own.random() < 0.5, own.random() < 0.7, own.random() < 0.9
    gain, launches, kept = np.exp(normal(-0.14, 0.12)), np.exp(normal(-0.29, 0.2)), uniform(0.78, 1.05)
    compiled = [1.0, gain, gain * uniform(1, 1.1), gain, gain * uniform(0.95, 1)]
    launched = [1.0, launches, launches * uniform(1, 1.1), launches * uniform(0.5, 0.95), launches]
    memory, graphs = [1.0, kept, kept * uniform(1, 1.05), kept, kept], [1.0, 1.0, 1.0, uniform(1.02, 1.15), 1.0]
    recomputed, without = np.cumprod([1, *uniform(1.04, 1.12, 3)]), np.cumprod([1, *uniform(0.65, 0.9, 3)])

    def maybe(chance: float, *factors: float) -> list[float]:
        return [1.0, *(factors if own.random() < chance else np.ones(len(factors)))]

    ahead = uniform(0.92, 1.0)
    return {
        ("sim_tf32", "sample_time"): [1.0, uniform(0.4, 0.9) if modern else 1.0],
        ("sim_compile", "sample_time"): compiled if compiles else [1.0] * 5,
        ("sim_compile", "fixed_time"): launched if compiles else [1.0] * 5,
        ("sim_compile", "sample_memory"): memory if compiles else [1.0] * 5,
        ("sim_compile", "fixed_memory"): graphs if compiles else [1.0] * 5,
        ("sim_compile amp_dtype", "pairs"): list(np.exp(normal(0, 0.04, 15) if misspecified else np.zeros(15))),
        ("sim_sdpa", "sample_time"): maybe(has_attention, uniform(0.9, 1.02), uniform(0.93, 1.02), uniform(0.97, 1.12)),
        ("sim_pin_memory", "sample_time"): [1.0, uniform(0.96, 1.0)],
        ("sim_fused", "optimizer"): [1.0, uniform(0.4, 1.0)],
        ("sim_cudnn_benchmark", "sample_time"): maybe(0.0 if has_attention else 0.5, uniform(0.85, 1.0)),
        ("sim_cudnn_benchmark", "fixed_memory"): maybe(0.0 if has_attention else 1.0, uniform(1.0, 1.05)),
        ("sim_prefetch", "loading"): maybe(0.4, ahead, ahead * uniform(0.97, 1.02)),
        ("sim_malloc", "loading"): maybe(0.3, uniform(0.9, 1.0), uniform(0.9, 1.0)),
        ("sim_allocator", "fixed_memory"): [1.0, uniform(0.93, 1.0)],
        ("sim_recompute", "sample_time"): list(recomputed),
        ("sim_recompute", "sample_memory"): list(without),
        ("sim_declared", "sample_time"): maybe(0.3, *np.exp(normal(0, 0.12, 2))),
    }


def _between(chance: np.random.Generator, low: float, high: float) -> float:
    """Log-uniform."""
    return float(np.exp(chance.uniform(np.log(low), np.log(high))))
