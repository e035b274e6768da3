from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from calirare import metrics
from calirare._util.errors import InputError
from calirare.cli.tables import TableColumns, evaluate_table, load_table
from tests.helpers.command import call

BINNED = ("ece", "mce", "classwise_ece", "macro_ace")


@pytest.fixture
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    p = rng.beta(0.5, 1.5, 300)
    y = (rng.random(300) < p).astype(int)
    q = p**2 / (p**2 + (1 - p) ** 2)
    split = np.where(np.arange(300) < 100, "val", "test")
    return pd.DataFrame({"y": y, "p": p, "q": q, "p0": 1 - p, "w": 1.0, "split": split})


@pytest.fixture
def undrawn(monkeypatch):
    """Pictures are made, but not drawn: it saves seconds."""

    def save(figure, path, *_):
        path.write_text("drawn")
        return path

    monkeypatch.setattr("calirare.plots.canvas.save", save)


@pytest.mark.parametrize("suffix", ["csv", "tsv", "csv.gz", "parquet"])
def test_tables_of_every_kind_hold_the_same(frame, tmp_path, suffix):
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"preds.{suffix}"
    if suffix == "parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False, sep="\t" if suffix == "tsv" else ",")
    table = load_table(path)
    assert table.labels.tolist() == frame["y"].tolist()
    assert table.probabilities.tolist() == pytest.approx(frame["p"].tolist(), rel=1e-12, abs=0)


@pytest.mark.slow
def test_same_numbers_as_the_library(frame, tmp_path):
    path = tmp_path / "preds.csv"
    frame.to_csv(path, index=False)
    report = evaluate_table(path, n_draws=20)
    expected = metrics.calibration_report(frame["y"].to_numpy(), frame["p"].to_numpy(), n_draws=20)
    assert {key: report.values[key] for key in expected} == expected
    p, y = frame["p"].to_numpy(), frame["y"].to_numpy()
    line = metrics.calibration_line(y, p)
    assert report.values["calibration_slope"] == line.slope
    assert report.values["calibration_intercept"] == line.intercept
    assert list(report.measures) == ["value"]
    assert report.files == []


@pytest.mark.slow
def test_writes_numbers_and_pictures(frame, tmp_path):
    path = tmp_path / "preds.csv"
    frame.to_csv(path, index=False)
    report = evaluate_table(path, TableColumns(before=("q",), where="split=test"), out=tmp_path, n_draws=10)
    assert [file.name for file in report.files] == [
        "metrics.json",
        "reliability.png",
        "precision_recall.png",
        "p_rare.png",
    ]
    assert all(file.stat().st_size > 0 for file in report.files)
    content = json.loads((tmp_path / "metrics.json").read_text())
    assert content == json.loads(json.dumps(report.content()))
    assert list(content) == list(report.measures) == ["before", "after"]
    for each in report.measures.values():
        names = list(each.values)
        assert [names[names.index(n) + 1] for n in BINNED] == [f"{n}_noise_floor" for n in BINNED]
    test_rows = frame[frame["split"] == "test"]
    assert report.values["ece"] == metrics.ece(test_rows["y"].to_numpy(), test_rows["p"].to_numpy())
    assert report.measures["before"].values["ece"] == metrics.ece(test_rows["y"].to_numpy(), test_rows["q"].to_numpy())
    assert any("minority class" in note for note in report.notes)


@pytest.mark.slow
def test_several_classes(frame, tmp_path, undrawn):
    path = tmp_path / "preds.csv"
    frame.to_csv(path, index=False)
    table = load_table(path, TableColumns(probabilities=("p0", "p"), minority="0", weights="w"))
    assert table.probabilities.shape == (300, 2)
    assert table.minority == 0
    report = evaluate_table(path, TableColumns(probabilities=("p0", "p"), minority=0), out=tmp_path, n_draws=5)
    y, p = frame["y"].to_numpy(), frame[["p0", "p"]].to_numpy()
    assert report.values["ace_minority"] == metrics.class_ace(y, p, 0)
    assert report.values["calibration_slope"] == metrics.calibration_line(y == 0, p[:, 0]).slope


