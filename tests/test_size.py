"""How large the library and its tests may be: what is added pays for itself by what goes."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def code_lines(source: str) -> int:
    """Returns the lines with code: none of comments, docstrings and blanks."""
    documented = set[int]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node, clean=False):
            documented.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines = set[int]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - documented)


# What is added pays for itself by what goes; a change that takes lines out of tests lowers their number here.
@pytest.mark.parametrize(("folder", "most"), [("python/calirare", 32_000), ("tests", 32_000)])
def test_code_lines_stay_within_the_budget(folder, most):
    assert sum(code_lines(path.read_text()) for path in (ROOT / folder).rglob("*.py")) <= most


def test_code_is_what_is_neither_words_nor_blank():
    source = '"""Words."""\n\nx = (  # a comment\n    1\n)\n\n\ndef f():\n    """Words."""\n    return x\n'
    assert code_lines(source) == 5
