from __future__ import annotations

import numpy as np
import pytest
from matplotlib.collections import PathCollection
from scipy.stats import binom

from calirare import metrics, plots
from calirare.metrics.binning import binomial_interval
from calirare.plots import canvas
from calirare_lab.intervals_picture import interval_diagram


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    p = rng.beta(0.3, 1.5, 400)
    y = (rng.random(400) < p).astype(int)
    return p, y


def panel(title, p, y):
    return title, (p > 0.5) == y, np.maximum(p, 1 - p)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_reliability_diagram_is_written_and_repeats_to_the_byte(data, tmp_path, suffix):
    p, y = data
    first = plots.reliability_diagram([panel("before", p, y)], tmp_path / f"a.{suffix}")
    second = plots.reliability_diagram([panel("before", p, y)], tmp_path / f"b.{suffix}")
    assert first.read_bytes() == second.read_bytes()


def drawn(monkeypatch):
    """Keeps the figure that a plot function saves, to look at what is on it."""
    kept = []
    save = canvas.save
    monkeypatch.setattr(canvas, "save", lambda figure, path: kept.append(figure) or save(figure, path))
    return kept


def test_reliability_diagram_shows_the_numbers(monkeypatch, tmp_path):
    figures = drawn(monkeypatch)
    # Bins (.4, .6] and (.8, 1]: two of .5 (one right), four of .9 (all right).
    confidence, correct = np.array([0.5, 0.5, 0.9, 0.9, 0.9, 0.9]), np.array([1, 0, 1, 1, 1, 1])
    plots.reliability_diagram([("t", correct, confidence)], tmp_path / "a.png", n_bins=5, n_columns=1)
    axes, counts = figures[0].axes
    bars, gaps = axes.containers[:2]
    assert [bar.get_height() for bar in bars] == [0.5, 1.0]
    assert [bar.get_x() for bar in bars] == pytest.approx([0.4, 0.8], rel=1e-12)
    assert [bar.get_height() for bar in gaps] == pytest.approx([0.0, 0.1], abs=1e-12)
    assert [text.get_text() for text in counts.texts] == ["2", "4"]
    assert "n = 6, ECE = 0.067" in axes.get_title()
    assert axes.get_xlim() == (0.4, 1.0)


@pytest.mark.slow
def test_weights_move_the_bars_and_widen_the_band(monkeypatch, tmp_path):
    figures = drawn(monkeypatch)
    p, y = np.full(40, 0.9), np.repeat([1, 0], 20)
    weights = np.repeat([3.0, 1.0], 20) * 1e-9
    panels = [plots.confidence_panel("t", y, p, weights=w) for w in (weights, np.append(np.ones(39), 0), None)]
    plots.reliability_diagram(panels, tmp_path / "a.png", n_bins=5, n_columns=3)
    (bars, counts), (_, fewer), (plain, _) = (figures[0].axes[i : i + 2] for i in (0, 2, 4))
    assert bars.containers[0][0].get_height() == pytest.approx(0.75, rel=1e-12)
    assert bars.get_title() == "t\nn = 40 weighted, ECE = 0.150"
    assert plain.get_title() == "t\nn = 40, ECE = 0.400"
    assert [text.get_text() for text in (*counts.texts, *fewer.texts)] == ["40", "39"]
    # Three to one: (20 * 3 + 20)^2 / (20 * 9 + 20) = 32 samples of equal weight.
    low = [axes.collections[0].get_segments()[0][0, 1] for axes in (bars, plain)]
    assert low == [binom.ppf(0.025, n, 0.9) / n for n in (32, 40)]
    with pytest.raises(ValueError, match="weights must have shape"):
        plots.reliability_diagram([("t", y, p, weights[1:])], tmp_path / "a.png")


@pytest.mark.slow
def test_interval_diagram_says_how_many_nodes_it_left_out(data, monkeypatch, tmp_path):
    figures = drawn(monkeypatch)
    p, y = data
    interval_diagram(y, p, p - 0.1, p + 0.1, tmp_path / "a.png", max_nodes=50)
    axes = figures[0].axes[0]
    assert "50 of 400 nodes" in axes.get_xlabel()
    assert "350 left out" in axes.get_xlabel()
    points = np.concatenate([c.get_offsets() for c in axes.collections if isinstance(c, PathCollection)])
    by_rank = points[np.argsort(points[:, 0]), 1]
    assert len(by_rank) == 50
    assert by_rank[0] == p.min()
    assert by_rank[-1] == p.max()
    assert (np.diff(by_rank) >= 0).all()
    interval_diagram(y, p, p - 0.1, p + 0.1, tmp_path / "c.png", max_nodes=400)
    assert "all 400 nodes" in figures[1].axes[0].get_xlabel()
    assert figures[1].axes[0].get_legend().get_texts()[1].get_text() == f"minority class ({y.sum()} shown)"
    for upper, message in (([0.0], "lower <= upper"), ([0.0, 1.0], "upper must have shape")):
        with pytest.raises(ValueError, match=message):
            interval_diagram([1], [0.5], [1.0], upper, tmp_path / "d.png")


@pytest.mark.slow
def test_a_name_with_dollars_is_no_formula(tmp_path):
    path, name = tmp_path / "p.png", r"c$\frac$ 5%$ # 6%$"
    plots.reliability_diagram([(name, [1, 0], [0.7, 0.6])], path, title=name)
    assert path.stat().st_size > 1000