@pytest.mark.parametrize(
    ("values", "minority"),
    [(["fraud", "fine"], "fraud"), ([1.0, 0.0], 1), ([True, False], 1), ([2, 0], 2), ([2.0, 0.0], 2), ([1, 0], "1")],
)
def test_labels_may_be_names_or_numbers(tmp_path, values, minority):
    path = tmp_path / "preds.csv"
    pd.DataFrame({"y": values * 2, "p": [0.9, 0.1, 0.8, 0.2]}).to_csv(path, index=False)
    assert load_table(path, TableColumns(minority=minority)).labels.tolist() == [1, 0, 1, 0]


@pytest.mark.slow
def test_no_slope_is_a_note(tmp_path):
    path = tmp_path / "preds.csv"
    pd.DataFrame({"y": [0, 0, 1, 1], "p": [0.1, 0.2, 0.8, 0.9], "q": [0.4, 0.6, 0.5, 0.3]}).to_csv(path, index=False)
    report = evaluate_table(path, TableColumns(before=("q",)), n_draws=2)
    lines = {"calibration_slope", "calibration_intercept"}
    assert set(report.measures["before"].values) - set(report.values) == lines  # that of the earlier model is there
    assert any(note.startswith("no calibration slope (") and "separate" in note for note in report.notes)
    row = next(line for line in call("evaluate", path, "--before", "q").out.splitlines() if "calibration_slope" in line)
    assert [cell.strip() == "" for cell in row.split("│")[2:4]] == [False, True], row


def complaint(tmp_path, frame, **columns) -> str:
    path = tmp_path / "preds.csv"
    frame.to_csv(path, index=False)
    with pytest.raises(InputError) as caught:
        load_table(path, TableColumns(**columns))
    return str(caught.value)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match="there is no such file"):
        load_table(tmp_path / "absent.csv")
    (tmp_path / "preds.xlsx").touch()
    with pytest.raises(InputError, match=r"must end in \.csv"):
        load_table(tmp_path / "preds.xlsx")
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(InputError, match="the file is empty"):
        load_table(tmp_path / "empty.csv")
    (tmp_path / "header.csv").write_text("y,p\n")
    with pytest.raises(InputError, match="has no rows"):
        load_table(tmp_path / "header.csv")
    (tmp_path / "noise.csv").write_bytes(b"\xff\xfe\x00\x01\x02")
    with pytest.raises(InputError, match="must be text in UTF-8"):
        load_table(tmp_path / "noise.csv")
    pytest.importorskip("pyarrow")
    (tmp_path / "cut.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(InputError, match="the table cannot be read"):
        load_table(tmp_path / "cut.parquet")


def test_columns_that_cannot_be_used(frame, tmp_path):
    assert "there is no column 'prob': the table has y, p, q" in complaint(tmp_path, frame, probabilities=("prob",))
    assert "there is no column 'label'" in complaint(tmp_path, frame, label="label")
    assert "no row has split = train, got" in complaint(tmp_path, frame, where="split=train")
    assert "chosen by a column and its values" in complaint(tmp_path, frame, where="split")
    assert (
        "no row has class 7 in column 'y': give rows of it, or name the rare class (--rare-class CLASS)"
        in complaint(tmp_path, frame, minority=7)
    )
    assert "must sum to 1 in every row" in complaint(tmp_path, frame, probabilities=("p", "q"))
    assert "as many earlier columns" in complaint(tmp_path, frame, before=("p", "q"))
    assert "no row has class 9" in complaint(tmp_path, frame, probabilities=("p0", "p"), minority=9)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("p", 1.5, "column 'p' must lie in [0, 1], got 1.5 in row 4"),
        ("p", -0.1, "column 'p' must lie in [0, 1], got -0.1 in row 4"),
        ("p", np.inf, "column 'p' must hold finite numbers"),
        ("p", np.nan, "column 'p' has no value in row 4"),
        ("p", "high", "column 'p' must hold finite numbers, got 'high' in row 4"),
        ("w", -1.0, "column 'w' must hold weights >= 0, got -1 in row 4"),
    ],
)
def test_bad_values_are_located(frame, tmp_path, column, value, message):
    frame[column] = frame[column].astype(object)
    frame.loc[3, column] = value
    assert message in complaint(tmp_path, frame, weights="w")


def test_bad_classes_are_located(frame, tmp_path):
    frame.loc[[2, 5, 7, 8], "y"] = 2
    message = complaint(tmp_path, frame, probabilities=("p0", "p"))
    assert "column 'y' must hold classes 0 to 1, got 2 in rows 3, 6, 8, ... (4 rows)" in message


