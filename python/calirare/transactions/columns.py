"""The columns of each transaction as ibis expressions: what the past holds of its parties, pairs and counterparties.

Every frame of a window ends before the transaction's own time, so that equal times do not see each other; frames of a
batch end where the batch ends, and leave the transaction itself out. Frames of labels end at `cutoff`: the newest time
whose label is known when the transaction is scored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations, permutations
from typing import Any, NamedTuple

import ibis

from calirare.transactions.layout import Layout, category_column, new_column, number_column, party_column

RECENT = (5, 20)  # numbers of earlier transactions of a party that columns look back
MOST = 100  # where counts of everything before stop: later months then have no counts that training never saw
KNOWN_LABELS = 5.0  # labels of the common class that a rate of known labels starts from
LEAST_SPREAD = 0.01  # of the mean: a party that always pays the same has no infinite scores


Named = dict[str, Any]  # ibis expressions by the names of the columns
before, after = ibis.preceding, ibis.following


def events_of(layout: Layout) -> Any:
    """Returns the table of events as ibis knows it: one row per transaction, in files of DuckDB called `events`."""
    whole = ["row", "tick", "first_tick", "end_tick", "cutoff"]
    whole += [party_column(i) for i in range(len(layout.parties))]
    whole += [category_column(i) for i in range(len(layout.categories))]
    whole += [new_column(i, j) for i, j in combinations(range(len(layout.parties)), 2)]
    real = ["amount", "squared", "label", *(number_column(i) for i in range(len(layout.numbers)))]
    return ibis.table(dict.fromkeys(whole, "int64") | dict.fromkeys(real, "float64"), name="events")


class Frame(NamedTuple):
    """A window, and how many transactions it holds."""

    number: Any
    window: Any


class Frames:
    """The transactions that share values of some columns, and their windows.

    Ends of windows by time become numbers of rows, once for all columns: that is cheaper than to search them for each.

    Args:
        layout: of the columns.
        events: the transactions.
        by: the columns.

    Attributes:
        events: the transactions, each with its place in its group and the ends of its windows.
        everything: frame of strictly earlier times.
        labelled: window of the transactions whose labels are known when this one is scored.
        newest_labels: the same, of times at most the longest of the windows before the newest of them all.
        batch: frame of the batch, with this one.
        wide: frame of the longest of the windows and a batch before the end of the batch, with this one.
        later: window of strictly later times of the batch.
    """

    def __init__(self, layout: Layout, events: Any, by: Sequence[str]) -> None:
        times, tick = ibis.window(group_by=list(by), order_by="tick"), events.tick
        rows, self._windows = ibis.window(group_by=list(by), order_by=["tick", "row"]), layout.windows
        until = {f"start{k}": before(span + 1) for k, span in enumerate(layout.windows)}
        since, most = tick - events.cutoff, layout.windows[-1]
        until |= {"past": before(1), "known": before(since), "labels": before(since + most + 1)}
        if layout.batch is not None:
            end, longest = events.end_tick, max(layout.windows[-1], layout.batch)
            until |= {"start": before(tick - events.first_tick + 1), "wide": before(tick - end + longest + 1)}
            until |= {"peers": after(0), "batched": after(end - 1 - tick)}
        counts = {name: events.row.count().over(times.range(None, end)) for name, end in until.items()}
        seen = events.mutate(place=ibis.row_number().over(rows), **counts)
        ends = {name: seen.place - seen[name] for name in counts}  # rows from its own back to the first of a window
        ends |= {name: ends[name] + 1 for name in ("past", "known")}  # back to the last
        if layout.batch is not None:
            ends |= {"peers": -ends["peers"], "batched": -ends["batched"] - 1}  # forward
        self.events, self._rows = seen.mutate(**ends), rows.rows
        place, past = self.events.place, self.events.past
        self.labelled, self.newest_labels = (
            self._rows(start, before(self.events.known)) for start in (None, before(self.events.labels))
        )
        self.everything = Frame(place - past + 1, self._rows(None, before(past)))
        if layout.batch is not None:
            last, starts = self.events.batched, (self.events.start, self.events.wide)
            self.batch, self.wide = (Frame(k + last + 1, self._rows(before(k), after(last))) for k in starts)
            self.later = self._rows(after(self.events.peers), after(last))

    def earlier(self, span: int) -> Frame:
        """Returns the frame of strictly earlier times, at most `span` ticks ago, one of the windows of the layout."""
        start, past = self.events[f"start{self._windows.index(span)}"], self.events.past
        return Frame(start - past + 1, self._rows(before(start), before(past)))

    def last(self, number: int) -> Any:
        """Returns the window of so many transactions before, without those of the same time."""
        return self._rows(before(self.events.past + (number - 1)), before(self.events.past))


@lru_cache(maxsize=8)
def statements(layout: Layout) -> tuple[tuple[tuple[str, ...], str], ...]:
    """Returns the names of columns, `row` first, and the SQL of DuckDB that makes them, for each of `queries`."""
    return tuple(
        (tuple(query.columns), ibis.to_sql(query, dialect="duckdb", pretty=False))
        for query in queries(layout, made=True)
    )


def queries(layout: Layout, *, made: bool = False) -> Iterator[Any]:
    """Yields tables with the column `row` and some of the columns of every transaction; first of each party.

    Args:
        layout: of the columns.
        made: tables `made0`, `made1` and so on hold the results of the queries before; else each stands alone.
    """
    parties = range(len(layout.parties))
    for i in parties:
        yield _selected(*_of_party(layout, i))
    for i in range(len(layout.categories)):
        yield _selected(*_of_category(layout, i))
    for i, j in combinations(parties, 2):
        yield _selected(*_of_pair(layout, i, j))
    for i, j in permutations(parties, 2):
        yield _selected(*_of_counterparties(layout, i, j, made))
        if {layout.parties[i], layout.parties[j]} in map(set, layout.shared):
            yield _selected(*_in_other_role(layout, i, j))


def _selected(events: Any, columns: Named) -> Any:
    numbers = {name: value.cast("float32") for name, value in columns.items()}
    return events.select("row", **numbers)


def _of_party(layout: Layout, i: int) -> tuple[Any, Named]:
    """Returns what a party did before."""
    name, frames = layout.parties[i], Frames(layout, events_of(layout), [party_column(i)])
    events, words, clock = frames.events, layout.clock.span_words, layout.clock
    everything, most = frames.everything.window, layout.windows[-1]
    columns = _activity(layout, frames)
    since = clock.length(_capped(events.tick - events.tick.first().over(everything), most, nothing=0))
    columns[f"{clock.units} since the first transaction (at most {words(most)})"] = since
    for number in RECENT:
        first = events.tick.first().over(frames.last(number))
        since = clock.length(_capped(events.tick - first, most, nothing=most))
        columns[f"{clock.units} since the start of the last {number} transactions (at most {words(most)})"] = since
    for j, other in enumerate(layout.parties):
        if j != i:
            new = events[new_column(i, j)]
            columns[f"different {other}s before (at most {MOST})"] = _at_most(new.sum().over(everything).fill_null(0))
            for span in layout.windows[1:] or layout.windows:
                recent = new.sum().over(frames.earlier(span).window)
                columns[f"new {other}s in the last {words(span)}"] = recent.fill_null(0)
    if layout.amount is not None:
        columns |= _amounts(layout, frames)
    if layout.batch is not None:
        columns |= _of_batch(layout, frames)
    return events, {f"{name}: {column}": value for column, value in columns.items()}


def _activity(layout: Layout, frames: Frames, where: Any = None) -> Named:
    """Returns how often, for how much and with which known labels transactions were made before.

    Args:
        layout: of the columns.
        frames: whose past counts.
        where: which of its events count; None: all.
    """
    words, clock, events, columns = layout.clock.span_words, layout.clock, frames.events, Named()
    everything, most = frames.everything, layout.windows[-1]
    for span in layout.windows:
        columns[f"transactions in the last {words(span)}"] = _count(events.row, frames.earlier(span), where)
    columns[f"transactions before (at most {MOST})"] = _at_most(_count(events.row, everything, where))
    last = (events.tick.last() if where is None else events.tick.max(where=where)).over(everything.window)
    since = clock.length(_capped(events.tick - last, most, nothing=most))
    columns[f"{clock.units} since the last transaction (at most {words(most)})"] = since
    if layout.amount is not None:
        for span in layout.windows:
            mean = _mean(events.amount, frames.earlier(span), where)
            columns[f"mean {layout.amount} in the last {words(span)}"] = mean
        mean = _mean(events.amount, everything, where)
        columns[f"mean {layout.amount} before"] = mean
        columns[f"{layout.amount} divided by its mean before"] = events.amount / mean.nullif(0)
    if layout.label is not None:
        known, what, case = frames.labelled, layout.label, events.label > 0
        cases = events.label.sum(where=where).over(known).fill_null(0)
        labels = events.label.count(where=where).over(known)
        newest = events.tick.max(where=case if where is None else case & where).over(known)
        since = clock.length(_capped(events.tick - newest, most, nothing=most))
        columns[f"known labels of {what} (at most {MOST})"] = _at_most(labels)
        columns[f"known cases of {what} (at most {MOST})"] = _at_most(cases)
        columns[f"known rate of {what}"] = cases / (labels + KNOWN_LABELS)
        newest = frames.newest_labels
        cases = events.label.sum(where=where).over(newest).fill_null(0)
        rate = cases / (events.label.count(where=where).over(newest) + KNOWN_LABELS)
        columns[f"known rate of {what}, newest {words(most)} of labels"] = rate
        columns[f"{clock.units} since the last known case of {what} (at most {words(most)})"] = since
    if layout.batch is not None:
        columns[f"transactions in the same {words(layout.batch)}"] = _count(events.row, frames.batch, where)
    return columns


def _amounts(layout: Layout, frames: Frames) -> Named:
    """Returns what amounts a party had before, and how this one compares."""
    words, amount, what, columns = layout.clock.span_words, frames.events.amount, layout.amount, Named()
    everything = frames.everything
    for span in layout.windows:
        window = frames.earlier(span).window
        columns[f"total {what} in the last {words(span)}"] = amount.sum().over(window).fill_null(0)
    columns[f"highest {what} in the last {words(layout.windows[-1])}"] = amount.max().over(window)
    mean, highest = _mean(amount, everything), amount.max().over(everything.window)
    variance = _mean(frames.events.squared, everything) - mean * mean
    spread = ibis.ifelse(variance > 0, variance, 0 * variance).sqrt()
    columns |= {
        f"standard deviation of {what} before": spread,
        f"lowest {what} before": amount.min().over(everything.window),
        f"highest {what} before": highest,
        f"{what} of the last transaction": amount.first().over(frames.last(1)),
    }
    for number in RECENT:
        columns[f"mean {what} of the last {number} transactions"] = amount.mean().over(frames.last(number))
    width = ibis.greatest(spread, LEAST_SPREAD * mean.abs())
    return columns | {
        f"{what} above its mean before, in standard deviations": (amount - mean) / width.nullif(0),
        f"{what} divided by its highest before": amount / highest.nullif(0),
    }


def _of_batch(layout: Layout, frames: Frames) -> Named:
    """Returns what the party's other transactions are until the end of the batch."""
    words, clock, events, columns = layout.clock.span_words, layout.clock, frames.events, Named()
    longest, same = max(layout.windows[-1], layout.batch or 0), f"same {words(layout.batch or 0)}"
    own, wide = frames.batch, frames.wide
    columns[f"other transactions in {words(longest)} to the end of the {same}"] = _count(events.row, wide) - 1
    following = events.tick.first().over(frames.later)
    columns[f"{clock.units} to the next transaction in the {same}"] = clock.length(following - events.tick)
    numbers = {} if layout.amount is None else {layout.amount: events.amount}
    numbers |= {name: events[number_column(k)] for k, name in enumerate(layout.numbers)}
    for name, value in numbers.items():
        whole = name == layout.amount
        columns[f"mean {name} of other transactions in the {same}"] = _mean_of_others(value, own, whole=whole)
        mean = _mean_of_others(value, wide, whole=whole)
        columns[f"mean {name} of other transactions in {words(longest)} to the end of the {same}"] = mean
    return columns


