"""Docstrings as the pages show them: plain text, in which only backticks and lists have a meaning."""

import re

from sphinx.util.nodes import make_refnode

ASIDE = re.compile(r"(`+[^`]+`+|\*\*[^*\s][^*]*\*\*(?!\w))")  # code, and what is set bold
FIELD = re.compile(r"\s+\*{0,2}\w+:")  # a name of Args or Attributes, which napoleon reads
NOTE = re.compile(r"(Precision|Cost): ")  # a paragraph of its own, which has no section


def escape(app, what, name, obj, options, lines):
    """Makes a docstring readable for Sphinx, in place."""
    lines[:] = paragraphs(lines)
    mask(lines)


def paragraphs(lines):
    """Returns the lines with each note of precision or cost as a paragraph."""
    out, inside = [], False
    for line in lines:
        note = NOTE.match(line)
        inside = bool(note) or (inside and line.startswith(" "))
        out += ["", NOTE.sub(r"**\1**: ", line, count=1)] if note else [line.lstrip() if inside else line]
    return out


def mask(lines):
    """Puts a backslash before what Sphinx would take for markup, except in code and examples."""
    example = False
    for i, line in enumerate(lines):
        example = bool(line.strip()) if example else line.lstrip().startswith(">>>")
        if example:
            continue
        head = FIELD.match(line)
        start = head.end() if head else 0
        parts = ASIDE.split(line[start:])
        lines[i] = line[:start] + "".join(part if k % 2 else plain(part) for k, part in enumerate(parts))


def plain(text):
    """Returns text without markup."""
    return re.sub(r"([|*]|_(?=\W|$))", r"\\\1", text)


def resolve(app, env, node, contnode):
    """Returns a link to a name of the reference given in short, such as `ALO` or `calirare.jackknife`."""
    if node.get("refdomain") != "py":
        return None
    named = by_last_name(env.get_domain("py"))
    name = "." + node["reftarget"].split("(")[0].removeprefix("calirare.")
    found = {place: full for full, place in named.get(name.rpartition(".")[2], ()) if f".{full}".endswith(name)}
    if len(found) != 1:
        return None
    (page, anchor), full = next(iter(found.items()))
    return make_refnode(app.builder, node["refdoc"], page, anchor, contnode, full)


def by_last_name(domain):
    """Returns every name of the reference with its place, by what follows the last dot."""
    if not hasattr(domain, "by_last_name"):
        domain.by_last_name = {}
        for full, entry in domain.objects.items():
            domain.by_last_name.setdefault(full.rpartition(".")[2], []).append((full, (entry.docname, entry.node_id)))
    return domain.by_last_name