def test_one_class_only(frame, tmp_path):
    frame["y"] = 1
    path = tmp_path / "preds.csv"
    frame.to_csv(path, index=False)
    report = evaluate_table(path, n_draws=2)
    assert report.values["ece"] == metrics.ece(frame["y"].to_numpy(), frame["p"].to_numpy())
    assert any(note.startswith("every row has the minority class") for note in report.notes)
    frame["y"] = 0
    message = complaint(tmp_path, frame)
    assert message.endswith("values there are 0")


def weigh(frame, tmp_path, weights, **options):
    """Evaluates the frame with weights."""
    frame.assign(w=weights).to_csv(tmp_path / "preds.csv", index=False)
    return evaluate_table(tmp_path / "preds.csv", TableColumns(weights="w"), n_draws=2, **options)


@pytest.mark.slow
def test_pictures_and_notes_are_weighted_as_the_numbers_are(frame, tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr("calirare.plots.canvas.save", lambda figure, path, _=(): figures.append(figure) or path)
    weights = np.where(frame["y"] == 1, 5.0, 0.2)
    report = weigh(frame, tmp_path, weights, out=tmp_path)
    y, p = frame["y"].to_numpy(), frame["p"].to_numpy()
    shown = metrics.ece(y, np.stack((1 - p, p), 1), weights=weights)
    assert f"n = 300 weighted, ECE = {shown:.3f}" in figures[0].axes[0].get_title()
    assert report.values["ece"] == metrics.ece(y, p, weights=weights)
    assert abs(report.values["ece"] - metrics.ece(y, p)) > 0.05
    worth = weights.sum() ** 2 / (weights**2).sum()
    assert f"the weights make 300 rows worth {worth:.0f} of equal weight" in report.notes


def test_rows_without_weight_count_nowhere(frame, tmp_path):
    kept = np.arange(300) < 40
    report, alone = weigh(frame, tmp_path, kept.astype(float)), weigh(frame[kept], tmp_path, 1.0)
    assert (report.values, report.notes) == (alone.values, alone.notes)
    rare = int(frame["y"][kept].sum())
    assert any(note.startswith(f"{rare} samples of the minority class") for note in report.notes)


def test_weights_that_cannot_be_used(frame, tmp_path):
    frame["w"] = np.where(frame["y"] == 1, 0, 1)
    assert "no row has class 1 in column 'y'" in complaint(tmp_path, frame, weights="w")
    frame["w"] = np.where(np.arange(300) == 4, np.inf, 1.0)
    assert "column 'w'" in complaint(tmp_path, frame, weights="w")


def test_the_filter_passes_over_rows_without_a_value(frame, tmp_path):
    path = tmp_path / "preds.csv"
    frame["split"] = np.where(np.arange(300) < 200, "test", None)
    frame["fold"] = np.where(np.arange(300) < 120, 1.0, np.where(np.arange(300) < 200, 2.0, np.nan))
    frame["flag"] = np.arange(300) < 50
    frame.to_csv(path, index=False)
    for where, rows in (("split=test", 200), ("fold=1", 120), ("fold=2.0", 80), ("flag=true", 50), ("flag=0", 250)):
        assert len(load_table(path, TableColumns(where=where)).labels) == rows
    assert "got 'split='; there are" in complaint(tmp_path, frame, where="split=")


def test_classes_may_be_called_as_the_columns_are(frame, tmp_path):
    names = np.array(["new, gold", "7", "ok"])
    frame["kind"] = names[np.where(frame["y"] == 1, 1, 2 * (np.arange(300) % 2))]
    frame["p_ok"], frame["p_7"], frame["p_new, gold"] = (1 - frame["p"]) / 3, frame["p"], (1 - frame["p"]) * 2 / 3
    path = tmp_path / "classes.csv"
    frame.to_csv(path, index=False)
    columns = TableColumns(label="kind", probabilities=("p_ok", "p_7", "p_new, gold"), minority="7")
    table = load_table(path, columns)
    assert table.minority == 1
    assert np.array_equal(np.array(["ok", "7", "new, gold"])[table.labels], frame["kind"])
    message = complaint(tmp_path, frame, label="kind", probabilities=("p_ok", "p_7"), minority="7")
    assert "columns p_ok, p_7 must sum to 1" in message
    frame["p_7"] = 1 - frame["p_ok"]
    message = complaint(tmp_path, frame, label="kind", probabilities=("p_ok", "p_7"), minority="7")
    assert "must hold classes that have a column, ok, 7, got 'new, gold' in rows" in message
    frame["kind"] = frame["y"]
    frame.to_csv(path, index=False)
    assert np.array_equal(
        load_table(path, replace(columns, probabilities=("p_ok", "p_7"), minority=1)).labels, frame["y"]
    )


@pytest.mark.parametrize("n_bins", [-1, 0, 1001, 10**9])
def test_bins_out_of_range(frame, tmp_path, n_bins):
    path = tmp_path / "preds.csv"
    frame.to_csv(path, index=False)
    with pytest.raises(InputError, match=f"--bins must be from 1 to 1000, got {n_bins}"):
        evaluate_table(path, n_bins=n_bins)


def test_files_are_not_replaced_unless_asked(frame, tmp_path, undrawn):
    path, names = tmp_path / "preds.csv", ("metrics.json", "p_rare.png")
    frame.to_csv(path, index=False)
    for name in names:
        (tmp_path / name).write_text("mine")
        with pytest.raises(InputError, match=f"{name} exists already: take another --out"):
            evaluate_table(path, out=tmp_path, n_draws=2)
        assert (tmp_path / name).read_text() == "mine"
        (tmp_path / name).unlink()
    for name in names:
        (tmp_path / name).write_text("mine")
    evaluate_table(path, out=tmp_path, n_draws=2, overwrite=True)
    for name in names:
        assert (tmp_path / name).read_text() != "mine"


def test_a_full_disk_leaves_nothing(frame, tmp_path, monkeypatch):
    path, out = tmp_path / "preds.csv", tmp_path / "out"
    frame.to_csv(path, index=False)
    out.mkdir()

    def full(*args, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("calirare.plots.reliability_diagram", full)
    with pytest.raises(InputError, match="cannot be written: No space left on device"):
        evaluate_table(path, out=out, n_draws=2)
    assert list(out.iterdir()) == []


def test_semicolons_and_a_class_called_none(tmp_path):
    path = tmp_path / "preds.csv"
    path.write_text(";y;p\n0;None;.9\n1;fine;.1\n")
    assert load_table(path, TableColumns(minority="None")).labels.tolist() == [1, 0]


def test_rows_left_out_do_not_change_what_labels_mean(tmp_path):
    rng = np.random.default_rng(3)
    y = np.tile([0, 1, 2], 40)
    part = np.where((y > 0) & (np.arange(y.size) % 2 == 0), "b", "a")
    p = np.eye(3)[y] * 0.7 + 0.1
    frame = pd.DataFrame({"y": y, "part": part, **{f"p_{k + 1}": p[:, k] for k in range(3)}})
    frame.to_csv(tmp_path / "preds.csv", index=False)
    columns = TableColumns(probabilities=("p_1", "p_2", "p_3"))
    every = load_table(tmp_path / "preds.csv", columns)
    some = load_table(tmp_path / "preds.csv", replace(columns, where="part=b"))
    assert (every.labels == y).all()
    assert (some.labels == y[part == "b"]).all()
    assert every.notes == some.notes == ()
    frame[frame.y > 0].sample(frac=1, random_state=int(rng.integers(9))).to_csv(tmp_path / "names.csv", index=False)
    assert set(load_table(tmp_path / "names.csv", columns).labels) == {0, 1}  # as p_1 and p_2 are called


def test_a_rare_class_that_is_common_is_noted_where_nobody_named_it(tmp_path):
    frame = pd.DataFrame({"y": [1, 1, 1, 2], "p": [0.9, 0.6, 0.7, 0.2]})
    frame.to_csv(tmp_path / "preds.csv", index=False)
    assert "class 1 is used as the rare class, but has 75% of the rows" in load_table(tmp_path / "preds.csv").notes[0]
    assert load_table(tmp_path / "preds.csv", TableColumns(minority=1)).notes == ()


def write(tmp_path, y, **columns):
    frame = pd.DataFrame({"y": y, "p": np.linspace(0.05, 0.95, len(y)), **columns})
    path = tmp_path / "preds.csv"
    frame.to_csv(path, index=False)
    return path


def left_out(table):
    """Returns how many rows a note says were left out."""
    found = [note.rpartition(": ")[2] for note in table.notes if note.startswith("rows left out")]
    return int(found[0]) if found else 0


@pytest.mark.parametrize("unknown", [-1, -1.0, "-1", None])
@pytest.mark.parametrize("probabilities", [("p",), ("rest", "p")])
def test_a_row_without_a_label_counts_nowhere(tmp_path, unknown, probabilities):
    y = [0, 1, 0, 1, 0, 1, unknown, unknown]
    path = write(tmp_path, pd.Series(y, dtype=object), rest=1 - np.linspace(0.05, 0.95, 8), w=[1, 1, 1, 0, 1, 1, 1, 0])
    table = load_table(path, TableColumns(probabilities=probabilities))
    assert (table.labels.tolist(), left_out(table)) == (y[:6], 2)
    weighted = load_table(path, TableColumns(probabilities=probabilities, weights="w"))
    assert (weighted.labels.tolist(), left_out(weighted)) == ([0, 1, 0, 0, 1], 2)


def test_named_classes_have_unknown_ones_too(tmp_path):
    table = load_table(write(tmp_path, ["fraud", "fine", "-1", "", "fine"]), TableColumns(minority="fraud"))
    assert (table.labels.tolist(), left_out(table)) == ([1, 0, 0], 2)


def test_minus_one_may_be_the_rare_class(tmp_path):
    table = load_table(write(tmp_path, [1, -1, 1, 1]), TableColumns(minority="-1"))
    assert (table.labels.tolist(), left_out(table)) == ([0, 1, 0, 0], 0)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (
            [-1, None, -1.0],
            r"'y' must hold a known label, got -1 \(unknown\) or an empty cell in rows 1, 2, 3 \(3 rows\)",
        ),
        ([1, -1, 1], "'y' must hold another known label next to 1, got only -1, .*: write the other class as 0"),
        ([0, -1, 0], "no row has class 1 in column 'y'"),
    ],
)
def test_what_is_left_must_be_judged(tmp_path, y, message):
    with pytest.raises(InputError, match=message) as caught:
        load_table(write(tmp_path, y))
    assert "\n" not in str(caught.value)


