"""Drives CMake, which builds calirare_ext/_C. CMakeLists.txt holds the only list of sources."""

import os
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
SOURCES = ["CMakeLists.txt", *(str(p.relative_to(ROOT)) for p in sorted(ROOT.glob("csrc/**/*")) if p.is_file())]

# -I leaves out what an isolated build puts in front: this asks the interpreter that will import the module.
ASK_TORCH = [sys.executable, "-I", "-c", "import torch; print(torch.__version__)"]


def torch_version() -> str:
    found = subprocess.run(ASK_TORCH, capture_output=True, text=True)
    if found.returncode != 0:
        raise SystemExit(
            f"calirare: torch is not importable by {sys.executable}: install torch first "
            "(for example `pip install torch`), then install calirare again"
        )
    return found.stdout.strip()


def run_cmake(command: list[str | Path]) -> None:
    try:
        subprocess.run(command, check=True)
    except FileNotFoundError:
        raise SystemExit(
            "calirare: cmake is not on the PATH: install it with ninja (`pip install cmake ninja`), or install "
            "calirare without --no-build-isolation"
        ) from None
    except subprocess.CalledProcessError as error:
        raise SystemExit(
            f"calirare: the extension could not be built (cmake ended with code {error.returncode}, its words are "
            "above): it needs g++ with C++20, ninja and Python's headers; where memory ran out, set MAX_JOBS=1"
        ) from None


class CMakeBuild(build_ext):
    """Configures and builds with CMake and Ninja, then puts the module where setuptools wants it."""

    def build_extension(self, ext: Extension) -> None:
        tag = f"{sys.implementation.cache_tag}-torch{torch_version()}"
        build = Path(os.environ.get("CALIRARE_BUILD_DIR", ROOT / "build" / tag))
        out = Path(self.get_ext_fullpath(ext.name)).resolve()
        out.parent.mkdir(parents=True, exist_ok=True)
        options = [
            f"-DPython_EXECUTABLE={sys.executable}",
            f"-DCALIRARE_CUDA={os.environ.get('CALIRARE_CUDA', 'AUTO')}",
            f"-DCALIRARE_CUDA_ARCHS={os.environ.get('CALIRARE_CUDA_ARCHS', '')}",
            f"-DCALIRARE_STRICT_FP={os.environ.get('CALIRARE_STRICT_FP', 'OFF')}",
            f"-DCALIRARE_SANITIZE={os.environ.get('CALIRARE_SANITIZE', '')}",
            f"-DCALIRARE_OUTPUT={out}",
        ]
        jobs = os.environ.get("MAX_JOBS", str(os.cpu_count() or 1))
        run_cmake(["cmake", "-S", ROOT, "-B", build, "-G", "Ninja", *options])
        run_cmake(["cmake", "--build", build, "--target", "install_module", "-j", jobs])


setup(
    package_dir={"calirare": "python/calirare", "calirare_ext": "calirare_ext"},
    package_data={
        "calirare_ext": ["py.typed", "*.pyi"],
        "calirare": ["py.typed", "cli/*.json", "page/*.html"],
    },
    # `depends` puts the sources into a source distribution; CMakeLists.txt says which are compiled.
    ext_modules=[Extension("calirare_ext._C", sources=[], depends=SOURCES)],
    cmdclass={"build_ext": CMakeBuild},
)
