from __future__ import annotations

import csv
import json
import re

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from calirare._util.errors import InputError
from calirare_lab.multilabel.graphs import simulated_graph
from calirare_multilabel import multilabel_report
from calirare_multilabel.cli import app
from calirare_multilabel.data import save_multilabel
from tests.helpers.multilabel import small_data

QUICK = ["--epochs", "3", "--hidden", "8", "--floors", "0", "--batch-size", "48"]
FILES = ["config.yaml", "files.json", "log.txt", "metrics.json", "model.safetensors", "predictions.csv"]


def call(*arguments: str) -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def table(tmp_path):
    save_multilabel(small_data(200), tmp_path / "small.npz")
    return tmp_path / "small.npz"


@pytest.mark.slow
def test_train_writes_a_run_and_evaluate_reads_it(table, tmp_path):
    out = tmp_path / "run"
    text = call("train", "--dataset", table, "--out", out, "--calibrate", "temperature", "--beta", "0.5", *QUICK)
    assert sorted(path.name for path in out.iterdir()) == [*FILES, "reliability.png"]
    with pytest.raises(InputError, match="exists already"):
        call("train", "--dataset", table, "--out", out, "--loss", "bce", *QUICK)
    assert "small, test rows, loss cmlcc" in text
    metrics = json.loads((out / "metrics.json").read_text())
    assert set(metrics["report"]["test"]) == {"raw", "calibrated"}
    assert metrics["beta"] == 0.5
    assert yaml.safe_load((out / "config.yaml").read_text())["loss"] == "cmlcc"
    with (out / "predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 200
    test = [row for row in rows if row["split"] == "test"]
    f, y = (np.array([[float(row[f"{kind}_{name}"]) for name in "abc"] for row in test]) for kind in "py")
    expected = multilabel_report(y, f)
    saved = metrics["report"]["test"]["calibrated"]
    assert saved["hamming_loss"] == expected["hamming_loss"]
    assert saved["copula"] == pytest.approx(expected["copula"], rel=1e-6, abs=0)
    text = call("evaluate", out, "--floors", "2", "--out", tmp_path / "e.json")
    report = json.loads((tmp_path / "e.json").read_text())["report"]
    assert {key: report[key] for key in expected} == expected
    assert report["copula_floor"] > 0
    assert "copula threshold" in text


@pytest.mark.slow
def test_without_a_number_beta_is_chosen_on_validation_rows(table, tmp_path):
    call("train", "--dataset", table, "--out", tmp_path / "a", "--loss", "cmlcc", *QUICK)
    choice = json.loads((tmp_path / "a" / "metrics.json").read_text())["beta_choice"]
    assert list(choice["validation"]) == ["0.0", "0.1", "0.3", "1.0", "3.0"]


@pytest.mark.slow
def test_a_graph_is_trained_calibrated_and_judged_with_the_same_commands(tmp_path):
    save_multilabel(simulated_graph(200, n_labels=3, share=0.2), tmp_path / "graph.npz")
    run = tmp_path / "run"
    losses = ("--loss", "cmlcc", "--beta", "0.5", "--calibrate", "temperature")
    call("train", "--dataset", tmp_path / "graph.npz", "--out", run, *losses, *QUICK)
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["data"]["graph_edges"] > 400
    assert (metrics["loss"], metrics["beta"]) == ("cmlcc", 0.5)
    assert metrics["temperature"] not in (0, 1)
    sides = metrics["report"]["test"]
    assert sides["raw"]["hamming_loss"] == sides["calibrated"]["hamming_loss"]  # a temperature moves no decision
    assert sides["raw"]["nll"] != sides["calibrated"]["nll"]
    call("evaluate", run, "--floors", "0", "--out", tmp_path / "e.json")
    judged = json.loads((tmp_path / "e.json").read_text())
    assert judged["rows"] == metrics["data"]["rows"]["test"] == 140
    for name, value in sides["calibrated"].items():
        assert judged["report"][name] == pytest.approx(value, rel=1e-5, abs=0), name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--dataset", "{table}", "--p", "inf"], "p must be at least 1 and finite, got inf"),
        (
            ["evaluate", "{parts}", "--part", "tst"],
            r"2 rows of 'tst' are needed, got 0: .* val \(2 rows\), test \(1 row\)",
        ),
        (["train", "--dataset", "{table}", "--beta", "much"], "beta must be a number or auto"),
        (["train", "--dataset", "{table}", "--calibrate", "platt"], "calibrate must be none or temperature"),
        (["train", "--dataset", "none.npz"], "no such file"),
        (["evaluate", "{bad}"], "a column y_<label> and a column p_<label>"),
        (["evaluate", "{range}"], "p must lie in"),
        (["evaluate", "{text}"], "must be numbers"),
    ],
)
def test_bad_input_is_one_sentence(table, tmp_path, arguments, message):
    files = {"bad": "a,b\n1,2\n", "range": "y_a,p_a\n1,1.5\n0,0.2\n", "text": "y_a,p_a\n1,x\n0,0.2\n"}
    files["parts"] = "y_a,p_a,split\n1,.3,val\n0,.2,val\n0,.4,test\n"
    paths = {"table": table}
    for name, text in files.items():
        paths[name] = tmp_path / f"{name}.csv"
        paths[name].write_text(text)
    out = tmp_path / "out"
    given = [argument.format(**paths) for argument in arguments]
    with pytest.raises(InputError, match=message) as error:
        CliRunner().invoke(
            app, [*given, *(["--out", str(out)] if given[0] != "evaluate" else [])], catch_exceptions=False
        )
    assert "\n" not in str(error.value)
    assert not out.exists()


def test_evaluate_names_what_it_met(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "p.csv"
    with path.open("w") as file:
        file.write("y_a,y_b,p_a,p_b\n")
        for _ in range(30):
            file.write(f"{int(rng.random() < 0.5)},0,{rng.random():.3f},0.25\n")
    text = call("evaluate", path, "--floors", "0")
    assert "note: constant scores: b" in text
    assert "note: absent labels: b" in text


def predictions(path, digits: int | None = None, sep: str = ",") -> None:
    """Writes a table of calibrated probabilities, rounded to so many digits."""
    import pandas as pd

    rng = np.random.default_rng(0)
    f = rng.beta(1, 2, (400, 2))
    y = (rng.random(f.shape) < f).astype(int)
    columns = {f"{kind}_{name}": part[:, j] for kind, part in (("y", y), ("p", f)) for j, name in enumerate("ab")}
    frame = pd.DataFrame(columns)
    (frame if digits is None else frame.round(digits)).to_csv(path, index=False, sep=sep)


@pytest.mark.slow
def test_evaluate_says_what_ties_do(tmp_path):
    predictions(tmp_path / "raw.csv")
    predictions(tmp_path / "rounded.csv", digits=1)
    out = tmp_path / "e.json"
    options = ("--floors", "2", "--out", out)
    assert "tied" not in call("evaluate", tmp_path / "raw.csv", *options)
    text = call("evaluate", tmp_path / "rounded.csv", "--overwrite", *options)
    note = next(line for line in text.splitlines() if line.startswith("note: tied scores: 99.8% of the rows"))
    found = re.search(r"copula threshold ([\d.]+), copula ([\d.]+);", note)
    assert found is not None
    report = json.loads(out.read_text())["report"]
    assert float(found[2]) < 0.8 * report["copula"]
