"""The warning that ranks wait for the exchange of their gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from autotune.core.codes import Code
from autotune.core.communication import EXPOSED_SHARE
from autotune.core.notices import Notice, notice
from autotune.core.results import Measurement


def exposed_communication(measured: Sequence[Measurement]) -> Iterator[Notice]:
    """Yield a warning if a micro-step spends more than the share `EXPOSED_SHARE` on the exchange alone."""
    shares = [one.communication.exposed_share for one in measured if one.communication is not None]
    if shares and (share := median(shares)) > EXPOSED_SHARE:
        yield notice(Code.COMMUNICATION_EXPOSED, share=share)
