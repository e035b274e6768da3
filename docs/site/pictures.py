"""Pictures that an example writes as files, taken into its page."""

import shutil
from pathlib import Path

from sphinx_gallery.scrapers import figure_rst


def scrape(block, block_vars, gallery_conf):
    """Moves the PNG files that a block of an example has written, its folders' too, into the page; returns its text."""
    names, paths = [], block_vars["image_path_iterator"]
    for png, target in zip(sorted(Path(block_vars["src_file"]).parent.rglob("*.png")), paths, strict=False):
        shutil.move(png, target)
        names.append(target)
    return figure_rst(names, gallery_conf["src_dir"])
