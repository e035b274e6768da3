"""Graphs from an edge table and a node table."""

import gzip
import re
import shlex
import sys
import zipfile

import pandas as pd
import pytest
import torch

from calirare._util.errors import InputError
from calirare.datasets import load_dataset
from calirare.graph import Graph

NODES = "node,age,income,label,split\np,1,10,ok,train\nq,2,20,fraud,train\nr,3,30,ok,val\ns,4,40,,\nt,5,50,fraud,test\n"
EDGES = "source,target,when,weight\np,q,mon,2\nq,r,tue,1\nr,s,wed,0.5\n"


@pytest.fixture
def write(tmp_path):
    def save(nodes=NODES, edges=EDGES, name="shop_edges.csv"):
        (tmp_path / name.replace("edges", "nodes")).write_text(nodes)
        (tmp_path / name).write_text(edges)
        return tmp_path / name

    return save


def read(path, **options):
    return load_dataset(path, rare_class="fraud", symmetrize=True, **options)


def test_two_tables_are_a_graph(write):
    graph = read(write())
    assert graph.name == "shop_edges"
    assert graph.x.tolist() == [[1, 10], [2, 20], [3, 30], [4, 40], [5, 50]]
    assert graph.y.tolist() == [0, 1, 0, -1, 1]
    assert graph.original_class_names == ("fraud", "ok")
    assert graph.node_names.tolist() == ["p", "q", "r", "s", "t"]
    assert graph.adjacency.to_dense()[:4, :4].tolist() == [[0, 2, 0, 0], [2, 0, 1, 0], [0, 1, 0, 0.5], [0, 0, 0.5, 0]]
    assert [getattr(graph.split, part).tolist() for part in ("train", "val", "test")] == [[0, 1], [2], [4]]
    assert graph.split.name == "given"


def test_weights_written_for_people_are_read_and_told(write):
    edges = EDGES.replace(",", ";").replace("0.5", "1.234,5").replace(";2\n", ";0,25\n")
    graph = read(write(edges=edges))
    assert graph.adjacency.to_dense()[:3, 1:4].tolist() == [[0.25, 0, 0], [0, 1, 0], [1, 0, 1234.5]]
    assert "edges: 'weight' is read as numbers, '0,25' as 0.25" in graph.notes
    with pytest.raises(InputError, match="column 'weight' holds '1,234' in line 4"):  # a thousand, or one and a bit
        read(write(edges=edges.replace("1.234,5", "1,234").replace("0,25", "2")))


def test_a_column_called_weight_can_be_left_unread_and_reading_it_is_told(write):
    told = "edges: weights are those of column 'weight' (--unweighted does not read them)"
    assert told in read(write()).notes
    assert told not in read(write(), weight="weight").notes, "that was asked for"
    graph = read(write(), unweighted=True)
    assert graph.adjacency.to_dense()[:4, :4].tolist() == [[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0]]
    assert told not in graph.notes
    assert any("not read of the table: 'when' and 'weight'" in note for note in graph.notes)
    heavy = write(edges=EDGES.replace("0.5", "heavy"))
    assert read(heavy, unweighted=True).n_edges == graph.n_edges, "whatever stands in it"
    with pytest.raises(InputError, match="unweighted must be left out where weight names a column, got 'weight'"):
        read(write(), weight="weight", unweighted=True)
    with pytest.raises(InputError, match=r"no column 'none'; .*: name another, or none \(--unweighted\)"):
        read(write(), weight="none")


def test_parquet_and_gzip_and_tabs_give_the_same_graph(write, tmp_path):
    want = read(write())
    nodes, edges = tmp_path / "shop_nodes.csv", tmp_path / "shop_edges.csv"
    for suffix, save in (
        (".parquet", lambda table, path: table.to_parquet(path)),
        (".csv.gz", lambda table, path: table.to_csv(path, index=False)),
        (".tsv", lambda table, path: table.to_csv(path, index=False, sep="\t")),
    ):
        for path in (nodes, edges):
            save(pd.read_csv(path), path.with_name(path.name.replace(".csv", suffix)))
        got = read(tmp_path / f"shop_edges{suffix}")
        assert torch.equal(got.adjacency.to_dense(), want.adjacency.to_dense())
        assert torch.equal(got.x, want.x)
        assert torch.equal(got.y, want.y)
        assert got.class_names == want.class_names


