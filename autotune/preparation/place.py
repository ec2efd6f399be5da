"""The folder of a study: whether a study may lie there, and where an earlier one is moved to."""

from __future__ import annotations

from pathlib import Path

from autotune.errors import StudyError
from autotune.preparation.settings import Settings
from autotune.sentences import first_few
from autotune.study import disk

MOST_NAMED_FILES = 3  # that belong to the user


def check_place(settings: Settings) -> None:
    """Raise `StudyError` if no study can lie there, or none can be moved aside; asked before anything is made."""
    folder = settings.folder.resolve()
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise StudyError(
            f"The path of the study, {str(folder)!a}, is not UTF-8 text. It probably comes from a system with "
            f"another encoding, and the JSON of a study cannot name it. Choose another place with --study."
        ) from None
    try:
        foreign = disk.foreign(folder)
    except OSError as error:
        raise disk.unwritable(folder, error) from error
    if disk.RACE in foreign:
        raise StudyError(
            f"{settings.folder} is the folder of a race: {disk.RACE} holds its result. A search needs a folder of its "
            f"own. Choose another with --study."
        )
    if foreign and (settings.mode == "fresh" or not holds_study(folder)):
        raise StudyError(_among_others(settings, foreign))


def _among_others(settings: Settings, foreign: list[str]) -> str:
    """Return why no study begins in a folder that holds files of no study, and why none there is moved aside."""
    told = first_few(foreign, MOST_NAMED_FILES)
    if holds_study(settings.folder):
        return (
            f"--fresh would move all of {settings.folder} aside, and besides the study it holds {told}, which autotune "
            f"did not make. Those are probably your own files. Move them out, or choose another --study."
        )
    return (
        f"{settings.folder} holds {told}, and no study. Those are probably your own files, among which a search writes "
        f"nothing. Choose a new or empty folder with --study, such as {settings.folder / 'study'}."
    )


def holds_study(folder: Path) -> bool:
    """Return whether a study was begun in `folder`, whether its request is there or not."""
    return (folder / disk.STUDY).is_file() or (folder / disk.PROBES).is_dir()


def place_aside(folder: Path) -> Path | None:
    """Return where a fresh search moves the study in `folder`; None if there is none."""
    if not holds_study(folder):
        return None
    number = 1
    while (aside := folder.with_name(f"{folder.name}.old-{number}")).exists():
        number += 1
    return aside
