"""Pages as HTML: every name of the user's escaped, and characters replaced that turn the direction or are not seen."""

from __future__ import annotations

from importlib.resources import files

from jinja2 import Environment, FunctionLoader, StrictUndefined, Template

# Characters that turn the direction of what follows, or show nothing: a name with them could pass for another.
HIDDEN = dict.fromkeys(
    [*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF], "\N{REPLACEMENT CHARACTER}"
)
HIDDEN |= dict.fromkeys((*range(9), *range(11, 32), *range(127, 160)), "\N{REPLACEMENT CHARACTER}")


def template_of(package: str, name: str) -> Template:
    """Returns a template that lies in a package, which escapes what it shows; it may extend another that lies there.

    Args:
        package: dotted name.
        name: of the file.
    """
    environment = Environment(
        loader=FunctionLoader(lambda other: files(package).joinpath(other).read_text(encoding="utf-8")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.finalize = lambda value: value.translate(HIDDEN) if type(value) is str else value
    return environment.get_template(name)
