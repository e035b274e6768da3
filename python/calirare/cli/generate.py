"""Writes `options.json`, the options of `calirare train`, from the fields of the settings: `make options`.

The fields live in modules that import torch for seconds; help, usage errors and suggestions read the file alone.
"""

from __future__ import annotations

import json
from typing import Any

from calirare.cli.options import TABLE
from calirare.run import Option, Settings, method_options, options_of, words_for

TITLES = {
    "training": "network and training",
    "loo": "leave-one-out",
    "calibration": "calibration",
    "intervals": "intervals",
    "decision": "decision: which nodes are alerts",
    "eice": "Algorithm 2 (--method calirare)",
    "data": "graph",
}


def table() -> list[dict[str, Any]]:
    """Returns every option of `calirare train`, those of every leave-one-out method too, as plain values."""
    out: list[dict[str, Any]] = []
    for option in options_of(Settings):
        out.append(_record(option))
        if option.name == "loo":
            out += _of_methods()
    return out


def _of_methods() -> list[dict[str, Any]]:
    """Returns the options of the methods, one of a name, with what each of its methods says of it."""
    named: dict[str, dict[str, Option]] = {}
    for method, options in method_options().items():
        for option in options:
            named.setdefault(option.name, {})[method] = option
    return [_merged(having) for having in named.values()]


def _merged(having: dict[str, Option]) -> dict[str, Any]:
    said: dict[str, list[str]] = {}
    for method, option in having.items():
        said.setdefault(option.help + _shown(option.default), []).append(method)
    texts = [f"with {', '.join(methods)}: {text}" for text, methods in said.items()]
    every = len(said) == 1 and len(having) == len(method_options())
    record = _record(next(iter(having.values())))
    assert all(option.kinds == next(iter(having.values())).kinds for option in having.values()), record["name"]
    return record | {"help": next(iter(said)) if every else " ".join(texts), "methods": list(having)}


def _record(option: Option) -> dict[str, Any]:
    kinds = option.kinds
    return {
        "name": option.name,
        "group": TITLES.get(option.path[0], "run"),
        "types": [kind.__name__ for kind in kinds if isinstance(kind, type)],
        "words": [kind for kind in kinds if isinstance(kind, str)],
        "optional": None in kinds,
        "takes": words_for(kinds),
        "help": option.help + _shown(option.default),
    }


def _shown(default: Any) -> str:
    if default is None or default is False:
        return ""
    text = ",".join(default) if isinstance(default, tuple) else "on" if default is True else default
    return f" [default: {text}]"


def as_text() -> str:
    """Returns what the file holds: one option per line."""
    return "[\n" + ",\n".join(json.dumps(record) for record in table()) + "\n]\n"


def main() -> None:
    """Writes the file."""
    TABLE.write_text(as_text(), encoding="utf-8")


if __name__ == "__main__":
    main()
