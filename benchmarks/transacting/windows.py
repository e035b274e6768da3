"""Window aggregates as a competent user writes them by hand: about 60 columns of the past of cards and merchants."""

from __future__ import annotations

import numpy as np
import pandas as pd

from transacting.sets import Table

MODES = ("transaction", "batch")


class Past:
    """The rows of each group in order of time, and sums over them up to any time."""

    def __init__(self, group: np.ndarray, time: np.ndarray) -> None:
        self.group, self.start, self.span = group, time.min() - 1, np.ptp(time) + 2
        self.key = group * 4 * self.span + (time - self.start)
        self.order = np.argsort(self.key, kind="stable")
        self.sorted = self.key[self.order]

    def before(self, end: np.ndarray) -> np.ndarray:
        """Returns the place after each row's group's rows strictly before a time, int64 [n]."""
        inside = np.clip(end - self.start, -self.span, 2 * self.span)
        return np.searchsorted(self.sorted, self.group * 4 * self.span + inside, side="left")

    def sums(self, values: np.ndarray, first: np.ndarray, last: np.ndarray) -> np.ndarray:
        """Returns sums of values over places [first, last), where last >= first."""
        total = np.append(0.0, np.cumsum(values[self.order]))
        return total[np.maximum(last, first)] - total[first]

    def last_time(self, time: np.ndarray) -> np.ndarray:
        """Returns the time of the group's latest strictly earlier row; NaN: there is none."""
        place = self.before(time)
        found = place > self.before(np.full(len(time), -np.inf))
        return np.where(found, time[self.order][np.maximum(place - 1, 0)], np.nan)


def codes(values: pd.Series | pd.DataFrame) -> np.ndarray:
    """Returns whole numbers that stand for the values of a column, or of several together."""
    if isinstance(values, pd.DataFrame):
        return values.groupby(list(values), sort=False).ngroup().to_numpy()
    return pd.factorize(values)[0]


def raw(table: Table) -> pd.DataFrame:
    """Returns the raw columns: parties and other texts as categories, hour and weekday of times in seconds."""
    frame, time = table.frame, table.frame["time"].to_numpy()
    found = {name: frame[name].astype("category") for name in (*table.parties, *table.others)}
    columns = pd.DataFrame(found)
    if table.amount is not None:
        columns["amount"] = frame[table.amount]
    if table.batch > 1000:
        columns["hour"], columns["weekday"] = time / 3600 % 24, time // 86400 % 7
    return columns


def windows(table: Table, mode: str) -> pd.DataFrame:
    """Returns raw columns without the parties, and aggregates of the past of each party and of the pair.

    With mode "transaction" they are of strictly earlier rows; with "batch" of all rows up to the end of the row's
    batch. Labels count after the delay, and with "batch" of earlier batches only.
    """
    frame, time, y = table.frame, table.frame["time"].to_numpy(), table.frame["label"].to_numpy(dtype=float)
    end = time if mode == "transaction" else (np.floor(time / table.batch) + 1) * table.batch
    known = end - table.delay if mode == "transaction" else np.minimum(end - table.delay, end - table.batch)
    amount = None if table.amount is None else frame[table.amount].to_numpy(dtype=float)
    columns = dict(raw(table).drop(columns=list(table.parties)))
    for party in table.parties:
        past = Past(codes(frame[party]), time)
        none, last = past.before(np.full(len(time), -np.inf)), past.before(end)
        known_last = np.maximum(past.before(known), none)
        starts = {"": none} | {f" {w:g}": past.before(end - w) for w in table.windows}
        counts = {name: (last - first).astype(float) for name, first in starts.items()}
        columns |= {f"{party} count{name}": count for name, count in counts.items()}
        columns[f"{party} since"] = time - past.last_time(time)
        columns[f"{party} age"] = time - time[past.order][np.minimum(none, len(time) - 1)]
        for other in table.parties:
            if other != party:
                pair = Past(codes(frame[[party, other]]), time)
                new = np.isnan(pair.last_time(time)).astype(float)
                columns[f"{party} distinct {other}"] = past.sums(new, none, last)
                columns[f"{party} new {other} {table.windows[1]:g}"] = past.sums(
                    new, starts[f" {table.windows[1]:g}"], last
                )
        columns[f"{party} known fraud"] = past.sums(y, none, known_last)
        columns[f"{party} fraud rate"] = columns[f"{party} known fraud"] / np.maximum(known_last - none, 1)
        recent = np.minimum(past.before(known - table.windows[2]), known_last)
        columns[f"{party} recent fraud"] = past.sums(y, np.maximum(recent, none), known_last)
        if amount is not None:
            for name, first in starts.items():
                columns[f"{party} mean{name}"] = past.sums(amount, first, last) / np.maximum(counts[name], 1)
            mean, square = columns[f"{party} mean"], past.sums(amount**2, none, last) / np.maximum(counts[""], 1)
            columns[f"{party} std"] = np.sqrt(np.maximum(square - mean**2, 0))
            columns[f"{party} times mean"] = amount / np.maximum(mean, 0.01)
    pair = Past(codes(frame[list(table.parties[:2])]), time)
    none, last = pair.before(np.full(len(time), -np.inf)), pair.before(end)
    columns["pair count"], columns["pair since"] = (last - none).astype(float), time - pair.last_time(time)
    columns["pair count recent"] = (last - pair.before(end - table.windows[1])).astype(float)
    return pd.DataFrame(columns)