def test_confidence_panel(data):
    p, y = data
    title, correct, confidence, weights = plots.confidence_panel("rare", y, np.stack((1 - p, p), 1), cls=1)
    assert title == "rare"
    assert weights is None
    assert np.array_equal(confidence.numpy(), np.maximum(p, 1 - p)[y == 1])
    assert np.array_equal(correct.numpy(), (p > 0.5)[y == 1])
    assert len(plots.confidence_panel("all", y, p).p) == len(y)
    with pytest.raises(ValueError, match="cls must lie in"):
        plots.confidence_panel("rare", y, p, cls=2)


def test_class_panels(data):
    p, y = data
    both = np.stack((1 - p, p), 1)
    panels = plots.class_panels(y, both, class_names=["no", "yes"])
    assert [panel.title for panel in panels] == ["no", "yes"]
    assert np.array_equal(panels[1].p.numpy(), p)
    assert np.array_equal(panels[0].y_true.numpy(), y == 0)
    ((name, hits, scores, _),) = plots.class_panels(y, p)
    assert name == "class 1"
    assert np.array_equal(scores.numpy(), p)
    assert np.array_equal(hits.numpy(), y == 1)
    with pytest.raises(ValueError, match="class_names must hold 2 names, got 1"):
        plots.class_panels(y, both, class_names=["no"])


@pytest.mark.slow
def test_precision_recall_diagram_shows_curve_and_operating_point(data, monkeypatch, tmp_path):
    figures = drawn(monkeypatch)
    p, y = data
    plots.precision_recall_diagram([("P(rare)", y, p)], tmp_path / "a.png")
    axes = figures[0].axes[0]
    curve, point, prevalence = axes.get_lines()
    area = np.diff(curve.get_xdata(), prepend=0) @ curve.get_ydata()
    assert area == pytest.approx(metrics.auprc(y, p), rel=1e-12)
    assert curve.get_label() == f"P(rare): AUPRC {area:.3f}"
    alerts = p >= 0.5
    assert point.get_xdata()[0] == y[alerts].sum() / y.sum()
    assert point.get_ydata()[0] == y[alerts].mean()
    assert f"{alerts.sum()} alerts" in point.get_label()
    assert set(prevalence.get_ydata()) == {y.mean()}
    plots.precision_recall_diagram([("a", y, p), ("b", y, p**2)], tmp_path / "c.png", threshold=1.0)
    assert figures[1].axes[0].get_lines()[1].get_label() == "P from 1 on: no alert"
    plots.precision_recall_diagram([("a", y, p)], tmp_path / "d.png", threshold=None)
    assert len(figures[2].axes[0].get_lines()) == 2


@pytest.mark.slow
def test_rare_reliability_diagram_shows_bins_of_equal_numbers(monkeypatch, tmp_path):
    figures = drawn(monkeypatch)
    # Bins of two: mean p .2 and .6, frequencies 0 and .5; with many others the axes are logarithmic.
    y, p = np.array([0, 0, 1, 0] + [0] * 36), np.array([0.1, 0.3, 0.5, 0.7] + [0.01] * 36)
    plots.rare_reliability_diagram([("t", y, p)], tmp_path / "a.png", n_bins=20, n_draws=5)
    axes = figures[0].axes[0]
    assert axes.get_xscale() == axes.get_yscale() == "log"
    _, points, hollow, whole = axes.get_lines()
    assert points.get_xdata()[-1] == pytest.approx(0.6, rel=1e-12)
    assert points.get_ydata()[-1] == 0.5
    assert hollow.get_xdata()[-1] == pytest.approx(0.2, rel=1e-12)
    assert len(hollow.get_xdata()) == 2, "equal probabilities are one bin"
    assert (whole.get_xdata()[0], whole.get_ydata()[0]) == pytest.approx((p.mean(), y.mean()), rel=1e-12)
    assert f"ECE = {metrics.equal_mass_ece(y, p, 20):.3f}" in axes.get_title()
    (bars,) = axes.collections
    ends = binomial_interval(np.array([1.0]), np.array([2.0]), 0.95)
    assert bars.get_segments()[-1][:, 1].tolist() == pytest.approx([float(end[0]) for end in ends], rel=1e-9)


TWO = [("x", [1, 0], [1.5, 0.2])]


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("reliability_diagram", ([],), "at least one"),
        ("reliability_diagram", ([("x", [1], [1.5])],), "panel 'x': p must lie in"),
        ("reliability_diagram", ([("x", [1, 0], [0.5])],), "panel 'x': y_true must have shape"),
        ("precision_recall_diagram", ([],), "precision_recall_diagram: panels must hold"),
        ("precision_recall_diagram", (TWO,), "precision_recall_diagram: panel 'x': p must lie in"),
        ("rare_reliability_diagram", ([],), "rare_reliability_diagram: panels must hold"),
        ("rare_reliability_diagram", (TWO,), "rare_reliability_diagram: panel 'x': p must lie in"),
    ],
)
def test_bad_input_is_named(name, arguments, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        getattr(plots, name)(*arguments, tmp_path / "a.png")
    assert list(tmp_path.iterdir()) == []


def test_bad_settings_are_named(tmp_path):
    panels = [("x", [1, 0], [0.5, 0.2])]
    with pytest.raises(ValueError, match="path must end in"):
        plots.reliability_diagram(panels, tmp_path / "a.bmp")
    with pytest.raises(ValueError, match="threshold must lie in"):
        plots.precision_recall_diagram(panels, tmp_path / "a.png", threshold=2)
