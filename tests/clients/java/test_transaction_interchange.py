"""A transaction that is begun on one server and ended on another: Apache Kafka and ours, on the same data directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.waiting import until

from clients.java.conftest import java_or_skip
from clients.java.test_interchange import Site
from oracles.java_client import JavaClient
from oracles.java_transactions import JavaTransactions

pytestmark = pytest.mark.java

TOPIC, PRODUCER = "orders", "one"


@pytest.fixture
def java() -> Iterator[JavaTransactions]:
    with java_or_skip():
        made = JavaTransactions()
    with made:
        yield made


@pytest.fixture
def site(tmp_path: Path, client: JavaClient) -> Iterator[Site]:
    made = Site(tmp_path, client, static_voters=True)
    yield made
    made.kafka.stop()


@pytest.mark.mechanism("P14")
def test_each_server_goes_on_with_the_others_transactions(
    site: Site, client: JavaClient, java: JavaTransactions
) -> None:
    bootstrap = site.kafka.bootstrap_servers
    site.format()
    with site.barnabas():
        site.create(TOPIC)
        java.open(PRODUCER, bootstrap, {"transactional.id": "tx", "delivery.timeout.ms": "60000"})
        java.init(PRODUCER)
        java.begin(PRODUCER)
        java.send(PRODUCER, TOPIC, ["ours"])
        java.send_offsets(PRODUCER, "group", TOPIC, 7)
    with site.apache_kafka():
        java.send(PRODUCER, TOPIC, ["theirs"])
        java.commit(PRODUCER)
        java.begin(PRODUCER)
        java.send(PRODUCER, TOPIC, ["aborted"])
        assert java.ask("committed_offsets", bootstrap=bootstrap, group="group") == {f"{TOPIC}-0": 7}
        before = java.describe(bootstrap, "tx")
    with site.barnabas():
        assert java.describe(bootstrap, "tx") == before
        java.abort(PRODUCER)
        java.begin(PRODUCER)
        java.send(PRODUCER, TOPIC, ["ours again"])
        java.commit(PRODUCER)
        assert java.ask("committed_offsets", bootstrap=bootstrap, group="group") == {f"{TOPIC}-0": 7}
        until(lambda: java.describe(bootstrap, "tx")["state"] == "CompleteCommit", "the markers are written")
        after = java.describe(bootstrap, "tx")
    assert after["producer_epoch"] == before["producer_epoch"] + 2
    with site.apache_kafka():
        assert java.describe(bootstrap, "tx") == after
        config = {"isolation.level": "read_committed"}
        found = client.consume(bootstrap, {f"{TOPIC}-0": 0}, 3, config)
        assert [record["value"] for record in found] == ["ours", "theirs", "ours again"]
        after = found[-1]["offset"] + 1
        assert client.consume(bootstrap, {f"{TOPIC}-0": after}, 1, config, timeout_ms=2_000) == []
    java.close_producer(PRODUCER, 0)
