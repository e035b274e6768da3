"""Fetches files over HTTP and checks them before they appear under their name."""

from __future__ import annotations

import hashlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlparse

from calirare._util.errors import InputError
from calirare._util.file_locks import part_file

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

    It gets its name when its checksum is right. `progress` is called after each block.

    Raises:
        InputError: the server cannot be reached, does not have the file or sends something else, or the disk is full;
            the message says where to put the file by hand.
    """
    target, url = folder / remote.target, remote.url
    if target.is_file() and _sha256(target) == remote.sha256:
        return target
    by_hand = f"get {url} by other means and put it at {target}"
    if urlparse(url).scheme not in ("http", "https"):
        raise InputError(f"download: url must start with http:// or https://, got {url}")
    request = urllib.request.Request(url, headers={"User-Agent": "calirare"})
    have = 0
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with part_file(target) as (part, file), urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            # One byte more than wanted is enough to see that the file is another one.
            while have <= remote.n_bytes and (block := answer.read(min(BLOCK, remote.n_bytes + 1 - have))):
                file.write(block)
                have += len(block)
                if progress is not None:
                    progress(have, remote.n_bytes)
            file.flush()
            if have < remote.n_bytes:
                raise ConnectionError("it ended early")
            found = _sha256(part)
            if found != remote.sha256:
                raise InputError(
                    f"download: {url} must have the sha256 {remote.sha256[:16]}.., got {found[:16]}..: run it again, "
                    f"or put the right file at {target}"
                )
            part.replace(target)
    except urllib.error.HTTPError as error:
        raise InputError(f"download: the server answered {error.code} ({error.reason}) for {url}: {by_hand}") from error
    except urllib.error.URLError as error:
        host = urlparse(url).hostname
        raise InputError(f"download: {host} cannot be reached ({error.reason}): {by_hand}") from error
    except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
        raise InputError(
            f"download: the connection broke at {have:,} of {remote.n_bytes:,} bytes ({error!r}): run it again, or "
            f"{by_hand}"
        ) from error
    except OSError as error:
        raise InputError(
            f"download: {target} cannot be written ({error.strerror}): make room or pass another root"
        ) from error
    return target


def _sha256(path: Path) -> str:
    """Returns the checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
