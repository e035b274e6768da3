"""Output that is there as a whole or not at all."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from calirare._util.errors import InputError
from calirare._util.file_locks import RANDOM, is_left_lock, is_part, locked, part_folder
from calirare._util.files import exchange, sync, sync_folder
from calirare._util.run_files import LIST, PART, announce, arrived, changed_file, listed_files, own_files, seal
from calirare._util.startup import end_if_stopped


@contextmanager
def fresh_folder(path: Path, *, overwrite: bool) -> Iterator[Path]:
    """Gives a folder to write into that becomes `path`, with a list of its files, only when all of them are written.

    Args:
        path: the run's folder.
        overwrite: replace a run that is there; a file that no run wrote, or that was changed since, is never replaced.

    Yields:
        A folder beside it; removed if anything goes wrong.

    Raises:
        InputError: the folder exists and must not be replaced, is no run or holds something else beside one, is
            written by another process, or cannot be written.
    """
    where, begun = _resolved(path), False
    try:
        _check_free(where, path, overwrite)
        with _made(where.parent), locked(where, f"run {path}"):
            _restore(where)
            _check_free(where, path, overwrite)
            with part_folder(where.parent, where.name) as partial:
                begun = True
                yield partial
                end_if_stopped()
                partial.chmod(0o755)
                seal(partial)
                sync_folder(partial)
                _put(partial, where, path, overwrite)
                sync(where.parent)
    except OSError as error:
        what = "writing failed and nothing was kept" if begun else "the folder cannot be written"
        raise InputError(f"run {path}: {what}: {error.strerror or error}") from error


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:  # a loop of links
        raise InputError(f"run {path}: the folder cannot be written: {error}") from error


def _check_free(where: Path, path: Path, overwrite: bool) -> None:
    """Checks that a run may be written to `where`, which the user calls `path`."""
    if not where.exists():
        return
    if not where.is_dir():
        raise InputError(f"run {path}: is a file: give a folder with --out")
    if not overwrite:
        raise InputError(
            f"run {path}: exists already: take another --out, or pass --overwrite to replace it (in Python "
            "overwrite=True)"
        )
    if not os.access(where, os.W_OK | os.X_OK):  # else what is replaced could not be removed
        raise InputError(f"run {path}: is write-protected: allow writing (chmod -R u+w), or take another --out")
    there = sorted(file for file in where.iterdir() if not is_part(file) and not is_left_lock(file))
    listed = listed_files(where)
    if there and listed is None:
        # A mistyped --out must not cost anybody a folder of theirs.
        raise InputError(
            f"run {path}: --overwrite replaces runs only, and this folder is none (it has no {LIST}): take another "
            "--out, or remove the folder yourself"
        )
    foreign = [file.name for file in there if file.name not in (LIST, PART) and file.name not in (listed or {})]
    if foreign:
        raise InputError(
            f"run {path}: --overwrite replaces runs only, and this folder also holds {foreign[0]}, which no run wrote: "
            "move it elsewhere, or take another --out"
        )
    changed = changed_file(where)
    if changed is not None:
        raise InputError(
            f"run {path}: --overwrite replaces what runs wrote, and {changed} has been changed since: move it "
            "elsewhere, or take another --out"
        )


def left_aside(path: Path) -> Path | None:
    """Returns the run that a killed process had moved out of the way of a new one and not replaced yet, or None."""
    try:
        where = path.resolve()
        found = sorted(_aside(where))
    except (OSError, RuntimeError):
        return None
    return found[0] if found else None


def _aside(where: Path) -> list[Path]:
    pattern = re.compile(rf"\.{re.escape(where.name)}\.{RANDOM}\.old")
    return [path for path in where.parent.iterdir() if pattern.fullmatch(path.name) and path.is_dir()]


def _restore(where: Path) -> None:
    """Puts back a run that a killed process had moved aside and not replaced yet."""
    for old in sorted(_aside(where)):
        if not where.exists():
            os.replace(old, where)
        elif listed_files(old) is not None:
            shutil.rmtree(old, ignore_errors=True)


def _put(partial: Path, where: Path, path: Path, overwrite: bool) -> None:
    """Moves the finished folder to its place; an old one there is lost only when the new one stands."""
    old = partial.with_suffix(".old")
    try:
        _check_free(where, path, overwrite)
        if where.exists():
            if exchange(partial, where):  # what is removed with the partial folder is the old run now
                return
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


@contextmanager
def _made(folder: Path) -> Iterator[None]:
    """Makes a folder for a while; it and those around it go again where nothing was written into them."""
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    finally:
        for each in made:
            with suppress(OSError):
                each.rmdir()


@contextmanager
def fresh_files(folder: Path, what: str, *, own: bool = False) -> Iterator[Path]:
    """Gives a folder to write files into that move to `folder` only when all of them are written.

    Args:
        folder: where the files belong; made where it is not there.
        what: what a message calls the output.
        own: whether files that make a run may be replaced, where the folder is one.

    Yields:
        A folder inside of it; removed with what is left in it.

    Raises:
        InputError: a file cannot be written, or is one of those that make a run.
    """
    try:
        with _made(folder), part_folder(folder) as partial:
            yield partial
            sync_folder(partial)
            names = sorted(file.name for file in partial.iterdir())
            for name in [] if own else names:
                check_not_of_run(folder / name, what)
            announce(folder, partial)
            for name in names:
                os.replace(partial / name, folder / name)
            sync(folder)
            arrived(folder, names)
    except OSError as error:
        raise InputError(f"{what} cannot be written: {error.strerror or error}") from error


@contextmanager
def locked_files(files: list[Path], what: str, *, overwrite: bool) -> Iterator[None]:
    """Holds files of one folder for this process, from before the work that makes them until they are written.

    Args:
        files: that will be written.
        what: the command, put in front of a message.
        overwrite: whether files that are there may be replaced, see `check_free`.

    Raises:
        InputError: another process holds one, one may not be replaced, or the folder cannot be written.
    """
    check_free(files, what, overwrite=overwrite)
    with ExitStack() as held:
        try:
            held.enter_context(_made(files[0].parent))
            for file in files:
                held.enter_context(locked(file, f"{what}: {file}"))
        except OSError as error:
            raise InputError(f"{what}: {files[0]} cannot be written: {error.strerror or error}") from error
        check_free(files, what, overwrite=overwrite)  # another process may have written them meanwhile
        yield


def check_free(paths: Iterable[Path], what: str, *, overwrite: bool) -> None:
    """Checks that files may be written, before the work that makes them.

    Args:
        paths: of the files.
        what: the command, put in front of a message.
        overwrite: whether files that are there may be replaced; those that make a run never are.

    Raises:
        InputError: one is there and must not be replaced, or is a folder, or lies in a file.
    """
    for path in paths:
        if path.is_dir():
            raise InputError(f"{what}: {path} is a folder, a file is wanted: take another --out")
        if path.exists() and not overwrite:
            raise InputError(f"{what}: {path} exists already: take another --out, or pass --overwrite")
        check_not_of_run(path, what)
        for parent in path.parents:
            if parent.exists() and not parent.is_dir():
                raise InputError(f"{what}: {path} cannot be written, {parent} is a file: take another --out")


def check_not_of_run(path: Path, what: str) -> None:
    """Checks that a file is not one of those that make a run.

    Raises:
        InputError: it is.
    """
    if (path.name == LIST and listed_files(path.parent) is not None) or path.name in own_files(path.parent):
        raise InputError(
            f"{what}: {path} is a file that makes the run {path.parent}, which nothing else may replace: take "
            "another name"
        )