def _of_category(layout: Layout, i: int) -> tuple[Any, Named]:
    """Returns what transactions with the same value of a category were before."""
    frames = Frames(layout, events_of(layout), [category_column(i)])
    columns = _activity(layout, frames)
    return frames.events, {f"{layout.categories[i]}: {column}": value for column, value in columns.items()}


def _of_pair(layout: Layout, i: int, j: int) -> tuple[Any, Named]:
    """Returns what two parties did together before."""
    frames = Frames(layout, events_of(layout), [party_column(i), party_column(j)])
    columns, name = _activity(layout, frames), f"{layout.parties[i]} and {layout.parties[j]}"
    columns["first transaction"] = (columns[f"transactions before (at most {MOST})"] < 1).cast("int8")
    return frames.events, {f"{name}: {column}": value for column, value in columns.items()}


def _of_counterparties(layout: Layout, i: int, j: int, made: bool) -> tuple[Any, Named]:
    """Returns means over a party's recent transactions of what was then known of its counterparties."""
    name, other = layout.parties[i], layout.parties[j]
    events, span, words = events_of(layout), layout.windows[-1], layout.clock.span_words
    window = f" in the last {words(layout.windows[len(layout.windows) // 2])}"
    facts = [("transactions", window), (f"new {name}s", window)]
    facts += [] if layout.amount is None else [(f"mean {layout.amount}", " before")]
    facts += [] if layout.label is None else [(f"known rate of {layout.label}", "")]
    facts += [] if layout.batch is None else [("transactions", f" in the same {words(layout.batch)}")]
    known = [f"{other}: {what}{when}" for what, when in facts]
    if made:
        columns = ibis.table({"row": "int64"} | dict.fromkeys(known, "float32"), name=f"made{j}")
        events = events.join(columns, "row")
    else:
        events, columns = _of_party(layout, j)
    values = {f"fact{k}": columns[column].cast("float32").cast("float64") for k, column in enumerate(known)}
    events = events.select(*events_of(layout).columns, **values)
    frames, found = Frames(layout, events, [party_column(i)]), Named()
    for k, (what, when) in enumerate(facts):
        value, whole = frames.events[f"fact{k}"], when != " before"  # a mean of nothing is empty
        if layout.batch is not None:
            mean = _mean_of_others(value, frames.wide, whole=whole)
        else:
            mean = value.mean().over(frames.earlier(span).window)
        found[f"{name}: {what} of each {other}{when} (mean over the last {words(span)})"] = mean
    return frames.events, found


