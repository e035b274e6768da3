"""A PostgreSQL server of the tests' own: in a new folder, on a local socket alone, ended afterwards."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

import pandas as pd

from calirare.export import DIALECTS

NEEDED = ("initdb", "pg_ctl", "psql")
TYPES = {"f": "double precision", "i": "bigint"}


def missing() -> str:
    """Returns why there can be no server, or nothing."""
    absent = [name for name in NEEDED if _program(name) is None]
    if absent:
        return f"no PostgreSQL to start: {', '.join(absent)} not found"
    if os.getuid() == 0 and not _account():
        return "PostgreSQL refuses root, and there is no account postgres to start it as"
    return ""


def _program(name: str) -> str | None:
    beside = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(beside[-1]) if beside else shutil.which(name)


def _account() -> bool:
    try:
        return bool(pwd.getpwnam("postgres").pw_uid)
    except KeyError:
        return False


def _command(name: str, *words: str) -> list[str]:
    """Returns a command, run as postgres where we are root."""
    program = _program(name)
    assert program is not None
    as_other = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.getuid() == 0 else []
    return [*as_other, program, *words]


def _run(command: list[str], text: str | None = None) -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, cwd="/", timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@contextmanager
def server() -> Iterator[Path]:
    """Starts a server; yields the folder of its socket."""
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    if os.getuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
    data = str(folder / "data")
    try:
        _run(_command("initdb", "-D", data, "-U", "postgres", "--auth=trust", "-E", "UTF8", "--no-sync"))
        how = f"-k {folder} -c listen_addresses='' -c fsync=off"
        _run(_command("pg_ctl", "-D", data, "-w", "-l", str(folder / "log"), "-o", how, "start"))
        try:
            yield folder
        finally:
            _run(_command("pg_ctl", "-D", data, "-m", "immediate", "stop"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def release() -> str:
    """Returns the version of PostgreSQL."""
    return _run(_command("psql", "--version")).split()[2]


def put(folder: Path, frames: dict[str, pd.DataFrame]) -> None:
    """Makes tables of frames."""
    script = []
    for name, frame in frames.items():
        types = [TYPES.get(frame[column].dtype.kind, "text") for column in frame]
        columns = ", ".join(f"{_quoted(c)} {'date' if c == 'day' else t}" for c, t in zip(frame, types, strict=True))
        script.append(f"DROP TABLE IF EXISTS {_quoted(name)}; CREATE TABLE {_quoted(name)} ({columns});")
        script.append(f"COPY {_quoted(name)} FROM STDIN WITH (FORMAT csv);")
        script.append(frame.to_csv(index=False, header=False) + "\\.")
    _run(_psql(folder), "\n".join(script) + "\n")


def asked(folder: Path, query: str) -> pd.DataFrame:
    """Returns what the server makes of a query."""
    return pd.read_csv(StringIO(_run(_psql(folder), f"{DIALECTS['postgres'].told} {query.rstrip().rstrip(';')};\n")))


def in_postgres(folder: Path, query: str, **frames: pd.DataFrame) -> pd.DataFrame:
    """Returns what the server makes of a query on tables, in the order of the nodes' names."""
    put(folder, frames)
    return asked(folder, query).sort_values("node", ignore_index=True)


def _psql(folder: Path) -> list[str]:
    return _command("psql", "-h", str(folder), "-U", "postgres", "-q", "-X", "-v", "ON_ERROR_STOP=1", "--csv")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
