"""The list of what a run's folder holds, with checksums: which files are ours, and whether they are as written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from calirare._util.errors import InputError
from calirare._util.files import parse_json, read_text

LIST, FORMAT = "files.json", "calirare files 1"


def seal(folder: Path) -> None:
    """Writes `files.json`: name and SHA-256 of every file in a folder."""
    _write(folder, {file.name: _checksum(file) for file in sorted(folder.iterdir()) if file.name != LIST})


def add(folder: Path, names: Iterable[str]) -> None:
    """Adds files to the list of a run's folder, or lists them anew; does nothing where the folder is no run."""
    listed = listed_files(folder)
    if listed is not None:
        _write(folder, listed | {name: _checksum(folder / name) for name in names})


def listed_files(folder: Path) -> dict[str, str] | None:
    """Returns the checksums of the files that a run wrote into its folder, by name; None where there is no list."""
    try:
        values = parse_json(read_text(folder / LIST))
        if values["format"] != FORMAT:
            return None
        return {str(name): str(checksum) for name, checksum in values["files"].items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def changed_file(folder: Path, names: Iterable[str] | None = None) -> str | None:
    """Returns a file that is not as the run wrote it, or None.

    Args:
        folder: with a list.
        names: the files to look at; None: all that are there.
    """
    listed = listed_files(folder) or {}
    for name in [name for name in listed if (folder / name).exists()] if names is None else names:
        path = folder / name
        if not path.is_file() or _checksum(path) != listed.get(name):
            return name
    return None


def check_as_written(folder: Path, names: Iterable[str]) -> None:
    """Checks that files of a run are as the run wrote them.

    Raises:
        InputError: the list is missing or damaged, or a file is another one than the run wrote.
    """
    if listed_files(folder) is None:
        raise InputError(
            f"run {folder}: {LIST} is missing or damaged, so nothing tells whether the run is whole: take a copy of "
            "the whole folder, or train again"
        )
    name = changed_file(folder, names)
    if name is not None and not (folder / name).exists():
        raise InputError(f"run {folder}: {name} is missing: put the file back, or train again")
    if name is not None:
        raise InputError(
            f"run {folder}: {name} is damaged or was exchanged, it is not the file the run wrote (its checksum is not "
            f"the one in {LIST}): put the file back, or train again"
        )


def _write(folder: Path, files: dict[str, str]) -> None:
    text = json.dumps({"format": FORMAT, "files": files}, indent=2, sort_keys=True) + "\n"
    part = folder / f".{LIST}.part"
    part.write_text(text, encoding="utf-8")
    part.replace(folder / LIST)


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
