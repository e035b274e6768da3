"""The validated graph and what is read of it: edges, splits, features, propagation."""

from calirare.graph.arrays import csr_of_scipy, scipy_of_csr
from calirare.graph.columns import Column, default_names, names_in_words, number_columns
from calirare.graph.convert import split_of_masks
from calirare.graph.convolution import LazyPropagation, Order, Propagation, propagated_features, propagation
from calirare.graph.features import normalize_features
from calirare.graph.graph import Graph, Normalisation
from calirare.graph.joining import joined
from calirare.graph.labelled import (
    check_graph,
    check_nodes,
    check_trainable,
    known_rare,
    nodes_not_to_review,
    with_sampled_negatives,
)
from calirare.graph.matching import fingerprint, same_but_labels
from calirare.graph.on_disk import GraphOnDisk
from calirare.graph.options import WEIGHT, EdgeRules, TableColumns, TableOptions
from calirare.graph.relations import Relation
from calirare.graph.spelling import find_name
from calirare.graph.splits import PARTS, Split, newest_first
