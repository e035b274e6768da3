"""The validated graph and what is read of it: edges, splits, features, propagation."""

from calirare.graph.arrays import (
    as_array,
    as_features,
    csr_of_scipy,
    matrix_named,
    named_tensors,
    rows_of,
    scipy_of_csr,
)
from calirare.graph.category_names import TRUTH, places_of_names, plain_name
from calirare.graph.checksum import fingerprint, same_but_labels
from calirare.graph.class_names import as_option, find_name, is_value, words_of
from calirare.graph.columns import (
    NEIGHBOURS,
    Column,
    columns_of_text,
    columns_to_text,
    named,
    nameless,
    numbered,
    numbers_named,
)
from calirare.graph.convolution import (
    LARGE,
    ORDERS,
    LazyPropagation,
    Order,
    Propagation,
    propagated_features,
    propagation,
)
from calirare.graph.edges import EdgeOptions, EdgeRules, FileOptions, build_adjacency
from calirare.graph.features import column_statistics, normalize_features, scale_note, weights_note
from calirare.graph.folder import new_folder
from calirare.graph.graph import Graph, Normalisation
from calirare.graph.labelled import (
    NO_PART,
    answered,
    check_graph,
    check_nodes,
    check_trainable,
    check_training_labels,
    relabelled,
)
from calirare.graph.like import note_weights, weighs, with_categories_of, with_relations
from calirare.graph.name_faults import lost_digits, why_any_unknown, why_unknown
from calirare.graph.named_rows import is_named, is_one, of_names
from calirare.graph.on_disk import GraphOnDisk
from calirare.graph.positive_only import known_rare, with_drawn_rest
from calirare.graph.relations import Relation
from calirare.graph.splits import (
    FEWEST_TESTED,
    LABEL_RATE,
    N_VAL,
    PARTS,
    TEST_SHARE,
    Split,
    raise_label_rate,
    random_split,
    share_split,
    split_note,
)
from calirare.graph.table_columns import TableColumns
from calirare.graph.table_files import as_names, as_of_words, place, read_table
from calirare.graph.table_ids import id_column_of
from calirare.graph.table_labels import ReadLabels, labels_of, no_label_column
from calirare.graph.table_sources import (
    TABLE_SUFFIXES,
    absolute_source,
    is_table,
    source_exists,
    source_of,
    stem_of,
    unnamed_table,
)
from calirare.graph.validation import check_adjacency, one_class

__all__ = [
    "FEWEST_TESTED",
    "LABEL_RATE",
    "LARGE",
    "NEIGHBOURS",
    "NO_PART",
    "N_VAL",
    "ORDERS",
    "PARTS",
    "TABLE_SUFFIXES",
    "TEST_SHARE",
    "TRUTH",
    "Column",
    "EdgeOptions",
    "EdgeRules",
    "FileOptions",
    "Graph",
    "GraphOnDisk",
    "LazyPropagation",
    "Normalisation",
    "Order",
    "Propagation",
    "ReadLabels",
    "Relation",
    "Split",
    "TableColumns",
    "absolute_source",
    "answered",
    "as_array",
    "as_features",
    "as_names",
    "as_of_words",
    "as_option",
    "build_adjacency",
    "check_adjacency",
    "check_graph",
    "check_nodes",
    "check_trainable",
    "check_training_labels",
    "column_statistics",
    "columns_of_text",
    "columns_to_text",
    "csr_of_scipy",
    "find_name",
    "fingerprint",
    "id_column_of",
    "is_named",
    "is_one",
    "is_table",
    "is_value",
    "known_rare",
    "labels_of",
    "lost_digits",
    "matrix_named",
    "named",
    "named_tensors",
    "nameless",
    "new_folder",
    "no_label_column",
    "normalize_features",
    "note_weights",
    "numbered",
    "numbers_named",
    "of_names",
    "one_class",
    "place",
    "places_of_names",
    "plain_name",
    "propagated_features",
    "propagation",
    "raise_label_rate",
    "random_split",
    "read_table",
    "relabelled",
    "rows_of",
    "same_but_labels",
    "scale_note",
    "scipy_of_csr",
    "share_split",
    "source_exists",
    "source_of",
    "split_note",
    "stem_of",
    "unnamed_table",
    "weighs",
    "weights_note",
    "why_any_unknown",
    "why_unknown",
    "with_categories_of",
    "with_drawn_rest",
    "with_relations",
    "words_of",
]
