"""Estimates the gain of one setting from probes that also differ in others: one factor for every setting."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from autotune.core.records import Value
from autotune.core.stats import HALF_WIDTH_DEVIATIONS, MOST_PROBE_NOISE, Floats
from autotune.knobs import KNOBS
from autotune.report.gain import Gain
from autotune.study.summary import ConfigSummary

# Logarithms of factors have a normal prior, a third up or down; interactions of settings add a scatter to the noise of
# probes. If the probes leave most of the prior's variance, nothing is estimated. The numbers are judgements.
PRIOR, SCATTER, LEAST_LEARNED = 0.3, 0.1, 0.5


class Effects:
    """The factor of each value of each setting, fitted to all configurations that ran."""

    def __init__(self, measured: Sequence[ConfigSummary]) -> None:
        names = [knob.name for knob in KNOBS]
        self._columns: dict[str, int] = {}
        for one in measured:
            for name in names:
                self._columns.setdefault(f"{name}={one.config.values.get(name)!r}", len(self._columns))
        self._probes = [one.config for one in measured]
        self._mean: Floats = np.zeros(len(self._columns) + 1)
        self._covariance: Floats = np.eye(len(self._columns) + 1) * PRIOR**2
        if len(measured) < 2:
            return
        rows = np.zeros((len(measured), len(self._columns) + 1))
        rows[:, -1] = 1.0
        for row, one in zip(rows, measured, strict=True):
            for name in names:
                row[self._columns[f"{name}={one.config.values.get(name)!r}"]] = 1.0
        logs = np.log([one.score for one in measured])
        noise = math.hypot(MOST_PROBE_NOISE, SCATTER)
        precision = rows.T @ rows / noise**2 + np.diag([1 / PRIOR**2] * len(self._columns) + [1e-6])
        self._covariance = np.linalg.inv(precision).astype(np.float64)
        self._mean = (self._covariance @ rows.T @ logs / noise**2).astype(np.float64)

    def between(self, values: Mapping[str, Value], against: Mapping[str, Value]) -> Gain | None:
        """Return the factor of `values` over `against`; None if the probes determine it too little."""
        contrast = np.zeros(len(self._mean))
        for sign, side in ((1.0, values), (-1.0, against)):
            for name, value in side.items():
                column = self._columns.get(f"{name}={value!r}")
                if column is None:
                    return None
                contrast[column] += sign
        spread = math.sqrt(contrast @ self._covariance @ contrast)
        if spread > LEAST_LEARNED * PRIOR * float(np.linalg.norm(contrast)):
            return None
        center = float(contrast @ self._mean)
        having = [all(one.values.get(n) == v for n, v in values.items()) for one in self._probes]
        half = HALF_WIDTH_DEVIATIONS * spread
        return Gain(
            ratio=math.exp(center), low=math.exp(center - half), high=math.exp(center + half),
            by="estimate", count=min(sum(having), len(having) - sum(having)) or None,
        )  # fmt: skip
