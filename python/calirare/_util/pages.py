"""Pages as HTML: every name of the user's escaped, and characters replaced that turn the direction or are not seen."""

from __future__ import annotations

import re
from importlib.resources import files

from jinja2 import Environment, FunctionLoader, StrictUndefined, Template

from calirare._util.amounts import shortened

# Characters that turn the direction of what follows, or show nothing: a name with them could pass for another.
HIDDEN = dict.fromkeys(
    [*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF], "\N{REPLACEMENT CHARACTER}"
)
HIDDEN |= dict.fromkeys((*range(9), *range(11, 32), *range(127, 160)), "\N{REPLACEMENT CHARACTER}")
EMOJI = "[\u2190-\u2bff\ufe0f\U0001f000-\U0001faff]"
JOINED = re.compile(f"(?<={EMOJI})\N{ZERO WIDTH JOINER}(?={EMOJI})")  # several emoji as one: it is seen


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
    environment.finalize = lambda value: harmless(value) if type(value) is str else value
    environment.filters |= {"short": shortened, "short_words": short_words}
    return environment.get_template(name)


def harmless(text: str) -> str:
    """Returns a text without characters that turn the direction or are not seen; joined emoji stay."""
    parts = JOINED.split(text)
    return "\N{ZERO WIDTH JOINER}".join(part.translate(HIDDEN) for part in parts)


def short_words(sentence: str) -> str:
    """Returns a sentence in which words that are too long are `shortened`."""
    return re.sub(r"\S+", lambda word: shortened(word[0]), sentence)
