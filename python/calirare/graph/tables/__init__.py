"""Graphs from tables of edges and nodes: where they come from, what their columns mean, what is wrong with them.

See `calirare.graph.tables.reading` for the format.
"""

from calirare.graph.tables.files import Table, as_names, as_of_words, read_table, row_in_words
from calirare.graph.tables.labels import ReadLabels, labels_of, no_label_column
from calirare.graph.tables.name_faults import lost_digits, why_any_unknown, why_unknown
from calirare.graph.tables.roles import id_column_of
from calirare.graph.tables.scored import rows_where
from calirare.graph.tables.sources import (
    TABLE_SUFFIXES,
    absolute_source,
    is_table,
    source_exists,
    source_of,
    stem_of,
    unnamed_table,
)
