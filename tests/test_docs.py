"""The pages say what is so: examples run, tables agree with the code, links are checked."""

from __future__ import annotations

import doctest
import io
import json
import re
import runpy
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import pytest
import torch
import yaml

import calirare
from calirare.leave_one_out import METHODS, leave_one_out
from calirare.models import DETECTORS
from tests.calirare.leave_one_out.cases import trained
from tests.helpers.command import empty_pictures, rough_runs, succeed
from tests.test_layering import FLOORS

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
EXAMPLES = sorted((DOCS / "examples").glob("plot_*.py"))
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def fences(page: Path) -> list[tuple[str, str]]:
    """Returns language and text of each block of code."""
    return FENCE.findall(page.read_text(encoding="utf-8"))


@pytest.fixture
def elsewhere(tmp_path, monkeypatch) -> Path:
    """A folder of its own to work in, and no window for pictures."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plt, "show", lambda: plt.close("all"))
    return tmp_path


@pytest.fixture
def unrendered() -> Iterator[None]:
    """Nothing looks at pictures or at the digits of intervals."""
    with rough_runs(), empty_pictures():
        yield


def test_the_page_on_files_lists_the_columns_of_tables() -> None:
    page = (DOCS / "files.md").read_text(encoding="utf-8")
    rows = [f"| `{each.name}` | {each.help} |" for each in calirare.run.COLUMNS if "rare" in each.tables]
    assert "\n".join(rows) in page, "write the rows as `calirare.run.COLUMNS` has them"
    assert all(f"`{each.name}`" in page for each in calirare.run.COLUMNS)


@pytest.mark.release
def test_the_first_example_of_the_gallery_runs(elsewhere: Path, unrendered: None) -> None:
    """`make docs` runs all of them, this one too; here what it writes is looked at."""
    assert max(len(example.read_text(encoding="utf-8").splitlines()) for example in EXAMPLES) <= 40
    (first,) = [example for example in EXAMPLES if example.stem == "plot_1_first_run"]
    runpy.run_path(str(first))
    assert_the_embedded_digits_improve(json.loads((elsewhere / "digits-run" / "metrics.json").read_text()))


def assert_the_embedded_digits_improve(metrics: dict) -> None:
    """The product's bars on the first run that a user sees, by what it wrote."""
    report = metrics["report"]
    assert report["balanced"]["recall"] >= 0.9
    assert report["population"]["nll"] < report["raw"]["nll"]
    assert metrics["eice"]["population"] < metrics["eice"]["raw"]


def followed(page: Path) -> dict[str, Any]:
    """Runs the Python and the commands of a page in their order; returns the names that Python gave."""
    names, shown = dict[str, Any](), page.read_text(encoding="utf-8")
    for language, text in fences(page):
        if language == "python":
            exec(compile(text, page.name, "exec"), names)
        elif language == "console":
            for line in text.splitlines():
                program, *words = shlex.split(line.removeprefix("$ "))
                assert program == "calirare"
                said = succeed(*words)
                if words[0] == "recalibrate":
                    assert said.out.splitlines()[0] in shown, "as many fresh labels, as many of them rare"
        elif language == "yaml":
            assert calirare.Settings.from_mapping(yaml.safe_load(text)) == names["settings"]
    return names


@pytest.mark.release
def test_the_guide_can_be_followed_to_the_letter(elsewhere: Path, unrendered: None) -> None:
    names = followed(DOCS / "guide.md")
    assert len(names["later"]) == names["graph"].n_nodes


@pytest.mark.release
def test_the_page_on_transactions_can_be_followed_to_the_letter(elsewhere: Path, unrendered: None) -> None:
    names = followed(DOCS / "transactions.md")
    june = pd.read_csv("scores/june/transactions.csv")
    assert list(june["card"]) == list(names["scores"]["card"].astype(str)) == list(names["june"]["card"])
    assert len(names["queue"]) == 40
    assert 0 < names["p_fraud"] < 1
    assert names["worst"]["expected_amount"].sum() > 0


def test_the_maps_of_many_classes_print_what_their_page_says(capsys) -> None:
    shown = fences(DOCS / "maps.md")
    (example,), (printed,) = ([text for language, text in shown if language == kind] for kind in ("python", "text"))
    exec(compile(example, "maps.md", "exec"), {})
    assert capsys.readouterr().out.strip() == printed.strip()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:jackknife. leave-one-out cannot")  # as the parameters are drawn
def test_a_network_of_ones_own_is_judged_as_the_pages_show(capsys) -> None:
    (_, example), (_, effects) = fences(ROOT / "README.md")[-1], fences(DOCS / "own_model.md")[1]
    names = dict[str, Any]()
    exec(compile(example + effects, "own_model.md", "exec"), names)
    assert capsys.readouterr().out.startswith("Leave-one-out can")
    assert names["effects"].loss.shape == (int(names["data"].test_mask.sum()), 10)


