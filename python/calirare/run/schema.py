"""Nested settings as plain mappings: written, read, checked and listed from the fields of dataclasses alone."""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import numpy as np

from calirare._util.errors import InputError
from calirare.leave_one_out import METHODS, LeaveOneOutMethod

T = TypeVar("T")
# YAML 1.1 takes 5e-4 for text, because it has no point or no sign in its exponent.
SCIENTIFIC = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+")
METHOD = "method"  # the key that names a leave-one-out method among its options


@dataclass(frozen=True)
class Option:
    """One setting, as a command line or a page shows it.

    Attributes:
        path: keys from the top, such as ("training", "epochs").
        kinds: what it takes, such as (int, "auto"): types, words, None.
        default: its value where nothing is said.
        help: what it is, from the docstring of its class.
    """

    path: tuple[str, ...]
    kinds: tuple[Any, ...]
    default: Any
    help: str

    @property
    def name(self) -> str:
        """Its short name: the last key; the whole path, as "eice.weight", where keys stand in other groups too."""
        return _dotted(self.path) if self.path[0] in ("loo", "eice") else self.path[-1]


def options_of(cls: type, path: tuple[str, ...] = ()) -> Iterator[Option]:
    """Yields every setting of a dataclass, those of nested ones under their keys; of a method its name alone."""
    helps = attribute_help(cls)
    for field in dataclasses.fields(cls):
        kinds, where = kinds_of(cls)[field.name], (*path, field.name)
        if LeaveOneOutMethod in kinds:
            yield Option((*where, METHOD), tuple(METHODS), _default(field).name, helps[field.name])
        elif dataclasses.is_dataclass(kinds[0]):
            yield from options_of(cast(type, kinds[0]), where)
        else:
            yield Option(where, kinds, _default(field), helps[field.name])


def method_options() -> dict[str, list[Option]]:
    """Returns the options of each leave-one-out method, by its name."""
    return {name: list(options_of(method, ("loo",))) for name, method in METHODS.items()}


def kinds_of(cls: type) -> dict[str, tuple[Any, ...]]:
    """Returns what each field of a dataclass takes: types, words of a Literal or a registry's names, None."""
    named = {field.name: field.metadata["words"]() for field in dataclasses.fields(cls) if "words" in field.metadata}
    return _hints_of(cls) | named


@cache
def _hints_of(cls: type) -> dict[str, tuple[Any, ...]]:
    hints = get_type_hints(cls)
    return {field.name: tuple(_kinds(hints[field.name])) for field in dataclasses.fields(cls)}


def _kinds(hint: Any) -> Iterator[Any]:
    if get_origin(hint) in (Union, types.UnionType):
        for part in get_args(hint):
            yield from _kinds(part)
    elif get_origin(hint) is Literal:
        yield from get_args(hint)
    else:
        yield None if hint is type(None) else get_origin(hint) or hint


