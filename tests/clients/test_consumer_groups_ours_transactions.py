"""Exactly once, from our consumer through our producer: `examples/exactly_once.py`."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from clients.exactly_once import transform_under_fire
from clients.our_consumers import PARTITIONS
from clients.test_consumer_groups_ours_members import nightly


@pytest.mark.mechanism("P14")
@pytest.mark.parametrize("kind", ["cooperative-sticky", *nightly("consumer")])
def test_consume_transform_produce(kind: str, bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    target = f"{topic}-target"
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1), NewTopic(target, 2, 1)]).values():
        future.result(30)
    transform_under_fire(kind, bootstrap, topic, target)
