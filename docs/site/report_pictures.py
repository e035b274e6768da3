"""The top of the report of three data sets as docs/figures/report_*.png: python docs/site/report_pictures.py [NAME ..]

Each is trained as the command line does by default and shown by headless Chromium. The digits are embedded; the others
lie in the data folder (`calirare datasets` says where it is looked for).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

from calirare_lab.published import data_root

FIGURES = Path(__file__).resolve().parents[1] / "figures"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WIDTH, HEIGHT = 1280, 1400
COLOURS = 256  # of the pictures, so that they stay small
SETS = {"digits": ("digits",), "sichuan": ("fraud/sichuan.npz", "--minority", "1"), "cora": ("cora",)}


def main() -> None:
    chromium = next((found for name in NAMES if (found := shutil.which(name))), None)
    if chromium is None:
        sys.exit("no browser: install Debian's chromium, or Chrome")
    for name in sys.argv[1:] or SETS:
        with tempfile.TemporaryDirectory() as folder:
            page, shot = page_of(name, Path(folder) / name), Path(folder) / "shot.png"
            flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
            flags += ["--disable-background-networking", f"--user-data-dir={folder}/profile"]
            flags += [f"--window-size={WIDTH},{HEIGHT}", f"--screenshot={shot}", page.as_uri()]
            subprocess.run([chromium, *flags], check=True, capture_output=True)
            path = FIGURES / f"report_{name}.png"
            shrink(shot, path)
            print(f"{path}: {path.stat().st_size:,} bytes")


def page_of(name: str, run: Path) -> Path:
    """Trains a data set and returns its report."""
    where, *more = SETS[name]
    data = str(Path(data_root()) / where) if "/" in where else where
    calirare = [sys.executable, "-m", "calirare"]
    subprocess.run([*calirare, "train", "--dataset", data, *more, "--out", str(run)], check=True, capture_output=True)
    subprocess.run([*calirare, "report", "--run", str(run)], check=True, capture_output=True)
    return run / "report.html"


def shrink(shot: Path, path: Path) -> None:
    """Writes a picture with few colours."""

    with Image.open(shot) as image:
        image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    main()
