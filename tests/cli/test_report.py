"""`calirare report`: one page, whole, without anything from elsewhere, and inert whatever names there are."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from html.parser import HTMLParser

import pytest
import torch

from calirare._util.run_files import seal
from calirare.graph import Split
from tests.helpers.command import assert_refused, call, succeed
from tests.helpers.hostile import HOSTILE
from tests.helpers.tasks import rare_task

pytestmark = pytest.mark.slow


class Reader(HTMLParser):
    """Collects tags, links and text."""

    def __init__(self):
        super().__init__()
        self.tags, self.addresses, self.ids, self.text = [], [], [], ""

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in ("href", "src")]
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_data(self, data):
        self.text += data


def read(path):
    reader = Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    return reader


def test_the_page_is_whole_and_nothing_in_it_runs_or_is_fetched(hostile_run, tmp_path):
    run = shutil.copytree(hostile_run / "run", tmp_path / "run")
    said = call("report", "--run", run)
    assert (said.code, said.out.strip()) == (0, str(run / "report.html"))
    path = run / "report.html"
    page, text = read(path), path.read_text(encoding="utf-8")
    assert page.tags.count("script") == 1, "our own, which sorts tables"
    assert "onerror" not in re.sub(r"&#34;&gt;&lt;img src=x onerror=alert\(2\)&gt;", "", text)
    assert all(address.startswith(("#", "data:image/png;base64,")) for address in page.addresses)
    assert page.tags.count("img") == len(list((hostile_run / "run").glob("*.png")))
    assert len(text) < 3_000_000
    assert {address[1:] for address in page.addresses if address.startswith("#")} <= set(page.ids)
    assert "{{ 7 * 7 }}" in page.text
    assert "49" not in re.findall(r"[^\n]*7 \* 7[^\n]*", page.text)[0]
    assert not re.search("[\u202a-\u202e\x07]", text)
    for words in ("Data and models", "AUPRC", "ECE of P(rare)", "divided by", HOSTILE[0], "calirare train --config"):
        assert words in page.text
    assert call("report", "--run", run).code == 0, "a page that nobody changed is replaced"
    path.write_text("mine")
    again = call("report", "--run", run)
    assert "report.html exists already: take another --out, or pass --overwrite" in assert_refused(again)
    succeed("report", "--run", run, "--overwrite")
    kept = call("train", "--config", run / "config.yaml", "--out", run, "--overwrite")
    assert kept.code == 0, "the page is one of the run's own files, which --overwrite may replace"


def test_a_page_without_the_graph_says_so(quick_run, graph_file, tmp_path):
    moved = graph_file.rename(graph_file.with_name("away.npz"))
    try:
        succeed("report", "--run", quick_run, "--out", tmp_path / "p.html")
        assert "There are no groups:" in read(tmp_path / "p.html").text
        succeed("report", "--run", quick_run, "--out", tmp_path / "q.html", "--graph", moved)
        assert "divided by" in read(tmp_path / "q.html").text
    finally:
        moved.rename(graph_file)
    assert "must end in .html" in assert_refused(call("report", "--run", quick_run, "--out", tmp_path / "p.txt"))


def test_without_test_nodes_there_are_no_slices(tmp_path):
    task = rare_task()
    everything, none = torch.arange(task.n_nodes), torch.empty(0, dtype=torch.int64)
    y = torch.where(everything < 90, task.y, -1)
    split = Split(everything[:90], none, none)
    dataclasses.replace(task, y=y, original_y=y, split=split).to_npz(tmp_path / "g.npz")
    settings = ("--dataset", tmp_path / "g.npz", "--rare-class", "1", "--model", "hops", "--epochs", "10")
    succeed("train", *settings, "--folds", 2, "--out", tmp_path / "run")
    succeed("report", "--run", tmp_path / "run")
    page = read(tmp_path / "run" / "report.html")
    assert "There are no groups: the run has no labelled test nodes" in page.text
    assert "on 90 labelled nodes, " in page.text
    assert "each predicted without its own label." in page.text


def test_reasons_are_of_the_first_rows_of_the_table_of_alerts(tmp_path):
    """In this run every node has a label, and most neither train nor test."""
    task, nodes = rare_task(), torch.arange(260)
    dataclasses.replace(task, split=Split(nodes[:90], nodes[:0], nodes[90:110])).to_npz(tmp_path / "g.npz")
    settings = ("--dataset", tmp_path / "g.npz", "--rare-class", "1", "--model", "hops", "--epochs", "60")
    succeed("train", *settings, "--folds", "0", "--out", tmp_path / "run")
    succeed("report", "--run", tmp_path / "run")
    text = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    table = text.partition('<h2 id="alerts">')[2].partition("</table>")[0]
    listed = re.findall(r'<tr><td class="text">([^<]*)</td>', table)
    explained = re.findall(r'<section class="card">\n<h3>([^<]*)</h3>', text)
    assert 0 < len(explained) == min(5, len(listed))
    assert explained == listed[: len(explained)]


def test_a_damaged_run_makes_no_page(quick_run, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(quick_run, copy)
    (copy / "metrics.json").write_text("{}")
    assert "metrics.json is damaged" in assert_refused(call("report", "--run", copy))
    for verdict in (True, " "):  # by another release, or by hand: files.json lists it as it is
        metrics = json.loads((quick_run / "metrics.json").read_text())
        metrics["verdict"] |= {"answer": verdict}
        (copy / "metrics.json").write_text(json.dumps(metrics))
        seal(copy)
        assert "metrics.json is damaged" in assert_refused(call("report", "--run", copy))
    assert not (copy / "report.html").exists()
