"""Targets in memory: numbers, words and settings for public functions; thousands of cases a second."""

from __future__ import annotations

import csv
import inspect
import io
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from calirare import InputError, NotConvergedError, metrics
from calirare._util.errors import printable
from calirare.calibration import (
    CALIBRATORS,
    PriorPlattCalibrator,
    cross_fitted_probabilities,
    decisions,
    expected_count,
    make_calibrator,
    prevalence_by_map,
    with_prevalence,
)
from calirare.cli.options import UsageError
from calirare.cli.parser import COMMANDS, parser_of
from calirare.graph.tables import Table
from calirare.graph.tables.labels import labels_of, split_of
from calirare.graph.tables.node_cells import NodeCells
from calirare.run import Settings
from calirare.run.tables import inert
from calirare_lab.calibrator_interval import probability_interval
from tests.fuzz.mutate import NUMBERS, REALS, WORDS, odd_numbers, odd_text, some
from tests.fuzz.oracles import finite, refused

ROWS = 12
NAMES = 300  # cases of `fuzz_names` at once
BEGINNINGS = ("", "", "=", "+", "'", "-", "@", "\t=")
CELLS = (*WORDS, "1", "2.5", "-3e4", "007", "a", "b", "2024-01-31", "2024-01-31T10:00Z", "01.02.2024", "true", "", "NA")
SLOW = {"auprc", "auroc", "detection_report", "rare_report", "calibration_report"}
ARRAYS = (ValueError, TypeError, NotConvergedError)