@pytest.mark.slow
def test_a_new_node_is_scored_as_the_page_of_large_graphs_says() -> None:
    (example,) = (text for language, text in fences(DOCS / "scaling.md") if ">>>" in text)
    found = doctest.DocTestParser().get_doctest(example, {}, "scaling.md", None, None)
    said = io.StringIO()
    doctest.DocTestRunner().run(found, out=said.write)
    assert not said.getvalue()


class TestContributing:
    PAGE = ROOT / "CONTRIBUTING.md"

    def test_the_leave_one_out_method_it_shows_works(self, monkeypatch) -> None:
        """It moves every label's own logit the way the Gauss-Newton step does, and is known once it is registered."""
        names: dict = {}
        example, _ = (text for language, text in fences(self.PAGE) if language == "python")
        exec(compile(example, "CONTRIBUTING.md", "exec", dont_inherit=True), names)
        method = names["GradientStep"]
        fitted, graph = trained()
        found, alo = leave_one_out(fitted, graph, method(rate=2.0)), leave_one_out(fitted, graph)
        assert found.change.shape == alo.change.shape
        assert bool((torch.sign(found.own) == torch.sign(alo.own)).all())
        monkeypatch.setitem(METHODS, method.name, method)
        settings = calirare.Settings.from_mapping({"loo": {"method": "gradient", "rate": 2.0}})
        assert settings.loo == method(rate=2.0)

    def test_the_detector_it_shows_is_known_and_learns(self, monkeypatch) -> None:
        monkeypatch.setitem(DETECTORS, "nearest", None)  # gone again afterwards
        _, example = (text for language, text in fences(self.PAGE) if language == "python")
        exec(compile(example, "CONTRIBUTING.md", "exec", dont_inherit=True), {})
        assert calirare.Settings.of(model="nearest").model == "nearest"
        _, graph = trained()
        nodes = (graph.y >= 0).nonzero().flatten()
        fitted = DETECTORS["nearest"].make(seed=0, hops=1).fit(graph, nodes)
        assert float((fitted.own_logits.argmax(1) == fitted.targets).double().mean()) > 0.6

    def test_its_table_of_floors_is_the_one_that_is_tested(self) -> None:
        rows = re.findall(r"^\| (\d+) \| (.*) \|$", self.PAGE.read_text(encoding="utf-8"), re.MULTILINE)
        floors = FLOORS["calirare"]
        assert [int(number) for number, _ in rows] == list(range(len(floors), 0, -1))
        for number, text in rows:
            said = {name.removesuffix(".py").replace("__init__", "") for name in re.findall(r"`(\w+(?:\.py)?)`", text)}
            assert said == floors[int(number) - 1]


class TestSite:
    @pytest.fixture(autouse=True)
    def machinery(self, monkeypatch) -> None:
        monkeypatch.syspath_prepend(DOCS / "site")

    def test_the_reference_has_every_package_of_the_front_door(self) -> None:
        from api_pages import TITLES

        packages = {
            f"calirare.{name}"
            for name in (
                *calirare._PACKAGES,
                *calirare._OPTIONAL,
                "calibration.decisions",
                "explain.audit",
                "leave_one_out.eice",
            )
        }
        assert packages | {"calirare.sklearn", "calirare_ext", "calirare_multilabel"} == set(TITLES)

    @pytest.mark.parametrize(
        ("link", "fault"),
        [
            ("other.html#here", None),
            ("https://example.org/page", None),
            ("missing.html", "no such file"),
            ("other.html#there", "no such place in the page"),
            ("../outside.html", "no such file"),
            ("http://example.org", "must begin with https, got http"),
            ("https://example", "has no host"),
        ],
    )
    def test_a_link_that_leads_nowhere_is_found(self, link: str, fault: str | None, tmp_path: Path) -> None:
        from check_links import faults

        (tmp_path / "outside.html").touch()
        site = tmp_path / "site"
        site.mkdir()
        (site / "index.html").write_text(f'<a href="{link}">it</a>')
        (site / "other.html").write_text('<p id="here">')
        found, _, _ = faults(site)
        assert found == ([] if fault is None else [f"index.html: {link}: {fault}"])

    def test_docstrings_lose_their_markup_but_not_their_code(self) -> None:
        pytest.importorskip("sphinx", reason="make docs installs it")
        from docstrings import escape

        lines = ["|a| of `x_` and b_ or 2 * c", "    >>> x_ | y", "", "Precision: sums of", "    many terms."]
        escape(None, "function", "f", None, None, lines)
        wanted = [r"\|a\| of `x_` and b\_ or 2 \* c", "    >>> x_ | y", "", "", "**Precision**: sums of", "many terms."]
        assert lines == wanted
