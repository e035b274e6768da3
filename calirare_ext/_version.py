"""The version: of the release, and in a checkout with the commit."""

from __future__ import annotations

from pathlib import Path

RELEASE = "1.0.0"


def commit_of(checkout: Path) -> str | None:
    """Returns the first eight digits of the commit of a git checkout, without running git; None: it is none."""
    git = checkout / ".git"
    try:
        if git.is_file():  # a linked work tree
            git = checkout / git.read_text(encoding="utf-8").removeprefix("gitdir:").strip()
        head = (git / "HEAD").read_text(encoding="utf-8").strip()
        if not head.startswith("ref:"):
            return head[:8]
        name, common = head.removeprefix("ref:").strip(), git / "commondir"
        folder = git / common.read_text(encoding="utf-8").strip() if common.is_file() else git
        for ref in (git / name, folder / name):
            if ref.is_file():
                return ref.read_text(encoding="utf-8")[:8]
        packed = (folder / "packed-refs").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((line[:8] for line in packed if line.endswith(f" {name}")), None)


_commit = commit_of(Path(__file__).parents[1])
__version__ = RELEASE if _commit is None else f"{RELEASE}+g{_commit}"