def test_without_ids_nodes_are_numbered_by_row(write):
    path = write("f,y\n1,0\n2,1\n3,0\n4,-1\n", "u,v,note\n0,1,x\n1,2,y\n")
    graph = load_dataset(path, symmetrize=True, label_rate=1)
    assert graph.y.tolist() == [0, 1, 0, -1]
    assert graph.adjacency.to_dense()[1].tolist() == [1, 0, 1, 0]
    assert graph.node_names is None


@pytest.mark.parametrize(
    ("nodes", "edges", "message"),
    [
        (NODES.replace("3,30", "inf,30"), EDGES, "column 'age' holds inf in line 4"),
        (NODES.replace("3,30", "3,1e39"), EDGES, "column 'income' holds 1e\\+39 in line 4"),
        (NODES.replace("3,30", "3,many"), EDGES, r"'income' holds 'many' among numbers in line 4 \(node r\): fix"),
        (NODES.replace("val", "valid"), EDGES, "must hold train, val, test or nothing, got 'valid' in line 4"),
        (
            NODES,
            EDGES.replace("r,s", "r,z"),
            "node 'z' has none, named in line 4: add the row, or leave .*--unknown-ends drop or add",
        ),
        (NODES, EDGES.replace("r,s", "r,"), "both ends of an edge must be given, but 'target' is empty in line 4"),
        (NODES, EDGES.replace("0.5", "-1"), r"finite and positive in float32, got -1 at line 4 \(r, s\)"),
        (
            NODES,
            EDGES.replace("0.5", "heavy"),
            "edge weights must be numbers, but column 'weight' holds 'heavy' in line 4",
        ),
        (NODES, EDGES + "p,q,thu,1\n", r"line 2 \(p, q\) is listed 2 times \(1 repeated\): pass duplicates="),
        (NODES, EDGES + "t,t,thu,1\n", "line 5 joins node t to itself: pass self_loops="),
        (NODES, "source\np\n", r"must name two columns, source and target .*, got source:"),
        ("", EDGES, "shop_nodes.csv: the file is empty"),
        ("sep=;\n" + NODES, EDGES, "the first line must name the columns, got 'sep=;', which spreadsheets write"),
        (NODES, "a,b\n1,2,3,4\n1\n", "edges.csv"),
        (NODES + 'u,"6', EDGES, "shop_nodes.csv"),
        (
            "f,y\n1,0.5\n2,1\n",
            "a,b\n0,1\n",
            "labels must be names or whole numbers .*, but column 'y' holds 0.5 in line 2",
        ),
        ("f\n1\n2\n", "a,b\n0,1\n1,2\n", "must be whole numbers from 0 to 1, .*, got '2' in line 3: name"),
        ("f\n1\n2\n", "a,b\nx,y\n", "whole numbers from 0 to 1, .* no column 'node' or 'id', got 'x' in line 2"),
        ("node,f,y\n", "a,b\n", "shop_nodes.csv: the table of nodes has a header but no rows"),
        # Cells that would move or vanish.
        (NODES.replace("ok,train", "ok,train,"), EDGES, "columns of the header, got 6 cells in line 2: remove"),
        (NODES, "p,q\nq,r\n", "the first line must name the columns, but 'p' and 'q' are names of nodes"),
        ("f,y\n1,0\n2,1\n", "0,1\n1,0\n", "first line must name .* source and target .* got 0, 1: write"),
        (NODES, "time,first,second\n5,p,z\n", "source and target .* got time, first, second: write a first line"),
        (NODES.replace("age", ""), EDGES, "every column must have a name, but column 2 has none"),
        # The answer among the features.
        (NODES.replace("income", "label"), EDGES, "every column must have its own name, got 'label' twice"),
        (
            NODES.replace("income", "y"),
            EDGES,
            "one column must hold the labels, got 'y' and 'label': leave the others out",
        ),
        (NODES.replace("income", "id"), EDGES, "one column must hold the names of the nodes, got 'node' and 'id'"),
        # Labels that are none.
        ("f,y\n1,0\n2,inf\n", "a,b\n0,1\n", "column 'y' holds inf in line 3"),
        ("f,y\n1,0\n2,-5\n", "a,b\n0,1\n", "whole numbers from 0, empty or -1 where unknown, .* holds -5 in line 3"),
        # Names of nodes.
        (
            NODES.replace("node", "account"),
            "source,target\npp,qq\nqq,r\n",
            "'account' holds another text in every row, 'p' in line 2: .* name it 'node' or 'id'",
        ),
        (NODES.replace("t,5", "p,5"), EDGES, "nodes.csv: the node table lists node p more than once, again in line 6"),
        (NODES.replace("t,5", ",5"), EDGES, "every node must have a name, but 'node' is empty in line 6"),
        ("node,f\n7,1\n8,2\n", "source,target\n7,8\n8,9999\n", "node '9999' has none, named in line 3"),
        ("node,f\n07,1\n8,2\n", "source,target\n7,8\n", "node '7' has none, named in line 2: it looks like node '07'"),
        # Other cells.
        (
            NODES.replace("train", "").replace("val", "").replace("test", ""),
            EDGES,
            "'split' .* empty in every row: fill",
        ),
    ],
)
def test_a_cell_that_does_not_fit_is_named(write, nodes, edges, message):
    with pytest.raises(InputError, match=message) as error:
        read(write(nodes, edges), duplicates="error", self_loops="error")
    assert "\n" not in str(error.value)
    assert "np." not in str(error.value)


