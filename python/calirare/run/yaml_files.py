"""Reads a YAML file of settings, and refuses one that would take memory or time beyond reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

try:
    from yaml import CSafeLoader as SafeLoader  # the same by libyaml, ten times as fast
except ImportError:
    from yaml import SafeLoader  # type: ignore[assignment]

from calirare._util.errors import InputError
from calirare._util.files import read_text

MAX_CONFIG, MAX_DEPTH = 1 << 18, 20  # bytes of a file of settings, and how deep it may nest; ours: 2 kB, 2


class _PlainLoader(SafeLoader):
    """Reads YAML in which no name stands twice."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"{key.value!r} stands twice", problem_mark=key.start_mark)
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else None)
        return super().construct_mapping(node, deep)


def _check_structure(text: str) -> None:
    """Refuses aliases, with which a few lines stand for more than memory holds, and nesting beyond reason."""
    depth = 0
    for event in yaml.parse(text, _PlainLoader):
        if isinstance(event, yaml.AliasEvent):
            mark: Any = event.start_mark
            raise yaml.MarkedYAMLError(problem="*aliases are not read, write the value out", problem_mark=mark)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem=f"it is nested more than {MAX_DEPTH} deep")


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Returns the mapping in a YAML file.

    Args:
        path: the file.

    Returns:
        Its names and values; empty for an empty file.

    Raises:
        InputError: the file is missing, is no plain file or too large, is not YAML, or does not hold a mapping.
    """
    where = f"config {path}"
    try:
        text = read_text(Path(path), where, MAX_CONFIG)
        _check_structure(text)
        values = yaml.load(text, _PlainLoader)  # a SafeLoader
    except OSError as error:
        raise InputError(f"{where}: cannot be read: {error.strerror or error}") from error
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f" in line {error.problem_mark.line + 1}"
        raise InputError(f"{where}: is not YAML that can be read{line}: {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date or a number that there cannot be, no UTF-8
        if isinstance(error, InputError):
            raise
        raise InputError(f"{where}: is not YAML: {str(error).splitlines()[0]}") from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise InputError(f"{where}: must hold names and values such as `seed: 1`, got {type(values).__name__}")
    return values
