"""Scores and columns of nodes where their tables live: DuckDB in this process, or Spark, through ibis."""

from calirare._util.errors import InputError

try:
    from calirare.engines.scoring import columns, score, scored
except ModuleNotFoundError as error:
    if str(error.name).startswith("calirare"):
        raise
    raise InputError(f"engines: {error.name} is missing: pip install 'calirare[engines]'") from error
