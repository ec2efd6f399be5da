"""Whatever a real target does in a real probe: a result with evidence, nothing left running, the study whole."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from autotune.core import codec
from autotune.core.results import Isolation, Outcome, ProbeResult
from autotune.errors import EnvironmentUnfit
from autotune.launch.base import LOG, RESULT
from autotune.study import disk
from tests.faults.suffering import WELL, House, Suffered, left_running, partial_files, suffer_all
from tests.faults.targets import FAULTS, Fault, in_step

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="what is left of a probe is looked up in /proc")
MOST_LOG_BYTES = 2**19
ISOLATIONS: tuple[Isolation, ...] = ("fresh", "fork")


each_fault = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "-"))


@pytest.fixture(scope="module", params=ISOLATIONS)
def isolation(request: pytest.FixtureRequest) -> Isolation:
    return request.param


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory, isolation: Isolation) -> Path:
    return tmp_path_factory.mktemp(isolation)


@pytest.fixture(scope="module")
def all_suffered(request: pytest.FixtureRequest, study: Path, isolation: Isolation) -> Mapping[str, Suffered]:
    """What came of the faults of the tests that were asked for, by name: one launcher, a few probes at a time."""
    calls = [item.callspec for item in request.session.items if hasattr(item, "callspec")]
    asked = {call.params["fault"].name for call in calls if isinstance(call.params.get("fault"), Fault)}
    chosen = [fault for fault in FAULTS if not asked or fault.name in asked]
    return suffer_all(chosen, study, isolation)


@pytest.fixture
def suffered(
    fault: Fault, all_suffered: Mapping[str, Suffered], study: Path, isolation: Isolation,
    request: pytest.FixtureRequest, tmp_path: Path,
) -> Suffered:  # fmt: skip
    """What came of the fault; where the test runs again, of a second time alone."""
    if not House(study).can(fault):
        pytest.skip("a /dev/shm of its own needs Linux and the right to unshare mounts")
    is_again = getattr(request.node, "execution_count", 1) > 1
    return (suffer_all([fault], tmp_path, isolation) if is_again else all_suffered)[fault.name]


@each_fault
def test_a_fault_costs_its_own_probe_and_nothing_else(
    fault: Fault, suffered: Suffered, study: Path, isolation: Isolation
) -> None:
    result, failure = suffered.result, suffered.result.failure

    assert fault.outcome is result.outcome, failure
    assert result == codec.read(suffered.folder / RESULT, ProbeResult)
    assert suffered.survivors == ()
    assert suffered.next_result.outcome is Outcome.OK, suffered.next_result.failure
    assert {result.isolation, suffered.next_result.isolation} == {isolation}
    assert (suffered.folder / LOG).stat().st_size < MOST_LOG_BYTES
    if failure is not None:
        assert fault.phase in ("", failure.phase)
        assert re.search(fault.words, f"{failure.evidence}\n{failure.message}")
        assert failure.traceback.replace("\n", "").replace("\t", "").isprintable()


def test_the_study_of_all_faults_reads_back_whole(all_suffered: Mapping[str, Suffered], study: Path) -> None:
    trials = {trial.number: trial.result for trial in disk.read_trials(study)}

    assert all(suffered.result == trials[int(suffered.folder.name)] for suffered in all_suffered.values())
    assert disk.read_orphans(study) == ()
    assert partial_files(study) == []


def test_losses_that_are_not_finite_are_kept_as_such(all_suffered: Mapping[str, Suffered]) -> None:
    for name in ("NaN losses", "infinite losses"):
        measured = all_suffered[name].result.measurement

        assert measured is not None
        assert set(measured.losses) == {None}


def test_a_file_under_the_number_of_a_closed_descriptor_is_not_written_to(
    all_suffered: Mapping[str, Suffered],
) -> None:
    files = list(all_suffered["closed descriptors"].folder.glob("mine-*"))

    assert files
    assert [path.read_bytes() for path in files] == [b""] * len(files)


def test_a_hang_shows_the_line_of_the_user_that_hangs(all_suffered: Mapping[str, Suffered]) -> None:
    failure = all_suffered["endless build"].result.failure

    assert failure is not None
    log = (all_suffered["endless build"].folder / LOG).read_text()
    assert re.search(r'model\.py", line \d+ in forever\n.*model\.py", line \d+ in model\n', log)


FILL = """
with (PROBE / "ballast").open("ab", buffering=0) as ballast:
    size = 2**16
    while size:
        try:
            ballast.write(b"x" * size)
        except OSError:
            size //= 2
"""


def test_a_disk_that_a_target_fills_stops_the_search_and_keeps_the_study(small_disk: Path) -> None:
    fault = Fault(name="disk full", code=in_step(FILL), outcome=Outcome.ENVIRONMENT)

    with House(small_disk, "fork") as house:
        house.probe(WELL, 0)
        with pytest.raises(EnvironmentUnfit, match=r"cannot be written: No space left on device \(0 MiB free there\)"):
            house.probe(fault, 1)

        full = small_disk / disk.PROBES / "0001"
        assert left_running(full) == ()
        assert [trial.number for trial in disk.read_trials(small_disk)] == [0]
        assert partial_files(small_disk) == []
        (full / "ballast").unlink()
        assert house.probe(WELL, 2)[0].outcome is Outcome.OK
