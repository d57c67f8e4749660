"""Security settings are options of source and sink, and Spark shows no credential anywhere (A13, S13)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from barnabas.embedded import EmbeddedBroker
from spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.mechanism("A13"), pytest.mark.mechanism("S13")]

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
        ({"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "GSSAPI"}, "Krb5LoginModule, not"),
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


@pytest.fixture(scope="module")
def secured() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(security="SASL_SSL", users={"spark": SECRET}) as broker:
        yield broker


def _options(broker: EmbeddedBroker) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in broker.client_settings.items()}


def test_source_and_sink_over_tls_and_scram(
    spark: SparkSession, secured: EmbeddedBroker, topic: str, tmp_path: Path
) -> None:
    """The password is in a file that each process reads for itself: it is part of no option."""
    options = _options(secured)
    file = tmp_path / "kafka.properties"
    file.write_text(f"jaas={options['kafka.sasl.jaas.config']}\n")
    file.chmod(0o600)
    options["kafka.sasl.jaas.config"] = f"${{file:{file}:jaas}}"
    made = spark.createDataFrame([("a",), ("b",), ("c",)], "value string")
    made.write.format("barnabas").mode("append").options(**options, topic=topic).save()
    source = spark.readStream.format("barnabas").options(**options, subscribe=topic, startingOffsets="earliest")
    sink = source.load().select("value").writeStream.format("barnabas").options(**options, topic=f"{topic}-copy")
    query = sink.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert query.exception() is None
    committed = options | {"kafka.isolation.level": "read_committed"}
    rows = spark.read.format("barnabas").options(**committed, subscribe=f"{topic}-copy").load()
    assert sorted(bytes(row.value) for row in rows.collect()) == [b"a", b"b", b"c"]
    file.write_text("jaas=\n")
    with pytest.raises(PySparkException, match=r"sasl\.jaas\.config"):
        spark.read.format("barnabas").options(**options, subscribe=topic).load().count()


@pytest.mark.nightly  # a session of its own
def test_what_spark_shows_to_others(secured: EmbeddedBroker, tmp_path: Path) -> None:
    """The web interface, its REST interface, the event log, plans, progress, errors and checkpoints; with the password
    itself in the options, which is the worst case."""
    file = tmp_path / "settings.json"
    file.write_text(json.dumps(_options(secured)))
    program = Path(__file__).with_name("secrets_program.py")
    ended = subprocess.run(
        [sys.executable, str(program), str(file), str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout.splitlines()[-1])
    assert (found["rows"], found["copied"]) == (10, 10)
    shown: dict[str, str] = found["shown"]
    assert {"explain", "explain of a stream", "progress", "error", "checkpoint/offsets/0"} <= shown.keys()
    assert "NONSENSE" in shown["error"]
    assert any(name.startswith("event log events") and "barnabas" in text for name, text in shown.items())
    assert sum(name.startswith("/SQL/execution") for name in shown) >= 3
    assert [name for name, text in shown.items() if SECRET in text] == []
    assert SECRET not in ended.stderr
