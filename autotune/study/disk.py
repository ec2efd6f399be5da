"""A study on disk, which any process may read: JSON only, without a lock and without Optuna.

studies/NAME/
  best.json          the recommendation; the only file that `load_best` reads
  best-1.json        an earlier answer, or one that was less well supported than best.json; then best-2.json, ...
  study.json         what was asked, of which target, on which machine
  study.db           Optuna's store: the sampler's memory, rebuilt from probes/ if it is lost
  study.lock         held while a search runs
  progress.json      what the search does and said, for those who follow it; fleet.json: its workers, if it has any
  probes/0007/       request.json, result.json, log.txt, and prediction.json where the sampler expected something
  stability/0000/    the same for a precision check
  noise_scale/0000/  the same for a sample of gradients
  dry_run/0000/      the same for a shape run (its earlier name), and so for each kind in `core/measurements.py`
  inspect/           the same for the inspection
  compiled/          code that torch.compile generated, while a search or race runs
  .gitignore         everything but best.json
"""

from __future__ import annotations

import re
import shutil
import tempfile
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from autotune import objectives
from autotune.core import codec
from autotune.core.measurements import MEASUREMENTS
from autotune.core.records import Config, StudyRequest
from autotune.core.requests import Asked, InspectRequest, Kind, ProbeRequest, Request, ResultT
from autotune.core.results import ProbeResult, Trial
from autotune.errors import EnvironmentUnfit, StudyError, StudyNotFound
from autotune.knobs import completed, defaults
from autotune.launch.base import LOG, REQUEST, RESULT
from autotune.launch.files import COMPILED_FOLDER, request_in, store, take_outputs_away
from autotune.launch.files import unwritable as unwritable  # the same words wherever a study cannot be written
from autotune.sampler.prediction import Prediction
from autotune.study.progress import PROGRESS
from autotune.study.running import LOCK as LOCK
from autotune.study.running import is_running, no_study, not_begun

STUDIES = Path("studies")
BEST, STUDY, DATABASE, FLEET = "best.json", "study.json", "study.db", "fleet.json"
PROBES, INSPECT = ProbeRequest.FOLDER, InspectRequest.FOLDER
EARLIER = "best-{}.json"
PREDICTION = "prediction.json"
RACE = "race.json"  # in the folder of a race, which has probes and is no study
EXPLAINED = "explain"  # in a study: the races of `autotune explain --measure`, each in a folder of its own
FORMER = ("fitted.json", "goodput")  # made by earlier versions
STUDY_FILES = (BEST, STUDY, LOCK, PROGRESS, FLEET, COMPILED_FOLDER, *FORMER, *(kind.FOLDER for kind in MEASUREMENTS))
IGNORE = ".gitignore"
IGNORED = "*\n!.gitignore\n!best.json\n"
WRITTEN = re.compile(rf"{re.escape(DATABASE)}.*|best-\d+\.json|report\.html|[a-z]+\.svg")  # by whatever command


def find(name: str | Path | None) -> Path:
    """Return the folder of a study, by path or by its name under studies/; without a name the newest.

    Raises `StudyNotFound`, which lists the existing studies, and `EnvironmentUnfit` if the folder may not be read.
    """
    if name is None:
        known = sorted(studies(STUDIES), key=_made)
        if known:
            return known[-1]
        raise StudyNotFound(
            f"There is no study under {STUDIES}/. Probably none was searched from this folder yet. "
            f"Run `autotune search model.py`, or name a study folder."
        )
    for folder in (Path(name), STUDIES / name):
        try:
            if _has_record(folder):
                return folder
        except PermissionError as error:
            raise EnvironmentUnfit(
                f"{folder} cannot be read: {error.strerror}. It is probably another user's. Have it made readable, or "
                f"name another study."
            ) from error
    places = (Path(name), STUDIES / name)
    if races := [one for one in places if (one / RACE).is_file()]:
        raise StudyNotFound(
            f"{races[0]} is no study: it is a race, and nothing was searched. No command shows a race again. Read its "
            f"result in {races[0] / RACE}, or measure anew with `autotune race`."
        )
    there = [one for one in places if one.exists()]
    place = next((one for one in there if (one / PROBES).is_dir()), [*there, *places][0])
    probes = len(_probe_folders(place))
    if not probes and (begun := [one for one in places if (one / INSPECT / RESULT).is_file() or is_running(one)]):
        raise StudyNotFound(not_begun(begun[0], begun[0] / INSPECT))
    meant = [Path(place.name), STUDIES / place.name]
    meant += [*place.parents, STUDIES / place.stem] if there else []  # best.json of a study, or its model.py
    raise StudyNotFound(no_study(name, place, probes, list(filter(is_study, meant)), studies(STUDIES)))


