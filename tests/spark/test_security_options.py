"""Security settings are options of source and sink, and Spark shows no credential anywhere (A13)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.mechanism("A13")

SECRET = "open-sesame-4711"
JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="{SECRET}";'


@pytest.fixture
def options(bootstrap: str) -> dict[str, str]:
    """Credentials that the broker does not ask for: it has a plaintext listener."""
    return {"kafka.bootstrap.servers": bootstrap, "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": JAAS}


def test_the_plan_of_a_query(spark: SparkSession, topics: Topics, topic: str, options: dict[str, str]) -> None:
    topics.create(topic, 1)
    topics.send(topic, ["a"])
    rows = spark.read.format("barnabas").options(**options, subscribe=topic).load()
    assert rows.count() == 1
    assert SECRET not in rows._jdf.queryExecution().toString()


def test_checkpoints_and_progress(
    spark: SparkSession, topics: Topics, topic: str, options: dict[str, str], tmp_path: Path
) -> None:
    topics.create(topic, 1)
    topics.send(topic, ["a"])
    source = spark.readStream.format("barnabas").options(**options, subscribe=topic, startingOffsets="earliest")
    sink = source.load().select("value").writeStream.format("barnabas").options(**options, topic=f"{topic}-copy")
    query = sink.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert query.exception() is None
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]
    assert SECRET not in str([str(one) for one in query.recentProgress])


@pytest.mark.parametrize(
    ("further", "message"),
    [
        ({"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "GSSAPI"}, "sasl.mechanism cannot be"),
        ({"kafka.security.protocol": "TLS"}, "security.protocol cannot be TLS"),
        ({"kafka.sasl.jaas.confg": SECRET}, "Did you mean kafka.sasl.jaas.config"),
        ({"kafka.sasl.username": "a", "kafka.sasl.password": SECRET}, "cannot be given together with"),
    ],
)
def test_what_is_refused(
    spark: SparkSession, topic: str, options: dict[str, str], further: dict[str, str], message: str
) -> None:
    with pytest.raises(PySparkException) as refused:
        spark.read.format("barnabas").options(**(options | further), subscribe=topic).load().count()
    assert message in str(refused.value)
    assert SECRET not in str(refused.value)