def test_edges_of_unknown_nodes_are_left_out_on_request_but_not_all_of_them(write):
    graph = read(write(NODES, EDGES + "z,p,fri,1\np,z,fri,1\n"), unknown_ends="drop")
    assert torch.equal(graph.adjacency.to_dense(), read(write()).adjacency.to_dense())
    assert "edges: left out, edges of nodes that the node table does not have: 2" in graph.notes
    with pytest.raises(InputError, match="every end of an edge must have a row in the node table, but node 'z'"):
        read(write(NODES, "source,target,when,weight\nz,p,fri,1\n"), unknown_ends="drop")
    with pytest.raises(InputError, match="unknown_ends must be one of error, drop, add, got 'keep'"):
        read(write(), unknown_ends="keep")


def test_files_that_cannot_be_read_are_named(tmp_path, write):
    with pytest.raises(InputError, match=r"lonely.csv: an edge table needs a table of nodes .* pass nodes=PATH"):
        load_dataset(tmp_path / "lonely.csv")
    path = write()
    with pytest.raises(InputError, match=r"none.csv: there is no such file"):
        read(path, nodes=tmp_path / "none.csv")
    for name in ("cut.parquet", "cut.csv.gz"):
        (tmp_path / name).write_bytes(b"PAR1 nothing")
        with pytest.raises(InputError, match=f"{name}: the table cannot be read"):
            read(path, nodes=tmp_path / name)
    (tmp_path / "latin.csv").write_bytes(b"node,f\n\xff\xfe,1\n")
    with pytest.raises(InputError, match=r"latin.csv: a table must be text in UTF-8, which byte 0xff is not: save it"):
        read(path, nodes=tmp_path / "latin.csv")
    (tmp_path / "packed.csv").write_bytes(gzip.compress(b"node,f\na,1\n"))
    with zipfile.ZipFile(tmp_path / "zipped.csv", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("nodes.csv", NODES)
    with pytest.raises(InputError, match=r"is not: it is a zip archive or a spreadsheet: unpack it, or save it as CSV"):
        Graph.from_edges(write(), tmp_path / "zipped.csv")
    with pytest.raises(InputError, match=r"which byte 0x8b is not: it is compressed: call it .csv.gz"):
        read(path, nodes=tmp_path / "packed.csv")
    (tmp_path / "nodes.xlsx").write_bytes(b"")
    with pytest.raises(InputError, match=r"nodes.xlsx: a table must end in .csv"):
        read(path, nodes=tmp_path / "nodes.xlsx")


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, write, monkeypatch):
    (tmp_path / "n.parquet").write_bytes(b"PAR1")

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"Parquet needs pyarrow: pip install 'calirare\[parquet\]'"):
        read(write(), nodes=tmp_path / "n.parquet")


