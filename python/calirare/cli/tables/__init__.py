"""Tables of predictions, read and measured."""

from calirare.cli.tables.cells import read_frame
from calirare.cli.tables.columns import Table, TableColumns, load_table
from calirare.cli.tables.evaluation import TableReport, evaluate_table
from calirare.cli.tables.labels import numbers_of, read_labels
