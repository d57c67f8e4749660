"""Handlers of records on a bench: a cache with some topics, replicas that do as the test says, quotas that can be set.

What a request ends in is read from the bytes that go out, through the dispatcher, so errors that end a request as a
whole are seen as a client sees them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from barnabas.common.clock import MockClock
from barnabas.common.errors import Errors
from barnabas.common.topic_partition import TopicPartition
from barnabas.metadata.cache import MetadataCache
from barnabas.metrics.yammer.meter import Meter
from barnabas.protocol.message import Buffer
from barnabas.protocol.message import Request as RequestMessage
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsResult
from barnabas.protocol.messages.describe_producers import PartitionResponse
from barnabas.protocol.messages.fetch import FetchPartition
from barnabas.replica.fetch.fetch_session import TopicIdPartition
from barnabas.replica.follower.replica_quota import ReplicaQuota
from barnabas.replica.results import (
    BufferHolder,
    DeleteRecordsCallback,
    DeleteRecordsResult,
    EpochEndOffsetResult,
    FetchCallback,
    FetchParams,
    FetchPartitionData,
    IsolationLevel,
    OffsetResult,
    ProduceCallback,
    ProduceResult,
)
from barnabas.security.acl import AclOperation, ResourceType, acl
from barnabas.security.auth_helper import AuthHelper
from barnabas.security.authorizer import Action, AuthorizationResult
from barnabas.security.principal import KafkaPrincipal
from barnabas.security.request_context import AuthorizableRequestContext
from barnabas.security.standard_authorizer import StandardAuthorizer
from barnabas.server.dispatch import ApiDispatcher, handlers_of
from barnabas.server.request import Request
from barnabas.server.throttling import ThrottleCallback
from handler_fixtures import FakeQuota, HandlerBench
from unit.metadata.samples import broker, image_of, metadata_version, partition, topic, uid

ALICE = KafkaPrincipal.parse("User:alice")
T, COMPACT, SMALL, ELSEWHERE = uid(1), uid(2), uid(3), uid(4)
NAMES = {T: "t", COMPACT: "compact", SMALL: "small", ELSEWHERE: "elsewhere"}
NOBODY = uid(99)
"""The id of no topic."""


def some_topics() -> MetadataCache:
    """Three topics of two partitions, all led by broker 1; a fourth is led by broker 2 in epoch 5."""
    cache = MetadataCache()
    cache.set_image(
        image_of(
            [
                metadata_version(),
                broker(1),
                broker(2, rack="east"),
                *(record for topic_id in (T, COMPACT, SMALL) for record in topic(NAMES[topic_id], topic_id, 2)),
                *topic("elsewhere", ELSEWHERE, 0),
                partition(ELSEWHERE, 0, replicas=[2], leader_epoch=5),
            ]
        )
    )
    return cache


class FakeBandwidth:
    """A quota of bytes that says what it was told to say, and remembers."""

    def __init__(self, throttle_time_ms: int = 0, window: float = math.inf) -> None:
        self.is_enabled = True
        self.throttle_time_ms = throttle_time_ms
        self.window = window
        self.recorded: list[float] = []
        self.unrecorded: list[float] = []
        self.throttled: list[int] = []
        self.wait_ms = 0
        self.held: list[Callable[[], object]] | None = []
        """None if nobody can be held any more."""

    def first_wait_ms(self, request: Request) -> int:
        return self.wait_ms

    def hold(self, request: Request, wait_ms: int, resume: Callable[[], object]) -> bool:
        assert wait_ms == self.wait_ms
        if self.held is None:
            return False
        self.held.append(resume)
        return True

    def maybe_record_and_get_throttle_time_ms(self, request: Request, value: float, now_ms: int) -> int:
        self.recorded.append(value)
        return self.throttle_time_ms

    def unrecord(self, request: Request, value: float, now_ms: int) -> None:
        self.unrecorded.append(value)

    def max_value_in_window(self, request: Request) -> float:
        return self.window

    def throttle(self, request: Request, callback: ThrottleCallback, throttle_time_ms: int) -> None:
        self.throttled.append(throttle_time_ms)
        callback.start_throttling()


class Quotas:
    """What clients may use; nothing is limited unless the test says so."""

    def __init__(self, produce: int = 0, fetch: int = 0, request: int = 0, window: float = math.inf) -> None:
        self.produce = FakeBandwidth(produce)
        self.fetch = FakeBandwidth(fetch, window)
        self.request = FakeQuota(request)
        self.controller_mutation = FakeQuota()


class CountingAuthorizer(StandardAuthorizer):
    """Counts how often it is asked."""

    calls: list[Sequence[Action]]

    def authorize(self, context: AuthorizableRequestContext, actions: Sequence[Action]) -> list[AuthorizationResult]:
        self.calls.append(actions)
        return list(super().authorize(context, actions))


def acls(*rules: tuple[AclOperation, ResourceType, str]) -> AuthHelper:
    """Alice may do these things; nobody may do any other."""
    authorizer = CountingAuthorizer([acl("User:alice", *rule) for rule in rules])
    authorizer.calls = []
    return AuthHelper(authorizer)


def questions(auth: AuthHelper) -> list[Sequence[Action]]:
    assert isinstance(auth.authorizer, CountingAuthorizer)
    return auth.authorizer.calls


class FakeReplicas:
    """A replica manager that appends, reads and finds whatever the test says."""

    def __init__(self) -> None:
        self.appended: dict[TopicIdPartition, bytes] = {}
        self.append_calls: list[dict[str, Any]] = []
        self.produce_results: dict[str, ProduceResult] = {}
        """By name and number, as ``t-0``."""
        self.parks = False
        """Whether answers wait until the test calls the callbacks."""
        self.parked: list[Callable[[], object]] = []
        self.holds = False
        """Whether the buffers of appends are held until these are complete."""
        self.fetch_calls: list[tuple[FetchParams, list[tuple[TopicIdPartition, FetchPartition]], ReplicaQuota]] = []
        self.fetch_results: dict[str, FetchPartitionData] = {}
        self.offset_calls: list[tuple[TopicPartition, int, IsolationLevel | None, int | None, bool]] = []
        self.offset: OffsetResult | Exception = OffsetResult(7, 42, 3)
        self.epoch_calls: list[tuple[TopicPartition, int | None, int]] = []
        self.epoch_result = EpochEndOffsetResult(Errors.NONE, 3, 42)
        self.deleted: list[tuple[int, dict[TopicPartition, int]]] = []
        self.delete_results: dict[TopicPartition, DeleteRecordsResult] = {}
        self.described: list[Collection[TopicPartition] | None] = []
        self.moved: dict[TopicPartition, str] = {}
        self.move_results: dict[TopicPartition, Errors] = {}

    def _finish(self, callback: Callable[[], object]) -> None:
        if self.parks:
            self.parked.append(callback)
        else:
            callback()

    def complete(self) -> None:
        """What was waited for has happened."""
        while self.parked:
            self.parked.pop(0)()

    def append_records(
        self,
        timeout_ms: int,
        required_acks: int,
        entries: Mapping[TopicIdPartition, Buffer],
        callback: ProduceCallback,
        *,
        internal_topics_allowed: bool = False,
        holder: BufferHolder | None = None,
        **_others: Any,
    ) -> None:
        release = holder.hold_buffer() if holder is not None and self.holds else None
        self.append_calls.append({"timeout_ms": timeout_ms, "acks": required_acks, "internal": internal_topics_allowed})
        self.appended.update({partition: bytes(records) for partition, records in entries.items()})
        results = {
            partition: self.produce_results.get(str(partition), ProduceResult(Errors.NONE, 0, -1, 0))
            for partition in entries
        }

        def finish() -> None:
            callback(results)
            if release is not None:
                release()

        self._finish(finish)

    def fetch_messages(
        self,
        params: FetchParams,
        fetch_infos: Sequence[tuple[TopicIdPartition, FetchPartition]],
        quota: ReplicaQuota,
        callback: FetchCallback,
    ) -> None:
        self.fetch_calls.append((params, list(fetch_infos), quota))
        partitions = [partition for partition, _ in fetch_infos]
        self._finish(
            lambda: callback(
                [
                    (key, self.fetch_results.get(str(key), FetchPartitionData(Errors.NONE, 10, 0, b"")))
                    for key in partitions
                ]
            )
        )

    def fetch_offset(
        self,
        partition: TopicPartition,
        timestamp: int,
        isolation: IsolationLevel | None,
        current_leader_epoch: int | None,
        fetch_only_from_leader: bool,
    ) -> OffsetResult:
        self.offset_calls.append((partition, timestamp, isolation, current_leader_epoch, fetch_only_from_leader))
        if isinstance(self.offset, Exception):
            raise self.offset
        return self.offset

    def last_offset_for_leader_epoch(
        self, partition: TopicPartition, current_leader_epoch: int | None, leader_epoch: int
    ) -> EpochEndOffsetResult:
        self.epoch_calls.append((partition, current_leader_epoch, leader_epoch))
        return self.epoch_result

    def delete_records(
        self, timeout_ms: int, offsets: Mapping[TopicPartition, int], callback: DeleteRecordsCallback
    ) -> None:
        self.deleted.append((timeout_ms, dict(offsets)))
        results = {
            partition: self.delete_results.get(partition, DeleteRecordsResult(Errors.NONE, offset))
            for partition, offset in offsets.items()
        }
        self._finish(lambda: callback(results))

    def describe_log_dirs(self, partitions: Collection[TopicPartition] | None) -> list[DescribeLogDirsResult]:
        self.described.append(partitions)
        return [DescribeLogDirsResult(log_dir="/a"), DescribeLogDirsResult(log_dir="/b", total_bytes=5)]

    def alter_replica_log_dirs(self, dirs: Mapping[TopicPartition, str]) -> dict[TopicPartition, Errors]:
        self.moved.update(dirs)
        return {partition: self.move_results.get(partition, Errors.NONE) for partition in dirs}

    def active_producer_state(self, partition: TopicPartition) -> PartitionResponse:
        return PartitionResponse(partition_index=partition.partition, error_code=Errors.NONE)


class DataBench(HandlerBench):
    """A bench with topics, replicas and quotas on it."""

    def __init__(self, quotas: Quotas | None = None, auth: AuthHelper | None = None) -> None:
        self.quotas = quotas
        if quotas is None:
            super().__init__(clock=MockClock())
        else:
            super().__init__(quotas, MockClock())
        self.auth = auth or AuthHelper()
        self.cache = some_topics()
        self.replicas = FakeReplicas()

    def dispatch(
        self,
        family: object,
        body: RequestMessage,
        version: int,
        *,
        principal: KafkaPrincipal | None = None,
        client_id: str | None = "test",
    ) -> Request:
        """Has a request handled as the broker does it; errors are answered."""
        request = self.request(body, version, principal=principal, client_id=client_id)
        self.run(ApiDispatcher(handlers_of(family), self.helper).handle, request)
        return request

    def answered(
        self, family: object, body: RequestMessage, version: int, *, principal: KafkaPrincipal | None = None
    ) -> Any:
        return self.answer(self.dispatch(family, body, version, principal=principal))

    def errors_counted(self, api: str) -> dict[str, int]:
        """The errors of an API as the metrics have them."""
        found = {}
        for name, metric in self.registry.metrics.items():
            tags = dict(name.tags)
            if name.name == "ErrorsPerSec" and tags["request"] == api and isinstance(metric, Meter):
                found[tags["error"]] = metric.count
        return found