def test_unknown_names_list_the_known_ones(tmp_path):
    with pytest.raises(InputError, match=r"must be one of digits, cora, .* or a path that ends in .npz or .csv"):
        load_dataset("coral")


@pytest.mark.parametrize("names", [("src", "dst"), ("from", "to"), ("u", "v"), ("Source", "Target"), ("of", "with")])
def test_ends_are_found_by_name(write, names):
    want = read(write())
    edges = pd.read_csv(write())[["source", "target"]].set_axis(list(names), axis=1)
    if names != ("of", "with"):
        edges.insert(0, "time", [5, 6, 7])
    got = read(write(edges=edges.to_csv(index=False)))
    assert torch.equal(got.adjacency.indices, want.adjacency.indices)


@pytest.mark.parametrize(
    ("cells", "classes", "y"),
    [
        (("fraud", "ok", "None", "NA", "-1", ""), ("NA", "None", "fraud", "ok"), [2, 3, 1, 0, -1, -1]),
        (("null", "n/a", "n/a", "", "", ""), ("n/a", "null"), [1, 0, 0, -1, -1, -1]),
        (("1.0", "9.0", "-1.0", "", "10.0", "1.0"), ("1", "9", "10"), [0, 1, -1, -1, 2, 0]),
        (("True", "False", "false", "TRUE", "", "-1"), ("0", "1"), [1, 0, 0, 1, -1, -1]),
        (("007", "010", "7", "", "-1", "007"), ("007", "010", "7"), [0, 1, 2, -1, -1, 0]),
    ],
)
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_labels_stay_what_they_are(tmp_path, cells, classes, y, suffix):
    nodes = pd.DataFrame({"f": range(6), "y": cells})
    save = nodes.to_parquet if suffix == ".parquet" else nodes.to_csv
    save(tmp_path / f"n{suffix}", index=False)
    (tmp_path / "e.csv").write_text("source,target\n0,1\n1,0\n")
    graph = Graph.from_edges(tmp_path / "e.csv", tmp_path / f"n{suffix}")
    assert graph.class_names == classes
    assert graph.y.tolist() == y


@pytest.mark.parametrize("ids", [("00", "01", "1"), ("7e5", "7", "NA"), ("001", "002", "x3"), ("1", "2", "1.0")])
def test_names_of_nodes_stay_what_they_are(write, ids):
    nodes = "node,f\n" + "".join(f"{name},{i}\n" for i, name in enumerate(ids))
    graph = Graph.from_edges(write(nodes, f"source,target\n{ids[0]},{ids[2]}\n{ids[2]},{ids[0]}\n"), None)
    assert graph.node_names.tolist() == list(ids)
    assert graph.adjacency.to_dense()[0].tolist() == [0, 0, 1]


@pytest.mark.parametrize("word", ["unknown", "NA", "?", "None", "Pending", "under_review"])
def test_a_class_that_is_called_like_nothing_is_told_of(write, word):
    nodes = f"node,f,label\na,1,ok\nb,2,fraud\nc,3,{word}\nd,4,{word}\n"
    graph = load_dataset(write(nodes, "u,v\na,b\nb,c\nc,d\n"), rare_class="fraud")
    (note,) = [note for note in graph.notes if "read as a class" in note]
    assert f"{word!r} (2 nodes)" in note
    assert f"--unknown {shlex.quote(word)} " in note
    named = load_dataset(write(nodes.replace(word, "fine"), "u,v\na,b\nb,c\nc,d\n"), rare_class="fraud")
    assert not [note for note in named.notes if "read as a class" in note]


def test_cells_may_be_separated_by_blanks(write):
    nodes = "  node age   income label\np 1 10  ok\nq 2  20 fraud\nr 3 30 ok\ns 4 40 fraud\n"
    want = read(write(re.sub(" +", ",", nodes.strip()), EDGES))
    got = read(write(nodes, EDGES.replace(",", " ")))
    assert torch.equal(got.x, want.x)
    assert torch.equal(got.y, want.y)
    assert torch.equal(got.adjacency.values, want.adjacency.values)


