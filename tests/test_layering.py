"""Who may use whom: imports by AST, includes by the compilers' own dependency lists."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CSRC = ROOT / "csrc"

# Which folders of csrc a folder may include from, itself aside.
MAY_INCLUDE = {
    "core": set(),
    "ops": {"core"},
    "cpu": {"core", "ops"},
    "cuda": {"core", "ops"},
    "solvers": {"core", "ops"},
    "bindings": {"core", "ops", "solvers"},
    "tests": {"core", "ops", "cuda"},
}
TORCH = re.compile(r"(^|/)(torch|ATen|c10)/")
PYTHON = re.compile(r"(^|/)(pybind11/|torch/csrc/|Python\.h$)")
CUDA = re.compile(r"(cuda|cuda_runtime\w*|cublas\w*|cusparse\w*)\.h")


def sources(*folders: str) -> list[Path]:
    """Returns the C++ and CUDA files in folders of csrc."""
    return sorted(p for f in folders for p in (CSRC / f).iterdir() if p.suffix in {".h", ".cpp", ".cu", ".cuh"})


@cache
def imports_of(source: str) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """Returns every import of a source, those within functions too."""
    return tuple(node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom))


def imported(source: str, package: str) -> Iterator[str]:
    """Yields the absolute dotted names a module of `package` imports, each name of a from-import its own."""
    for node in imports_of(source):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        else:
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*parents, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def python_faults(module: str, source: str) -> list[str]:
    """Returns what a module of calirare, calirare_ext or calirare_multilabel imports and must not."""
    package, faults = module.rpartition(".")[0], []
    for name in imported(source, package):
        parts = name.split(".")
        above = ("calirare_ext", "calirare", "calirare_multilabel", "calirare_lab", "tests", "benchmarks")
        turned_back = above[above.index(module.split(".")[0]) + 1 :]
        if parts[0] in turned_back:
            faults.append(name)
        elif parts[0] == "calirare_ext" and not module.startswith("calirare_ext."):
            faults += [name] if any(p.startswith("_") and not p.startswith("__") for p in parts[1:]) else []
        elif parts[:2] == ["calirare_ext", "_C"] and module != "calirare_ext._backend":
            faults.append(name)
    return faults


def python_modules() -> dict[str, str]:
    """Returns the source of every module of the three packages, by dotted name."""
    found = {}
    packages = ((ROOT, "calirare_ext"), (ROOT / "python", "calirare"), (ROOT / "python", "calirare_multilabel"))
    for base, package in packages:
        for path in sorted((base / package).rglob("*.py")):
            found[".".join(path.relative_to(base).with_suffix("").parts)] = path.read_text()
    return found


def reached_from(module: str, modules: dict[str, str]) -> set[str]:
    """Returns the modules that importing `module` loads, the packages' own __init__ aside."""
    reached, waiting = set(), [module]
    while waiting:
        name = waiting.pop()
        if name in reached or name not in modules:
            continue
        reached.add(name)
        for target in imported(modules[name], name.rpartition(".")[0]):
            waiting += [target, target.rpartition(".")[0]]
    return reached


# The floors of each package, from the ground: a folder (or file at the top) imports from lower floors alone.
FLOORS = {
    "calirare": (
        {"_util"},
        {"graph", "curvature", "metrics", "calibration"},
        {"datasets", "plots", "features", "transactions"},
        {"models", "drift"},
        {"leave_one_out"},
        {"explain"},
        {"run"},
        {"page", "engines"},
        {"cli", "sklearn", ""},  # "": the front door, calirare/__init__.py, which imports when a name is asked for
        {"__main__"},
    ),
    "calirare_multilabel": (
        {"commands", "drawing", "inputs", "margins", "data"},
        {"families", "networks"},
        {"estimator", "loss"},
        {"evaluate", "training"},
        {"run"},
        {""},
        {"cli"},
    ),
    "calirare_lab": (
        {"", "jobs"},
        {"baselines", "leave_one_out", "multilabel", "profile", "published", "simulation"},
        {"paper", "studies"},
    ),
}
# Machinery in public modules of its own, in the place of a folder's door; folders within folders have doors too.
OPEN_MODULES = {
    "calirare._util",
    "calirare.calibration.decisions",
    "calirare.explain.audit",
    "calirare.graph.arrays",
    "calirare.graph.columns",
    "calirare.graph.features",
    "calirare.graph.labelled",
    "calirare.graph.matching",
    "calirare.graph.spelling",
    "calirare.graph.splits",
    "calirare.graph.tables",
    "calirare.leave_one_out.eice",
    "calirare.metrics.binning",
    "calirare.metrics.inputs",
}


