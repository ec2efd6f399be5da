"""The registry of all kinds of measurement: the requests to a separate process, and the functions that serve them."""

from __future__ import annotations

from typing import Any, Union

from autotune.core import codec
from autotune.core.requests import InspectRequest, ProbeRequest, Request
from autotune.gradient_noise.records import NoiseScaleRequest
from autotune.memory.records import ShapeRunRequest
from autotune.precision.records import PrecisionCheckRequest
from autotune.profile.records import ProfileRequest

MEASUREMENTS: dict[type[Request[Any]], str] = {  # request -> module:function of the child, of request and `Progress`
    ProbeRequest: "autotune.child.run:probe",
    PrecisionCheckRequest: "autotune.precision.child:compare_losses",
    NoiseScaleRequest: "autotune.gradient_noise.child:measure",
    ShapeRunRequest: "autotune.memory.child:predict_peaks",
    InspectRequest: "autotune.child.run:inspect",
    ProfileRequest: "autotune.profile.child:measure",
}


def decode(data: bytes) -> Request[Any]:
    """The request in `data`, of whatever kind. Raises what `codec.decode` raises."""
    request: Request[Any] = codec.decode(data, Union[tuple(MEASUREMENTS)])  # noqa: UP007 - known at run time only
    return request
