"""Metadata: when it is asked for, which answers count, and what is forgotten."""

from __future__ import annotations

import threading
from random import Random
from typing import Any

import pytest

from barnabas.clients.common.default_metadata_updater import DefaultMetadataUpdater
from barnabas.clients.common.metadata import LeaderIdAndEpoch, Metadata
from barnabas.clients.producer.internals.producer_metadata import ProducerMetadata
from barnabas.clients.testing import ScriptedCluster
from barnabas.common.clock import MockClock
from barnabas.common.errors import BarnabasError, Errors, InvalidTopicError, KafkaTimeoutError
from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.common.topic_partition import TopicPartition
from barnabas.network.client.node import Node
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

T0 = TopicPartition("t", 0)


def answer(*topics: MetadataResponseTopic, nodes: tuple[int, ...] = (1, 2), cluster: str = "c") -> MetadataResponse:
    brokers = [MetadataResponseBroker(node_id=node, host=f"host{node}", port=9092) for node in nodes]
    return MetadataResponse(brokers=brokers, topics=list(topics), cluster_id=cluster)


def topic(
    name: str = "t",
    leader: int = 1,
    epoch: int = 0,
    topic_id: Uuid = ZERO_UUID,
    error: Errors = Errors.NONE,
    count: int = 1,
) -> MetadataResponseTopic:
    partitions = [
        MetadataResponsePartition(partition_index=index, leader_id=leader, leader_epoch=epoch)
        for index in reversed(range(count))
    ]
    return MetadataResponseTopic(
        name=name, topic_id=topic_id, error_code=error, partitions=[] if error is not Errors.NONE else partitions
    )


def metadata(**options: Any) -> ProducerMetadata:
    made = ProducerMetadata(100, 1_000, 300_000, 10_000, random=Random(1), **options)
    made.bootstrap([Node(-1, "boot", 1)])
    return made


def update(target: Metadata, response: MetadataResponse, now: int = 0, partial: bool = False) -> None:
    target.update(target.new_metadata_request(now).request_version, response, partial, now)


def test_new_topics_are_asked_for_at_once_and_alone() -> None:
    made = metadata()
    assert made.time_to_next_update(0) == 0
    made.add("t", 0)
    update(made, answer(topic()), 1)
    assert made.time_to_next_update(1) == 300_000
    made.add("u", 1)
    assert made.time_to_next_update(1) == 0, "no back-off for what is new"
    asked = made.new_metadata_request(1)
    assert asked.is_partial_update
    assert [row.name for row in asked.request.topics or ()] == ["u"]
    made.update(asked.request_version, answer(topic("u")), True, 2)
    assert set(made.snapshot.topics) == {"t", "u"}, "merged"
    assert made.time_to_next_update(2) == 299_999


def test_a_topic_that_came_while_a_response_was_under_way() -> None:
    made = metadata()
    made.add("t", 0)
    asked = made.new_metadata_request(0)
    made.add("u", 0)
    made.update(asked.request_version, answer(topic()), asked.is_partial_update, 0)
    assert made.update_requested


def test_requests_back_off() -> None:
    made = metadata()
    made.add("t", 0)
    update(made, answer(topic()), 1_000)
    made.request_update()
    assert 80 <= made.time_to_next_update(1_000) <= 120
    made.failed_update(2_000)
    made.failed_update(2_000)
    assert 160 <= made.time_to_next_update(2_000) <= 240
    for _ in range(5):
        update(made, answer(topic()), 3_000)
    made.request_update()
    assert made.time_to_next_update(3_000) > 800, "answers that do not help are asked for less and less"


