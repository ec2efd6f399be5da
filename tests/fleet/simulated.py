"""A fleet without a database: workers of one simulated machine, each as fast as it is told to be."""

import threading
from collections import Counter

from msgspec.structs import replace

from autotune.core.requests import ProbeRequest
from autotune.fleet.records import FleetWorker
from autotune.launch.base import RESULT
from autotune.launch.files import store
from autotune.testing import ENVIRONMENT, FakeLauncher

LONGEST_SECONDS = 0.5  # of a probe


class SimulatedFleet(FakeLauncher):
    """`speeds`: of each worker by name, the first of them the home; `until`: probes until a worker joins, by name."""

    def __init__(self, speeds, *, joining=None, **options):
        super().__init__(**options)
        self.names = list(speeds)
        self.speeds, self._joining = dict(speeds), joining or {}
        self._workers = {
            number: FleetWorker(id=number, name=name, host=name, environment=ENVIRONMENT)
            for number, name in enumerate(self.names)
        }
        self.ran = {name: [] for name in self.names}  # requests for probes, in order
        self.at_once = 0  # most probes that ran side by side
        self._running, self._count, self._guard = Counter(), 0, threading.Condition()
        self.fault = None  # called with (worker, request) before it runs
        self.is_stopped = False

    def workers(self):
        return tuple(worker for worker in self._workers.values() if self._joining.get(worker.name, 0) <= self._count)

    def on(self, worker):
        return _One(self, self.names[worker])

    def mark(self, worker, *, reference, quarantined):
        self._workers[worker] = replace(self._workers[worker], reference=reference, quarantined=quarantined)

    def stop(self):
        self.is_stopped = True

    def run(self, request, folder):
        return self.run_on(self.names[0], request, folder)

    def run_on(self, name, request, folder):
        if not isinstance(request, ProbeRequest):
            return super().run(request, folder)
        with self._guard:
            self._count += 1
            self._running[request.config] += 1
            assert self._running[request.config] == 1 or request.purpose != "search", "the same probe twice at once"
            self.at_once = max(self.at_once, self._running.total())
            self.ran[name].append(request)
        try:
            if self.fault is not None:
                self.fault(name, request)
            if request.purpose in ("search", "reference"):
                with self._guard:  # a probe takes longer than a proposal: the others begin meanwhile, if they do
                    self._guard.wait_for(lambda: self._running.total() >= len(self.workers()), LONGEST_SECONDS)
                    self._guard.notify_all()
            result = self._slowed(name, super().run(request, folder))
            store(folder, RESULT, result)
            return result
        finally:
            with self._guard:
                self._running[request.config] -= 1

    def _slowed(self, name, result):
        measured = result.measurement
        if measured is not None:
            seconds = tuple(one / self.speeds[name] for one in measured.step_seconds)
            measured = replace(measured, step_seconds=seconds)
        return replace(result, measurement=measured, worker=name)


class _One:
    def __init__(self, fleet, name):
        self._fleet, self._name = fleet, name

    def run(self, request, folder):
        return self._fleet.run_on(self._name, request, folder)
