"""Data sets: loaders for published graphs and for the user's own, the embedded digits, and simulated graphs."""

from calirare.datasets.digits import digits
from calirare.datasets.npz import read_npz, write_npz
from calirare.datasets.paths import data_root
from calirare.datasets.registry import DatasetRow, dataset_table, load_dataset
from calirare.datasets.synthetic import synthetic_rare
from calirare.datasets.tables import read_tables
from calirare.graph.features import normalize_features, scale_note

__all__ = [
    "DatasetRow",
    "data_root",
    "dataset_table",
    "digits",
    "load_dataset",
    "normalize_features",
    "read_npz",
    "read_tables",
    "scale_note",
    "synthetic_rare",
    "write_npz",
]
