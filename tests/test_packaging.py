"""What is shipped, under which version, and how a build says that something is missing."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest
import setuptools
import typer
from packaging.requirements import Requirement

import calirare
import calirare_ext
from calirare.cli import plugins
from calirare_ext._version import RELEASE

ROOT = Path(__file__).resolve().parent.parent
SOURCE_SUFFIXES = {".py", ".pyi", ".typed"}
DATA_SUFFIXES = {".npz", ".npy", ".csv", ".mat", ".pt", ".pkl", ".parquet", ".safetensors", ".zip", ".gz", ".content"}


def run(command: list[str | Path], **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, **options)


class TestVersion:
    def test_it_is_the_same_everywhere(self):
        assert re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", RELEASE)
        assert importlib.metadata.version("calirare") == RELEASE
        assert calirare.__version__ == calirare_ext.__version__

    def test_it_is_written_once(self):
        files = [ROOT / name for name in ("setup.py", "pyproject.toml", "CMakeLists.txt")]
        for folder, pattern in (("calirare_ext", "*.py"), ("python", "**/*.py"), ("csrc", "**/*.*")):
            files += sorted((ROOT / folder).glob(pattern))
        found = [path for path in files if re.search(rf"\b{re.escape(RELEASE)}\b", path.read_text())]
        assert found == [ROOT / "calirare_ext" / "_version.py"]


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """The sources of both packages, beside data files that no wheel may hold."""
    source = tmp_path_factory.mktemp("source")
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    keep = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info")
    for name in ("calirare_ext", "python"):
        shutil.copytree(ROOT / name, source / name, ignore=keep)
    for folder in ("calirare_ext", "python/calirare", "python/calirare_multilabel", "python/calirare_lab"):
        for suffix in sorted(DATA_SUFFIXES):
            (source / folder / f"dataset{suffix}").write_bytes(b"data")
    return source


def files_of_wheel(source: Path, out: Path) -> list[Path]:
    """Returns what setuptools would put into the wheel of the project in `source`; nothing is compiled."""
    script = ["setup.py"] if (source / "setup.py").is_file() else ["-c", "import setuptools; setuptools.setup()"]
    found = run([sys.executable, *script, "-q", "build_py", "--build-lib", out], cwd=source)
    assert found.returncode == 0, found.stderr
    return sorted(path.relative_to(out) for path in out.rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def built(source, tmp_path_factory) -> list[Path]:
    """The files of our wheel."""
    return files_of_wheel(source, tmp_path_factory.mktemp("wheel"))


EXTRAS = sorted({package.removeprefix("calirare-") for package in plugins.OTHERS.values()})


def facts(extra: str) -> dict:
    """Returns the project table of a package that is an extra of ours."""
    return tomllib.loads((ROOT / "python" / f"calirare_{extra}" / "pyproject.toml").read_text())["project"]


class TestWheel:
    def test_type_information_is_shipped(self, built):
        for name in (
            "calirare_ext/py.typed",
            "calirare_ext/_C.pyi",
            "calirare/py.typed",
            "calirare/cli/commands.json",
            "calirare/cli/options.json",
            "calirare/page/run.html",
            "calirare/page/queue.html",
        ):
            assert Path(name) in built

    def test_the_operators_ship_no_data(self, built):
        files = [path for path in built if path.parts[0] == "calirare_ext"]
        assert {path.suffix for path in files} == SOURCE_SUFFIXES
        assert not [path for path in built if path.suffix in DATA_SUFFIXES]

    def test_every_module_is_shipped_and_nothing_else(self, built):
        expected = {path.relative_to(ROOT) for path in (ROOT / "calirare_ext").rglob("*.py")}
        expected |= {path.relative_to(ROOT / "python") for path in (ROOT / "python" / "calirare").rglob("*.py")}
        assert {path for path in built if path.suffix == ".py"} == expected
        assert {path.parts[0] for path in built} == {"calirare", "calirare_ext"}

    @pytest.mark.parametrize("extra", EXTRAS)
    def test_an_extra_is_a_wheel_of_its_own_with_all_its_modules_and_nothing_else(self, source, tmp_path, extra):
        folder = Path("python", f"calirare_{extra}")
        modules = [*(ROOT / folder).rglob("*.py"), *(ROOT / folder).rglob("catalogue.json")]
        expected = {path.relative_to(ROOT / "python") for path in modules if "build" not in path.parts}
        assert set(files_of_wheel(source / folder, tmp_path)) == expected
        assert len(expected) > 10

    @pytest.mark.slow
    @pytest.mark.parametrize("extra", EXTRAS)
    def test_an_extra_has_our_version_and_commands_that_are_there(self, source, extra):
        ask = "import setuptools; d = setuptools.setup(); print(d.get_version()); print(d.entry_points)"
        found = run([sys.executable, "-c", ask, "-q", "--version"], cwd=source / "python" / f"calirare_{extra}")
        assert found.returncode == 0, found.stderr
        assert found.stdout.splitlines()[0] == RELEASE
        commands = facts(extra)["entry-points"][plugins.GROUP]
        assert set(commands) == {name for name, package in plugins.OTHERS.items() if package == f"calirare-{extra}"}
        for name, place in commands.items():
            module, _, attribute = place.partition(":")
            assert isinstance(getattr(importlib.import_module(module), attribute), typer.Typer), name

    @pytest.mark.parametrize("extra", EXTRAS)
    def test_an_extra_names_its_package(self, extra):
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        assert extras[extra] == [facts(extra)["name"]] == [f"calirare-{extra}"]

    @pytest.mark.parametrize(
        ("package", "failing"),
        [("scipy", "1.12.0"), ("typer", "0.15.3")],  # no coords of sparse arrays; no help with click from 8.2 on
    )
    def test_no_version_is_taken_that_is_known_to_fail(self, package, failing):
        ours = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        listed = {requirement for project in (ours, *map(facts, EXTRAS)) for requirement in project["dependencies"]}
        found = next(each for each in map(Requirement, listed) if each.name == package)
        assert failing not in found.specifier
        assert importlib.metadata.version(package) in found.specifier

    def test_torch_is_no_build_requirement(self):
        """An isolated build would fetch the newest torch, gigabytes of it, and build for the wrong one."""
        text = (ROOT / "pyproject.toml").read_text()
        requires = re.search(r"^requires = \[(.*)\]$", text, re.MULTILINE)
        assert requires
        assert "torch" not in requires.group(1)


@pytest.fixture
def build_script(monkeypatch):
    """Returns setup.py's names under a given interpreter, without running setup()."""
    monkeypatch.setattr(setuptools, "setup", lambda **_: None)

    def load(interpreter: str) -> dict:
        monkeypatch.setattr(sys, "executable", interpreter)
        return runpy.run_path(str(ROOT / "setup.py"))

    return load


