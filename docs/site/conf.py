"""How the pages are built: `make docs`, or sphinx-build -W -c docs/site docs build/docs/html."""

import os
import shutil
import sys
from pathlib import Path

from sphinx.domains.python import PyObject

import calirare

HERE = Path(__file__).parent
DOCS, BUILD = HERE.parent, HERE.parents[1] / "build" / "docs"
sys.path.insert(0, str(HERE))

import api_pages  # noqa: E402
import docstrings  # noqa: E402

project, author, copyright = "CaliRare", "the CaliRare authors", "the CaliRare authors, MIT licence"
version = release = calirare.__version__.partition("+")[0]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_gallery.gen_gallery"]
root_doc = "index"
exclude_patterns = ["site", "examples", "**/GALLERY_HEADER.rst", "gallery/**/*.ipynb", "gallery/**/*.py"]
suppress_warnings = ["config.cache"]  # of callables in the gallery's settings

# Pages: Markdown, whose links to files outside of docs/ become downloads.
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
myst_links_external_new_tab = False

# Reference: docstrings in Google style; what stands in backticks is a name where there is one.
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
strip_signature_backslash = True  # names of what is fitted end in an underscore
python_use_unqualified_type_names = True
maximum_signature_line_length = 88
napoleon_use_ivar = True
napoleon_custom_sections = [("Precision", "notes_style"), ("Cost", "notes_style")]
toc_object_entries_show_parents = "hide"

# Gallery: the scripts of docs/examples, run in a copy, so that what they write lies in build/.
shutil.rmtree(BUILD / "examples", ignore_errors=True)
shutil.copytree(DOCS / "examples", BUILD / "examples")
sphinx_gallery_conf = {
    "examples_dirs": os.path.relpath(BUILD / "examples", DOCS),
    "gallery_dirs": "gallery",
    "filename_pattern": r"plot_",
    "image_scrapers": ("matplotlib", "pictures.scrape"),
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "capture_repr": ("_repr_html_",),
    "abort_on_example_error": True,
    "plot_gallery": True,
    "min_reported_time": 1e9,
    "remove_config_comments": True,
}

html_theme = "pydata_sphinx_theme"
html_title = f"CaliRare {release}"
html_static_path = [str(HERE / "static")]
html_css_files = ["site.css"]
html_copy_source = html_show_sourcelink = False
html_theme_options = {
    "show_prev_next": True,
    "navbar_end": ["theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "navigation_with_keys": False,
    "header_links_before_dropdown": 6,
}


def setup(app):
    """Writes the reference's pages before they are read, and makes docstrings readable."""
    next(field for field in PyObject.doc_field_types if field.name == "variable").label = "Attributes"
    app.connect("builder-inited", lambda app: api_pages.write(DOCS / "api"), priority=1)
    app.connect("autodoc-process-docstring", docstrings.escape, priority=1)
    app.connect("missing-reference", docstrings.resolve)