@dataclass(frozen=True)
class Arrow:
    """An import of one module of a package by another.

    Attributes:
        source: the module that imports.
        target: the module it takes a name from.
        name: the name.
    """

    source: str
    target: str
    name: str

    def rooms(self) -> tuple[str, str]:
        """Returns the folder or file at the top in which each end lies."""
        source, target = (module.split(".")[1] if "." in module else "" for module in (self.source, self.target))
        return source, target


def arrows_of(package: str) -> list[Arrow]:
    """Returns every import within a package, lazy ones and those for types too; a folder stands for its __init__."""
    base = ROOT / "python"
    paths = {
        ".".join(path.relative_to(base).with_suffix("").parts).removesuffix(".__init__"): path
        for path in sorted((base / package).rglob("*.py"))
        if "build" not in path.parts
    }
    arrows = []
    for module, path in paths.items():
        within = module if path.name == "__init__.py" else module.rpartition(".")[0]
        for name in imported(path.read_text(), within):
            target = name if name in paths else name.rpartition(".")[0]
            if target in paths and name != package:
                arrows.append(Arrow(module, target, name))
    return arrows


def floor_faults(package: str, arrows: Iterable[Arrow]) -> list[str]:
    """Returns imports that climb, or stay on a floor, from one folder to another."""
    floors = {room: number for number, rooms in enumerate(FLOORS[package], 1) for room in rooms}
    climbs = (arrow for arrow in arrows if arrow.rooms()[0] != arrow.rooms()[1])
    return [f"{a.source} -> {a.name}" for a in climbs if floors[a.rooms()[1]] >= floors[a.rooms()[0]]]


def door_faults(arrows: Iterable[Arrow]) -> list[str]:
    """Returns imports of what another folder keeps to itself: private names, and modules behind its door."""
    faults = []
    for arrow in arrows:
        source, target = arrow.rooms()
        if source == target or not source or not target:
            continue
        private = any(part.startswith("_") for part in arrow.name.split(".")[2:])
        behind = arrow.target.count(".") > 1 and not any(arrow.target.startswith(open_) for open_ in OPEN_MODULES)
        faults += [f"{arrow.source} -> {arrow.name}"] if private or behind else []
    return faults


def cycle_faults(arrows: Iterable[Arrow]) -> list[str]:
    """Returns the modules that lie on a cycle of files, or between two."""
    left: dict[str, set[str]] = {}
    for arrow in arrows:
        left.setdefault(arrow.source, set()).add(arrow.target)
        left.setdefault(arrow.target, set())
    while leaves := [module for module, targets in left.items() if not targets & left.keys() - {module}]:
        left = {module: targets for module, targets in left.items() if module not in leaves}
    return sorted(left)


def shadow_faults(package: str) -> list[str]:
    """Returns names that a folder exports while a module of it has the same name."""
    faults = []
    for init in sorted((ROOT / "python" / package).glob("*/__init__.py")):
        modules = {path.stem for path in init.parent.glob("*.py")}
        exported = {name.rpartition(".")[2] for name in imported(init.read_text(), f"{package}.{init.parent.name}")}
        faults += [f"{init.parent.name}.{name}" for name in sorted(modules & exported)]
    return faults


