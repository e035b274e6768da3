"""Scores and columns of nodes where their tables live: DuckDB in this process, or Spark, through ibis."""

from calirare.engines.opening import opened
from calirare.engines.scoring import columns, score, scored
