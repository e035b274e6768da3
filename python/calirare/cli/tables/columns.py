"""A table of predictions, its columns checked; each complaint is an InputError that says where and how to mend it."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from calirare._util.arrays import ROUNDING, countable_weights
from calirare._util.errors import InputError
from calirare._util.text_tables import INERT, TEXT_SUFFIXES, is_text, read_text
from calirare.metrics.predictions import ROW_SUM_SLACK

if TYPE_CHECKING:
    import pandas as pd
from dataclasses import dataclass, replace

from calirare.cli.tables import columns as read

OF_CLASS = "p_"  # what stands before the name of a class in the columns of predictions.csv
UNKNOWN = "-1"  # what stands for a label that nobody knows, in predictions.csv and in node tables


def read_frame(path: Path) -> pd.DataFrame:
    """Reads .csv (by commas, semicolons, tabs, bars or blanks) or .tsv, either of them .gz, or .parquet; rows from 0.

    InputError where there is no such file, it cannot be read, or it has no rows.
    """
    import pandas as pd

    parquet = path.suffix.lower() == ".parquet"
    if not parquet and not is_text(path):
        raise InputError(f"{path} must end in {', '.join(TEXT_SUFFIXES)} or .parquet")
    if not path.is_file():
        raise InputError(f"{path} is not a file: give the path of a table of predictions")
    try:
        frame = pd.read_parquet(path) if parquet else read_text(path)
    except ImportError as error:
        raise InputError(f"{path} cannot be read without pyarrow: install it or give a .csv file") from error
    except InputError:
        raise
    except Exception as error:  # pandas and pyarrow raise a dozen kinds for a broken file
        reason = str(error).strip().split("\n")[0]
        kind = "".join(suffix for suffix in path.suffixes[-2:] if suffix != ".gz").rpartition(".")[2]
        text = f"{path} cannot be read as {kind} ({reason}): check that the file is whole"
        raise InputError(text) from error
    if frame.empty:
        raise InputError(f"{path} has no rows: give a table with one row per sample")
    return frame.reset_index(drop=all(name is None for name in frame.index.names))


def select_rows(frame: pd.DataFrame, where: str | None) -> pd.DataFrame:
    """Returns the rows that `where`, "column=value", names, at least one, with the numbers they had; None: all.

    1, 1.0 and true are the same, and a row without a value is left out.
    """
    if where is None:
        return frame
    name, equals, value = where.partition("=")
    if not equals:
        raise InputError(f"the row filter must look like column=value, got {where!r}")
    values = _named(frame, name)
    chosen = frame[is_value(values, value)]
    if chosen.empty:
        there = some(values.dropna().astype(str).unique()) or "all empty"
        raise InputError(f"no row has {name} = {value}: values there are {there}")
    return chosen


def known_rows(frame: pd.DataFrame, name: str, minority: str | int) -> pd.DataFrame:
    """Returns the rows whose label is neither empty nor -1, at least one, with the numbers they had.

    -1 is what `predictions.csv` writes for an unknown one. Where the rare class is called -1, -1 is that class; labels
    that are otherwise all of the rare class are refused, as where -1 is the other one.
    """
    values = _named(frame, name)
    unknown = values.isna().to_numpy()
    negative = np.zeros_like(unknown) if plain(str(minority)) == UNKNOWN else is_value(values, UNKNOWN)
    known = ~(unknown | negative)
    if not known.any():
        raise InputError(
            f"column {name!r} must hold a known label, got -1 (unknown) or an empty cell in {_rows(frame, ~known)}: "
            "give rows whose class is known"
        )
    if negative.any() and is_value(values[known], str(minority)).all():
        raise InputError(
            f"column {name!r} must hold another known label beside {minority}, got only -1, which stands for an "
            "unknown one: write the other class as 0, or leave these rows out"
        )
    return frame[known]


def column(frame: pd.DataFrame, name: str) -> pd.Series:
    """Returns one column; refused where it is missing, occurs twice, or has gaps."""
    values = _named(frame, name)
    missing = values.isna().to_numpy()
    if missing.any():
        raise InputError(f"column {name!r} has no value in {_rows(frame, missing)}: fill it or drop the row")
    return values


def _coerced(values: pd.Series) -> pd.Series:
    """Returns values as numbers, not a number where one is none."""
    import pandas as pd

    try:
        return pd.to_numeric(values, errors="coerce")
    except OverflowError:  # a whole number beyond any float
        return pd.to_numeric(values.astype(str), errors="coerce")


def numbers(frame: pd.DataFrame, name: str) -> np.ndarray:
    """Returns one column of finite numbers, float64 [n]."""
    values = column(frame, name)
    found = _coerced(values).to_numpy(dtype=np.float64)
    bad = ~np.isfinite(found)
    if bad.any():
        got = f"got {values.iloc[int(bad.argmax())]!r} in {_rows(frame, bad)}"
        raise InputError(f"column {name!r} must hold finite numbers, {got}")
    return found


def probabilities(frame: pd.DataFrame, names: Sequence[str], *, multilabel: bool) -> np.ndarray:
    """Returns columns of probabilities: one of P(minority), float64 [n], or one per class or label, [n, C].

    Rows of several classes must sum to one, those of labels need not.
    """
    columns = [numbers(frame, name) for name in names]
    for name, values in zip(names, columns, strict=True):
        outside = (values < -ROUNDING) | (values > 1 + ROUNDING)
        _refuse(frame, name, values, outside, "lie in [0, 1]", "give probabilities, not logits")
    columns = [np.clip(values, 0, 1) for values in columns]
    if len(columns) == 1 and not multilabel:
        return columns[0]
    p = np.stack(columns, 1)
    bad = np.abs(p.sum(1) - 1) > ROW_SUM_SLACK
    if bad.any() and not multilabel:
        got = f"got {p[int(bad.argmax())].sum():g} in {_rows(frame, bad)}"
        raise InputError(f"columns {', '.join(names)} must sum to 1 in every row, {got}: give one column per class")
    return p


def weights(frame: pd.DataFrame, name: str) -> np.ndarray:
    """Returns one column of sample weights >= 0, not all 0, made countable, float64 [n]."""
    values = numbers(frame, name)
    _refuse(frame, name, values, values < 0, "hold weights >= 0", "correct or drop the row")
    if not values.any():
        raise InputError(f"column {name!r} must hold a weight above 0, got zeros only")
    return countable_weights(values)


def classes(frame: pd.DataFrame, name: str, limit: int) -> np.ndarray:
    """Returns one column of classes 0..limit-1, int64 [n]."""
    must, mend = f"hold classes 0 to {limit - 1}", "number the classes as the probability columns"
    given = column(frame, name)
    named = _coerced(given).isna().to_numpy()
    if named.any():
        got = f"got {given.iloc[int(named.argmax())]!r} in {_rows(frame, named)}"
        raise InputError(f"column {name!r} must {must}, {got}: {mend}")
    values = numbers(frame, name)
    bad = (values != np.round(values)) | (values < 0) | (values >= limit)
    _refuse(frame, name, values, bad, must, mend)
    return values.astype(np.int64)


def class_names(frame: pd.DataFrame, name: str, probabilities: Sequence[str]) -> list[str] | None:
    """Returns the names of classes in columns such as "p_fraud", as our tables have them; None: labels are numbers.

    Labels that are no names of columns but numbers of them, from 0 on, are these numbers.
    """
    names = [plain(each.removeprefix(OF_CLASS)) for each in probabilities]
    if not all(each.startswith(OF_CLASS) for each in probabilities) or len(set(names)) != len(names):
        return None
    labels = column(frame, name)
    if all(name_of_class(value, names) in names for value in labels.drop_duplicates()):
        return names
    return None if are_places(labels, len(names)) else names


def are_places(labels: pd.Series, n: int) -> bool:
    """Returns whether labels are whole numbers from 0 to n - 1."""
    found = _coerced(labels).to_numpy(dtype=np.float64)
    return bool(((found >= 0) & (found < n) & (found == np.round(found))).all())


def name_of_class(value: object, names: Collection[str]) -> str:
    """Returns a label as its class is called, without what tables of ours put in front of a formula."""
    name = plain(str(value))
    return name if name in names else plain(re.sub(INERT, r"\1", str(value)))


def named_classes(frame: pd.DataFrame, columns: TableColumns, names: list[str]) -> np.ndarray:
    """Returns a column of names of classes as their numbers, int64 [n]."""
    given = column(frame, columns.labels[0])
    number = {name: k for k, name in enumerate(names)}
    found = np.array([number.get(name_of_class(value, number), -1) for value in given], dtype=np.int64)
    bad = found < 0
    if bad.any():
        got = f"got {given.iloc[int(bad.argmax())]!r} in {_rows(frame, bad)}"
        raise InputError(
            f"column {columns.labels[0]!r} must hold classes that have a column, {some(names)}, {got}: name its column "
            "too (--p, once for each)"
        )
    return found


def one_against_rest(frame: pd.DataFrame, name: str, minority: str | int) -> np.ndarray:
    """Returns 1 where the label is the minority class, a number or a name, int64 [n] with at least one 1."""
    values = column(frame, name)
    rare = is_value(values, str(minority))
    if rare.any():
        return rare.astype(np.int64)
    there = values.astype(str).unique()
    hint = f"name the rare class (--minority CLASS); values there are {some(there)}"
    if len(there) == 1:
        hint = f"every row has {there[0]} there; give rows of the rare class too, or name it"
    raise InputError(f"no row has class {minority} in column {name!r}: {hint}")


def some(values: Sequence[object] | np.ndarray | pd.Index) -> str:
    """Returns the first ten values as text for a message."""
    shown = [str(value) for value in list(values)[:10]]
    return ", ".join(shown) + (f" and {len(values) - 10} more" if len(values) > 10 else "")


def _named(frame: pd.DataFrame, name: str) -> pd.Series:
    """The column of that name, which may have gaps."""
    if name not in frame.columns:
        raise InputError(f"there is no column {name!r}: the table has {some(frame.columns)}")
    values = frame[name]
    if values.ndim > 1:
        raise InputError(f"the column name {name!r} occurs more than once: rename one of them")
    return values


def is_value(values: pd.Series, wanted: str) -> np.ndarray:
    """Whether each value is the one that a person wrote; an empty cell is none."""
    numbers = values.dtype.kind in "biuf"
    place, each = (values if numbers else values.map(str)).factorize()  # an empty number has no place
    same = np.array([plain(str(value)) == plain(wanted) for value in each], dtype=bool)
    return values.notna().to_numpy() & np.append(same, False)[place]


def plain(text: str) -> str:
    """Returns one spelling of a value: a gap turns whole numbers into 1.0, pandas reads true and false as 1 and 0."""
    truth = {"true": "1", "false": "0"}.get(text.lower())
    return truth or re.sub(r"^(-?\d+)\.0+$", r"\1", text)


def _refuse(frame: pd.DataFrame, name: str, values: np.ndarray, bad: np.ndarray, must: str, mend: str) -> None:
    if bad.any():
        got = f"got {values[int(bad.argmax())]:.9g} in {_rows(frame, bad)}"
        raise InputError(f"column {name!r} must {must}, {got}: {mend}")


def _rows(frame: pd.DataFrame, bad: np.ndarray) -> str:
    """The first rows as a person counts them, without the header line."""
    positions = np.flatnonzero(bad)
    text = ", ".join(str(int(frame.index[i]) + 1) for i in positions[:3])
    if len(positions) == 1:
        return f"row {text}"
    return f"rows {text}{', ...' if len(positions) > 3 else ''} ({len(positions)} rows)"


@dataclass(frozen=True)
class TableColumns:
    """Which columns of a table mean what.

    Attributes:
        labels: one column of classes, or several columns of 0 and 1 (multi-label).
        probabilities: one column = P(minority), or one per class (in the order of the classes) or label.
        before: the same columns of an earlier model, for before/after pictures; empty for none.
        weights: column of sample weights, or None; a row of weight 0 counts nowhere.
        where: "column=value": only rows with that value, for example "split=test"; None for all.
        minority: the rare class, as it stands in the label column; rows whose label is -1 or empty are left out. None:
            1, or where columns of several classes name none so, the class with fewest rows.
    """

    labels: tuple[str, ...] = ("y",)
    probabilities: tuple[str, ...] = ("p",)
    before: tuple[str, ...] = ()
    weights: str | None = None
    where: str | None = None
    minority: str | int | None = None

    @property
    def rare(self) -> str | int:
        """The rare class as it was named, or 1."""
        return 1 if self.minority is None else self.minority


@dataclass(frozen=True)
class Table:
    """Checked columns.

    Attributes:
        labels: int64 [n], or [n, K] if several label columns were named.
        probabilities: float64 [n] = P(minority) from one column, or [n, C] in the order the columns were named.
        before: the same for the columns of an earlier model, or None.
        weights: float64 [n], > 0 (rows of weight 0 are left out), or None.
        minority: the rare class among `labels`; 1 if there is one probability column.
        unknown: rows left out because their label is not known.
        taken: the rare class where none was named and none is called 1; empty else.
        notes: sentences on how labels were read.
    """

    labels: np.ndarray
    probabilities: np.ndarray
    before: np.ndarray | None
    weights: np.ndarray | None
    minority: int
    unknown: int = 0
    taken: str = ""
    notes: tuple[str, ...] = ()


def load_table(path: str | Path, columns: TableColumns | None = None) -> Table:
    """Reads and checks a .csv, .tsv or .parquet table with one row per sample; columns None are "y" and "p".

    InputError where the file or what is in it cannot be used.
    """
    columns = columns or TableColumns()
    whole = read.read_frame(Path(path))
    frame = read.select_rows(whole, columns.where)
    if not columns.labels or not columns.probabilities:
        raise InputError("name at least one label column and one probability column")
    wanted = len(columns.probabilities)
    if columns.before and len(columns.before) != wanted:
        raise InputError(f"name as many earlier columns as probability columns: {wanted}, got {len(columns.before)}")
    multilabel = len(columns.labels) > 1
    if multilabel and len(columns.labels) != wanted:
        raise InputError(f"name one probability column per label column: {len(columns.labels)}, got {wanted}")
    rows = len(frame)
    if not multilabel:
        frame = read.known_rows(frame, columns.labels[0], columns.rare)
    p = read.probabilities(frame, columns.probabilities, multilabel=multilabel)
    before = read.probabilities(frame, columns.before, multilabel=multilabel) if columns.before else None
    weights = None if columns.weights is None else read.weights(frame, columns.weights)
    if multilabel:
        y = np.stack([read.classes(frame, name, 2) for name in columns.labels], 1)
        return _weighted_rows(Table(y, p, before, weights, 1), columns)
    if p.ndim == 1:
        y = read.one_against_rest(frame, columns.labels[0], columns.rare)
        notes = _common(y, columns)
        return _weighted_rows(Table(y, p, before, weights, 1, rows - len(frame), notes=notes), columns)
    every = read.known_rows(whole, columns.labels[0], columns.rare)  # rows left out shall not change what labels mean
    names = read.class_names(every, columns.labels[0], columns.probabilities)
    notes = () if names is None else _either(every[columns.labels[0]], names)
    y = read.classes(frame, columns.labels[0], wanted) if names is None else read.named_classes(frame, columns, names)
    called = [str(c) for c in range(wanted)] if names is None else names
    rare = read.plain(str(columns.rare))
    numbers, counts = np.unique(y, return_counts=True)
    present = [called[c] for c in numbers]
    taken = ""
    if rare not in present and columns.minority is None:
        taken = rare = present[int(counts.argmin())]
    if rare not in present:
        there = f"name the rare class (--minority CLASS); values there are {read.some(present)}"
        where = f"column {columns.labels[0]!r}: {there}"
        raise InputError(f"no row has class {columns.minority} in {where}")
    table = Table(y, p, before, weights, called.index(rare), rows - len(frame), taken, notes)
    return _weighted_rows(table, columns)


def _common(y: np.ndarray, columns: TableColumns) -> tuple[str, ...]:
    """Returns a note where class 1, which nobody named, is no rare one."""
    if columns.minority is not None or y.mean() <= 1 / 2:
        return ()
    return (f"class {columns.rare}, taken for the rare one, has {y.mean():.0%} of the rows: --minority names another",)


def _either(labels: pd.Series, names: list[str]) -> tuple[str, ...]:
    """Returns a note where labels that are names of columns could be their places too."""
    if names == [str(place) for place in range(len(names))] or not read.are_places(labels, len(names)):
        return ()
    return (f"labels are read as the columns' names, {read.some(names)}, not as their places from 0 on",)


def _weighted_rows(table: Table, columns: TableColumns) -> Table:
    """Leaves out the rows of weight 0."""
    if table.weights is None:
        return table
    kept = table.weights > 0
    y, p, before, weights = (
        None if values is None else values[kept]
        for values in (table.labels, table.probabilities, table.before, table.weights)
    )
    assert y is not None
    assert p is not None
    if y.ndim == 1 and not (y == table.minority).any():
        raise InputError(
            f"column {columns.weights!r} must hold a weight above 0 in a row of the rare class {columns.rare}, got "
            "zeros only there: weigh one of these rows, or leave the weights out"
        )
    return replace(table, labels=y, probabilities=p, before=before, weights=weights)
