"""Arguments that are called otherwise elsewhere, refused with one sentence."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

MEANINGS = {
    "y_true": "y_true for the true labels",
    "p": "p for the probabilities",
}


def known_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """Makes an unknown keyword (`labels`, `y_prob`, `target`, ..) a TypeError that says which names there are.

    Args:
        function: what is called.

    Returns:
        The same function behind one look at its keywords.
    """
    names = [name for name in inspect.signature(function).parameters if name != "self"]
    use = ", ".join(MEANINGS.get(name, name) for name in names)

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for given in kwargs:
            if given not in names:
                raise TypeError(f"{function.__name__}: {given} is not an argument, use {use}, in this order")
        return function(*args, **kwargs)

    return checked
