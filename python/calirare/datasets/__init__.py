"""Data sets: loaders for published graphs and for the user's own, the embedded digits, and simulated graphs."""

from calirare.datasets.registry import load_dataset

__all__ = ["load_dataset"]
