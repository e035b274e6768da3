"""The list of what a run's folder holds, with checksums: which files are ours, and whether they are as written.

Files are replaced one after the other, and a process may be killed between two of them. The list therefore says first
what they will be; until it says that they are, either of the two is as written.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from calirare._util.errors import InputError
from calirare._util.file_locks import opened
from calirare._util.files import parse_json, read_text, sync
from calirare_ext import __version__

LIST, FORMAT = "files.json", "calirare files 1"
RECALIBRATION = "recalibration.json"  # in place of tables and pictures in the folder of a recalibrated run
PART = f".{LIST}.part"  # the list while it is written, and what a killed process leaves of it


def seal(folder: Path) -> None:
    """Writes `files.json`: name and SHA-256 of every file in a folder, all of them the run's own for good."""
    files = {file.name: _checksum(file) for file in sorted(folder.iterdir()) if file.name not in (LIST, PART)}
    _write(folder, {"files": files, "own": sorted(files)})


def announce(folder: Path, coming: Path) -> None:
    """Lists the files that are about to be put into a run's folder; does nothing where the folder is no run.

    Args:
        folder: of the run.
        coming: another folder, in which they are now.
    """
    with _alone(folder):
        values = _values(folder)
        if values is not None:
            files = {file.name: _checksum(file) for file in sorted(coming.iterdir())}
            _write(folder, values | {"coming": values.get("coming", {}) | files})


def arrived(folder: Path, names: Iterable[str]) -> None:
    """Lists files that `announce` listed as those that are there now; does nothing where the folder is no run."""
    with _alone(folder):
        values = _values(folder)
        if values is not None:
            coming, names = values.get("coming", {}), set(names)
            now = {name: _checksum(folder / name) for name in names}
            left = {name: checksum for name, checksum in coming.items() if name not in names}
            _write(folder, values | {"files": values["files"] | now, "coming": left})


def listed_files(folder: Path) -> dict[str, tuple[str, ...]] | None:
    """Returns the checksums that each file a run wrote into its folder may have; None where there is no list."""
    values = _values(folder)
    if values is None:
        return None
    lists = [values["files"], values.get("coming", {})]
    return {name: tuple(each[name] for each in lists if name in each) for name in lists[0] | lists[1]}


def own_files(folder: Path) -> frozenset[str]:
    """Returns the names of the files that make the run, which later ones must not replace; none where it is no run."""
    values = _values(folder)
    return frozenset() if values is None else frozenset(values.get("own", ()))


def _values(folder: Path) -> dict[str, Any] | None:
    try:
        values: dict[str, Any] = parse_json(read_text(folder / LIST))
        lists = [values["files"], values.get("coming", {})]
        text = all(isinstance(word, str) for each in lists for pair in each.items() for word in pair)
        return values if values["format"] == FORMAT and text and isinstance(values.get("own", []), list) else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Waits until no other process changes the list of a folder."""
    with opened(folder) as number:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(number, fcntl.LOCK_EX)
        yield


def changed_file(folder: Path, names: Iterable[str] | None = None) -> str | None:
    """Returns a file that is not as the run wrote it, or None.

    Args:
        folder: with a list.
        names: the files to look at; None: all that are there.
    """
    listed = listed_files(folder) or {}
    for name in [name for name in listed if (folder / name).exists()] if names is None else names:
        path = folder / name
        if not path.is_file() or _checksum(path) not in listed.get(name, ()):
            return name
    return None


def check_as_written(folder: Path, names: Iterable[str]) -> None:
    """Checks that files of a run are as the run wrote them.

    Raises:
        InputError: the list is missing or damaged, or a file is another one than the run wrote.
    """
    listed, names = listed_files(folder), tuple(names)
    if listed is None:
        raise InputError(
            f"run {folder}: {LIST} is missing or damaged, so whether the run is whole is unknown: take a copy of "
            "the whole folder, or train again"
        )
    name = changed_file(folder, names)
    if name is not None and name not in listed and RECALIBRATION in listed:
        raise InputError(
            f"run {folder}: it has no {name}, as it was recalibrated: its calibrators were fitted again. "
            "Name the run that it was made of (`calirare report RUN`). `calirare predict` scores with this one"
        )
    if name is not None and not (folder / name).exists():
        raise InputError(f"run {folder}: {name} is missing: put the file back, or train again with config.yaml")
    if name is not None:
        raise InputError(
            f"run {folder}: {name} is damaged or was exchanged, it is not the file the run wrote (its checksum is not "
            f"the one in {LIST}): put the file back, or train again"
        )


def other_metrics(folder: Path, error: Exception) -> InputError:
    """Returns what to say of a metrics.json as the run wrote it, in which something is not as it is written today."""
    found = f"there is no {error}" if isinstance(error, KeyError) else str(error)
    return InputError(
        f"run {folder}: metrics.json is damaged or of another version of calirare{_other_version(folder)} ({found}): "
        "train the run again with its config.yaml"
    )


def _other_version(folder: Path) -> str:
    """Returns the other version that metrics.json names, or nothing."""
    try:
        version = parse_json(read_text(folder / "metrics.json")).get("version")
    except (OSError, ValueError, AttributeError):
        return ""
    return f", {version}" if version and version != __version__ else ""


def checksum_of(folder: Path, names: Iterable[str]) -> str:
    """Returns one checksum of some files of a folder as they are now."""
    return hashlib.sha256("".join(_checksum(folder / name) for name in names).encode()).hexdigest()


def _write(folder: Path, values: dict[str, Any]) -> None:
    text = json.dumps({"format": FORMAT} | {k: v for k, v in values.items() if v}, indent=2, sort_keys=True) + "\n"
    part = folder / PART
    try:
        part.write_text(text, encoding="utf-8")
        sync(part)
        part.replace(folder / LIST)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
