"""Where data sets are looked for."""

from __future__ import annotations

import os
from pathlib import Path

from calirare._util.errors import InputError

ENVIRONMENT = "CALIRARE_DATA"


def data_roots(root: str | Path | None = None) -> tuple[Path, ...]:
    """Returns the folders that are searched for data sets, in order.

    Args:
        root: the only folder to search; None for the folder named by the environment variable `CALIRARE_DATA`, else
            `../shared/data` beside a source checkout if it is there, and then the user's cache.

    Returns:
        The folders; only the last need not exist.

    Raises:
        InputError: `root` or the folder of the environment variable is not a folder.
    """
    if root is not None:
        return (_folder(root, "root"),)
    found = os.environ.get(ENVIRONMENT)
    if found:
        return (_folder(found, ENVIRONMENT), cache_folder())
    checkout = Path(__file__).resolve().parents[3]
    beside = checkout.parent / "shared" / "data"
    if (checkout / "pyproject.toml").is_file() and beside.is_dir():
        return (beside, cache_folder())
    return (cache_folder(),)


def data_root(root: str | Path | None = None) -> Path:
    """Returns the folder that is searched first; see `data_roots`."""
    return data_roots(root)[0]


def download_root(root: str | Path | None = None) -> Path:
    """Returns the folder that downloads go to: `root`, else the user's cache."""
    return _folder(root, "root") if root is not None else cache_folder()


def cache_folder() -> Path:
    """Returns the user's cache folder for data sets; it need not exist."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "calirare"


def _folder(path: str | Path, what: str) -> Path:
    """Returns the path of an existing folder."""
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise InputError(f"datasets: {what} must be an existing folder, got {folder}: create it or give another")
    return folder