def test_a_blank_in_the_name_of_one_column_separates_nothing(write):
    graph = Graph.from_edges(write("name of it\np\nq\nr\ns\n", EDGES), None, symmetrize=True)
    assert graph.node_names.tolist() == ["p", "q", "r", "s"]


def test_tables_in_each_others_place_are_told_apart(write):
    with pytest.raises(InputError, match=r"shop_edges.csv: this is no edge table, but the node table is one: exchange"):
        load_dataset(write(nodes=EDGES, edges=NODES))


def test_an_index_with_a_name_is_a_column_of_parquet(write, tmp_path):
    edges = write()
    pd.read_csv(tmp_path / "shop_nodes.csv").set_index("node").to_parquet(tmp_path / "n.parquet")
    assert read(edges, nodes=tmp_path / "n.parquet").node_names.tolist() == ["p", "q", "r", "s", "t"]


def test_without_labels_no_list_of_classes_is_shown(write):
    with pytest.raises(InputError, match="training needs labels, but no node has one"):
        load_dataset(write("node,f,label\np,1,\nq,2,-1\n", "u,v\np,q\n"), symmetrize=True)
    with pytest.raises(InputError, match=r"no column 'label' or 'y'.*--label COLUMN.*the columns are f and status"):
        load_dataset(write("node,f,status\np,1,ok\nq,2,bad\n", "u,v\np,q\n"))


def test_a_column_of_numbers_that_fits_as_well_as_the_rows_must_be_said_to_be_it(write):
    edges = "u,v\n0,1\n1,2\n"
    path = write("f,account,y\n1.5,2,0\n2.5,0,1\n3.5,1,0\n4.5,3,1\n", edges)
    with pytest.raises(InputError, match=r"row numbers or by column 'account', both fit: say .* --id COLUMN\), or add"):
        load_dataset(path)
    graph = load_dataset(path, id="account")
    assert graph.adjacency.to_dense()[0].tolist() == [0, 0, 1, 0]
    graph = load_dataset(write("f,account,y\n1.5,0,0\n2.5,1,1\n3.5,2,0\n4.5,3,1\n", edges))
    assert graph.adjacency.to_dense()[0].tolist() == [0, 1, 0, 0]  # both mean the same
    padded = "f,account,y\n1.5,002,0\n2.5,000,1\n3.5,001,0\n4.5,003,1\n"
    graph = load_dataset(write(padded, "u,v\n000,001\n001,002\n"))  # 001 is the number of no row
    assert graph.adjacency.to_dense()[0].tolist() == [0, 0, 1, 0]


def test_directions_of_different_weights_take_their_mean():
    nodes = pd.DataFrame({"id": range(6), "x": [1.0, 2, 3, 4, 5, 7], "label": [1, 0, 0, 0, 1, 0]})
    rows = [(0, 1, 1.0), (1, 0, 3.0), (2, 3, 2.0), (3, 2, 2.0), (4, 5, 1.0), (4, 5, 4.0)]
    edges = pd.DataFrame(rows, columns=["source", "target", "weight"])
    graph = Graph.from_tables(edges, nodes, "label")
    assert graph.adjacency.values.tolist() == [2, 2, 2, 2, 5, 5]


def test_swapped_tables_and_misspelt_columns_are_recognised(tmp_path):
    edges, nodes = tmp_path / "links.csv", tmp_path / "accounts.csv"
    edges.write_text("payer,payee\na,b\nb,c\n")
    nodes.write_text("account,age,mule\na,3,yes\nb,4,no\nc,5,no\n")
    with pytest.raises(InputError, match=r"accounts.csv: column 'mule' is here: swap the two tables"):
        load_dataset(nodes, nodes=edges, label="mule")
    frame = pd.DataFrame({0: ["a", "b"], 1: [1.0, 2.0]})  # names that are no text
    with pytest.raises(InputError, match=r"there is no column 'mule'"):
        Graph.from_tables(pd.DataFrame({"source": ["a"], "target": ["b"]}), frame, "mule")
    with pytest.raises(InputError, match=r"there is no column 'mull'; .*: did you mean 'mule'\?"):
        load_dataset(edges, nodes=nodes, label="mull", source_column="payer", target_column="payee", id="account")
