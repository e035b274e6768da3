"""The published data sets: what the library loads by name, where this package is installed.

`calirare.datasets.published_sets` finds it and uses `CATALOGUE`, `read`, `raise_label_rate` and `print_table`.
"""

from calirare_lab.published.catalogue import CATALOGUE, dataset_table, read
from calirare_lab.published.label_rates import raise_label_rate
from calirare_lab.published.listing import print_table
from calirare_multilabel.data import data_root, data_roots

__all__ = ["CATALOGUE", "data_root", "data_roots", "dataset_table", "print_table", "raise_label_rate", "read"]
