"""Words that only this project uses: what users read has no more of them than the budget, which may only fall."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PRIVATE = re.compile(
    r"\b(?:anew|unlearnt|by chance|noise floors?|held against|beside|speaks?|told|tells|hears?|heard|without itself"
    r"|edges alone|labels nearby|cannot be had|mend(?:s|ed)?|(?:gives?|given) labels away|knows? nobody)\b"
    r"|(?:^|[.:] )Of (?=[a-z])",
    re.MULTILINE,
)


def texts_of(source: str) -> Iterator[str]:
    """Yields the first line of every docstring, and every other text of more than one word."""
    tree = ast.parse(source)
    documented = set[int]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (words := ast.get_docstring(node)):
            documented.add(id(node.body[0].value))  # type: ignore[attr-defined]
            yield words.partition("\n")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
            yield node.value if " " in node.value.strip() else ""


def strings_in(tree: object) -> Iterator[str]:
    """Yields every text of a JSON file, keys left out."""
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, dict | list):
        for part in tree.values() if isinstance(tree, dict) else tree:
            yield from strings_in(part)


def library() -> Iterator[str]:
    """Yields messages, first lines of docstrings and help of the command line."""
    for path in sorted((ROOT / "python" / "calirare").rglob("*.py")):
        yield from texts_of(path.read_text(encoding="utf-8"))
    for path in sorted((ROOT / "python" / "calirare" / "cli").glob("*.json")):
        yield from strings_in(json.loads(path.read_text(encoding="utf-8")))


def pages(*patterns: str) -> Iterator[str]:
    for pattern in patterns:
        yield from (path.read_text(encoding="utf-8") for path in sorted(ROOT.glob(pattern)))


BUDGET = {"README": 0, "CHANGELOG": 0, "docs": 2, "library": 2}


@pytest.mark.parametrize("group", BUDGET)
def test_private_words_grow_no_more(group):
    """Write the field's term: again, out-of-fold, at random, compared with, next to, reported, fixed, only."""
    texts = {"README": pages("README.md"), "CHANGELOG": pages("CHANGELOG.md"), "docs": pages("docs/*.md")}
    found = [word for text in texts.get(group) or library() for word in PRIVATE.findall(text)]
    assert len(found) <= BUDGET[group], sorted({word: found.count(word) for word in found}.items())


def test_texts_are_what_a_user_may_read():
    source = '"""Told.\n\nMore."""\nraise ValueError(f"a value is told {1 + 1}: Of these", "anew")\n'
    assert [word for text in texts_of(source) for word in PRIVATE.findall(text)] == ["told", ": Of "]
    assert list(strings_in({"told": ["anew", {"a": "b"}]})) == ["anew", "b"]