def is_study(folder: Path) -> bool:
    """Return whether `folder` is readable and contains a study, or at least its recommendation."""
    with suppress(OSError):  # not allowed; or a command that is too long for the name of a folder
        return _has_record(folder)
    return False


def studies(root: Path) -> list[Path]:
    """Return all study folders directly under `root`, by name."""
    return sorted(entry for entry in root.iterdir() if is_study(entry)) if root.is_dir() else []


def read_request(folder: Path) -> StudyRequest:
    """Return the study's request, with today's knobs and options. Raises `StudyError` if it is damaged."""
    return codec.read(folder / STUDY, StudyRequest, _completed)


def _completed(request: StudyRequest) -> StudyRequest:
    domains = {name: (value,) for name, value in defaults().items()} | request.domains
    goal = objectives.completed(request.goal)
    return replace(request, goal=goal, baseline=completed(request.baseline), domains=domains)


def read_trials(folder: Path) -> tuple[Trial, ...]:
    """Return every finished probe, by number. Raises `StudyError` if a file is damaged.

    A measurement without its duration is left out: its launcher died before it could add its readings, so the probe
    counts as never begun.
    """
    left = (read_trial(place) for place in _probe_folders(folder) if (place / RESULT).is_file())
    return tuple(trial for trial in left if trial.result.measurement is None or trial.result.elapsed_seconds)


def read_trial(place: Path) -> Trial:
    """Return the finished probe in folder `place`. Raises `StudyError` if a file is damaged."""
    request = request_in(place, ProbeRequest)
    result = codec.read(place / RESULT, ProbeResult)
    return Trial(
        number=request.number,
        purpose=request.purpose,
        config=completed(request.config),
        result=result,
        repeats=request.repeats,
        seed=request.seed,
    )


def read_asked(folder: Path) -> tuple[ProbeRequest, ...]:
    """Return the request of every probe, finished or not, with today's knobs. Raises `StudyError` for damage."""
    requests = (place / REQUEST for place in _probe_folders(folder))
    asked = (codec.read(path, ProbeRequest) for path in requests if path.is_file())
    return tuple(replace(one, config=completed(one.config)) for one in asked)


def attempts(folder: Path, kind: Kind[Asked, ResultT]) -> tuple[tuple[Asked, ResultT], ...]:
    """Return request and result of every finished measurement of that kind, in order. Raises `StudyError` for damage.

    For probes, `read_trials` returns more.
    """
    return tuple(
        (request_in(place, kind.request), codec.read(place / RESULT, kind.result))
        for place in _numbered(folder / kind.folder)
        if (place / RESULT).is_file()
    )


def read_orphans(folder: Path) -> tuple[Config, ...]:
    """Return the configurations of probes that left no result because the searching process died.

    Interrupted probes are not among them: on an interrupt the launcher removes the request, too.
    """
    begun = (
        place for place in _probe_folders(folder) if (place / REQUEST).is_file() and not (place / RESULT).is_file()
    )
    return tuple(completed(codec.read(place / REQUEST, ProbeRequest).config) for place in begun)


def write_prediction(folder: Path, number: int, prediction: Prediction) -> None:
    """Write the prediction for probe `number` into its folder. Raises `EnvironmentUnfit` if that fails."""
    store(make(folder / PROBES / f"{number:04d}"), PREDICTION, prediction)


def read_prediction(folder: Path, number: int) -> Prediction | None:
    """Return the prediction for probe `number`; None: there is none. Raises `StudyError` if the file is damaged."""
    path = folder / PROBES / f"{number:04d}" / PREDICTION
    return codec.read(path, Prediction) if path.is_file() else None


def log_of(folder: Path, number: int) -> Path:
    """Return the path of the log of probe `number`."""
    return folder / PROBES / f"{number:04d}" / LOG


