"""The version of a checkout names its commit."""

import re

import pytest

from calirare_ext._version import RELEASE, __version__, commit_of

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    "files",
    [
        {".git/HEAD": f"{COMMIT}\n"},
        {".git/HEAD": "ref: refs/heads/main\n", ".git/refs/heads/main": f"{COMMIT}\n"},
        {".git/HEAD": "ref: refs/heads/main\n", ".git/packed-refs": f"# pack\n{COMMIT} refs/heads/main\n"},
        {
            ".git": "gitdir: trees/work\n",
            "trees/work/HEAD": "ref: refs/heads/side\n",
            "trees/work/commondir": "../all\n",
            "trees/all/refs/heads/side": f"{COMMIT}\n",
        },
    ],
    ids=["detached", "branch", "packed", "work tree"],
)
def test_the_commit_of_a_checkout_is_found(files, tmp_path):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert commit_of(tmp_path) == COMMIT[:8]


def test_without_a_checkout_there_is_no_commit(tmp_path):
    assert commit_of(tmp_path) is None
    assert re.fullmatch(rf"{re.escape(RELEASE)}(\+g[0-9a-f]{{8}})?", __version__)
