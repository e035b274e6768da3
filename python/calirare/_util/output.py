"""Output that is there as a whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from calirare._util.errors import InputError

MARKS = ("config.yaml", "model.safetensors")  # what makes a folder a run
WRITTEN = (  # patterns of what commands write into a run's folder: a run that is replaced takes these with it
    *MARKS,
    "metrics.json",
    "predictions*.csv",
    "predictions*.parquet",
    "review.csv",
    "*.png",
    "log.txt",
    "loo_check.json",
)


@contextmanager
def fresh_folder(path: Path, *, overwrite: bool) -> Iterator[Path]:
    """Gives a folder to write into that becomes `path` only when everything in it is written.

    Args:
        path: the run's folder.
        overwrite: replace a folder that is there.

    Yields:
        A folder beside it; removed if anything goes wrong.

    Raises:
        InputError: the folder exists and must not be replaced, is no run or holds something else beside one, or cannot
            be written.
    """
    made: list[Path] = []
    try:
        where = path.resolve()
        _check_free(where, path, overwrite)
        made += [folder for folder in where.parents if not folder.exists()]
        where.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{where.name}.", suffix=".partial", dir=where.parent))
    except OSError as error:
        _remove_empty(made)
        raise InputError(f"run {path}: the folder cannot be written: {error.strerror or error}") from error
    try:
        yield partial
        partial.chmod(0o755)
        _put(partial, where, path, overwrite)
    except OSError as error:
        raise InputError(f"run {path}: writing failed and nothing was kept: {error.strerror or error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        _remove_empty(made)


def _check_free(where: Path, path: Path, overwrite: bool) -> None:
    """Checks that a run may be written to `where`, which the user calls `path`."""
    if not where.exists():
        return
    if not where.is_dir():
        raise InputError(f"run {path}: is a file, a folder is wanted: take another --out")
    if not overwrite:
        raise InputError(f"run {path}: exists already: take another --out, or pass --overwrite to replace it")
    there = sorted(where.iterdir())
    if there and not all((where / name).is_file() for name in MARKS):
        # A mistyped --out must not cost anybody a folder of theirs.
        raise InputError(f"run {path}: --overwrite replaces runs only, and this folder is none: take another --out")
    foreign = [file.name for file in there if file.is_dir() or not any(map(file.match, WRITTEN))]
    if foreign:
        raise InputError(
            f"run {path}: --overwrite replaces runs only, and this folder also holds {foreign[0]}, which no run wrote: "
            "move it elsewhere, or take another --out"
        )


def _put(partial: Path, where: Path, path: Path, overwrite: bool) -> None:
    """Moves the finished folder to its place; an old one there is lost only when the new one stands.

    What appeared there meanwhile is spared unless it may be replaced; the finished folder is then kept beside it.
    """
    old = partial.with_suffix(".old")
    try:
        _check_free(where, path, overwrite)
        if where.exists():
            os.replace(where, old)
        os.replace(partial, where)
    except BaseException as error:
        if old.exists() and not where.exists():
            os.replace(old, where)
        elif where.exists() and isinstance(error, InputError | OSError):
            kept = partial.with_name(partial.name.removeprefix(".").removesuffix(".partial"))
            os.replace(partial, kept)
            shutil.rmtree(old, ignore_errors=True)
            raise InputError(
                f"run {path}: another was written there while this one was made, which is kept as {kept}: move it to "
                "where you want it"
            ) from error
        raise
    shutil.rmtree(old, ignore_errors=True)


def _remove_empty(folders: list[Path]) -> None:
    """Removes those of the folders that hold nothing, the innermost first."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


@contextmanager
def fresh_files(folder: Path, what: str) -> Iterator[Path]:
    """Gives a folder to write files into that move to `folder` only when all of them are written.

    Args:
        folder: where the files belong; made where it is not there.
        what: what a message calls the output.

    Yields:
        A folder inside of it; removed with what is left in it.

    Raises:
        InputError: a file cannot be written.
    """
    made: list[Path] = []
    try:
        made += [f for f in (folder, *folder.parents) if not f.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=".", suffix=".partial", dir=folder))
    except OSError as error:
        _remove_empty(made)
        raise InputError(f"{what} cannot be written: {error.strerror or error}") from error
    try:
        yield partial
        for file in sorted(partial.iterdir()):
            os.replace(file, folder / file.name)
    except OSError as error:
        raise InputError(f"{what} cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        _remove_empty(made)
