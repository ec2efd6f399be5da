"""The target and the machine that the fake launcher tells of, unless it is given others."""

from __future__ import annotations

from autotune.records import Environment, TargetFacts

_GIB = 2**30

FACTS = TargetFacts(
    name="FakeNet",
    parameter_count=11_689_512,
    has_convolution=True,
    has_batch_norm=False,
    data="dataset",
    dataset_samples=50_000,
    has_validation=False,
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
