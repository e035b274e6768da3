"""Prints what the packages need, or the extras that are named, one requirement per line; torch apart."""

import re
import sys
import tomllib
from pathlib import Path

root = Path(__file__).parents[1]
project, *others = (
    tomllib.loads(path.read_text())["project"]
    for path in (root / "pyproject.toml", *sorted(root.glob("python/*/pyproject.toml")))
)
extras = project["optional-dependencies"]
own = project["dependencies"] + [each for other in others for each in other["dependencies"]] + extras["parquet"] + extras["networkx"] + extras["dev"]
needed = [requirement for name in sys.argv[1:] for requirement in extras[name]] or own
print("\n".join(r for r in needed if re.split(r"[<>=\[]", r)[0] not in ("torch", "calirare", "calirare-multilabel")))
