"""`calirare datasets`: which published data sets can be loaded by name, where they are looked for, how to get them."""

from __future__ import annotations

from calirare._util.errors import InputError
from calirare.datasets import NO_CATALOGUE, published_sets


def run(root: str | None = None) -> None:
    """Prints every published data set.

    Raises:
        InputError: the package that has them is not installed.
    """
    catalogue = published_sets()
    if catalogue is None:
        raise InputError(f"datasets: {NO_CATALOGUE}")
    catalogue.print_table(root)