def test_columns_called_as_the_classes_are_these_classes_in_any_order(tmp_path):
    columns = {"p_2": [0.2, 0.1, 0.7], "p_0": [0.7, 0.1, 0.2], "p_1": [0.1, 0.8, 0.1]}
    path = write(tmp_path, [0, 1, 2], **columns)
    for order in (("p_0", "p_1", "p_2"), ("p_2", "p_0", "p_1")):
        table = load_table(path, TableColumns(probabilities=order))
        right = table.probabilities[range(3), table.labels]
        assert (right.tolist(), order[table.minority]) == ([0.7, 0.8, 0.7], "p_1")


def test_a_probability_may_be_a_rounding_beyond_one(tmp_path):
    path = write(tmp_path, [0, 1, 0, 1], q=[-1e-9, 1 + 2e-7, 0.5, 1])
    assert load_table(path, TableColumns(probabilities=("q",))).probabilities.tolist() == [0, 1, 0.5, 1]
    path = write(tmp_path, [0, 1, 0, 1], q=[0, 1 + 2e-6, 0.5, 1])
    with pytest.raises(InputError, match=r"lie in \[0, 1\], got 1.000002 in row 2"):
        load_table(path, TableColumns(probabilities=("q",)))


@pytest.mark.parametrize("probabilities", [("p",), ("rest", "p")])
def test_a_value_may_stand_for_no_label(tmp_path, probabilities):
    path = write(tmp_path, [0, 1, 2, 2.0, "unknown"], rest=1 - np.linspace(0.05, 0.95, 5))
    columns = TableColumns(probabilities=probabilities, unknown=("2", "Unknown", "?"))
    table = load_table(path, columns)
    assert (table.labels.tolist(), left_out(table)) == ([0, 1], 3)
    assert table.notes[0].startswith("rows: --unknown names ?, but no label is that; the labels are 0 and 1")
    (note,) = [note for note in load_table(path).notes if "read as a class" in note]
    assert "'unknown' (1 row)" in note
