"""The contract of all launchers, whatever they run requests on: a base class of tests.

class TestMyLauncher(LauncherContract):
    def launcher(self):
        return MyLauncher()
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

from autotune.core import codec
from autotune.core.measurements import MEASUREMENTS
from autotune.core.records import Config
from autotune.core.requests import InspectRequest, ProbeRequest, Request
from autotune.core.results import Outcome, Result
from autotune.errors import EnvironmentUnfit
from autotune.launch.base import LOG, REQUEST, RESULT, Launcher

_CONFIG = Config(values={"batch_size": 8, "gradient_accumulation_steps": 2, "num_workers": 1, "amp_dtype": None})
_FIELDS = {
    "config": _CONFIG, "reference": _CONFIG, "candidate": _CONFIG, "arms": ({"amp_dtype": None},), "batches": (8, 16),
    "device": "cpu",
}  # fmt: skip


def example(kind: type[Request[Any]], target: str, **fields: Any) -> Request[Any]:
    """Return a small request of that kind for `target`; `fields` are those of the kind."""
    known = {name: value for name, value in _FIELDS.items() if name in kind.__struct_fields__}
    return kind(**{**known, "target": target, **fields})


class LauncherContract:
    """A base class: derive from it and return the launcher to test from `launcher`; pytest runs the tests."""

    TRAINS, DIES = "ok", "kill"  # targets: one whose process succeeds, one whose process is killed

    def launcher(self) -> Launcher:
        """Return a new launcher, in which any kind of request for `DIES` ends as `CRASHED`."""
        raise NotImplementedError

    def test_every_kind_leaves_request_log_and_the_answer_that_was_returned(self, tmp_path: Path) -> None:
        for kind in MEASUREMENTS:
            for target, outcome in ((self.TRAINS, Outcome.OK), (self.DIES, Outcome.CRASHED)):
                request = example(kind, target)

                result = self._run(request, tmp_path)

                assert type(result) is kind.kind().result, kind
                assert result.outcome is outcome, kind
                assert codec.read(tmp_path / RESULT, type(result)) == result, kind
                assert codec.read(tmp_path / REQUEST, kind) == request, kind
                assert sorted(path.name for path in tmp_path.iterdir()) == sorted([LOG, REQUEST, RESULT]), kind

    def test_an_answer_knows_when_its_process_began_and_how_long_it_took(self, tmp_path: Path) -> None:
        for kind in MEASUREMENTS.keys() - {InspectRequest}:  # the time of an inspection is not recorded
            for target in (self.TRAINS, self.DIES):
                result = self._run(example(kind, target), tmp_path)

                assert datetime.fromisoformat(result.started_at).utcoffset() is not None, kind
                assert result.elapsed_seconds > 0, kind
                assert {"start", "load"} <= set(result.phase_seconds), kind

    def test_a_failure_says_where_and_how_we_know(self, tmp_path: Path) -> None:
        for kind in MEASUREMENTS:
            failure = self._run(example(kind, self.DIES), tmp_path).failure

            assert failure is not None, kind
            assert failure.phase and failure.message and failure.evidence, kind

    def test_an_old_answer_in_the_folder_is_never_taken_for_the_new(self, tmp_path: Path) -> None:
        self._run(example(ProbeRequest, self.TRAINS), tmp_path)

        assert self._run(example(ProbeRequest, self.DIES), tmp_path).outcome is Outcome.CRASHED

    def test_an_inspection_tells_of_machine_and_target(self, tmp_path: Path) -> None:
        inspection = self.launcher().run(InspectRequest(target=self.TRAINS), tmp_path)

        assert inspection.environment is not None
        assert inspection.facts is not None

    def test_a_folder_that_cannot_be_written_is_an_unfit_environment(self, tmp_path: Path) -> None:
        for name in (REQUEST, RESULT):
            folder = tmp_path / name.partition(".")[0]
            (folder / f"{name}.partial").mkdir(parents=True)  # blocks an atomic write, also for root
            try:
                self._run(example(ProbeRequest, self.TRAINS), folder)
            except EnvironmentUnfit as error:
                assert "cannot be written: " in str(error) and "Free some space" in str(error), error
            else:
                raise AssertionError(f"{name} could not be written, and nobody said so")

    def test_requests_run_side_by_side_without_mixing_their_folders(self, tmp_path: Path) -> None:
        launcher = self.launcher()
        requests = [example(ProbeRequest, target) for target in (self.TRAINS, self.DIES) * 2]
        folders = [tmp_path / str(number) for number in range(len(requests))]
        for folder in folders:
            folder.mkdir()

        with ThreadPoolExecutor(len(requests)) as pool:
            results = list(pool.map(launcher.run, requests, folders))

        assert [result.outcome is Outcome.OK for result in results] == [True, False, True, False]
        assert results == [codec.read(folder / RESULT, ProbeRequest.kind().result) for folder in folders]

    def _run(self, request: Request[Any], folder: Path) -> Result:
        result: Result = self.launcher().run(request, folder)
        return result