@cache
def attribute_help(cls: type) -> dict[str, str]:
    """Returns what the docstrings of a dataclass and its bases say of each attribute."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        # Python takes the indentation out of docstrings, from 3.13 on by itself.
        text = inspect.cleandoc(base.__doc__ or "").partition("Attributes:\n")[2].partition("\n\n")[0]
        for name, words in re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", text, re.MULTILINE):
            found[name] = " ".join(words.split())
    return found


def check_words(settings: Any) -> None:
    """Checks every setting that takes one of a few words.

    Raises:
        InputError: one has another value.
    """
    for name, words in kinds_of(type(settings)).items():
        value = getattr(settings, name)
        if all(isinstance(word, str) for word in words) and value not in words:
            raise InputError(f"setting {name} must be one of {', '.join(words)}, got {value!r}")


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def to_mapping(settings: Any) -> dict[str, Any]:
    """Returns settings as nested mappings of plain values; a method with its name first."""
    out: dict[str, Any] = {METHOD: settings.name} if isinstance(settings, LeaveOneOutMethod) else {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if dataclasses.is_dataclass(value):
            value = to_mapping(value)
        elif isinstance(value, tuple):
            value = list(value)
        out[field.name] = str(value) if isinstance(value, Path) else value
    return out


def from_mapping(cls: type[T], values: Mapping[str, Any], where: str, path: tuple[str, ...] = ()) -> T:
    """Returns a dataclass from nested mappings.

    Args:
        cls: the dataclass.
        values: any of its fields; what is not named has its default.
        where: what the mapping is called in a message.
        path: keys that lead to it.

    Raises:
        InputError: a name is unknown, or a value has a wrong type or range.
    """
    if not isinstance(values, Mapping):
        raise InputError(f"{where}: {_dotted(path)} must hold names and values, got {values!r}")
    known = kinds_of(cast(type, cls))
    taken = {}
    for name, value in values.items():
        if name not in known:
            raise _unknown(cast(type, cls), name, where, path)
        taken[name] = _value(known[name], value, where, (*path, name))
    try:
        return cls(**taken)
    except InputError:
        raise
    except ValueError as error:
        message = str(error).partition(": ")[2] or str(error)
        raise InputError(f"{where}: {_dotted((*path, message))}") from error


def _value(kinds: tuple[Any, ...], value: Any, where: str, path: tuple[str, ...]) -> Any:
    first, value = kinds[0], value.item() if isinstance(value, np.generic) else value
    if LeaveOneOutMethod in kinds:
        return _method(value, where, path)
    if dataclasses.is_dataclass(first):
        return value if isinstance(value, first) else from_mapping(first, value, where, path)  # type: ignore[arg-type]
    if first is tuple and isinstance(value, list | tuple):
        return tuple(value)
    real = float in kinds
    if real and isinstance(value, str) and SCIENTIFIC.fullmatch(value):
        value = float(value)
    for kind in kinds:
        if isinstance(kind, type):
            wanted = (int, float) if kind is float else (str, Path) if kind is Path else kind
            if isinstance(value, wanted) and (kind is bool or not isinstance(value, bool)):
                return value
        elif value == kind and type(value) is type(kind):
            return value
    raise InputError(f"{where}: {_dotted(path)} must be {words_for(kinds)}, got {value!r}")


def _method(value: Any, where: str, path: tuple[str, ...]) -> LeaveOneOutMethod:
    """Returns a leave-one-out method from its name, or from its name and options."""
    if isinstance(value, LeaveOneOutMethod):
        return value
    values = dict(value) if isinstance(value, Mapping) else {METHOD: value}
    name = values.pop(METHOD, "alo")
    if not isinstance(name, str) or name not in METHODS:
        choices = f"must be one of {', '.join(METHODS)}, got {name!r}"
        raise InputError(f"{where}: {_dotted((*path, METHOD))} {choices}{_suggestion(name, METHODS, '')}")
    return from_mapping(METHODS[name], values, f"{where}: with {name}", path)


def words_for(kinds: tuple[Any, ...]) -> str:
    """Returns how a message calls what a setting takes."""
    names = {int: "a whole number", float: "a number", str: "text", bool: "true or false", Path: "a path"}
    names |= {tuple: "a list", type(None): "none"}
    words = [kind if isinstance(kind, str) else names.get(kind or type(None), str(kind)) for kind in kinds]
    if len(words) > 1 and all(isinstance(kind, str) for kind in kinds):
        return f"one of {', '.join(words)}"
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _suggestion(name: object, known: Iterable[str], otherwise: str, path: tuple[str, ...] = ()) -> str:
    """Returns the nearest of known names below a path as a question; without one otherwise."""
    close = get_close_matches(str(name), known, 1)
    return f"; did you mean {_dotted((*path, close[0]))!r}?" if close else otherwise


def _unknown(cls: type, name: object, where: str, path: tuple[str, ...] = ()) -> InputError:
    """Returns an error for a key that a dataclass does not have, with the nearest one."""
    fields = [field.name for field in dataclasses.fields(cls)]
    known = fields if path else [*fields, *_options(cls)]
    hint = _suggestion(name, known, f"; there are {', '.join(fields)}", path)
    return InputError(f"{where}: unknown setting {_dotted((*path, str(name)))!r}{hint}")


def _options(cls: type) -> dict[str, Option]:
    """Returns every setting, those of every method too, by its name and by its path."""
    every = [*options_of(cls), *(option for options in method_options().values() for option in options)]
    return {name: option for option in reversed(every) for name in (option.name, _dotted(option.path))}


def changed(settings: T, changes: Mapping[str, Any], where: str) -> T:
    """Returns settings with some changed, named by their key, by its short name (`Option.name`) or by its path.

    Args:
        settings: nested dataclasses.
        changes: such as `epochs=200`, `target="population"`, `loo=ALO(damping=0.01)`, `training={"hidden": 32}` or
            `{"loo.seed": 1}`. A method by its name, as in `loo="grouped"`, has its defaults, or the options it has
            already where it is the same one; single options count after it.
        where: what the changes are called in a message.

    Raises:
        InputError: a name is unknown, or a value has a wrong type or range.
    """
    values = to_mapping(settings)
    paths = {_path_of(type(settings), name, where): value for name, value in changes.items()}
    for path, value in sorted(paths.items(), key=lambda item: item[0] not in (("loo",), ("loo", METHOD))):
        if path == ("loo", METHOD):
            path = ("loo",)
        at: Any = values
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = _merged(at.get(path[-1]), value)
    return from_mapping(type(settings), values, where)


def _path_of(cls: type, name: str, where: str) -> tuple[str, ...]:
    """Returns the path of a setting that is named by its key, its short name or its path."""
    if name in kinds_of(cls):
        return (name,)
    options = _options(cls)
    if name not in options:
        raise _unknown(cls, name, where)
    return options[name].path


def typed(settings: Any, assignments: Iterable[str], where: str) -> dict[str, Any]:
    """Returns the changes that words such as "loo.damping=0.01" ask for, as `changed` takes them.

    A number, "true", "false", "none" or a list with commas becomes what the setting takes; other text stays as it is.

    Args:
        settings: nested dataclasses.
        assignments: the words.
        where: what they are called in a message.

    Raises:
        InputError: a word has no "=", or its name is unknown.
    """
    found = dict[str, Any]()
    for word in assignments:
        name, sign, text = word.partition("=")
        if not sign:
            raise InputError(f"{where} must be KEY=VALUE, such as loo.damping=0.01, got {word!r}")
        option = _options(type(settings)).get(_dotted(_path_of(type(settings), name, where)))
        found[name] = text if option is None else _of_text(option.kinds, text)
    return found


def _of_text(kinds: tuple[Any, ...], text: str) -> Any:
    """Returns what a text stands for where a setting takes these kinds."""
    if text in kinds:
        return text
    if None in kinds and text == "none":
        return None
    if bool in kinds and text in ("true", "false"):
        return text == "true"
    if tuple in kinds:
        return tuple(word.strip() for word in text.split(",") if word.strip())
    for kind in (kind for kind in (int, float) if kind in kinds):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _merged(now: Any, value: Any) -> Any:
    """Returns what a key holds after a change: of a mapping the rest stays, of another method nothing."""
    if isinstance(value, LeaveOneOutMethod):
        return to_mapping(value)
    if not isinstance(now, dict):
        return value
    if METHOD in now and not isinstance(value, Mapping):
        return now if value == now[METHOD] else {METHOD: value}
    return now | dict(value) if isinstance(value, Mapping) and METHOD not in value else value


def _dotted(path: tuple[str, ...]) -> str:
    return ".".join(path)
