"""PyG's HeteroData as one graph: nodes of the scored type first, the others carry edges."""

import pytest
import torch

from calirare._util.errors import InputError
from calirare.graph import Graph

pyg = pytest.importorskip("torch_geometric.data")
USES = torch.tensor([[0, 1, 2, 3, 3], [0, 0, 1, 1, 2]])
PAYS = torch.tensor([[0, 3], [1, 0]])


@pytest.fixture
def data():
    made = pyg.HeteroData()
    made["device"].x = torch.arange(6.0).reshape(3, 2)  # before the accounts: the order is ours
    made["account"].x = torch.arange(12.0).reshape(4, 3)
    made["account"].y = torch.tensor([1, 0, -1, 0])
    made["account"].train_mask = torch.tensor([True, True, False, False])
    made["merchant"].num_nodes = 2
    made["account", "uses", "device"].edge_index = USES
    made["account", "pays", "merchant"].edge_index = PAYS
    return made


def test_nodes_of_all_types_are_one_graph(data):
    graph = Graph.from_data(data, name="shop")
    assert graph.scored.tolist() == [True] * 4 + [False] * 5
    assert graph.y.tolist() == [1, 0, -1, 0, -1, -1, -1, -1, -1]
    assert graph.split.train.tolist() == [0, 1]
    assert graph.columns[0].categories == ("account", "device", "merchant")
    assert graph.x[:, 0].tolist() == [0] * 4 + [1] * 3 + [2] * 2
    assert graph.feature_names[1:] == ("account 0", "account 1", "account 2", "device 0", "device 1")
    assert torch.equal(graph.x[:4, 1:4], data["account"].x)
    assert torch.equal(graph.x[4:7, 4:], data["device"].x)
    assert graph.x[4:, 1:4].isnan().all()
    assert graph.x[7:, 1:].isnan().all()
    want = torch.zeros(9, 9)
    for ends, first in ((USES, 4), (PAYS, 7)):
        want[ends[0], ends[1] + first] = want[ends[1] + first, ends[0]] = 1
    assert torch.equal(graph.adjacency.to_dense(), want)
    assert graph.relations == ()


def test_types_without_features_have_the_number_of_neighbours(data):
    for kind in ("device", "account"):
        data[kind].num_nodes = data[kind].num_nodes
        del data[kind].x
    graph = Graph.from_data(data)
    assert graph.feature_names == ("neighbours", "type")
    assert graph.x[:, 0].tolist() == [2, 1, 1, 3, 2, 2, 1, 1, 1]


def test_reverse_types_repeat_edges_and_change_nothing(data):
    from torch_geometric.transforms import ToUndirected

    want = Graph.from_data(data).adjacency.to_dense()
    assert torch.equal(Graph.from_data(ToUndirected()(data)).adjacency.to_dense(), want)


def test_types_of_edges_are_kept_on_request(data):
    relations = Graph.from_data(data, relations=True).relations
    assert [each.name for each in relations] == ["account pays merchant", "account uses device"]
    assert relations[1].out.to_dense()[3, 4:7].tolist() == [0, 1, 1]


def test_the_scored_type_can_be_said(data):
    data["device"].y = torch.tensor([0, 1, 0])
    with pytest.raises(InputError, match="must be scored, 2 types have labels; the types are device, "):
        Graph.from_data(data)
    graph = Graph.from_data(data, scored="device")
    assert graph.y.tolist() == [0, 1, 0] + [-1] * 6
    with pytest.raises(InputError, match="must be scored, got 'card'"):
        Graph.from_data(data, scored="card")


def test_a_message_names_a_node_by_its_type(data):
    data["account", "knows", "account"].edge_index = torch.tensor([[0, 2], [1, 2]])
    with pytest.raises(InputError, match=r"joins node account 2 to itself"):
        Graph.from_data(data, self_loops="error")


