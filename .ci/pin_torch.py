"""Writes the torch that a wheel was compiled for into its requirements: python .ci/pin_torch.py WHEEL.

The compiled module loads with this minor version only, whatever the source would build with.
"""

import base64
import hashlib
import re
import sys
import zipfile
from pathlib import Path

import torch

wheel = Path(sys.argv[1])
minor = ".".join(torch.__version__.split(".")[:2])
with zipfile.ZipFile(wheel) as archive:
    files = {info: archive.read(info) for info in archive.infolist()}
names = {info.filename: info for info in files}
(metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
(record,) = (name for name in names if name.endswith(".dist-info/RECORD"))
text, count = re.subn(rb"(?m)^Requires-Dist: torch>=.*$", f"Requires-Dist: torch=={minor}.*".encode(), files[names[metadata]])
assert count == 1, "one line of METADATA says which torch"
files[names[metadata]] = text
digest = base64.urlsafe_b64encode(hashlib.sha256(text).digest()).rstrip(b"=").decode()
lines = files[names[record]].decode().splitlines()
files[names[record]] = "".join(
    f"{metadata},sha256={digest},{len(text)}\n" if line.startswith(f"{metadata},") else f"{line}\n" for line in lines
).encode()
with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
    for info, content in files.items():
        archive.writestr(info, content, zipfile.ZIP_DEFLATED)
