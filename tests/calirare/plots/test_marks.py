"""What can be pointed at in a picture: points that lie where they are drawn, with their numbers, in the file itself."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from calirare import plots
from calirare.calibration import budget_curve
from calirare.plots import canvas
from calirare.plots.detection import _threshold
from calirare.plots.marks import CROWDED, KEY, MOST, Mark, Marks, evenly, plain, read_marks
from tests.calirare.calibration.test_decisions import problem


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    p = rng.beta(0.3, 1.5, 400)
    return p, (rng.random(400) < p).astype(int)


def drawn_at(path, mark, colour, reach=4):
    """Whether a picture has a colour within some pixels of a mark."""
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("RGB")).astype(int)
    row, column = round(mark.y * len(pixels)), round(mark.x * pixels.shape[1])
    near = pixels[max(row - reach, 0) : row + reach + 1, max(column - reach, 0) : column + reach + 1].reshape(-1, 3)
    wanted = np.round(255 * np.array(to_rgb(colour)))
    return bool((np.abs(near - wanted).max(1) < 40).any())


def test_bins_of_p_rare_are_marked_where_they_lie(tmp_path):
    # Bins of two: P .1 to .3 without the class, .5 to .7 with one of it.
    panels = [(f"t{i}", [0, 0, 1, 0], [0.1, 0.3, 0.5, 0.7]) for i in range(2)]
    path = plots.rare_reliability_diagram(panels, tmp_path / "a.png", n_bins=2, n_draws=2, event="fraud")
    first, second = read_marks(path)
    assert (first.title, second.title) == ("P(fraud), t0", "P(fraud), t1")
    assert first.box[2] < second.box[0], "the panels stand side by side"
    *_, without, last = first.points
    assert without.words == "P(fraud) 0.1 to 0.3, mean 0.2\nobserved: 0 (0 of 2)\n95% interval: 0 to 0.842"
    assert last.words == "P(fraud) 0.5 to 0.7, mean 0.6\nobserved: 0.5 (1 of 2)\n95% interval: 0.0126 to 0.987"
    for panel in (first, second):
        for mark in panel.points:
            assert drawn_at(path, mark, canvas.DARK)


def test_a_curve_is_told_at_places_that_are_evenly_spaced(data, tmp_path):
    p, y = data
    path = plots.precision_recall_diagram([("t", y, p)], tmp_path / "a.png", n_draws=2)
    (panel,) = read_marks(path)
    assert MOST * 0.7 < len(panel.points) <= MOST
    told = [
        re.fullmatch(r"P from (\S+) on: (\d+) alerts?\nprecision (\S+)\nrecall (\S+)", m.words) for m in panel.points
    ]
    for mark, found in zip(panel.points, told, strict=True):
        alerts, hits = int(found[2]), round(float(found[4]) * y.sum())
        assert found[3] == f"{hits / alerts:.3f}"
        assert alerts == pytest.approx((p >= float(found[1])).sum(), abs=2), "the threshold is rounded"
        assert drawn_at(path, mark, canvas.DARK)
    assert np.diff([float(found[4]) for found in told]).max() < 3 / MOST
    several = plots.precision_recall_diagram([("a", y, p), ("b", y, p**2)], tmp_path / "b.png", n_draws=2)
    assert read_marks(several) == (), "which of two curves is pointed at cannot be told"


@pytest.mark.slow
def test_budgets_are_told_where_they_lie(tmp_path):
    fitted, logits, rare = problem(3)
    curve = budget_curve(fitted, logits)
    path = plots.budget_diagram(curve, tmp_path / "a.png", rare=rare, chosen=120)
    (panel,) = read_marks(path)
    assert 10 < len(panel.points) <= MOST
    last = panel.points[-1].words.split("\n")
    assert last[0] == f"{len(rare):,} alerts of {len(rare):,} nodes"
    assert last[1] == f"expected: {curve.expected[-1]:,.3g} rare"
    assert last[2] == f"90% interval: {curve.low[-1]:,.4g} to {curve.high[-1]:,.4g}"
    assert last[3] == f"observed: {rare.sum()}"
    unknown = plots.budget_diagram(curve, tmp_path / "b.png")
    (panel,) = read_marks(unknown)
    assert "observed" not in panel.points[-1].words
    assert all(drawn_at(unknown, mark, canvas.DARK, reach=9) for mark in panel.points[:-1]), "the last is below others"


def test_the_picture_is_the_same_and_other_formats_have_none(data, monkeypatch, tmp_path):
    p, y = data
    path = plots.rare_reliability_diagram([("t", y, p)], tmp_path / "a.png", n_draws=2)
    svg = plots.rare_reliability_diagram([("t", y, p)], tmp_path / "a.svg", n_draws=2)
    save = canvas.save
    monkeypatch.setattr(canvas, "save", lambda figure, where, _: save(figure, where))
    plain = plots.rare_reliability_diagram([("t", y, p)], tmp_path / "c.png", n_draws=2)
    without = plots.rare_reliability_diagram([("t", y, p)], tmp_path / "c.svg", n_draws=2)
    assert svg.read_bytes() == without.read_bytes()
    with Image.open(path) as one, Image.open(plain) as other:
        assert one.tobytes() == other.tobytes()
        assert set(one.info) == {KEY, "dpi"}, "no program, no version"
    assert path.stat().st_size - plain.stat().st_size < 4000
    assert (len(read_marks(path)), read_marks(plain)) == (1, ())


def strips(*x, right=1.0):
    return Marks("t", (0.0, 0.0, right, 1.0), tuple(Mark(each, 0.5, "w") for each in x)).ends


def test_strips_part_a_panel_in_the_middle_between_points():
    assert strips(0.25, 0.5, 1.0) == [0, 0.375, 0.75, 1]
    assert strips(0.3) == [0, 1]
    assert strips(0.2, 0.4, right=0.6) == [0, 0.3, 0.6]


@pytest.mark.parametrize("x", [[0.0] * 6, [1.0] * 6, [0.5] * 6, [0.0, 0.01, 0.02, 0.5, 0.99, 1.0], [0.4, 0.4, 0.9]])
def test_crowded_points_can_each_be_pointed_at(x):
    ends = np.array(strips(*x))
    assert (ends[0], ends[-1], len(ends)) == (0, 1, len(x) + 1)
    assert np.diff(ends).min() >= 1 / (CROWDED * len(x)) - 1e-4


def test_small_probabilities_are_written_out():
    told = [plain(p) for p in (0.0, 1e-9, 1.234e-5, 0.5, 0.9996, 1.0)]
    assert told == ["0", "1e-09", "0.0000123", "0.5", "1", "1"]
    assert [_threshold(p) for p in (1.2e-5, 0.99987, 1 - 1e-16, 1.0)] == ["0.000012", "0.99987", "1.000000000000", "1"]


def test_places_are_spread_over_a_curve():
    assert evenly(np.arange(7.0)).tolist() == list(range(7))
    x = np.concatenate([np.linspace(0, 0.1, 900), np.linspace(0.2, 1, 9)])
    chosen = evenly(x, 11)
    assert (x[chosen[0]], x[chosen[-1]]) == (0, 1)
    assert np.diff(x[chosen]).max() < 0.2


GOOD = {"title": "t", "box": [0, 0, 1, 1], "points": [[0.5, 0.5, "w"]]}


@pytest.mark.parametrize(
    "stored",
    [
        "{",
        "5",
        "[5]",
        "[" * 100_000,
        json.dumps([GOOD | {"box": [0, 0, 1]}]),
        json.dumps([GOOD | {"points": [[0.5, "50%;}", "w"]]}]),
        json.dumps([GOOD | {"points": [5]}]),
        json.dumps([{}]),
    ],
    ids=lambda stored: stored[:40],
)
def test_a_picture_of_another_hand_tells_nothing(stored, tmp_path):
    chunk = PngInfo()
    chunk.add_text(KEY, stored)
    Image.new("RGB", (9, 9)).save(tmp_path / "a.png", pnginfo=chunk)
    assert read_marks(tmp_path / "a.png") == ()


def test_a_damaged_picture_tells_nothing_and_a_very_long_one(tmp_path):
    chunk = PngInfo()
    chunk.add_text(KEY, json.dumps([GOOD | {"title": "t" * 2_000_000}]), zip=True)
    Image.new("RGB", (9, 9)).save(tmp_path / "a.png", pnginfo=chunk)
    assert read_marks(tmp_path / "a.png") == (), "a few bytes that would fill the memory"
    chunk = PngInfo()
    chunk.add_text(KEY, json.dumps([GOOD]))
    Image.new("RGB", (9, 9)).save(tmp_path / "b.png", pnginfo=chunk)
    assert len(read_marks(tmp_path / "b.png")) == 1
    whole = (tmp_path / "b.png").read_bytes()
    for n in range(0, len(whole) - 20, 7):
        (tmp_path / "c.png").write_bytes(whole[:n] + bytes([whole[n] ^ 85]) + whole[n + 1 :] if n % 2 else whole[:n])
        assert len(read_marks(tmp_path / "c.png")) <= 1
    assert read_marks(tmp_path / "none.png") == ()
