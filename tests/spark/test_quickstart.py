"""The lines about Spark in the quick start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas import EmbeddedBroker, KafkaProducer
from documents import blocks_of, run_program

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_lines_about_spark(spark: SparkSession) -> None:
    """They take the session that there is."""
    blocks = [block for block in blocks_of("quickstart.md") if block.heading == "Spark"]
    with EmbeddedBroker() as broker:
        with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for tea in (b"assam", b"darjeeling"):
                producer.send("teas", tea)
        assert run_program("quickstart.md", blocks, broker.bootstrap_servers) == 1
