"""The top of the report of the embedded digits as docs/figures/report_digits.png, shown by headless Chromium."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

FIGURE = Path(__file__).resolve().parents[1] / "figures" / "report_digits.png"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WIDTH, HEIGHT = 1280, 1400
COLOURS = 256  # of the picture, so that it stays small


def main() -> None:
    chromium = next((found for name in NAMES if (found := shutil.which(name))), None)
    if chromium is None:
        sys.exit("no browser: install Debian's chromium, or Chrome")
    with tempfile.TemporaryDirectory() as folder:
        run, shot = Path(folder) / "digits", Path(folder) / "shot.png"
        train = [sys.executable, "-m", "calirare", "train", "--dataset", "digits", "--out", str(run)]
        subprocess.run(train, check=True, capture_output=True)
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
        flags += ["--disable-background-networking", f"--user-data-dir={folder}/profile"]
        flags += [f"--window-size={WIDTH},{HEIGHT}", f"--screenshot={shot}", (run / "report.html").as_uri()]
        subprocess.run([chromium, *flags], check=True, capture_output=True)
        with Image.open(shot) as image:
            image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(FIGURE, optimize=True)
    print(f"{FIGURE}: {FIGURE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
