"""Writes the checksums of what lock files pin: `python .ci/lock.py`, after a version in one of them was changed.

Every line of a lock file is `name==version` with the sha256 of each of its files for the processors and systems we run
on, as the package index tells them. `pip install --require-hashes` takes no other file, whoever serves it.
"""

import json
import re
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

INDEX = "https://pypi.org/simple/{name}/"
SIMPLE = "application/vnd.pypi.simple.v1+json"
TAGS = r"-(py3|py2\.py3|cp311|cp312|cp313|cp314|cp3\d+-abi3)[-.]"
SYSTEMS = r"(any|manylinux.*(x86_64|aarch64)|macosx.*(arm64|x86_64|universal2))"
WHEEL = re.compile(rf"{TAGS}.*{SYSTEMS}\.whl$")
FILES = ("lock.txt", "lock-docs.txt", "lock-wheel.txt")


def checksums(pin: str) -> list[str]:
    """Returns the sha256 of every wheel of a pinned version, of its source where it has no wheel."""
    name, version = pin.split("==")
    request = urllib.request.Request(INDEX.format(name=name), headers={"Accept": SIMPLE})
    with urllib.request.urlopen(request, timeout=60) as answer:
        files = json.load(answer)["files"]
    begin = f"{_plain(name)}-{_plain(version)}-"
    found = {file["filename"]: file["hashes"]["sha256"] for file in files if _plain(file["filename"]).startswith(begin)}
    kept = {name: checksum for name, checksum in found.items() if WHEEL.search(name)}
    if not kept:
        kept = {name: checksum for name, checksum in found.items() if name.endswith(".tar.gz")}
    if not kept:
        raise SystemExit(f"lock: {pin} has no file that can be installed: take another version")
    return sorted(kept.values())


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main() -> None:
    """Writes every lock file anew."""
    for name in FILES:
        path = Path(__file__).with_name(name)
        lines = path.read_text().splitlines()
        pins = [line.split()[0] for line in lines if "==" in line and not line.startswith(("#", " "))]
        with ThreadPoolExecutor(8) as pool:
            told = dict(zip(pins, pool.map(checksums, pins), strict=True))
        comments = [line for line in lines if line.startswith("#")]
        blocks = [" \\\n".join([pin, *(f"    --hash=sha256:{each}" for each in told[pin])]) for pin in sorted(pins)]
        path.write_text("\n".join([*comments, *blocks]) + "\n")


if __name__ == "__main__":
    main()
