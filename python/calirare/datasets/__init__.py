"""Data sets: the loader of any graph, the embedded digits, and simulated graphs."""

from calirare.datasets.by_name import NO_CATALOGUE, is_named, published_sets
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