class TestTorchOfTheBuild:
    @pytest.mark.release  # a fresh interpreter imports torch
    def test_it_is_the_one_of_the_interpreter(self, build_script):
        import torch

        assert build_script(sys.executable)["torch_version"]() == torch.__version__

    def test_without_torch_the_build_says_so_in_one_sentence(self, build_script, tmp_path):
        """An interpreter that sees no site-packages has no torch."""
        bare = tmp_path / "python"
        bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
        bare.chmod(0o755)
        with pytest.raises(SystemExit) as stop:
            build_script(str(bare))["torch_version"]()
        message = str(stop.value)
        assert message.startswith(f"calirare: torch is not importable by {bare}: install torch first")
        assert "\n" not in message


class TestFailingBuild:
    @pytest.mark.parametrize(
        ("tools", "message"),
        [
            ({}, "calirare: cmake is not on the PATH: install it with ninja"),
            ({"cmake": "#!/bin/sh\nexit 3\n"}, "calirare: the extension could not be built (cmake ended with code 3"),
        ],
    )
    def test_what_is_missing_is_said_in_one_sentence(self, build_script, tmp_path, monkeypatch, tools, message):
        for name, text in tools.items():
            (tmp_path / name).write_text(text)
            (tmp_path / name).chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(SystemExit) as stop:
            build_script(sys.executable)["run_cmake"](["cmake", "--version"])
        assert str(stop.value).startswith(message)
        assert "\n" not in str(stop.value)


TOOLS = "cc c++ gcc g++ ld as ar ranlib nm strip objcopy objdump readelf sh uname".split()  # noqa: SIM905


def build_tools() -> tuple[str, str]:
    """Returns cmake and ninja, those beside the interpreter first."""
    places = f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}"
    cmake, ninja = (shutil.which(name, path=places) for name in ("cmake", "ninja"))
    if not (cmake and ninja and shutil.which("c++")):
        pytest.skip("needs cmake, ninja and a C++ compiler")
    return cmake, ninja


@pytest.fixture(scope="module")
def configure(tmp_path_factory):
    """Returns a function that configures the build where no nvcc can be found."""
    cmake, ninja = build_tools()
    tools = tmp_path_factory.mktemp("bin")
    for name in TOOLS:
        if found := shutil.which(name):
            (tools / name).symlink_to(found)
    hidden = {name: value for name, value in os.environ.items() if "CUDA" not in name} | {"PATH": str(tools)}
    folder = tmp_path_factory.mktemp("build")  # what was found out about the compiler holds for every choice

    def run_cmake(choice: str) -> subprocess.CompletedProcess[str]:
        options = [
            f"-DPython_EXECUTABLE={sys.executable}",
            f"-DCMAKE_MAKE_PROGRAM={ninja}",
            f"-DCALIRARE_CUDA={choice}",
        ]
        return run([cmake, "-S", ROOT, "-B", folder, "-G", "Ninja", *options], env=hidden)

    return run_cmake


