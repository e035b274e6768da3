"""The reference's pages: one per package, from what it exports, and the commands; made at every build."""

import importlib
import inspect
import os
import re
import textwrap
from pathlib import Path
from types import ModuleType
from unittest import mock

HELP_WIDTH = 74  # characters of a line

TITLES = {
    "calirare.graph": "graphs, splits, features",
    "calirare.datasets": "data sets and simulation",
    "calirare.models": "detectors and their training",
    "calirare.curvature": "linearisation and curvature",
    "calirare.leave_one_out": "leave-one-out and jackknife intervals",
    "calirare.leave_one_out.eice": "Algorithm 2",
    "calirare.explain.audit": "labels that are probably wrong",
    "calirare.explain": "why a node has its P(rare)",
    "calirare.calibration": "calibrators",
    "calirare.calibration.decisions": "decisions",
    "calirare.features": "what raw columns become",
    "calirare.drift": "a graph held against the run's",
    "calirare.metrics": "measures",
    "calirare.plots": "pictures",
    "calirare.transactions": "tables of transactions",
    "calirare_multilabel": "several labels",
    "calirare.run": "runs and their settings",
    "calirare.engines": "scores where tables live",
    "calirare.sklearn": "scikit-learn",
    "calirare_ext": "compiled operators",
}


def write(folder: Path) -> None:
    """Writes a page for the front door, one for each package, and their list."""
    folder.mkdir(exist_ok=True)
    pages = {"commands": commands(), "calirare": front_door()} | {name: package(name) for name in TITLES}
    titles = {"commands": "every command and its options", "calirare": "calirare: the front door"} | {
        name: f"{name}: {title}" for name, title in TITLES.items()
    }
    listed = ".. toctree::\n   :maxdepth: 1\n\n" + "".join(f"   {titles[name]} <{name}>\n" for name in pages)
    pages["index"] = f"{heading('Reference')}Every public name, from its docstring.\n\n{listed}"
    for gone in {path.stem for path in folder.glob("*.rst")} - pages.keys():
        (folder / f"{gone}.rst").unlink()
    for name, text in pages.items():
        path = folder / f"{name}.rst"
        if not path.exists() or path.read_text() != text:  # an unchanged page is not read again
            path.write_text(text)


def heading(text: str, line: str = "=") -> str:
    """Returns a heading."""
    return f"{text}\n{line * len(text)}\n\n"


def commands() -> str:
    """Returns the page of the command line: what each command says of itself with --help."""
    from calirare.cli.parser import COMMANDS, parser_of

    wide = dict(os.environ, COLUMNS=str(HELP_WIDTH))
    with mock.patch.dict(os.environ, wide):
        helps = {name: parser_of(name, every=True).format_help() for name in COMMANDS}
    other = "``calirare multilabel`` has :doc:`a page of its own <../multilabel>`"
    text = f"{heading('Commands')}What ``calirare COMMAND --help-all`` says; {other}.\n\n"
    for name, words in helps.items():
        text += heading(f"calirare {name}", "-") + ".. code-block:: text\n\n" + textwrap.indent(words, "   ") + "\n"
    return text


def front_door() -> str:
    """Returns the page of `calirare`: what has no other home in full, the rest as a table."""
    import calirare

    homes = {name: home_of(getattr(calirare, name)) for name in calirare.__all__ if not name.startswith("__")}
    own = [name for name, home in homes.items() if home is None]
    text = heading("calirare") + "The front door: what most programs need is imported from here.\n\n"
    rows = [(name, home) for name, home in homes.items() if home and not inspect.ismodule(getattr(calirare, name))]
    text += ".. list-table::\n   :widths: 30 70\n   :class: names\n\n"
    for name, home in sorted([(name, "calirare") for name in own] + rows, key=lambda row: row[0].lower()):
        text += f"   * - :py:obj:`{name} <{home}.{name}>`\n     - {first_line(getattr(calirare, name))}\n"
    return text + "\n" + "".join(entry("calirare", name) for name in own)


