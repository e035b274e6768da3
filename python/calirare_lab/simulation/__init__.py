"""Simulated graphs of any size, for measurements of what scales."""

from calirare_lab.simulation.on_disk import synthetic_on_disk

__all__ = ["synthetic_on_disk"]
