"""Tables of predictions, read and measured."""

from calirare.cli.tables.cells import read_frame
from calirare.cli.tables.columns import TableColumns, load_table, numbers_of, read_labels
from calirare.cli.tables.evaluation import TableReport, evaluate_table