class Values:
    """Targets that need no file."""

    def __init__(self, folder: Path) -> None:
        del folder
        rng = np.random.default_rng(0)
        self.logits, self.labels = torch.from_numpy(rng.normal(size=(ROWS, 2))), torch.tensor([0, 1] * (ROWS // 2))
        self.fitted = PriorPlattCalibrator().fit(self.logits, self.labels)
        self.measures = [
            each for name, each in sorted(vars(metrics).items()) if name not in SLOW and inspect.isfunction(each)
        ]
        self.measures = [f for f in self.measures if list(inspect.signature(f).parameters)[:2] == ["y_true", "p"]]

    def fuzz_measures(self, rng: np.random.Generator) -> bool:
        measure = some(rng, self.measures)
        y, p = odd_numbers(rng, rng.integers(0, 2, ROWS)), odd_numbers(rng, rng.random(ROWS))
        words = (
            {"weights": odd_numbers(rng, rng.random(ROWS))}
            if "weights" in _words(measure) and rng.random() < 0.3
            else {}
        )
        least = {"n_draws": 3, "n_resamples": 3, "budget": 3, "cls": 1}
        words |= {name: value for name, value in least.items() if name in _words(measure)}
        return refused(lambda: measure(y, p, **words), (ValueError, TypeError))

    def fuzz_calibrators(self, rng: np.random.Generator) -> bool:
        kind = some(rng, [name for name in CALIBRATORS if name != "jackknife"])
        z, y = odd_numbers(rng, rng.normal(size=(ROWS, 2))), odd_numbers(rng, rng.integers(0, 2, ROWS))

        def work() -> None:
            p = np.asarray(make_calibrator(kind).fit(z, y).transform(z))
            assert bool(((p >= 0) & (p <= 1 + 1e-6)).all()), "in range"

        return refused(work, ARRAYS)

    def fuzz_prevalence(self, rng: np.random.Generator) -> bool:
        z = torch.as_tensor(odd_numbers(rng, rng.normal(size=(ROWS, 2)), native=True))
        share = some(rng, (0.01, 0.5, (0.1, 0.3), *REALS))
        ways: tuple[Callable[[], Any], ...] = (
            lambda: with_prevalence(self.fitted, z, share).predict_proba(self.logits),
            lambda: expected_count(self.fitted, z).expected,
            lambda: probability_interval(self.fitted, z),
            lambda: prevalence_by_map(self.fitted, z).share,
            lambda: cross_fitted_probabilities(self.fitted, z, self.labels),
        )
        way = some(rng, ways)
        return refused(lambda: finite(way()), ARRAYS)

    def fuzz_decisions(self, rng: np.random.Generator) -> bool:
        kind = decisions.RULES[some(rng, sorted(decisions.RULES))]
        words = {name: some(rng, (*REALS, 0.9, 0.05, 3, 40)) for name in inspect.signature(kind).parameters}
        p, rare = odd_numbers(rng, rng.random(40)), odd_numbers(rng, (rng.random(40) < 0.4).astype(float))

        def work() -> None:
            rule = kind(**words)
            threshold = rule.threshold(np.sort(rng.random(30)), decisions.Labelled(p, rare))
            assert 0 <= threshold <= decisions.rules.NONE
            assert rule.sentence.isprintable()

        return refused(work, (ValueError, TypeError))

    def fuzz_options(self, rng: np.random.Generator) -> bool:
        name = some(rng, sorted(COMMANDS))
        known = _options(name)
        words = []
        for _ in range(int(rng.integers(1, 4))):
            words += [odd_text(rng, some(rng, known)) if rng.random() < 0.3 else some(rng, known)]
            words += [some(rng, (*WORDS, *map(str, NUMBERS), *map(str, REALS), "0.5", "3", "auto", "a,b"))]
        words = [word for word in words if word not in ("-h", "--help")]
        return refused(lambda: _parser(name).values(words), (UsageError,))

    def fuzz_settings_values(self, rng: np.random.Generator) -> bool:
        tree: dict[str, Any] = {"method": "jackknife", "training": {"epochs": 5}, "data": {"dataset": "digits"}}
        section = some(rng, [tree, *[tree.setdefault(name, {}) for name in ("training", "loo", "calibration", "data")]])
        section[some(rng, SETTINGS)] = some(rng, (*NUMBERS, *REALS, *WORDS, None, True, [], {}, [1, "a"], {"a": 1}))
        return refused(lambda: Settings.from_mapping(tree, "config c.yaml"))

    def fuzz_cells(self, rng: np.random.Generator) -> bool:
        column = pd.Series([some(rng, CELLS) for _ in range(8)], name="c").replace({"": None})
        table = Table(column.to_frame(), Path("n.csv"))
        y, names, *_ = labels_of(table, "c", some(rng, ((), ("2",), ("?", "-1"))))
        if y is not None and int(y.max()) >= len(names):
            raise AssertionError("a label without a class")
        split_of(table, "c")
        n_faults = len(table.faults)
        x, _ = NodeCells(table).read(["c"])
        if len(table.faults) == n_faults and bool(torch.isinf(x).any()):
            raise AssertionError("an infinite feature")
        for fault in table.faults:
            assert str(InputError(fault)).isprintable()
        return bool(table.faults)

    def fuzz_names(self, rng: np.random.Generator) -> int:
        """A column of odd names, `NAMES` cases: none drives a terminal, is a formula, or moves a cell."""
        highest = rng.choice((128, 0x300, 0xD800), NAMES)
        letters = (rng.random((NAMES, 12)) * highest[:, None]).astype(int)
        texts = [
            some(rng, BEGINNINGS) + "".join(map(chr, row[:size]))
            for row, size in zip(letters.tolist(), rng.integers(0, 12, NAMES).tolist(), strict=True)
        ]
        assert all(printable(text).isprintable() for text in texts)
        table = inert(pd.DataFrame({"node": texts}))
        shown = table["node"].tolist()
        for text, cell in zip(texts, shown, strict=True):
            assert cell in (text, "'" + text)
            assert not cell.startswith(("=", "+", "-", "@", "\t", "\r")) or _is_number(text), repr(text)
        file = io.StringIO(table.to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC), newline="")
        if not any("\0" in text for text in texts):
            assert [row[0] for row in csv.reader(file)][1:] == shown
        return sum(cell != text for text, cell in zip(texts, shown, strict=True))


def _is_number(text: str) -> bool:
    return bool(pd.notna(pd.to_numeric(pd.Series([text]), errors="coerce")[0]))


SETTINGS = (
    "method",
    "seed",
    "epochs",
    "hidden",
    "weight_decay",
    "hops",
    "steps",
    "target",
    "map",
    "dataset",
    "minority",
)
SETTINGS += ("label_rate", "split", "coverage", "model", "damping", "device", "folds", "budget", "decide", "odd", "loo")


@cache
def _words(function: Callable[..., Any]) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters)


@cache
def _parser(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return parser_of(name)


@cache
def _options(name: str) -> tuple[str, ...]:
    return tuple(sorted(_parser(name)._option_string_actions))