def new_attempt(folder: Path, kind: type[Request[Any]]) -> tuple[int, Path]:
    """Make a folder with a new number for a measurement of that kind. Raises `EnvironmentUnfit` if that fails."""
    root = folder / kind.FOLDER
    number = max((int(place.name) for place in _numbered(root)), default=-1) + 1
    return number, make(root / f"{number:04d}")


def make(folder: Path) -> Path:
    """Return `folder`, made if necessary. Raises `EnvironmentUnfit`, and `StudyError` if a file is in the way."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise StudyError(
            f"{error.filename} is a file, and a study needs a folder there. The name was probably meant for something "
            f"else. Choose another with --study, for a race with --folder."
        ) from error
    except OSError as error:
        raise unwritable(folder, error) from error
    return folder


def check_writable(folder: Path) -> None:
    """Raise what `make` and writing a first file would raise; leave no file or folder behind."""
    nearest = next(above for above in (folder, *folder.absolute().parents) if above.exists())
    make(nearest)
    try:
        tempfile.TemporaryDirectory(prefix=".autotune-", dir=nearest).cleanup()
    except OSError as error:
        raise unwritable(folder, error) from error


def sweep(folder: Path) -> None:
    """Delete the output of earlier probes' commands, which a killed search could not delete. Needs the lock."""
    take_compiled_away(folder)
    for kind in MEASUREMENTS:
        for place in (folder / kind.FOLDER, *_numbered(folder / kind.FOLDER)):
            if (place / LOG).is_file():
                take_outputs_away(place)


def take_compiled_away(folder: Path) -> None:
    """Delete the generated code: up to hundreds of megabytes, which only speed up the probes of one search."""
    shutil.rmtree(folder / COMPILED_FOLDER, ignore_errors=True)


def is_ours(folder: Path) -> bool:
    """Return whether `folder` contains only files that a search makes."""
    return all(entry.name in STUDY_FILES or entry.name.startswith(DATABASE) for entry in folder.iterdir())


def foreign(folder: Path) -> list[str]:
    """Return the names of entries of `folder` that belong to no study; empty if it does not exist."""
    ours, entries = (*STUDY_FILES, EXPLAINED, IGNORE), folder.iterdir() if folder.is_dir() else ()
    whole = {one.name: one.name.removesuffix(codec.PARTIAL) for one in entries}  # a killed search leaves partial files
    return sorted(name for name, of in whole.items() if of not in ours and not WRITTEN.fullmatch(of))


def clear_away(folder: Path) -> None:
    """Delete the files that a search without any record left in `folder`; all others stay."""
    if is_study(folder) or (folder / PROBES).exists():
        return
    with suppress(OSError):  # a folder that is not empty, or not writable, stays
        for name in (REQUEST, RESULT, LOG):
            (folder / INSPECT / name).unlink(missing_ok=True)
        if (folder / INSPECT).is_dir():
            (folder / INSPECT).rmdir()
        (folder / LOCK).unlink(missing_ok=True)
        if [entry.name for entry in folder.iterdir()] == [IGNORE] and (folder / IGNORE).read_text() == IGNORED:
            (folder / IGNORE).unlink()  # of a failure before
        folder.rmdir()
        if folder.parent == STUDIES:
            STUDIES.rmdir()


def _has_record(folder: Path) -> bool:
    return (folder / STUDY).is_file() or (folder / BEST).is_file()


class _Dated(msgspec.Struct):
    created_at: str = ""
    measured_at: str = ""


def _made(folder: Path) -> str:
    """Return when the study was begun, in UTC; if only best.json was kept, when that was measured.

    The times are read from the files' content: in a clone all files have the time of cloning.
    """
    kept = folder / STUDY if (folder / STUDY).is_file() else folder / BEST
    with suppress(msgspec.MsgspecError, UnicodeDecodeError, OSError):
        dated = msgspec.json.decode(kept.read_bytes(), type=_Dated)
        if moment := dated.created_at or dated.measured_at:
            return moment
    return datetime.fromtimestamp(kept.stat().st_mtime, UTC).isoformat()


def _probe_folders(folder: Path) -> list[Path]:
    return _numbered(folder / PROBES)


def _numbered(root: Path) -> list[Path]:
    return sorted((p for p in root.iterdir() if p.name.isdecimal()), key=lambda p: int(p.name)) if root.is_dir() else []
