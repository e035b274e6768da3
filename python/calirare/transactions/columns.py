"""The columns of each transaction as ibis expressions: what the past holds of its parties, pairs and counterparties.

Every frame of a window ends before the transaction's own time, so that equal times do not see each other; frames of a
batch end where the batch ends, and leave the transaction itself out. Frames of labels end at `cutoff`: the newest time
whose label is known when the transaction is scored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations, permutations
from typing import Any

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


class Frames:
    """Windows over the transactions that share values of some columns.

    Args:
        events: table of events.
        by: the columns.
        length: of a batch in ticks, or None.
    """

    def __init__(self, events: Any, by: Sequence[str], length: int | None) -> None:
        self.events, self.length = events, length
        self._times = ibis.window(group_by=list(by), order_by="tick")
        self._rows = ibis.window(group_by=list(by), order_by=["tick", "row"])

    def earlier(self, span: int | None = None) -> Any:
        """Returns the window of strictly earlier times, at most `span` ticks ago."""
        return self._times.range(None if span is None else before(span), before(1))

    def labelled(self) -> Any:
        """Returns the window of transactions whose labels are known when this one is scored."""
        return self._times.range(None, before(self.events.tick - self.events.cutoff))

    def batch(self, span: int = 0) -> Any:
        """Returns the window from `span` ticks before the end of the batch, or its start, to the end; with this one."""
        tick, first, end = self.events.tick, self.events.first_tick, self.events.end_tick
        start = first if span <= (self.length or 0) else end - span
        return self._times.range(before(tick - start), after(end - 1 - tick))

    def next_in_batch(self) -> Any:
        """Returns the window of strictly later times of the batch."""
        end = self.events.end_tick - 1 - self.events.tick
        return self._times.range(after(1), after(ibis.greatest(end, 1)))

    def last(self, number: int) -> Any:
        """Returns the window of so many transactions before, without those of the same time; see `with_ties`."""
        return self._rows.rows(before(self.events.ties + number), before(self.events.ties + 1))

    def with_ties(self) -> Any:
        """Returns the events with how many of the same time and group come before in the order of the rows."""
        return self.events.mutate(
            ties=ibis.row_number().over(self._rows) - self.events.row.count().over(self.earlier())
        )


@lru_cache(maxsize=8)
def statements(layout: Layout) -> tuple[tuple[tuple[str, ...], str], ...]:
    """Returns the names of columns, `row` first, and the SQL of DuckDB that makes them, for each of `queries`."""
    return tuple((tuple(query.columns), ibis.to_sql(query, dialect="duckdb")) for query in queries(layout))


def queries(layout: Layout) -> Iterator[Any]:
    """Yields tables with the column `row` and some of the columns of every transaction."""
    parties = range(len(layout.parties))
    for i in parties:
        yield _selected(*_of_party(layout, i))
    for i in range(len(layout.categories)):
        yield _selected(*_of_category(layout, i))
    for i, j in combinations(parties, 2):
        yield _selected(*_of_pair(layout, i, j))
    for i, j in permutations(parties, 2):
        yield _selected(*_of_counterparties(layout, i, j))
        if {layout.parties[i], layout.parties[j]} in map(set, layout.shared):
            yield _selected(*_in_other_role(layout, i, j))


def _selected(events: Any, columns: Named) -> Any:
    numbers = {name: value.cast("float32") for name, value in columns.items()}
    return events.select("row", **numbers)


def _of_party(layout: Layout, i: int) -> tuple[Any, Named]:
    """Returns what a party did before."""
    name, by = layout.parties[i], [party_column(i)]
    events = Frames(events_of(layout), by, layout.batch).with_ties()
    frames, words, clock = Frames(events, by, layout.batch), layout.clock.span_words, layout.clock
    everything, most = frames.earlier(), layout.windows[-1]
    columns = _activity(layout, events, frames)
    since = clock.length(_capped(events.tick - events.tick.min().over(everything), most, nothing=0))
    columns[f"{clock.units} since the first transaction (at most {words(most)})"] = since
    for number in RECENT:
        since = clock.length(_capped(events.tick - events.tick.min().over(frames.last(number)), most, nothing=most))
        columns[f"{clock.units} since the start of the last {number} transactions (at most {words(most)})"] = since
    for j, other in enumerate(layout.parties):
        if j != i:
            new = events[new_column(i, j)]
            columns[f"different {other}s before (at most {MOST})"] = _at_most(new.sum().over(everything).fill_null(0))
            for span in layout.windows[1:]:
                columns[f"new {other}s in the last {words(span)}"] = new.sum().over(frames.earlier(span)).fill_null(0)
    if layout.amount is not None:
        columns |= _amounts(layout, events, frames)
    if layout.batch is not None:
        columns |= _of_batch(layout, events, frames)
    return events, {f"{name}: {column}": value for column, value in columns.items()}


def _activity(layout: Layout, events: Any, frames: Frames, where: Any = None) -> Named:
    """Returns how often, for how much and with which known labels transactions were made before.

    Args:
        layout: of the columns.
        events: the transactions.
        frames: whose past counts.
        where: which of its events count; None: all.
    """
    words, clock, columns = layout.clock.span_words, layout.clock, Named()
    everything, most = frames.earlier(), layout.windows[-1]
    for span in layout.windows:
        columns[f"transactions in the last {words(span)}"] = _count(events, frames.earlier(span), where)
    columns[f"transactions before (at most {MOST})"] = _at_most(_count(events, everything, where))
    last = events.tick.max(where=where).over(everything)
    since = clock.length(_capped(events.tick - last, most, nothing=most))
    columns[f"{clock.units} since the last transaction (at most {words(most)})"] = since
    if layout.amount is not None:
        for span in layout.windows:
            mean = events.amount.mean(where=where).over(frames.earlier(span))
            columns[f"mean {layout.amount} in the last {words(span)}"] = mean
        mean = events.amount.mean(where=where).over(everything)
        columns[f"mean {layout.amount} before"] = mean
        columns[f"{layout.amount} divided by its mean before"] = events.amount / mean.nullif(0)
    if layout.label is not None:
        known, what, case = frames.labelled(), layout.label, events.label > 0
        cases = events.label.sum(where=where).over(known).fill_null(0)
        labels = events.label.count(where=where).over(known)
        newest = events.tick.max(where=case if where is None else case & where).over(known)
        since = clock.length(_capped(events.tick - newest, most, nothing=most))
        columns[f"known labels of {what} (at most {MOST})"] = _at_most(labels)
        columns[f"known cases of {what} (at most {MOST})"] = _at_most(cases)
        columns[f"known rate of {what}"] = cases / (labels + KNOWN_LABELS)
        columns[f"{clock.units} since the last known case of {what} (at most {words(most)})"] = since
    if layout.batch is not None:
        columns[f"transactions in the same {words(layout.batch)}"] = _count(events, frames.batch(), where)
    return columns


def _amounts(layout: Layout, events: Any, frames: Frames) -> Named:
    """Returns what amounts a party had before, and how this one compares."""
    words, amount, what, columns = layout.clock.span_words, events.amount, layout.amount, Named()
    everything = frames.earlier()
    for span in layout.windows:
        window = frames.earlier(span)
        columns[f"total {what} in the last {words(span)}"] = amount.sum().over(window).fill_null(0)
    columns[f"highest {what} in the last {words(layout.windows[-1])}"] = amount.max().over(window)
    mean, highest = amount.mean().over(everything), amount.max().over(everything)
    variance = events.squared.mean().over(everything) - mean * mean
    spread = ibis.ifelse(variance > 0, variance, 0 * variance).sqrt()
    columns |= {
        f"standard deviation of {what} before": spread,
        f"lowest {what} before": amount.min().over(everything),
        f"highest {what} before": highest,
        f"{what} of the last transaction": amount.mean().over(frames.last(1)),
    }
    for number in RECENT:
        columns[f"mean {what} of the last {number} transactions"] = amount.mean().over(frames.last(number))
    width = ibis.greatest(spread, LEAST_SPREAD * mean.abs())
    return columns | {
        f"{what} above its mean before, in standard deviations": (amount - mean) / width.nullif(0),
        f"{what} divided by its highest before": amount / highest.nullif(0),
    }


def _of_batch(layout: Layout, events: Any, frames: Frames) -> Named:
    """Returns what the party's other transactions are until the end of the batch."""
    words, clock, columns = layout.clock.span_words, layout.clock, Named()
    longest, same = max(layout.windows[-1], layout.batch or 0), f"same {words(layout.batch or 0)}"
    own, wide = frames.batch(), frames.batch(longest)
    columns[f"other transactions in {words(longest)} to the end of the {same}"] = _count(events, wide) - 1
    following = events.tick.min().over(frames.next_in_batch())
    following = ibis.ifelse(events.end_tick - 1 > events.tick, following, ibis.null("int64"))
    columns[f"{clock.units} to the next transaction in the {same}"] = clock.length(following - events.tick)
    numbers = {} if layout.amount is None else {layout.amount: events.amount}
    numbers |= {name: events[number_column(k)] for k, name in enumerate(layout.numbers)}
    for name, value in numbers.items():
        columns[f"mean {name} of others in the {same}"] = _mean_of_others(value, own)
        mean = _mean_of_others(value, wide)
        columns[f"mean {name} of others in {words(longest)} to the end of the {same}"] = mean
    return columns


