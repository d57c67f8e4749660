"""Topics as Spark tables, without a connector jar.

    from barnabas.spark import register

    register(spark)
    stream = spark.readStream.format("barnabas")
    rows = stream.option("kafka.bootstrap.servers", "localhost:9092").option("subscribe", "orders").load()

The options, the rows and the rules are those of Spark's own Kafka connector, so a query moves here by changing the name
of the format; what is there beyond that is in `barnabas.spark.source_options`. Records travel as Arrow record batches,
from the fetch response to the JVM. The package has to be installed where executors run, with the extra ``[spark]``.

A session that starts with the package installed finds the format by itself, through the module ``pyspark_barnabas``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Makes the format known to a session. It does no harm to do so again."""
    from barnabas.spark.data_source import BarnabasDataSource  # noqa: PLC0415 - imported without Spark for its name only

    spark.dataSource.register(BarnabasDataSource)
