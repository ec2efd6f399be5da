"""A simulated machine and the target that it trains: the time and memory of a configuration, in closed form.

    micro-batch seconds  = fixed[dtype] + per_sample[dtype] * batch_size  (* channels_last factor; all * recomputing,
                           and compiled)
    loader rate          = min(workers, cores) / sample_loading_seconds   (no workers: loading adds to computing)
    optimizer step       = max(computing, loading) + optimizer + exchange, with computing that of all its micro-batches
    memory               = static[dtype] + per_sample_bytes[dtype] * batch_size  (* kept share if recomputing)

The target holds all knobs that the model does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autotune.core.records import Config, Environment, Limit, TargetFacts, Value
from autotune.knobs import KNOBS

_GIB = 2**30
_MODELLED = (  # knobs whose effect the model includes, or that are offered on other machines only
    "batch_size", "gradient_accumulation_steps", "amp_dtype", "num_workers", "channels_last",
    "activation_checkpointing", "compile_mode", "num_threads", "omp_wait_policy",
)  # fmt: skip
FACTS = TargetFacts(
    name="FakeNet",
    parameter_count=11_689_512,
    has_convolution=True,
    has_batch_norm=False,
    data="dataset",
    dataset_samples=50_000,
    has_validation=False,
    space={one.name: Limit(values=(one.default,)) for one in KNOBS if one.name not in _MODELLED},
)
ENVIRONMENT = Environment(
    device="cuda:0",
    device_name="Fake GPU 16GB",
    device_bytes=16 * _GIB,
    native_dtypes=("bfloat16", "float16"),
    torch="2.13.0",
    python="3.11.7",
    platform="Linux",
    usable_cores=8,
    host_bytes=64 * _GIB,
    shm_bytes=8 * _GIB,
    cuda="13.0",
    driver="580.0",
    capability="8.0",
)


# The effect of each policy of activation checkpointing, as a share of that of all blocks, on time and on memory.
RECOMPUTED: dict[Value, tuple[float, float]] = {
    None: (0.0, 0.0), False: (0.0, 0.0), "every_third": (1 / 3, 1 / 3), "every_second": (0.5, 0.5),
    "selective": (0.3, 0.6), True: (1.0, 1.0),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The constants of the model above; mappings are by `amp_dtype`, with None for float32.

    With the defaults a mixed-precision, channels-last run with several workers is the best, memory limits the batch,
    and the loader is the bottleneck of the fastest configurations unless there are enough workers.
    """

    fixed_seconds: Mapping[str | None, float] = field(
        default_factory=lambda: {None: 0.006, "bfloat16": 0.008, "float16": 0.009}  # autocast costs kernel launches
    )
    per_sample_seconds: Mapping[str | None, float] = field(
        default_factory=lambda: {None: 0.00040, "bfloat16": 0.00018, "float16": 0.00018}
    )
    channels_last_factor: Mapping[str | None, float] = field(
        default_factory=lambda: {None: 1.10, "bfloat16": 0.80, "float16": 0.80}
    )
    static_bytes: Mapping[str | None, float] = field(
        default_factory=lambda: {None: 1.0 * _GIB, "bfloat16": 1.1 * _GIB, "float16": 1.1 * _GIB}
    )
    per_sample_bytes: Mapping[str | None, float] = field(
        default_factory=lambda: {None: 0.040 * _GIB, "bfloat16": 0.024 * _GIB, "float16": 0.024 * _GIB}
    )
    recomputing_factor: float = 4 / 3  # of computing with activation checkpointing of all blocks
    compiled_factor: float = 0.7  # of computing with torch.compile, in any mode
    compiling_seconds: float = 60.0  # of a first probe
    kept_share: float = 0.4  # of the memory of a sample, with activation checkpointing of all blocks
    memory_bytes: int = 16 * _GIB  # a configuration that needs this much or more runs out of memory
    optimizer_seconds: float = 0.002
    exchange_seconds: float = 0.0  # of gradients among ranks, at the end of an optimizer step, where nothing hides it
    sample_loading_seconds: float = 0.0010  # by one worker
    cores: int = 8
    noise_scale: float = 200.0  # of the gradient, in samples
    noise_between_probes: float = 0.004  # relative standard deviation of a whole probe
    noise_between_steps: float = 0.02  # relative standard deviation of one step

    def needed_bytes(self, config: Config) -> float:
        """Return the bytes that the configuration needs on the device."""
        dtype = dtype_of(config)
        kept = 1.0 - RECOMPUTED[config.values.get("activation_checkpointing", False)][1] * (1.0 - self.kept_share)
        return self.static_bytes[dtype] + self.per_sample_bytes[dtype] * config.batch_size * kept

    def loading_seconds(self, config: Config) -> float:
        """Return the seconds to load the samples of one optimizer step, by all workers together."""
        hands = max(1, min(int(config.values.get("num_workers") or 0), self.cores))
        return config.global_batch_size() * self.sample_loading_seconds / hands

    def computing_seconds(self, config: Config) -> float:
        """Return the seconds to compute the gradients of one optimizer step."""
        dtype = dtype_of(config)
        factor = self.channels_last_factor[dtype] if config.values.get("channels_last") else 1.0
        micro = self.fixed_seconds[dtype] + self.per_sample_seconds[dtype] * config.batch_size * factor
        share = RECOMPUTED[config.values.get("activation_checkpointing", False)][0]
        longer = 1.0 + share * (self.recomputing_factor - 1.0)
        compiled = self.compiled_factor if config.values.get("compile_mode") else 1.0
        return micro * longer * compiled * config.gradient_accumulation_steps

    def waiting_seconds(self, config: Config) -> float:
        """Return the seconds of one optimizer step in which nothing is computed because batches are missing."""
        loading = self.loading_seconds(config)
        return max(0.0, loading - self.computing_seconds(config)) if config.values.get("num_workers") else loading

    def step_seconds(self, config: Config) -> float:
        """Return the true seconds of one optimizer step, without noise."""
        ending = self.optimizer_seconds + self.exchange_seconds
        return self.computing_seconds(config) + self.waiting_seconds(config) + ending


def dtype_of(config: Config) -> str | None:
    """Return the configuration's `amp_dtype`; None for full precision."""
    dtype: Value = config.values.get("amp_dtype")
    return None if dtype is None else str(dtype)
