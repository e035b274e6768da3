"""Fetches files over HTTP: in parts that resume, checked before they appear under their name."""

from __future__ import annotations

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlparse

from calirare._util.errors import InputError

# Called with the bytes that are there and the bytes wanted.
Progress = Callable[[int, int], None]

BLOCK = 1 << 16
TIMEOUT_S = 30


@dataclass(frozen=True)
class RemoteFile:
    """A file that can be downloaded.

    Attributes:
        url: http or https.
        target: where it goes, relative to the folder of data sets.
        n_bytes: its size.
        sha256: its checksum, 64 hexadecimal digits.
    """

    url: str
    target: str
    n_bytes: int
    sha256: str


def download(remote: RemoteFile, folder: Path, progress: Progress | None = None) -> Path:
    """Returns the path of a remote file under `folder`, fetched unless it is already there.

    The file grows as `<target>.part`; a call after an interruption asks for the rest only. It gets its name when its
    checksum is right. `progress` is called after each block.

    Raises:
        InputError: the server cannot be reached, does not have the file or sends something else, or the disk is full;
            the message says where to put the file by hand.
    """
    target = folder / remote.target
    if target.is_file() and _sha256(target) == remote.sha256:
        return target
    part = target.with_name(target.name + ".part")
    by_hand = f"get {remote.url} by other means and put it at {target}"
    if urlparse(remote.url).scheme not in ("http", "https"):
        raise InputError(f"download: url must start with http:// or https://, got {remote.url}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _fetch_rest(remote, part, progress)
        if _size(part) < remote.n_bytes:
            raise ConnectionError("it ended early")
    except urllib.error.HTTPError as error:
        raise InputError(
            f"download: the server answered {error.code} ({error.reason}) for {remote.url}: {by_hand}"
        ) from error
    except urllib.error.URLError as error:
        host = urlparse(remote.url).hostname
        raise InputError(f"download: {host} cannot be reached ({error.reason}): {by_hand}") from error
    except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
        raise InputError(
            f"download: the connection broke at {_size(part):,} of {remote.n_bytes:,} bytes ({error!r}): run it again "
            f"to go on from there, or {by_hand}"
        ) from error
    except OSError as error:
        raise InputError(
            f"download: {part} cannot be written ({error.strerror}): make room or pass another root"
        ) from error
    found = _sha256(part)
    if found != remote.sha256:
        part.unlink()
        raise InputError(
            f"download: {remote.url} must have the sha256 {remote.sha256[:16]}.., got {found[:16]}..: the file was "
            f"removed; run it again, or put the right one at {target}"
        )
    os.replace(part, target)
    return target


def _fetch_rest(remote: RemoteFile, part: Path, progress: Progress | None) -> None:
    """Fetches what `part` lacks of the file, or all of it where the server sends no parts."""
    have = _size(part)
    if have == remote.n_bytes:
        return
    if have > remote.n_bytes:
        part.unlink()
        have = 0
    request = urllib.request.Request(remote.url, headers={"User-Agent": "calirare"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        # Only 206 continues; a server without ranges answers 200 and starts from the beginning.
        resumed = answer.status == http.client.PARTIAL_CONTENT
        have = have if resumed else 0
        with part.open("ab" if resumed else "wb") as file:
            # One byte more than wanted is enough to see that the file is another one.
            while have <= remote.n_bytes and (block := answer.read(min(BLOCK, remote.n_bytes + 1 - have))):
                file.write(block)
                have += len(block)
                if progress is not None:
                    progress(have, remote.n_bytes)


def _size(path: Path) -> int:
    """Returns the size of a file, 0 if it is not there."""
    return path.stat().st_size if path.is_file() else 0


def _sha256(path: Path) -> str:
    """Returns the checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
