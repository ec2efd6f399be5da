"""The predicted memory of each configuration: a shape run, corrected by the probes of the study so far. Pure.

It is the sampler's prior belief, never a verdict: nothing is refused or recommended because of it.
"""

from __future__ import annotations

from autotune.core.records import Config
from autotune.core.results import Measurement, Trial
from autotune.core.stats import mean_of_known
from autotune.knobs import KNOBS, traded
from autotune.memory.model import ON_DEVICE, ON_HOST, SLACK_SHARE, Arm, Calibration, PredictedPeak, calibrated
from autotune.sampler.space import SearchSpace
from autotune.study.history import History

INTERPRETER_BYTES = 150 * 2**20  # a lower bound of a process with torch: measured 221 MiB (2.13 for CPUs, Linux)


class MemoryPrediction:
    """The predicted memory of each configuration: that of a shape run, corrected by the probes of the study so far."""

    def __init__(self, space: SearchSpace, history: History) -> None:
        self._request, self._space, self._history = history.request, space, history
        self._calibrated: tuple[int, Calibration, float] | None = None
        self._binding = (-1, True)  # version of the history, and whether memory can bind according to it

    def of(self, config: Config) -> PredictedPeak | None:
        """Return the predicted peak of `config`; None if nothing is known."""
        found = self._history.shape_run
        predicted = found.peak_bytes(config.values) if found else None
        if predicted is None:
            return None
        calibration, per_worker = self._calibration()
        return calibration.prior_peak(predicted, per_worker * _workers(config), self.usable_bytes)

    def expects_to_fit(self, config: Config) -> bool:
        """Return whether `config` fits by the upper end of its prediction; without a shape run, whether all do."""
        found = self._history.shape_run
        arm = found.arm(config.values) if found else None
        if arm is None or not arm.points:
            return found is None and not self.can_bind
        return self.fits(arm, config.batch_size, _workers(config))

    @property
    def usable_bytes(self) -> int:
        """The bytes that a configuration may need: the memory limit without its headroom."""
        return self._request.memory_limit_bytes - self._request.headroom_bytes

    def fits(self, arm: Arm, batch: int, workers: int = 0) -> bool:
        """Return whether even the upper end of the predicted peak is within the usable memory."""
        calibration, per_worker = self._calibration()
        probed = any(arm.values.items() <= trial.config.values.items() for trial, _ in self._measured())
        return calibration.most(arm.peak_bytes(batch) or 0.0, probed=probed) + per_worker * workers <= self.usable_bytes

    @property
    def can_bind(self) -> bool:
        """Whether the largest batch might need more than half of the usable memory (`SLACK_SHARE`).

        Every phase of a step needs a + c * b bytes with a >= 0, so a measured peak grows at most in proportion to the
        batch; on the host only the part beyond the interpreter grows.
        """
        if self._binding[0] != self._history.version:
            self._binding = self._history.version, self._can_bind()
        return self._binding[1]

    def _can_bind(self) -> bool:
        largest = max(int(batch or 0) for batch in self._space.configs.values("batch_size"))
        bounds = []
        for trial, measured in self._measured():
            if traded(trial.config.values):
                continue  # configurations without the trade need more
            memory, times = measured.memory, max(1.0, largest / trial.config.batch_size)
            fixed = INTERPRETER_BYTES if memory.reserved_bytes is None else 0
            bounds.append(fixed + (memory.bytes - fixed) * times)
        return not bounds or min(bounds) > SLACK_SHARE * self.usable_bytes

    @property
    def shapes_vary(self) -> bool:
        """Whether the batches that were measured differ in shape."""
        return any(measured.shapes_vary for _, measured in self._measured())

    def _measured(self) -> list[tuple[Trial, Measurement]]:
        return [(t, t.result.measurement) for t, _ in self._history.judged if t.result.measurement is not None]

    def _calibration(self) -> tuple[Calibration, float]:
        """Return the correction, and the bytes of one loader worker on the host (0 on a device)."""
        if self._calibrated is None or self._calibrated[0] != self._history.version:
            found = self._history.shape_run
            assert found is not None, "there is something to calibrate"
            peaks, workers = [], []
            for trial, measured in self._measured():
                memory = measured.memory
                own = memory.process_bytes if memory.reserved_bytes is None else memory.bytes
                predicted = found.peak_bytes(trial.config.values)
                if predicted is not None:
                    peaks.append((predicted, float(own)))
                if _workers(trial.config):
                    workers.append((memory.bytes - own) / _workers(trial.config))
            per_worker = mean_of_known(workers) or 0.0
            prior = ON_HOST if self._request.environment.device_kind == "cpu" else ON_DEVICE
            self._calibrated = self._history.version, calibrated(found.base_bytes, peaks, prior), per_worker
        return self._calibrated[1:]


def _workers(config: Config) -> int:
    return sum(int(config[knob.name] or 0) for knob in KNOBS if knob.counts_workers)