def _of_category(layout: Layout, i: int) -> tuple[Any, Named]:
    """Returns what transactions with the same value of a category were before."""
    events = events_of(layout)
    columns = _activity(layout, events, Frames(events, [category_column(i)], layout.batch))
    return events, {f"{layout.categories[i]}: {column}": value for column, value in columns.items()}


def _of_pair(layout: Layout, i: int, j: int) -> tuple[Any, Named]:
    """Returns what two parties did together before."""
    events = events_of(layout)
    columns = _activity(layout, events, Frames(events, [party_column(i), party_column(j)], layout.batch))
    columns["first transaction"] = (columns[f"transactions before (at most {MOST})"] < 1).cast("int8")
    return events, {f"{layout.parties[i]} and {layout.parties[j]}: {name}": value for name, value in columns.items()}


def _of_counterparties(layout: Layout, i: int, j: int) -> tuple[Any, Named]:
    """Returns means over a party's recent transactions of what was then known of its counterparties."""
    name, other = layout.parties[i], layout.parties[j]
    events, span = events_of(layout), layout.windows[-1]
    theirs = Frames(events, [party_column(j)], layout.batch)
    facts = Named()
    middle = layout.windows[len(layout.windows) // 2]
    window = f"in the last {layout.clock.span_words(middle)}"
    facts[f"transactions of its {other}s {window}"] = _count(events, theirs.earlier(middle))
    new = events[new_column(i, j)].sum().over(theirs.earlier(middle)).fill_null(0)
    facts[f"new {name}s of its {other}s {window}"] = new
    if layout.amount is not None:
        facts[f"mean {layout.amount} of its {other}s before"] = events.amount.mean().over(theirs.earlier())
    if layout.label is not None:
        known = theirs.labelled()
        cases = events.label.sum().over(known).fill_null(0)
        rate = cases / (events.label.count().over(known) + KNOWN_LABELS)
        facts[f"known rate of {layout.label} of its {other}s"] = rate
    if layout.batch is not None:
        same = layout.clock.span_words(layout.batch)
        facts[f"transactions of its {other}s in the same {same}"] = _count(events, theirs.batch())
    events = events.mutate(
        **{f"fact{k}": value.cast("float32").cast("float64") for k, value in enumerate(facts.values())}
    )
    frames = Frames(events, [party_column(i)], layout.batch)
    columns, until = Named(), f"{layout.clock.span_words(span)}"
    for k, fact in enumerate(facts):
        if layout.batch is None:
            value = events[f"fact{k}"].mean().over(frames.earlier(span))
        else:
            value = _mean_of_others(events[f"fact{k}"], frames.batch(max(span, layout.batch)))
        columns[f"{name}, mean of the last {until}: {fact}"] = value
    return events, columns


def _in_other_role(layout: Layout, i: int, j: int) -> tuple[Any, Named]:
    """Returns what a party did before in the other of two roles that share their names."""
    table = events_of(layout)
    own = table.mutate(party=table[party_column(i)], other=ibis.literal(0, "int8"))
    events = own.union(table.mutate(party=table[party_column(j)], other=ibis.literal(1, "int8")))
    frames, theirs = Frames(events, ["party"], layout.batch), events.other == 1
    columns = _activity(layout, events, frames, theirs)
    new = events[new_column(i, j)].sum(where=theirs).over(frames.earlier()).fill_null(0)
    columns[f"different {layout.parties[i]}s before (at most {MOST})"] = _at_most(new)
    name = f"{layout.parties[i]} as {layout.parties[j]}"
    computed = events.mutate(**{f"{name}: {column}": value for column, value in columns.items()})
    own = computed.filter(computed.other == 0)
    return own, {name: own[name] for name in computed.columns if name not in events.columns}


def _count(events: Any, window: Any, where: Any = None) -> Any:
    return events.row.count(where=where).over(window)


def _at_most(count: Any) -> Any:
    return ibis.least(count, MOST)


def _capped(ticks: Any, most: int, *, nothing: int) -> Any:
    """Returns a length of time, at most `most`, and `nothing` where there is none."""
    return ibis.least(ticks.fill_null(nothing), most)


def _mean_of_others(value: Any, window: Any) -> Any:
    """Returns the mean of a number over a window that holds the transaction itself, without it."""
    number = value.count().over(window) - value.notnull().cast("int64")
    return (value.sum().over(window) - value.fill_null(0)) / number.nullif(0)
