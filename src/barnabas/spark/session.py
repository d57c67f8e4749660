"""Makes the Spark session of the Barnabas commands.

Spark's defaults suit a cluster with a day's data: 200 partitions after each shuffle, a web server, a page of log at
each start. On one machine, with micro-batches of a few seconds, all three are a hindrance.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.common.extras import extra
from barnabas.spark.java_runtime import require_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER: Final = "local[*]"
LOCAL_SHUFFLE_PARTITIONS: Final = 4
SETTINGS: Final[Mapping[str, str]] = {
    # Windows and dates do not depend on the driver's time zone.
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # A stopping query finishes its batch first.
    "spark.sql.streaming.stopTimeout": "60s",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.log.level": "ERROR",
}
CONNECT_SCHEME: Final = "sc://"
CONNECT_SETTINGS: Final[Mapping[str, str]] = {"spark.sql.session.timeZone": SETTINGS["spark.sql.session.timeZone"]}
"""Of the settings, those that a session of a Connect server can change."""
LOG_LEVEL: Final = "error"
JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
LOG4J: Final = """rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{{yy/MM/dd HH:mm:ss}} %p %c{{1}}: %m%n%ex
"""
LOCAL_SETTINGS: Final[Mapping[str, str]] = {
    # Not the address of the machine's host name: that may be in another network, or not resolve.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": str(LOCAL_SHUFFLE_PARTITIONS),
}


def is_connect(spark: SparkSession) -> bool:
    """Returns whether a session is one of Spark Connect, which has no context of its own."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def parallelism(spark: SparkSession) -> int:
    """Returns how many tasks a session runs at a time; under Spark Connect, the partitions of a shuffle."""
    if is_connect(spark):
        return int(spark.conf.get("spark.sql.shuffle.partitions") or LOCAL_SHUFFLE_PARTITIONS)
    return spark.sparkContext.defaultParallelism


def make_session(
    application: str = "barnabas", master: str = DEFAULT_MASTER, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Makes a session or returns the existing one; raises `JavaMissingError` if Spark cannot run here.

    ``settings`` are Spark settings that override the ones in this module. A ``master`` that begins with ``sc://`` is a
    Spark Connect server: it runs elsewhere, so this machine needs no Java.
    """
    if master.startswith(CONNECT_SCHEME):
        return _connect(master, settings or {})
    java = require_java()
    with extra("spark", "a Spark session"):
        from pyspark.sql import SparkSession  # takes half a second; not needed for JavaMissingError

    from barnabas.spark import use_this_interpreter
    from barnabas.spark.save_mode import append_by_default

    os.environ.setdefault("JAVA_HOME", str(java.home))
    use_this_interpreter()
    append_by_default()
    wanted = {**SETTINGS, **(LOCAL_SETTINGS if master.startswith("local") else {}), **(settings or {})}
    if JAVA_OPTIONS not in wanted:
        wanted[JAVA_OPTIONS] = _quiet_from_the_start()
    builder = SparkSession.builder.appName(application).master(master)
    for key, value in wanted.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _connect(url: str, settings: Mapping[str, str]) -> SparkSession:
    with extra("spark", "a Spark session"):
        from pyspark.sql import SparkSession

    builder = SparkSession.builder.remote(url)
    for key, value in {**CONNECT_SETTINGS, **settings}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _quiet_from_the_start() -> str:
    """Returns the Java option that sets the log level. Spark's own setting takes effect after much has been logged."""
    directory = Path(tempfile.mkdtemp(prefix="barnabas-spark-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    file = directory / "log4j2.properties"
    file.write_text(LOG4J.format(level=LOG_LEVEL))
    return f"-Dlog4j2.configurationFile={file.as_uri()}"