def test_the_short_look_at_when_to_ask_says_what_the_long_one_says() -> None:
    """Also where metadata expire sooner than a back-off ends."""
    dice = Random(7)
    short = backed_off = 0
    for _ in range(3_000):
        backoff_ms = dice.choice([0, 50, 100])
        made = Metadata(backoff_ms, dice.choice([0, 50, 1_000]), dice.choice([0, 60, 500, 9_000]), random=Random(1))
        made._refresh_backoff._jitter = 0.0
        now = dice.randint(0, 600)
        made._last_refresh_ms = dice.choice([None, now, dice.randint(0, now)])
        if made._last_refresh_ms is not None:
            made._last_successful_refresh_ms = dice.choice(
                [None, dice.randint(0, made._last_refresh_ms), made._last_refresh_ms]
            )
        made._attempts, made._equivalent_responses = dice.randint(0, 3), dice.choice([0, 5])
        made._need_full_update, made._need_partial_update = dice.random() < 0.2, dice.random() < 0.2
        found = made.time_to_next_update(now)
        short += found > made._refresh_backoff_max_ms > 0
        since_ms = made._last_successful_refresh_ms
        is_wanted = made._need_full_update or made._need_partial_update or since_ms is None
        expire_ms = 0 if is_wanted or since_ms is None else max(since_ms + made.metadata_expire_ms - now, 0)
        allowed_ms = made._time_to_allow_update(now, expired=expire_ms == 0)
        assert found == max(expire_ms, allowed_ms)
        backed_off += allowed_ms > expire_ms > 0
    assert short > 50
    assert backed_off > 50


def test_who_looks_whether_to_ask_does_not_wait_for_who_changes_something() -> None:
    made = metadata()
    update(made, answer(topic()), 1)
    found: list[int] = []
    looking = threading.Thread(target=lambda: found.append(made.time_to_next_update(2)), daemon=True)
    with made.lock:
        looking.start()
        looking.join(60)
        assert found == [299_999]


def test_older_responses_do_not_count() -> None:
    made = metadata()
    made.add("t", 0)
    update(made, answer(topic(leader=1, epoch=5)))
    update(made, answer(topic(leader=2, epoch=4)))
    assert made.snapshot.leader_for(T0) == Node(1, "host1", 9092)
    assert made.last_seen_leader_epoch(T0) == 5
    update(made, answer(topic(leader=2, epoch=6)))
    assert made.snapshot.leader_for(T0) == Node(2, "host2", 9092)
    one, two = Uuid(bytes(15) + b"\x05"), Uuid(bytes(15) + b"\x06")
    update(made, answer(topic(leader=1, epoch=6, topic_id=one)))
    update(made, answer(topic(leader=2, epoch=0, topic_id=two)))
    assert made.snapshot.leader_epoch_for(T0) == 0, "a topic of the same name that was made anew starts over"
    assert made.snapshot.topic_name(two) == "t"
    assert made.snapshot.topic_name(one) is None


def test_a_topic_that_was_seen_missing_before_it_was_made_anew() -> None:
    made = metadata()
    made.add("t", 0)
    one, two = Uuid(bytes(15) + b"\x05"), Uuid(bytes(15) + b"\x06")
    update(made, answer(topic(leader=1, epoch=5, topic_id=one)))
    update(made, answer(topic(error=Errors.UNKNOWN_TOPIC_OR_PARTITION)))
    update(made, answer(topic(leader=2, epoch=0, topic_id=two)))
    assert made.snapshot.leader_for(T0) == Node(2, "host2", 9092)
    assert made.snapshot.leader_epoch_for(T0) == made.last_seen_leader_epoch(T0) == 0


def test_leaders_that_other_responses_tell() -> None:
    made = metadata()
    made.add("t", 0)
    update(made, answer(topic(leader=1, epoch=5)))
    new = Node(9, "host9", 9092)
    assert made.update_partition_leadership({T0: LeaderIdAndEpoch(9, 6)}, [new]) == {T0}
    assert made.snapshot.leader_for(T0) == new
    assert made.update_partition_leadership({T0: LeaderIdAndEpoch(1, 6)}, []) == set(), "no news"
    assert made.update_partition_leadership({T0: LeaderIdAndEpoch(77, 7)}, []) == set(), "nobody knows where that is"
    assert made.update_partition_leadership({TopicPartition("x", 0): LeaderIdAndEpoch(1, 7)}, []) == set()


