"""Writes the options of `calirare train`, a file of `calirare.cli`, from the fields of the settings: `make options`.

The fields live in modules that import torch for seconds; help, usage errors and suggestions read the file alone.
"""

from __future__ import annotations

import json
from typing import Any

from calirare.cli.options import TABLE
from calirare.run import Option, Settings, options_of, words_for

TITLES = {
    "training": "network and training",
    "calibration": "calibration",
    "intervals": "intervals",
    "decision": "decision: which nodes are alerts",
    "data": "graph",
}


# What files and `--set` give: leave-one-out, Algorithm 2, and the network but for its kind and its steps.
GROUPS_SET, SET = (
    ("loo", "eice"),
    ("hidden", "n_layers", "dropout", "learning_rate", "weight_decay", "hops", "order", "chosen"),
)


def table() -> list[dict[str, Any]]:
    """Returns every option of `calirare train` as plain values."""
    return [_record(each) for each in options_of(Settings) if each.path[0] not in GROUPS_SET and each.name not in SET]


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
