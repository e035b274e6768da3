"""Data sets: loaders for published graphs and for the user's own, the embedded digits, and simulated graphs."""

from calirare.datasets.catalogue import CATALOGUE, data_root, dataset_table
from calirare.datasets.embedded import digits
from calirare.datasets.loading import (
    TABLE_OPTIONS,
    TASKS,
    Task,
    load_dataset,
    read_graph,
    with_task,
)
from calirare.datasets.synthetic import synthetic_rare
from calirare.datasets.transactions import LAWS, synthetic_transactions