def include_faults(folder: str, includes: list[str]) -> list[str]:
    """Returns the headers, written as the sources write them, that a file of `folder` must not include."""
    faults = []
    for header in includes:
        of_csrc = re.fullmatch(r"\.\./(\w+)/\S+", header)
        if of_csrc and of_csrc[1] not in {folder, *MAY_INCLUDE[folder]}:
            faults.append(header)
        if TORCH.search(header) and folder not in {"solvers", "bindings"}:
            faults.append(header)
        if PYTHON.search(header) and folder != "bindings":
            faults.append(header)
        if CUDA.fullmatch(header) and folder != "cuda":
            faults.append(header)
    return faults


def dependencies(command: list[str], paths: list[Path]) -> dict[Path, list[Path]]:
    """Returns every header that compiling each of `paths` reads."""
    done = subprocess.run([*command, "-M", *map(str, paths)], capture_output=True, text=True)
    assert done.returncode == 0, f"a source needs a header that is not there:\n{done.stderr}"
    rules = re.split(r"^\S+ ?:", done.stdout.replace("\\\n", " "), flags=re.MULTILINE)[1:]
    names = [rule.split() for rule in rules]
    return {
        path: [Path(os.path.normpath(path.parent / name)) for name in listed]
        for path, listed in zip(paths, names, strict=True)
    }


def dependency_faults(folder: str, headers: list[Path]) -> list[str]:
    """Returns the headers among a file's dependencies that its folder must not reach."""
    faults = []
    for header in headers:
        if header.is_relative_to(CSRC):
            used = header.relative_to(CSRC).parts[0]
            faults += [str(header)] if used != folder and used not in MAY_INCLUDE[folder] else []
        elif TORCH.search(str(header)) or PYTHON.search(str(header)):
            faults.append(str(header))
    return faults


@pytest.mark.slow
def test_python_imports_never_turn_back():
    modules = python_modules()
    assert len(modules) > 20
    assert {name: f for name, source in modules.items() if (f := python_faults(name, source))} == {}


@pytest.mark.parametrize("package", FLOORS)
def test_every_import_goes_down_and_no_file_lies_on_a_cycle(package):
    arrows = arrows_of(package)
    rooms = {room for arrow in arrows for room in arrow.rooms()}
    assert rooms == set().union(*FLOORS[package]) - ({""} if package == "calirare_lab" else set())
    assert floor_faults(package, arrows) == []
    assert cycle_faults(arrows) == []
    assert shadow_faults(package) == []


def test_folders_are_entered_by_their_doors():
    assert door_faults(arrows_of("calirare")) == []


@pytest.mark.parametrize(
    ("package", "source", "name"),
    [
        ("calirare", "graph.graph", "datasets.load_dataset"),  # climbs
        ("calirare", "metrics.resampling", "calibration.Target"),  # stays on its floor
        ("calirare", "_util.output", "run.Settings"),
        ("calirare_lab", "baselines.gats", "paper.context.Context"),
        ("calirare_lab", "multilabel.study", "profile.cost.Cost"),
    ],
)
def test_a_wrong_arrow_is_found(package, source, name):
    module, target = f"{package}.{source}", f"{package}.{name}"
    assert floor_faults(package, [Arrow(module, target.rpartition(".")[0], target)]) == [f"{module} -> {target}"]


def test_a_cycle_and_a_way_around_a_door_are_found():
    arrows = arrows_of("calirare_lab")
    back = Arrow("calirare_lab.paper.published", "calirare_lab.paper.cells", "calirare_lab.paper.cells.Cell")
    assert {back.source, back.target} <= set(cycle_faults([*arrows, back]))
    for name in ("calirare.graph.hetero.is_hetero", "calirare.graph._hidden", "calirare.models.gcn.GCN"):
        assert door_faults([Arrow("calirare.run.folder", name.rpartition(".")[0], name)]) != []