def _spoil(data, what):
    if what == "size":
        del data["merchant"].num_nodes
        del data["account", "pays", "merchant"]
    elif what == "labels":
        data["account"].y = torch.tensor([0, 1])
    elif what == "range":
        data["account", "uses", "device"].edge_index = USES + 1
    elif what == "shape":
        data["account", "uses", "device"].edge_index = USES.T
    else:
        del data["account", "uses", "device"], data["account", "pays", "merchant"]


@pytest.mark.filterwarnings("ignore:Unable to accurately infer:UserWarning")
@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("size", "nothing says how many nodes of 'merchant' there are: set x or num_nodes"),
        ("labels", r"y of 'account' must have one label per node, got \(2,\)"),
        ("range", "edge_index of 'uses' must be nodes of 'account', from 0 to 3, got 1 to 4"),
        ("shape", r"edge_index of 'uses' must have shape \[2, m\], got \(5, 2\)"),
        ("edges", "there must be edges of some type, got none"),
    ],
)
def test_what_does_not_fit_is_named(data, what, message):
    _spoil(data, what)
    with pytest.raises(InputError, match=message):
        Graph.from_data(data)


def test_several_columns_of_edges_are_left_out_with_a_note(data):
    data["account", "uses", "device"].edge_attr = torch.ones(5, 3)
    graph = Graph.from_data(data)
    assert set(graph.adjacency.values.tolist()) == {1.0}
    assert graph.notes == (
        "edge_attr of 'uses' is left out, an edge has one weight and no 3 columns: put it in edge_weight",
    )


def test_transposed_adjacencies_are_edges(data):
    want = Graph.from_data(data).adjacency.to_dense()
    uses = data["account", "uses", "device"]
    uses.adj_t = torch.sparse_coo_tensor(USES.flip(0), torch.ones(5), (3, 4), check_invariants=True)
    del uses.edge_index
    assert torch.equal(Graph.from_data(data).adjacency.to_dense(), want)
    uses.adj_t = uses.adj_t.T
    with pytest.raises(InputError, match=r"adj_t of 'uses': adjacency must .*, got shape \(4, 3\) for nodes of shape"):
        Graph.from_data(data)
    uses.adj_t = uses.adj_t.T
    del data["account", "pays", "merchant"].edge_index
    with pytest.raises(InputError, match="must have edge_index or adj_t of 'pays', but both are missing"):
        Graph.from_data(data)


def test_a_column_of_weights_is_weights_and_a_type_may_be_empty(data):
    data["account", "uses", "device"].edge_weight = torch.arange(1.0, 6)[:, None]
    data["account", "pays", "merchant"].edge_index = torch.empty(2, 0)
    assert sorted(set(Graph.from_data(data).adjacency.values.tolist())) == [1, 2, 3, 4, 5]
    data["account", "uses", "device"].edge_weight = torch.ones(5, 2)
    with pytest.raises(InputError, match="edge_weight of 'uses' must be one weight per edge, 5, got shape"):
        Graph.from_data(data)


def test_types_that_read_alike_are_refused(data):
    data["account", "uses device", "device"].edge_index = USES
    data["account uses"].num_nodes = 2
    data["account uses", "device", "device"].edge_index = torch.tensor([[0], [0]])
    with pytest.raises(InputError, match="types of edges must differ in their words"):
        Graph.from_data(data)


def test_what_is_left_out_of_the_edges_is_told(data):
    data["account", "uses", "device"].edge_index = torch.cat([USES, USES[:, :2]], 1)
    data["account", "knows", "account"].edge_index = torch.tensor([[0, 1], [0, 2]])
    notes = " ".join(Graph.from_data(data).notes)
    assert "edges of a node to itself: 1" in notes
    assert "repetitions among them: 2" in notes
    assert Graph.from_data(data, duplicates="drop", self_loops="drop").notes == ()


def test_an_option_that_there_is_not_is_named(data):
    with pytest.raises(TypeError, match="symmetrise"):
        Graph.from_data(data, symmetrise=True)
