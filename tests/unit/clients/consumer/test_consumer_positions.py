"""Where a consumer begins, how it looks offsets up, and what it does when brokers do not answer, in mock time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.clients.common.offsets import OffsetAndMetadata
from barnabas.clients.consumer import KafkaConsumer, TopicPartition
from barnabas.clients.consumer.errors import IllegalStateError, LogTruncationError, WakeupError
from barnabas.clients.consumer.testing import ConsumerCluster
from barnabas.common.errors import (
    Errors,
    InvalidTopicError,
    KafkaTimeoutError,
    TopicAuthorizationError,
    UnsupportedVersionError,
)
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker, MetadataResponseTopic

T0 = TopicPartition("t", 0)
ELSEWHERE = TopicPartition("u", 0)


def cluster_with(count: int = 10, nodes: int = 1) -> ConsumerCluster:
    """One record each minute, the last one right now."""
    cluster = ConsumerCluster({"t": 1, "u": 1}, nodes=nodes)
    now = cluster.clock.milliseconds()
    for number in range(count):
        cluster.append("t", 0, [b"%d" % number], timestamp=now - (count - 1 - number) * 60_000)
    cluster.append("u", 0, [b"x"], timestamp=5)
    return cluster


def assigned(cluster: ConsumerCluster, **settings: Any) -> KafkaConsumer:
    consumer = cluster.consumer(**settings)
    consumer.assign([T0])
    return consumer


def position(cluster: ConsumerCluster, consumer: KafkaConsumer, **arguments: Any) -> int:
    return cluster.run(consumer, lambda: consumer.position(T0, **arguments))


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("earliest", 0), ("latest", 10), ("by_duration:PT150S", 7), ("by_duration:P1D", 0)],
)
def test_where_to_begin(policy: str, expected: int) -> None:
    cluster = cluster_with()
    assert position(cluster, assigned(cluster, auto_offset_reset=policy)) == expected


def test_all_records_are_older_than_the_duration() -> None:
    cluster = cluster_with()
    cluster.clock.advance(600_000)
    assert position(cluster, assigned(cluster, auto_offset_reset="by_duration:PT1M")) == 10


def test_the_last_stable_offset_is_the_end_for_committed_reads() -> None:
    cluster = cluster_with()
    cluster.log("t").last_stable_offset = 4
    consumer = assigned(cluster, isolation_level="read_committed")
    assert position(cluster, consumer) == 4
    assert cluster.run(consumer, lambda: consumer.end_offsets([T0])) == {T0: 4}
    assert position(cluster, assigned(cluster)) == 10


def test_a_reset_is_repeated_until_it_succeeds() -> None:
    cluster = cluster_with()
    cluster.fail_next(
        ApiKey.LIST_OFFSETS, Errors.NOT_LEADER_OR_FOLLOWER, Errors.OFFSET_NOT_AVAILABLE, Errors.UNKNOWN_LEADER_EPOCH
    )
    before = cluster.clock.hi_res_milliseconds()
    assert position(cluster, assigned(cluster, auto_offset_reset="earliest")) == 0
    assert cluster.clock.hi_res_milliseconds() - before >= 300, "with pauses in between"


def test_seeking_overtakes_a_reset() -> None:
    cluster = cluster_with()
    consumer = assigned(cluster, auto_offset_reset="earliest")
    cluster.run(consumer, lambda: consumer.poll(0))
    consumer.seek(T0, 5)
    cluster.turn_until(consumer, lambda: len(cluster.requests(ApiKey.FETCH)) > 0)
    assert position(cluster, consumer) == 5


def test_a_later_seek_to_the_end_wins() -> None:
    cluster = cluster_with()
    consumer = assigned(cluster)
    consumer.seek_to_beginning()
    consumer.seek_to_end(T0)
    assert position(cluster, consumer) == 10


def test_looking_offsets_up() -> None:
    cluster = cluster_with()
    consumer = cluster.consumer()
    now = cluster.clock.milliseconds()
    assert cluster.run(consumer, lambda: consumer.beginning_offsets([T0, ELSEWHERE])) == {T0: 0, ELSEWHERE: 0}
    assert cluster.run(consumer, lambda: consumer.end_offsets([T0, ELSEWHERE])) == {T0: 10, ELSEWHERE: 1}
    found = cluster.run(consumer, lambda: consumer.offsets_for_times({T0: now - 60_000, ELSEWHERE: 6}))
    first = found[T0]
    assert first is not None
    assert (first.offset, found[ELSEWHERE]) == (8, None)
    assert consumer._core.metadata.topic_names() == frozenset(), "asked for in passing"
    with pytest.raises(ValueError, match="negative"):
        consumer.offsets_for_times({T0: -1})


def test_looking_up_takes_its_time_and_then_fails() -> None:
    cluster = cluster_with()
    consumer = cluster.consumer()
    with pytest.raises(KafkaTimeoutError, match="nowhere-3"):
        cluster.run(consumer, lambda: consumer.end_offsets([TopicPartition("nowhere", 3)], timeout_ms=2_000))
    cluster.stop(1)
    with pytest.raises(KafkaTimeoutError):
        cluster.run(consumer, lambda: consumer.end_offsets([T0], timeout_ms=2_000))
    with pytest.raises(KafkaTimeoutError):
        cluster.run(consumer, lambda: consumer.list_topics(timeout_ms=1_000))


def test_what_is_not_allowed_is_told_at_once() -> None:
    cluster = cluster_with()
    consumer = cluster.consumer()
    cluster.fail_next(ApiKey.LIST_OFFSETS, Errors.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(TopicAuthorizationError):
        cluster.run(consumer, lambda: consumer.end_offsets([T0]))


def test_brokers_too_old_to_read_committed() -> None:
    cluster = ConsumerCluster({"t": 1}, versions={ApiKey.LIST_OFFSETS: (0, 1)})
    consumer = cluster.consumer(isolation_level="read_committed")
    with pytest.raises(UnsupportedVersionError):
        cluster.run(consumer, lambda: consumer.end_offsets([T0]))


def test_lag_without_having_read() -> None:
    cluster = cluster_with()
    consumer = assigned(cluster)
    consumer.seek(T0, 3)
    assert consumer.current_lag(T0) is None
    assert consumer.current_lag(T0) is None, "asked for once"
    cluster.turn_until(consumer, lambda: consumer.current_lag(T0) is not None)
    assert consumer.current_lag(T0) == 7


# --- truncation


def cut(cluster: ConsumerCluster, epoch_end: int) -> None:
    """The log was longer in epoch 0, when the consumer read it; another leader has less."""
    log = cluster.log("t")
    del log.batches[max(epoch_end, 0) :]
    log.epoch_ends[0] = epoch_end
    cluster.move_leader("t", 0, to=2)


def test_truncation_without_a_policy_is_for_the_application() -> None:
    cluster = cluster_with(nodes=2)
    consumer = assigned(cluster, auto_offset_reset="none")
    consumer.seek(T0, OffsetAndMetadata(0))
    assert len(cluster.run(consumer, lambda: consumer.poll(1000))) == 10
    cut(cluster, 6)
    with pytest.raises(LogTruncationError) as caught:
        cluster.run(consumer, lambda: consumer.poll(60_000))
    assert caught.value.offset_out_of_range_partitions == {T0: 10}
    assert caught.value.divergent_offsets == {T0: OffsetAndMetadata(6, "", 0)}
    consumer.seek(T0, 6)
    assert position(cluster, consumer) == 6


def test_an_epoch_that_the_leader_knows_nothing_of() -> None:
    cluster = cluster_with(nodes=2)
    consumer = assigned(cluster, auto_offset_reset="earliest")
    cluster.run(consumer, lambda: consumer.poll(1000))
    cut(cluster, -1)
    cluster.turn_until(consumer, lambda: len(cluster.requests(ApiKey.OFFSET_FOR_LEADER_EPOCH)) > 0)
    assert position(cluster, consumer) == 0, "reset"


def test_validation_is_repeated() -> None:
    cluster = cluster_with(nodes=2)
    consumer = assigned(cluster, auto_offset_reset="earliest")
    cluster.run(consumer, lambda: consumer.poll(1000))
    cluster.fail_next(ApiKey.OFFSET_FOR_LEADER_EPOCH, Errors.UNKNOWN_LEADER_EPOCH, Errors.FENCED_LEADER_EPOCH)
    cluster.move_leader("t", 0, to=2)
    cluster.append("t", 0, [b"10"])
    assert [int(record.value) for record in cluster.run(consumer, lambda: consumer.poll(60_000))] == [10]
    assert len(cluster.requests(ApiKey.OFFSET_FOR_LEADER_EPOCH)) == 3


def test_brokers_too_old_to_be_asked_are_believed() -> None:
    cluster = cluster_with(nodes=2)
    cluster.versions[ApiKey.OFFSET_FOR_LEADER_EPOCH] = (0, 2)
    consumer = assigned(cluster, auto_offset_reset="earliest")
    cluster.run(consumer, lambda: consumer.poll(1000))
    cluster.move_leader("t", 0, to=2)
    cluster.append("t", 0, [b"10"])
    assert len(cluster.run(consumer, lambda: consumer.poll(60_000))) == 1
    assert cluster.requests(ApiKey.OFFSET_FOR_LEADER_EPOCH) == []


def test_a_committed_offset_with_an_epoch_is_validated_first() -> None:
    cluster = cluster_with()
    consumer = assigned(cluster, auto_offset_reset="earliest")
    cluster.run(consumer, lambda: consumer.beginning_offsets([T0]))
    consumer.seek(T0, OffsetAndMetadata(5, "", 0))
    cluster.turn_until(consumer, lambda: len(cluster.requests(ApiKey.FETCH)) > 0)
    order = [handled.header.api_key for handled in cluster.handled]
    assert order.index(ApiKey.OFFSET_FOR_LEADER_EPOCH) < order.index(ApiKey.FETCH)


# --- the cluster


def test_a_connection_that_breaks() -> None:
    cluster = cluster_with()
    consumer = assigned(cluster, auto_offset_reset="earliest")
    assert len(cluster.run(consumer, lambda: consumer.poll(1000))) == 10
    cluster.break_connections(1)
    cluster.append("t", 0, [b"10"])
    assert len(cluster.run(consumer, lambda: consumer.poll(60_000))) == 1
    assert [request.session_epoch for request in cluster.requests(ApiKey.FETCH)][-1] == 0, "nothing is agreed on"


def test_a_node_that_goes_and_comes_back() -> None:
    cluster = cluster_with()
    consumer = assigned(cluster, auto_offset_reset="earliest")
    cluster.run(consumer, lambda: consumer.poll(1000))
    cluster.stop(1)
    cluster.append("t", 0, [b"10"])
    assert len(cluster.run(consumer, lambda: consumer.poll(5_000))) == 0
    cluster.start(1)
    assert len(cluster.run(consumer, lambda: consumer.poll(60_000))) == 1


def test_another_node_takes_over() -> None:
    cluster = cluster_with(nodes=2)
    consumer = assigned(cluster, auto_offset_reset="earliest")
    cluster.run(consumer, lambda: consumer.poll(1000))
    cluster.stop(1)
    cluster.move_leader("t", 0, to=2)
    cluster.append("t", 0, [b"10"])
    before = cluster.clock.hi_res_milliseconds()
    assert len(cluster.run(consumer, lambda: consumer.poll(60_000))) == 1
    assert cluster.clock.hi_res_milliseconds() - before < 5_000, "long before the time of a request is over"


def test_topics_that_do_not_exist_yet() -> None:
    cluster = ConsumerCluster()
    consumer = cluster.consumer(auto_offset_reset="earliest")
    consumer.assign([T0])
    assert len(cluster.run(consumer, lambda: consumer.poll(2_000))) == 0
    cluster.create_topic("t", 1)
    cluster.append("t", 0, [b"0"])
    assert len(cluster.run(consumer, lambda: consumer.poll(60_000))) == 1


def about_topic(error: Errors) -> MetadataResponse:
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=1, host="node-1.test", port=9092)],
        topics=[MetadataResponseTopic(name="t", error_code=error)],
    )


@pytest.mark.parametrize(
    ("error", "expected"),
    [(Errors.TOPIC_AUTHORIZATION_FAILED, TopicAuthorizationError), (Errors.INVALID_TOPIC_EXCEPTION, InvalidTopicError)],
)
def test_what_is_wrong_with_a_topic_is_raised_by_poll(error: Errors, expected: type[Exception]) -> None:
    cluster = cluster_with()
    cluster.on_next(ApiKey.METADATA, lambda _handled: about_topic(error))
    consumer = assigned(cluster)
    with pytest.raises(expected):
        cluster.run(consumer, lambda: consumer.poll(1_000))


def test_partitions_for() -> None:
    cluster = ConsumerCluster({"t": 3})
    consumer = cluster.consumer()
    cluster.fail_next(ApiKey.METADATA, Errors.NONE)
    assert [info.partition for info in cluster.run(consumer, lambda: consumer.partitions_for("t"))] == [0, 1, 2]
    assert cluster.run(consumer, lambda: consumer.partitions_for("u")) == ()
    assert set(cluster.run(consumer, consumer.list_topics)) == {"t"}


# --- what an application may not do


def test_what_has_to_be_assigned_first() -> None:
    cluster = cluster_with()
    consumer = cluster.consumer()
    with pytest.raises(IllegalStateError, match="not subscribed"):
        consumer.poll()
    calls: list[Callable[[], object]] = [
        lambda: consumer.seek(T0, 1),
        lambda: consumer.position(T0),
        lambda: consumer.pause(T0),
        lambda: consumer.current_lag(T0),
    ]
    for call in calls:
        with pytest.raises(IllegalStateError):
            call()
    with pytest.raises(ValueError, match="negative"):
        consumer.seek(T0, -1)
    with pytest.raises(ValueError, match="negative"):
        assigned(cluster).poll(-1)


def test_assigning_anew_keeps_positions() -> None:
    cluster = cluster_with()
    consumer = assigned(cluster)
    consumer.seek(T0, 4)
    consumer.assign([T0, ELSEWHERE])
    assert position(cluster, consumer) == 4
    consumer.assign([ELSEWHERE])
    consumer.assign([T0])
    assert position(cluster, consumer) == 10, "it had been given up in between"
    consumer.assign([])
    assert consumer.assignment() == frozenset()


def test_wakeup_before_and_during_a_poll() -> None:
    cluster = cluster_with()
    consumer = assigned(cluster)
    consumer.wakeup()
    with pytest.raises(WakeupError):
        cluster.run(consumer, lambda: consumer.poll(1_000))
    assert len(cluster.run(consumer, lambda: consumer.poll(100))) == 0, "once"
    consumer.wakeup()
    with pytest.raises(WakeupError):
        cluster.run(consumer, lambda: consumer.end_offsets([T0]))


def test_closing_sends_nothing_into_the_void() -> None:
    cluster = cluster_with()
    consumer = assigned(cluster, auto_offset_reset="earliest")
    cluster.run(consumer, lambda: consumer.poll(1_000))
    cluster.stop(1)
    consumer.close(timeout=1)
    with pytest.raises(IllegalStateError, match="closed"):
        consumer.assignment()