def test_unused_topics_are_forgotten() -> None:
    made = metadata()
    used = {"t"}
    made.was_used = lambda name: name in used
    made.add("t", 0)
    made.add("u", 0)
    update(made, answer(topic("t"), topic("u")), 1)
    update(made, answer(topic("t"), topic("u")), 10_001)
    assert set(made.snapshot.topics) == {"t"}
    assert "u" not in made.topic_names()
    used.clear()
    update(made, answer(topic("t")), 20_001)
    assert set(made.snapshot.topics) == set()


def test_errors_of_topics() -> None:
    made = metadata()
    made.add("t", 0)
    update(made, answer(topic(error=Errors.LEADER_NOT_AVAILABLE)))
    assert made.update_requested, "that will pass"
    assert made.topic_error("t") is Errors.LEADER_NOT_AVAILABLE
    update(made, answer(topic(error=Errors.INVALID_TOPIC_EXCEPTION)))
    with pytest.raises(InvalidTopicError):
        made.maybe_raise_for_topic("t")
    update(made, answer(topic()))
    made.maybe_raise_for_topic("t")
    assert made.topic_error("t") is None


def test_waiting() -> None:
    clock = MockClock(auto_tick_ms=10)
    made = metadata(clock=clock)
    with pytest.raises(KafkaTimeoutError, match="No metadata update within 5 ms"):
        made.await_update(made.update_version, 5)
    made.await_update(made.update_version - 1, 5)
    made.fatal_error(BarnabasError("cannot be"))
    with pytest.raises(BarnabasError, match="cannot be"):
        made.await_update(made.update_version, 1_000)
    made.close()
    with pytest.raises(BarnabasError, match="after close"):
        made.await_update(made.update_version, 1_000)


def test_partitions_are_in_order_and_nodes_known() -> None:
    made = metadata()
    made.add("t", 0)
    update(made, answer(topic(count=3, leader=2)))
    snapshot = made.snapshot
    assert [info.partition for info in snapshot.partitions_for("t")] == [0, 1, 2]
    assert snapshot.partitions_for_node(2) == [TopicPartition("t", index) for index in range(3)]
    assert snapshot.partition_count("x") is None
    assert snapshot.available_partitions("t") == [0, 1, 2]


def test_rebootstrap() -> None:
    """KIP-899: every known node is beyond reach, so it starts again with the addresses it was given."""
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(linger_ms=0)
    cluster.nodes[1] = Node(1, "moved.test", 9092)
    cluster.break_connections(1)
    future = producer.send("t", b"v")
    for _ in range(50):
        producer.sender.run_once()
    assert producer.metadata.snapshot.is_bootstrap
    cluster.nodes[1] = Node(1, "node-1.test", 9092)
    cluster.run_until(producer, future.done)
    assert cluster.values("t") == [b"v"]


def test_rebootstrap_because_a_broker_says_so() -> None:
    """KIP-1102."""
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(linger_ms=0)
    seen: list[bool] = []
    original = producer.metadata.rebootstrap

    def noted() -> None:
        seen.append(True)
        original()

    producer.metadata.rebootstrap = noted  # type: ignore[method-assign]
    cluster.on_next(ApiKey.METADATA, lambda _: MetadataResponse(error_code=Errors.REBOOTSTRAP_REQUIRED))
    producer.metadata.request_update()
    future = producer.send("t", b"v")
    cluster.run_until(producer, future.done)
    cluster.run_until(producer, lambda: bool(seen))


def test_rebootstrap_after_a_long_silence() -> None:
    made = metadata()
    updater = DefaultMetadataUpdater(made, rebootstrap_trigger_ms=1_000)
    made.add("t", 0)
    update(made, answer(topic()))
    assert not updater.needs_rebootstrap(5_000)
    updater._no_response_since_ms = 4_000
    assert not updater.needs_rebootstrap(5_000)
    assert updater.needs_rebootstrap(5_001)
    updater.rebootstrap(5_001)
    assert made.snapshot.is_bootstrap
    assert not DefaultMetadataUpdater(made, can_rebootstrap=False).can_rebootstrap


def test_why_nobody_responds() -> None:
    made = metadata()
    made.note_connection_problem("a:1", "Cannot connect to a:1: connection refused")
    assert "refused" in made.explain_silence()
    made.add("t", 0)
    update(made, answer(topic()))
    assert made.explain_silence() == ""
