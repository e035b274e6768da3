"""A Spark of the tests' own: local, on one thread, without a page; ended afterwards."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TYPES = {"f": "DOUBLE", "i": "BIGINT"}
SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "3g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def missing() -> str:
    """Returns why there can be no Spark, or nothing."""
    if find_spec("pyspark") is None:
        return "pyspark is not installed: make test-engines installs it"
    return "" if shutil.which("java") else "no Java to run Spark: java not found"


@contextmanager
def session() -> Iterator[SparkSession]:
    """Starts a Spark and ends it."""
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder.master("local[1]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark
    finally:
        spark.stop()


def in_spark(spark: SparkSession, query: str, **frames: pd.DataFrame) -> pd.DataFrame:
    """Returns what Spark makes of a query on tables, in the order of the nodes' names."""
    for name, frame in frames.items():
        put(spark, name, frame)
    found = spark.sql(query)
    return pd.DataFrame(found.collect(), columns=found.columns).sort_values("node", ignore_index=True)


def put(spark: SparkSession, name: str, frame: pd.DataFrame) -> None:
    """Makes a table of a frame."""
    types = ", ".join(f"{_quoted(str(c))} {TYPES.get(frame[c].dtype.kind, 'STRING')}" for c in frame)
    rows = frame.astype(object).where(frame.notna(), None).to_numpy().tolist()
    with warnings.catch_warnings(action="ignore"):  # on the version of pandas, of which nothing is used
        spark.createDataFrame(rows, types).createOrReplaceTempView(_quoted(name))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
