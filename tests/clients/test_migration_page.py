"""The calls that the page on migration shows work as it says."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from barnabas import EmbeddedBroker
from barnabas.clients.admin import KafkaAdminClient
from barnabas.clients.admin.topics import NewTopic
from barnabas.clients.consumer import KafkaConsumer
from barnabas.clients.producer import KafkaProducer
from barnabas.common.topic_partition import TopicPartition

PAGE: Final = Path(__file__).parents[2] / "docs" / "migration.md"
ROW: Final = re.compile(r"\| (?P<what>[^|]+) \|.*\| `(?P<call>[^`]+)` \|")
_, _, SIDE_BY_SIDE = PAGE.read_text(encoding="utf-8").partition("\n## Side by side\n")
CALLS: Final = [(row["what"], row["call"]) for line in SIDE_BY_SIDE.splitlines() if (row := ROW.fullmatch(line))]
READS: Final = {"read one", "read some", "by partition", "fields"}
"""These return records, once the group has its partitions."""


@pytest.fixture(scope="module")
def objects() -> Iterator[dict[str, Any]]:
    """The objects that the lines use: a topic with records, and a consumer that has read and committed them."""
    with EmbeddedBroker(overrides={"offsets.topic.num.partitions": 1}) as broker:
        servers = broker.bootstrap_servers
        with (
            KafkaAdminClient(bootstrap_servers=servers) as admin,
            KafkaProducer(bootstrap_servers=servers) as producer,
        ):
            admin.create_topics([NewTopic("orders", 1, 1)])
            yield {
                "p": producer,
                "a": admin,
                "servers": servers,
                "tp": TopicPartition("orders", 0),
                "NewTopic": NewTopic,
                "re": re,
            }


def until(what: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 60
    while not (found := what()):
        assert time.monotonic() < deadline
    return found


@pytest.mark.parametrize(("what", "call"), CALLS, ids=[row[0] for row in CALLS])
def test_a_call(objects: dict[str, Any], what: str, call: str, request: pytest.FixtureRequest) -> None:
    if what == "delete topics":
        objects["a"].create_topics([NewTopic("new", 1, 1)])
    if not re.search(r"\bc\b", call):
        found = eval(call, dict(objects))
        if what == "partitions":
            assert found == {0}
        if what == "create topics":
            objects["a"].delete_topics(["new"])
        return
    producer: KafkaProducer = objects["p"]
    for _ in range(20):
        producer.send("orders", b"tea", partition=0)
    producer.flush()
    settings = {"bootstrap_servers": objects["servers"], "group_id": request.node.name, "auto_offset_reset": "earliest"}
    with KafkaConsumer(**settings) as consumer:
        consumer.subscribe(["orders"])
        until(lambda: len(consumer.poll(1_000, max_records=1)))
        consumer.commit()
        names = {**objects, "c": consumer}
        if what == "by pattern":
            consumer.unsubscribe()
        result = until(lambda: eval(call, names)) if what in READS else eval(call, names)
        if what == "read for ever":
            assert result == b"tea"
        if what == "committed":
            assert result >= 1


def test_the_page_has_all_of_them() -> None:
    assert len(CALLS) >= 20
