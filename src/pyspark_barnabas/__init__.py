"""Lets Spark find the format ``barnabas`` by itself: it looks into modules whose names begin with ``pyspark_`` for a
class of this name."""

from barnabas.spark.data_source import BarnabasDataSource

__all__ = ["DefaultSource"]


class DefaultSource(BarnabasDataSource):
    """`BarnabasDataSource`, under the name that Spark looks for."""