def home_of(value: object) -> str | None:
    """Returns the public package that documents a value, None where it is the front door alone."""
    for package_name in TITLES:
        module = importlib.import_module(package_name)
        if any(value is getattr(module, name) for name in public_names(module)):
            return package_name
    return "" if inspect.ismodule(value) else None


def public_names(module: ModuleType) -> list[str]:
    """Returns what a package lists in `__all__`, or else imports, and the classes that a module defines."""
    if hasattr(module, "__all__"):
        return [name for name in module.__all__ if not name.startswith("__")]
    public = {name: each for name, each in vars(module).items() if name[0] != "_" and name != "annotations"}
    if hasattr(module, "__path__"):
        return [name for name, each in public.items() if not inspect.ismodule(each)]
    return [n for n, each in public.items() if inspect.isclass(each) and each.__module__ == module.__name__]


def package(name: str) -> str:
    """Returns the page of a package: functions and classes, then constants."""
    module = importlib.import_module(name)
    public = public_names(module)
    documented = [n for n in public if inspect.isclass(getattr(module, n)) or inspect.isroutine(getattr(module, n))]
    text = heading(name) + rst(inspect.getdoc(module) or "") + "\n\n"
    text += f".. py:module:: {name}\n\n"
    text += "".join(entry(name, n) for n in sorted(documented, key=str.lower))
    return text + "".join(constant(module, n) for n in public if n not in documented)


def entry(package_name: str, name: str) -> str:
    """Returns the directive that documents a function or class."""
    value = getattr(importlib.import_module(package_name), name)
    if not inspect.isclass(value):
        return f".. autofunction:: {package_name}.{name}\n\n"
    kind = "autoexception" if issubclass(value, BaseException) else "autoclass"
    text = f".. {kind}:: {package_name}.{name}\n   :members:\n   :inherited-members: {outsiders(value)}\n"
    requests = [n for n in dir(value) if re.fullmatch(r"[sg]et_\w*(request|routing)", n)]  # scikit-learn's own
    return text + (f"   :exclude-members: {', '.join(requests)}\n\n" if requests else "\n")


def outsiders(value: type) -> str:
    """Returns the ancestors of a class whose members are not shown."""
    return ", ".join(
        c.__name__ for c in value.__mro__ if not re.match(r"calirare(_ext|_multilabel)?(\.|$)", c.__module__)
    )


def constant(module: object, name: str) -> str:
    """Returns the entry of a constant or a type: its value where it is short, and the comment at its definition."""
    value = repr(getattr(module, name))
    text = f".. py:data:: {module.__name__}.{name}\n"
    if len(value) <= 88 and " object at " not in value:
        text += f"   :value: {value}\n"
    return text + "\n   " + rst(comment_at(module, name)) + "\n\n"


def comment_at(module: object, name: str) -> str:
    """Returns the comment above or behind the line that defines a name, in whichever file of the package."""
    for path in sorted(Path(module.__file__).parent.glob("*.py")):
        lines = path.read_text().splitlines()
        for i, line in enumerate(lines):
            if not re.match(rf"(?:\w+, )*{name}\b(?:, \w+)*(?::[^=]+)? = ", line):
                continue
            behind = line.partition("  # ")[2]
            above = []
            while i and lines[i - 1].startswith("# "):
                i -= 1
                above.insert(0, lines[i][2:])
            return behind or " ".join(above)
    return ""


def first_line(value: object) -> str:
    """Returns the first line of a docstring."""
    return rst((inspect.getdoc(value) or "").partition("\n")[0])


def rst(text: str) -> str:
    """Returns plain text with backticks."""
    import docstrings

    parts = docstrings.ASIDE.split(" ".join(text.split()))
    return "".join(part if k % 2 else docstrings.plain(part) for k, part in enumerate(parts))