def _in_other_role(layout: Layout, i: int, j: int) -> tuple[Any, Named]:
    """Returns what a party did before in the other of two roles that share their names."""
    table = events_of(layout)
    own = table.mutate(party=table[party_column(i)], other=ibis.literal(0, "int8"))
    both = own.union(table.mutate(party=table[party_column(j)], other=ibis.literal(1, "int8")))
    frames = Frames(layout, both, ["party"])
    events, theirs = frames.events, frames.events.other == 1
    columns = _activity(layout, frames, theirs)
    new = events[new_column(i, j)].sum(where=theirs).over(frames.everything.window).fill_null(0)
    columns[f"different {layout.parties[i]}s before (at most {MOST})"] = _at_most(new)
    name = f"{layout.parties[i]} as {layout.parties[j]}"
    computed = events.mutate(**{f"{name}: {column}": value for column, value in columns.items()})
    own = computed.filter(computed.other == 0)
    return own, {name: own[name] for name in computed.columns if name not in events.columns}


def _count(value: Any, frame: Frame, where: Any = None) -> Any:
    """Returns how many transactions of a frame count; none lacks the number."""
    return frame.number if where is None else value.count(where=where).over(frame.window)


def _mean(value: Any, frame: Frame, where: Any = None) -> Any:
    """Returns the mean of a number that no transaction lacks."""
    return value.sum(where=where).over(frame.window) / _count(value, frame, where)


def _at_most(count: Any) -> Any:
    return ibis.least(count, MOST)


def _capped(ticks: Any, most: int, *, nothing: int) -> Any:
    """Returns a length of time, at most `most`, and `nothing` where there is none."""
    return ibis.least(ticks.fill_null(nothing), most)


def _mean_of_others(value: Any, frame: Frame, *, whole: bool) -> Any:
    """Returns the mean of a number over a window that holds the transaction itself, without it.

    Args:
        value: the number.
        frame: the window.
        whole: no transaction lacks the number.
    """
    number = frame.number - 1 if whole else value.count().over(frame.window) - value.notnull().cast("int64")
    return (value.sum().over(frame.window) - value.fill_null(0)) / number.nullif(0)
