"""Prints what the project needs, extras for development included, one requirement per line; torch apart."""

import re
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
extras = project["optional-dependencies"]
needed = project["dependencies"] + extras["parquet"] + extras["networkx"] + extras["dev"]
print("\n".join(r for r in needed if re.split(r"[<>=\[]", r)[0] not in ("torch", "calirare")))
