"""Prints what the project needs, or the extras that are named, one requirement per line; torch apart."""

import re
import sys
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
extras = project["optional-dependencies"]
own = project["dependencies"] + extras["parquet"] + extras["networkx"] + extras["dev"]
needed = [requirement for name in sys.argv[1:] for requirement in extras[name]] or own
print("\n".join(r for r in needed if re.split(r"[<>=\[]", r)[0] not in ("torch", "calirare")))