@pytest.mark.release
class TestBuildWithoutNvcc:
    def test_auto_says_in_one_line_that_the_build_is_for_the_cpu(self, configure):
        found = configure("AUTO")
        assert found.returncode == 0, found.stderr
        assert [line for line in found.stdout.splitlines() if "CPU-only" in line] == [
            "-- calirare: no nvcc in use, this build is CPU-only"
        ]

    def test_on_is_an_error_that_names_the_remedy(self, configure):
        found = configure("ON")
        assert found.returncode != 0
        message = " ".join(found.stderr.split())
        assert "CALIRARE_CUDA=ON, but no CUDA compiler was found: install nvcc or set CALIRARE_CUDA=OFF" in message


def program(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


# What `nvcc --list-gpu-code` says, by version; None: it has no such option.
NVCCS = {
    "13.0": ("75 80 86 87 88 89 90 100 110 103 120 121", "80-real;86-real;89-real;90-real;100-real;120"),
    "12.8": ("50 52 75 80 86 87 89 90 90a 100 100a 101 120 120a", "80-real;86-real;89-real;90-real;100-real;120"),
    "12.4": ("50 52 75 80 86 87 89 90", "80-real;86-real;89-real;90"),
    "11.5": ("35 50 75 80 86 87", "80-real;86"),
    "named alike": ("80 90a 1200 860", "80"),
    "later": ("86 90 100 120 130", "86-real;90-real;100-real;120"),
    "11.0": (None, "80"),
}


class TestArchitectures:
    """No GPU may be named to a compiler that does not know it: the build would stop."""

    @pytest.mark.parametrize("version", NVCCS)
    def test_those_that_the_compiler_knows(self, version, tmp_path):
        known, expected = NVCCS[version]
        listing = "".join(f"sm_{number}\n" for number in known.split()) if known else ""
        nvcc = program(tmp_path / "nvcc", f"printf '{listing}'\nexit {0 if known else 1}")
        script = tmp_path / "ask.cmake"
        include = ROOT / "csrc" / "cuda" / "architectures.cmake"
        script.write_text(
            f'include({include})\ncalirare_all_architectures({nvcc} found)\nmessage("found ${{found}}")\n'
        )
        done = run([build_tools()[0], "-P", script])
        assert done.returncode == 0, done.stderr
        assert done.stderr.strip() == f"found {expected}"
        assert ("a newer one compiles for them" in done.stdout) == ("100" not in expected or "80" not in expected)

    @pytest.mark.parametrize(("lists", "expected"), [("GPU 0: NVIDIA H200", "native"), ("No devices were found", "80")])
    def test_a_build_from_source_is_for_one(self, lists, expected, tmp_path, monkeypatch):
        program(tmp_path / "nvidia-smi", f"echo '{lists}'")
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        script = tmp_path / "ask.cmake"
        include = ROOT / "csrc" / "cuda" / "architectures.cmake"
        script.write_text(f'include({include})\ncalirare_one_architecture(found)\nmessage("found ${{found}}")\n')
        done = run([build_tools()[0], "-P", script])
        assert done.stderr.strip() == f"found {expected}"


def test_the_source_archive_holds_what_a_build_needs_and_no_tests(tmp_path):
    """setuptools takes files tests/test_*.py along by itself, without what they import."""
    root = Path(calirare_ext.__file__).parents[1]
    made = [
        sys.executable,
        "setup.py",
        "-q",
        "egg_info",
        "-e",
        str(tmp_path),
        "sdist",
        "--formats",
        "zip",
        "-d",
        str(tmp_path),
    ]
    subprocess.run(made, cwd=root, check=True, capture_output=True)
    (archive,) = tmp_path.glob("*.zip")
    with zipfile.ZipFile(archive) as opened:
        names = {name.partition("/")[2] for name in opened.namelist()}
    assert {"CMakeLists.txt", "README.md", "setup.py", "pyproject.toml", "python/calirare/cli/options.json"} <= names
    assert not {name for name in names if name.startswith(("tests/", "benchmarks/"))}


def test_the_oldest_versions_that_are_tested_are_those_that_are_accepted():
    root = Path(calirare_ext.__file__).parents[1]
    extras = ["parquet", "transactions", "engines", "networkx"]
    lists = [run([sys.executable, str(root / ".ci/requirements.py"), *names]).stdout for names in ([], extras)]
    accepted = dict(line.split(">=") for line in "\n".join(lists).split() if ">=" in line)
    tested = [line.split("==") for line in (root / ".ci/oldest.txt").read_text().splitlines() if "==" in line]
    for name, version in tested:
        bound = accepted.get(name)
        assert bound is None or f"{version}.".startswith(f"{bound}."), name
    assert {name for name, _ in tested} > {"numpy", "pandas", "scipy", "scikit-learn", "ibis-framework[duckdb]"}