def test_the_reference_stands_on_torch_alone():
    modules = python_modules()
    reached = reached_from("calirare_ext.reference", modules)
    assert "calirare_ext.csr" in reached
    assert not reached & {"calirare_ext._backend", "calirare_ext.propagate", "calirare_ext.inverse_hvp"}
    assert "calirare_ext._backend" in reached_from("calirare_ext.propagate", modules)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("calirare.leave_one_out.eice", "from calirare_ext import _C"),
        ("calirare.leave_one_out.eice", "def f():\n    from calirare_ext._backend import _C"),
        ("calirare.leave_one_out.eice", "import calirare_ext._checks"),
        ("calirare.leave_one_out.eice", "from tests.helpers import problems"),
        ("calirare_ext.csr", "import calirare.graph.graph"),
        ("calirare.cli.app", "def f():\n    from calirare_multilabel.cli import app"),
        ("calirare.cli.app", "import calirare_lab"),
        ("calirare_multilabel.run", "from calirare_lab.multilabel import experiments"),
        ("calirare_multilabel.margins", "from calirare_ext import _C"),
        ("calirare_ext.csr", "from . import _C"),
    ],
)
def test_a_wrong_import_is_found(module, source):
    assert python_faults(module, source) != []


@pytest.mark.parametrize("folder", MAY_INCLUDE)
def test_includes_never_turn_back(folder):
    assert sources(folder)
    for path in sources(folder):
        includes = re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', path.read_text(), re.MULTILINE)
        assert include_faults(folder, includes) == [], path.name


def test_every_kernel_has_its_promise_and_no_promise_is_empty():
    kernels = {path.stem for path in sources("cpu", "cuda") if path.suffix in {".cpp", ".cu"}} - {"stub"}
    assert {path.stem for path in sources("ops")} == kernels


@pytest.mark.parametrize(
    ("folder", "header"),
    [
        ("core", "../ops/propagate.h"),
        ("cpu", "../cuda/launch.cuh"),
        ("cuda", "../cpu/balance.h"),
        ("cuda", "ATen/core/Tensor.h"),
        ("ops", "c10/core/Stream.h"),
        ("solvers", "torch/csrc/utils/pybind.h"),
        ("solvers", "cuda_runtime.h"),
        ("bindings", "../cpu/balance.h"),
    ],
)
def test_a_wrong_include_is_found(folder, header):
    assert set(include_faults(folder, [header])) == {header}


def test_no_header_of_ours_is_called_like_one_of_the_cuda_toolkit():
    """Whoever puts our folder in front would read it for the toolkit's."""
    assert [path.name for path in sources(*MAY_INCLUDE) if CUDA.fullmatch(path.name)] == []


@pytest.mark.release
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc to compile with")
def test_nvcc_and_its_host_compiler_have_nothing_to_warn_of(tmp_path):
    """All kernels at once, and no machine code: what warns is the reading of the source."""
    kernels = [path for path in sources("cuda") if path.suffix == ".cu"]
    (tmp_path / "all.cu").write_text("".join(f'#include "{path}"\n' for path in kernels))
    command = ["nvcc", "-std=c++17", "-arch=compute_90", "-code=compute_90", "-Xcicc", "-O0"]
    command += ["-Xcompiler", "-Wall,-Wextra", "-c", str(tmp_path / "all.cu"), "-o", str(tmp_path / "all.o")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to list the headers")
def test_cpu_sources_need_neither_torch_nor_python():
    found = dependencies(["g++", "-std=c++20", "-x", "c++"], sources("core", "ops", "cpu"))
    for path, headers in found.items():
        assert headers
        assert dependency_faults(path.parent.name, headers) == [], path.name


@pytest.mark.release
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc to list the headers")
def test_cuda_sources_need_neither_torch_nor_python():
    for path, headers in dependencies(
        ["nvcc", "-std=c++17"], [p for p in sources("cuda") if p.suffix == ".cu"]
    ).items():
        assert any(h.name == "cuda_runtime.h" for h in headers)
        assert dependency_faults("cuda", headers) == [], path.name


def test_a_wrong_dependency_is_found():
    torch_header = Path(sys.prefix) / "include/ATen/core/Tensor.h"
    assert dependency_faults("cuda", [torch_header]) == [str(torch_header)]
    assert dependency_faults("cuda", [CSRC / "cpu/balance.h"]) == [str(CSRC / "cpu/balance.h")]
    assert dependency_faults("cuda", [CSRC / "core/views.h"]) == []
