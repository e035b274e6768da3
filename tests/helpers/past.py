"""Columns of transactions by naive loops in float64: the reference of `calirare.transactions.columns`."""

from __future__ import annotations

import math
from itertools import combinations, permutations

import numpy as np

NAN = math.nan


def mean(values):
    return sum(values) / len(values) if values else NAN


class Past:
    """All columns of a table, `rows` a list of dicts, with times t in whole numbers and labels y of 1, 0 or None."""

    def __init__(self, rows, parties, shared, windows, numbers, categories, delay, batch):
        self.rows, self.parties, self.shared, self.windows = rows, parties, shared, windows
        self.categories = categories
        self.numbers, self.delay, self.batch = numbers, delay, batch
        self.n, self.out = len(rows), {}

    def end(self, i):
        return self.start(i) + self.batch

    def start(self, i):
        return self.rows[i]["t"] // self.batch * self.batch

    def since(self, i, some):
        """Time since the newest of some rows, at most the longest window, which no row counts as."""
        t, most = self.rows[i]["t"], self.windows[-1]
        return min([most, *(t - self.rows[j]["t"] for j in some)])

    def earlier(self, i, span=math.inf):
        t = self.rows[i]["t"]
        return [j for j in range(self.n) if t - span <= self.rows[j]["t"] < t]

    def cutoff(self, i):
        """The newest time whose labels are known when row i is scored."""
        t = self.rows[i]["t"]
        seen, until = (self.start(i), self.end(i)) if self.batch else (t, t)
        return min(seen - 1e-6, until - self.delay)

    def with_labels(self, i):
        return [j for j, row in enumerate(self.rows) if row["t"] <= self.cutoff(i) and row["y"] is not None]

    def in_batch(self, i, span=0):
        start = self.start(i) if span <= self.batch else self.end(i) - span
        return [j for j in range(self.n) if start <= self.rows[j]["t"] < self.end(i) and j != i]

    def of(self, i, keys, among):
        """Those of some rows with the same parties as row i; an empty cell is nobody but the row's own party."""
        own = [self.rows[i][k] for k in keys]
        return [j for j in among if j == i or (None not in own and own == [self.rows[j][k] for k in keys])]

    def add(self, name, i, value):
        self.out.setdefault(name, np.full(self.n, NAN))[i] = NAN if value is None else value

    def first_together(self, j, one, other):
        """Whether no row before j, in the order of time and then of the table, has both its parties."""
        row = self.rows[j]
        if row[one] is None or row[other] is None:
            return True
        before = [k for k in range(self.n) if (self.rows[k]["t"], k) < (row["t"], j)]
        return not self.of(j, (one, other), before)

    def amounts(self, some):
        return [self.rows[j]["amount"] for j in some]

    def activity(self, name, i, select):
        """Columns of the rows that `select` takes of some."""
        every, known, own = select(self.earlier(i)), select(self.with_labels(i)), self.rows[i]["amount"]
        most = f"(at most {self.windows[-1]} of t)"
        for w in self.windows:
            some = select(self.earlier(i, w))
            self.add(f"{name}: transactions in the last {w} of t", i, len(some))
            self.add(f"{name}: mean amount in the last {w} of t", i, mean(self.amounts(some)))
        middle = mean(self.amounts(every))
        self.add(f"{name}: transactions before (at most 100)", i, min(len(every), 100))
        self.add(f"{name}: t since the last transaction {most}", i, self.since(i, every))
        self.add(f"{name}: mean amount before", i, middle)
        self.add(f"{name}: amount divided by its mean before", i, own / middle if middle else NAN)
        cases = [j for j in known if self.rows[j]["y"] == 1]
        self.add(f"{name}: known labels of y (at most 100)", i, min(len(known), 100))
        self.add(f"{name}: known cases of y (at most 100)", i, min(len(cases), 100))
        self.add(f"{name}: known rate of y", i, len(cases) / (len(known) + 5))
        newest = [j for j in known if self.rows[j]["t"] >= self.cutoff(i) - self.windows[-1]]
        rate = len([j for j in newest if self.rows[j]["y"] == 1]) / (len(newest) + 5)
        self.add(f"{name}: known rate of y, newest {self.windows[-1]} of t of labels", i, rate)
        self.add(f"{name}: t since the last known case of y {most}", i, self.since(i, cases))
        if self.batch:
            self.add(f"{name}: transactions in the same {self.batch} of t", i, len(select([*self.in_batch(i), i])))
        return every

    def party(self, name, others, i):
        t, words, longest = self.rows[i]["t"], [f"in the last {w} of t" for w in self.windows], self.windows[-1]
        every = self.activity(name, i, lambda among: self.of(i, (name,), among))
        times = [self.rows[j]["t"] for j in every]
        recent = sorted(every, key=lambda j: (self.rows[j]["t"], j))
        for w, span in zip(self.windows, words, strict=True):
            some = self.of(i, (name,), self.earlier(i, w))
            self.add(f"{name}: total amount {span}", i, sum(self.amounts(some)))
        self.add(f"{name}: highest amount {words[-1]}", i, max(self.amounts(some), default=NAN))
        most = f"(at most {longest} of t)"
        first = min(t - min(times), longest) if times else 0
        self.add(f"{name}: t since the first transaction {most}", i, first)
        for number in (5, 20):
            last = recent[-number:]
            self.add(f"{name}: t since the start of the last {number} transactions {most}", i, self.since(i, last[:1]))
            self.add(f"{name}: mean amount of the last {number} transactions", i, mean(self.amounts(last)))
        self.add(f"{name}: amount of the last transaction", i, mean(self.amounts(recent[-1:])))
        for other in others:
            new = [j for j in every if self.first_together(j, name, other)]
            self.add(f"{name}: different {other}s before (at most 100)", i, min(len(new), 100))
            for w, span in list(zip(self.windows, words, strict=True))[1:]:
                self.add(f"{name}: new {other}s {span}", i, sum(t - w <= self.rows[j]["t"] for j in new))
        amounts, own = self.amounts(every), self.rows[i]["amount"]
        middle, spread = mean(amounts), float(np.std(amounts)) if amounts else NAN
        highest = max(amounts, default=NAN)
        self.add(f"{name}: standard deviation of amount before", i, spread)
        self.add(f"{name}: lowest amount before", i, min(amounts, default=NAN))
        self.add(f"{name}: highest amount before", i, highest)
        width = max(spread, 0.01 * abs(middle))
        self.add(
            f"{name}: amount above its mean before, in standard deviations", i, (own - middle) / width if width else NAN
        )
        self.add(f"{name}: amount divided by its highest before", i, own / highest if highest else NAN)
        if self.batch:
            self.party_in_batch(name, i)

    def party_in_batch(self, name, i):
        t, longest = self.rows[i]["t"], max(self.windows[-1], self.batch)
        near, wide = (self.of(i, (name,), self.in_batch(i, span)) for span in (0, longest))
        to_end = f"other transactions in {longest} of t to the end of the same {self.batch} of t"
        self.add(f"{name}: other transactions in {longest} of t to the end of the same {self.batch} of t", i, len(wide))
        later = [self.rows[j]["t"] for j in near if self.rows[j]["t"] > t]
        self.add(
            f"{name}: t to the next transaction in the same {self.batch} of t", i, min(later) - t if later else NAN
        )
        for number in ("amount", *self.numbers):
            for some, words in ((near, f"other transactions in the same {self.batch} of t"), (wide, to_end)):
                values = [self.rows[j][number] for j in some if self.rows[j][number] is not None]
                self.add(f"{name}: mean {number} of {words}", i, mean(values))

    def pair(self, one, other, i):
        every = self.activity(f"{one} and {other}", i, lambda among: self.of(i, (one, other), among))
        self.add(f"{one} and {other}: first transaction", i, float(not every))

    def facts(self, name, other, j):
        """What was known at row j of its party `other`."""
        middle = self.windows[len(self.windows) // 2]
        span, known = f"in the last {middle} of t", self.of(j, (other,), self.with_labels(j))
        some = self.of(j, (other,), self.earlier(j, middle))
        found = {
            f"transactions of each {other} {span}": len(some),
            f"new {name}s of each {other} {span}": sum(self.first_together(k, name, other) for k in some),
            f"mean amount of each {other} before": mean(self.amounts(self.of(j, (other,), self.earlier(j)))),
            f"known rate of y of each {other}": sum(self.rows[k]["y"] for k in known) / (len(known) + 5),
        }
        if self.batch:
            found[f"transactions of each {other} in the same {self.batch} of t"] = (
                len(self.of(j, (other,), self.in_batch(j))) + 1
            )
        return found

    def counterparties(self, name, other, i, facts):
        longest = self.windows[-1]
        among = self.in_batch(i, max(longest, self.batch)) if self.batch else self.earlier(i, longest)
        some = self.of(i, (name,), among)
        for fact in facts[i]:
            values = [facts[j][fact] for j in some if not math.isnan(facts[j][fact])]
            self.add(f"{name}: {fact} (mean over the last {longest} of t)", i, mean(values))

    def other_role(self, name, other, i):
        """What the party `name` of row i did in the role `other`."""
        who = self.rows[i][name]
        every = self.activity(
            f"{name} as {other}", i, lambda among: [j for j in among if who is not None and self.rows[j][other] == who]
        )
        new = sum(self.first_together(j, name, other) for j in every)
        self.add(f"{name} as {other}: different {name}s before (at most 100)", i, min(new, 100))

    def category(self, name, i):
        """What rows with the same value did before; an empty cell is a value."""
        self.activity(name, i, lambda among: [j for j in among if self.rows[j][name] == self.rows[i][name]])

    def columns(self):
        """Returns every column by its name."""
        for name in self.categories:
            for i in range(self.n):
                self.category(name, i)
        for one, other in combinations(self.parties, 2):
            for i in range(self.n):
                self.pair(one, other, i)
        for name in self.parties:
            for i in range(self.n):
                self.party(name, [each for each in self.parties if each != name], i)
        for name, other in permutations(self.parties, 2):
            facts = [self.facts(name, other, j) for j in range(self.n)]
            for i in range(self.n):
                self.counterparties(name, other, i, facts)
                if {name, other} == set(self.shared):
                    self.other_role(name, other, i)
        return self.out
