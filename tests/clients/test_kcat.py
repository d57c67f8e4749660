"""kcat as people use it at a prompt."""

from __future__ import annotations

import json

from clients.broker_process import BrokerProcess
from clients.drivers import DRIVERS, run_kcat
from clients.records import RECENTLY, Record


def test_listing(broker: BrokerProcess, topic: str) -> None:
    DRIVERS[2].produce(broker.bootstrap_servers, topic, [Record(b"x")], codec="none")
    text = run_kcat(broker.bootstrap_servers, "-L")
    assert f"at {broker.bootstrap_servers} (controller)" in text
    assert f'topic "{topic}" with 1 partitions:' in text
    (listed,) = json.loads(run_kcat(broker.bootstrap_servers, "-L", "-J", "-t", topic))["topics"]
    assert listed["topic"] == topic
    (partition,) = listed["partitions"]
    assert partition["partition"] == 0
    assert len(partition["replicas"]) == len(partition["isrs"]) == 1


def test_format_string(bootstrap: str, topic: str) -> None:
    record = Record(b"value", key=b"key", headers=(("a", b"1"),), timestamp=RECENTLY)
    DRIVERS[2].produce(bootstrap, topic, [record], codec="zstd")
    text = run_kcat(bootstrap, "-C", "-q", "-e", "-t", topic, "-f", "%t|%p|%o|%k|%K|%s|%S|%h|%T")
    assert text == f"{topic}|0|0|key|3|value|5|a=1|{RECENTLY}"


def test_the_end_is_reported(bootstrap: str, topic: str) -> None:
    """``-e`` stops at the end of each partition, an empty one included."""
    DRIVERS[2].produce(bootstrap, topic, [Record(b"x")], codec="none")
    assert run_kcat(bootstrap, "-C", "-q", "-e", "-t", topic, "-o", "end") == ""
    assert run_kcat(bootstrap, "-C", "-q", "-e", "-t", topic, "-o", "beginning") == "x\n"
