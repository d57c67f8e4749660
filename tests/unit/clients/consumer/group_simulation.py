"""A group in one thread: consumers' group sides, a network that fails, and the coordinator of our broker, in mock time.

Everything is as in a running system, but for sockets and threads: requests are encoded and decoded, a connection
answers in order, and holds up what is behind a request that the coordinator sits on. A seed decides who does what when.

A member of the simulation is also its own application: it polls now and then, has a listener (a slow one, at times),
reads a log that never ends, and commits.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from barnabas.clients.consumer.auto_offset_reset import AutoOffsetResetStrategy
from barnabas.clients.consumer.consumer_config import ConsumerConfig
from barnabas.clients.consumer.group_metadata import CloseOptions
from barnabas.clients.consumer.internals.background_events import BackgroundEventQueue, CallbackEvent, ErrorEvent
from barnabas.clients.consumer.internals.consumer_metadata import ConsumerMetadata
from barnabas.clients.consumer.internals.fetch_position import FetchPosition
from barnabas.clients.consumer.internals.group_events import OffsetsCommittedEvent, RebalanceListenerEvent
from barnabas.clients.consumer.internals.group_managers import GroupManagers
from barnabas.clients.consumer.internals.request_managers import UnsentRequest
from barnabas.clients.consumer.internals.subscription_state import SubscriptionState
from barnabas.clients.consumer.rebalance_listener import ConsumerRebalanceListener
from barnabas.common.clock import MockClock
from barnabas.common.errors import NotCoordinatorError, UnsupportedVersionError
from barnabas.common.topic_partition import TopicPartition
from barnabas.coordinator.group.member_context import MemberContext
from barnabas.metrics.registry import Metrics
from barnabas.network.client.client_request import ClientRequest, ClientResponse
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.message import Request, Response
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest
from barnabas.protocol.messages.leave_group import LeaveGroupRequest
from barnabas.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from barnabas.protocol.messages.sync_group import SyncGroupRequest
from barnabas.protocol.versions import VersionRange
from barnabas.server.error_responses import responses
from barnabas.server.error_responses.failure import Failure
from group_fixtures import GroupBox

MAX_INT32 = 2**31 - 1
SPOKEN = {ApiKey.OFFSET_COMMIT: 9, ApiKey.OFFSET_FETCH: 9}
"""Topic ids become names in the handlers of a broker, which are not part of this."""


@dataclass
class Faults:
    """How often things go wrong, each time something is sent or done."""

    lost_request: float = 0.0
    lost_answer: float = 0.0
    slow_listener: float = 0.0
    max_delay_ms: int = 20


class SimulatedCluster:
    """One coordinator at a time, which may move to another broker: memory is lost, the log is not."""

    def __init__(self, seed: int, topics: Mapping[str, int], **config: Any) -> None:
        self.dice = random.Random(seed)
        self.clock = MockClock()
        self.box = GroupBox(config, clock=self.clock)
        self.topics = dict(topics)
        self.topic_ids = {name: self.box.create_topic(name, count) for name, count in topics.items()}
        self.node_id = 1
        self.faults = Faults()
        self.has_consumer_protocol = True
        self.owners: dict[TopicPartition, list[SimulatedMember]] = {}
        self.overlaps: list[tuple[TopicPartition, str, str]] = []

    @property
    def now(self) -> int:
        return self.clock.hi_res_milliseconds()

    def move_coordinator(self) -> None:
        self.box = self.box.restarted()
        self.node_id += 1

    def create_topic(self, name: str, partitions: int) -> None:
        self.topics[name] = partitions
        self.topic_ids[name] = self.box.create_topic(name, partitions)

    def metadata(self) -> MetadataResponse:
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=self.node_id, host="host", port=9092)],
            topics=[
                MetadataResponseTopic(
                    name=name,
                    topic_id=self.topic_ids[name],
                    partitions=[
                        MetadataResponsePartition(partition_index=number, leader_id=self.node_id, leader_epoch=1)
                        for number in range(count)
                    ],
                )
                for name, count in self.topics.items()
            ],
        )

    def handle(self, node_id: int, body: Request, version: int) -> Future[Response]:
        """What a broker answers, now or later."""
        service = self.box.service
        if isinstance(body, FindCoordinatorRequest):
            answer: Future[Response] = Future()
            row = Coordinator(key=body.coordinator_keys[0], node_id=self.node_id, host="host", port=9092)
            answer.set_result(FindCoordinatorResponse(coordinators=[row]))
            return answer
        if MAX_INT32 - node_id != self.node_id:
            return self._not_coordinator(body, version)
        context = MemberContext("client", "/127.0.0.1", version)
        made: Any
        if isinstance(body, JoinGroupRequest):
            made = service.join_group(context, body)
        elif isinstance(body, SyncGroupRequest):
            made = service.sync_group(body)
        elif isinstance(body, HeartbeatRequest):
            made = service.heartbeat(body)
        elif isinstance(body, LeaveGroupRequest):
            made = service.leave_group(body)
        elif isinstance(body, ConsumerGroupHeartbeatRequest):
            made = service.consumer_group_heartbeat(context, body)
        elif isinstance(body, OffsetCommitRequest):
            made = service.commit_offsets(context, body)
        else:
            assert isinstance(body, OffsetFetchRequest)
            inner = service.fetch_offsets(body.groups[0], require_stable=body.require_stable)
            made = Future()
            inner.add_done_callback(lambda done: made.set_result(OffsetFetchResponse(groups=[done.result()])))
        coming: Future[Response] = made
        return coming

    def _not_coordinator(self, body: Request, version: int) -> Future[Response]:
        answer: Future[Response] = Future()
        made = responses()[body.api_key](body, Failure.of(NotCoordinatorError(), 0, version))
        assert made is not None
        answer.set_result(made)
        return answer

    # -- who has what

    def takes(self, member: SimulatedMember, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            holders = self.owners.setdefault(partition, [])
            for other in holders:
                self.overlaps.append((partition, other.name, member.name))
                other.zombie_of.add(partition)
            holders.append(member)

    def gives_up(self, member: SimulatedMember, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self.owners[partition].remove(member)


class _Connection:
    """Requests to one node, answered in order."""

    def __init__(self) -> None:
        self.queue: deque[tuple[int, UnsentRequest, Request, int, ClientRequest]] = deque()
        self.pending: Future[Response] | None = None
        self.answer_at: int | None = None


@dataclass
class Listener(ConsumerRebalanceListener):
    """Keeps the books, and does not put up with calls that make no sense."""

    member: SimulatedMember
    calls: list[tuple[str, tuple[TopicPartition, ...]]] = field(default_factory=list)

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.calls.append(("assigned", tuple(partitions)))
        assert not self.member.owned.intersection(partitions), f"{partitions} assigned twice"
        self.member.owned.update(partitions)
        self.member.cluster.takes(self.member, partitions)

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.calls.append(("revoked", tuple(partitions)))
        assert self.member.owned.issuperset(partitions), f"{partitions} revoked, but {self.member.owned} owned"
        both = self.member.zombie_of.intersection(partitions)
        assert not both, f"{both} were revoked after another member had got them"
        self._drop(partitions)

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.calls.append(("lost", tuple(partitions)))
        assert self.member.owned.issuperset(partitions), f"{partitions} lost, but {self.member.owned} owned"
        self._drop(partitions)

    def _drop(self, partitions: Sequence[TopicPartition]) -> None:
        self.member.owned.difference_update(partitions)
        self.member.zombie_of.difference_update(partitions)
        self.member.cluster.gives_up(self.member, partitions)


class SimulatedMember:
    """A consumer: its background thread and its application, as steps."""

    def __init__(
        self, cluster: SimulatedCluster, name: str, topics: Iterable[str] = ("t",), **settings: object
    ) -> None:
        self.cluster = cluster
        self.name = name
        config = ConsumerConfig.of(
            {
                "bootstrap.servers": "host:9092",
                "group.id": "g",
                "auto.commit.interval.ms": 1_000,
                "max.poll.interval.ms": 60_000,
                **settings,
            }
        )
        self.config = config
        self.subscriptions = SubscriptionState(AutoOffsetResetStrategy.parse("earliest"))
        self.metadata = ConsumerMetadata(
            100,
            1_000,
            300_000,
            subscriptions=self.subscriptions,
            allow_auto_topic_creation=False,
            include_internal_topics=False,
            random=cluster.dice,
        )
        self.events = BackgroundEventQueue()
        self.metrics = Metrics(clock=cluster.clock)
        self.group = GroupManagers(
            config=config,
            subscriptions=self.subscriptions,
            metadata=self.metadata,
            background_events=self.events,
            metrics=self.metrics,
            clock=cluster.clock,
            random=cluster.dice,
        )
        self.listener = Listener(self)
        self.owned: set[TopicPartition] = set()
        self.zombie_of: set[TopicPartition] = set()
        """What it thinks it has, and another member has got since."""
        self.errors: list[BaseException] = []
        self.delivered: set[tuple[TopicPartition, int]] = set()
        self.alive = True
        self.frozen = False
        """Neither of its threads gets to run."""
        self._connections: dict[int, _Connection] = {}
        self._busy_until = 0
        self._listener_result: tuple[int, Exception | None] | None = None
        self._positions: Future[Any] | None = None
        self._correlation_id = 0
        self.sent: list[Request] = []
        if topics:
            self.subscribe(topics)

    # -- the application

    def subscribe(self, topics: Iterable[str]) -> None:
        self.subscriptions.subscribe(topics, self.listener)
        self.group.on_subscription_change()
        self.metadata.request_update_for_new_topics()

    def application_step(self) -> None:
        """One turn of a loop that polls."""
        now = self.cluster.now
        if not self.alive or self.frozen or now < self._busy_until:
            return
        if self._finish_listener():
            return
        self.group.on_application_poll(now)
        self.run_events()
        if self._listener_result is None:
            self._consume()

    def run_events(self) -> None:
        """What is done inside poll(), close() and the like."""
        if self._listener_result is not None:
            if self.cluster.now < self._busy_until:
                return
            self._finish_listener()
        while (event := self.events.take()) is not None:
            if isinstance(event, RebalanceListenerEvent):
                event.call()
                self._listener_result = (event.id, None)
                if self.cluster.dice.random() < self.cluster.faults.slow_listener:
                    self._busy_until = self.cluster.now + self.cluster.dice.randint(10, 3_000)
                    return
                self._finish_listener()
            elif isinstance(event, CallbackEvent):
                event.call()
            elif isinstance(event, ErrorEvent):
                self.errors.append(event.error)
            else:
                assert isinstance(event, OffsetsCommittedEvent)

    def _finish_listener(self) -> bool:
        if self._listener_result is None:
            return False
        event_id, error = self._listener_result
        self._listener_result = None
        self.group.listener_done(event_id, error)
        return True

    def _consume(self) -> None:
        """Reads a few records of each partition: the log of the simulation never ends."""
        missing = self.subscriptions.positions.initializing_partitions()
        if missing and self._positions is None:
            self._positions = self.group.fetch_committed(missing, self.cluster.now + 60_000)
        if self._positions is not None and self._positions.done():
            done, self._positions = self._positions, None
            if done.exception() is None:
                for partition, committed in done.result().items():
                    if partition in self.subscriptions.positions.initializing_partitions():
                        offset = 0 if committed is None else committed.offset
                        self.subscriptions.positions.seek_validated(partition, FetchPosition(offset))
        for partition, position in self.subscriptions.positions.fetchable_positions().items():
            count = self.cluster.dice.randint(0, 5)
            for offset in range(position.offset, position.offset + count):
                self.delivered.add((partition, offset))
            self.subscriptions.positions.advance(partition, FetchPosition(position.offset + count))

    # -- the background thread

    def background_step(self) -> None:
        if not self.alive or self.frozen:
            return
        now = self.cluster.now
        if self.metadata.time_to_next_update(now) == 0:
            version = self.metadata.new_metadata_request(now).request_version
            self.metadata.update(version, self.cluster.metadata(), False, now)
        for manager in self.group.managers:
            for request in manager.poll(now).unsent_requests:
                self._send(request)
        self._network_step()

    def _send(self, request: UnsentRequest) -> None:
        now = self.cluster.now
        self._correlation_id += 1
        allowed = request.allowed_versions
        made = ClientRequest(
            "0", request.body, self._correlation_id, "client", now, request_timeout_ms=30_000, allowed_versions=allowed
        )
        highest = SPOKEN.get(made.api_key, made.allowed_versions.highest)
        version = min(highest, made.allowed_versions.highest)
        if made.api_key is ApiKey.CONSUMER_GROUP_HEARTBEAT and not self.cluster.has_consumer_protocol:
            mismatch = UnsupportedVersionError("the node does not serve it")
            request.on_complete(ClientResponse(made, version, now, version_mismatch=mismatch))
            return
        assert version in VersionRange(made.allowed_versions.lowest, made.allowed_versions.highest)
        body = made.build(version)
        decoded = type(body).decode(body.encode(version), version)
        self.sent.append(decoded)
        node_id = 0 if request.node is None else request.node.id
        connection = self._connections.setdefault(node_id, _Connection())
        delay_ms = self.cluster.dice.randint(0, self.cluster.faults.max_delay_ms)
        connection.queue.append((now + delay_ms, request, decoded, version, made))

    def _network_step(self) -> None:
        now = self.cluster.now
        dice, faults = self.cluster.dice, self.cluster.faults
        for node_id, connection in list(self._connections.items()):
            while connection.queue:
                due, request, body, version, made = connection.queue[0]
                if connection.pending is None:
                    if now < due:
                        break
                    if dice.random() < faults.lost_request:
                        self.disconnect(node_id)
                        break
                    connection.pending = self.cluster.handle(node_id, body, version)
                if not connection.pending.done():
                    if now > due + (request.timeout_ms or 30_000):
                        self.disconnect(node_id)
                    break
                if dice.random() < faults.lost_answer:
                    self.disconnect(node_id)
                    break
                answer = connection.pending.result()
                connection.queue.popleft()
                connection.pending = None
                answer = type(answer).decode(answer.encode(version), version)
                request.on_complete(ClientResponse(made, version, now, answer))

    def disconnect(self, node_id: int) -> None:
        """All that is under way on a connection ends without a response."""
        connection = self._connections.pop(node_id, None)
        if connection is None:
            return
        for _, request, _, version, made in connection.queue:
            request.on_complete(
                ClientResponse(made, version, self.cluster.now, disconnected=True, reason="the connection broke")
            )

    def disconnect_all(self) -> None:
        for node_id in list(self._connections):
            self.disconnect(node_id)

    # -- the end

    def close(self, options: CloseOptions | None = None, timeout_ms: int = 30_000) -> Future[None]:
        return self.group.leave_on_close(self.cluster.now + timeout_ms, options or CloseOptions())

    def crash(self) -> None:
        """It is gone, and nobody hears of it. What it had is free for others, whom the coordinator will tell."""
        self.alive = False
        self.cluster.gives_up(self, list(self.owned))
        self.owned.clear()


class Simulation:
    """A cluster, members, and time."""

    def __init__(self, seed: int, topics: Mapping[str, int] | None = None, **config: Any) -> None:
        self.cluster = SimulatedCluster(seed, topics or {"t": 4}, **config)
        self.dice = self.cluster.dice
        self.members: list[SimulatedMember] = []

    def member(self, name: str | None = None, **options: Any) -> SimulatedMember:
        made = SimulatedMember(self.cluster, name or f"member-{len(self.members)}", **options)
        self.members.append(made)
        return made

    def step(self, milliseconds: int = 20) -> None:
        self.cluster.box.advance(milliseconds)
        for member in self.dice.sample(self.members, len(self.members)):
            member.background_step()
            if self.dice.random() < 0.7:
                member.application_step()
            member.background_step()

    def run(self, milliseconds: int, step_ms: int = 20) -> None:
        end = self.cluster.now + milliseconds
        while self.cluster.now < end:
            self.step(step_ms)

    def run_until(self, condition: Any, milliseconds: int = 120_000, step_ms: int = 20) -> None:
        end = self.cluster.now + milliseconds
        while not condition():
            assert self.cluster.now < end, [
                (one.name, one.owned, one.group.membership, one.errors) for one in self.members
            ]
            self.step(step_ms)

    @property
    def living(self) -> list[SimulatedMember]:
        return [one for one in self.members if one.alive and one.subscriptions.subscription.is_auto_assigned()]

    def is_settled(self) -> bool:
        """Whether the living members have all partitions, each one, and all of them have some if that is possible."""
        owned = sorted(partition for member in self.living for partition in member.owned)
        everything = sorted(
            TopicPartition(topic, number) for topic, count in self.cluster.topics.items() for number in range(count)
        )
        fair = len(everything) < len(self.living) or all(member.owned for member in self.living)
        return owned == everything and fair

    def settle(self, milliseconds: int = 120_000) -> None:
        self.run_until(self.is_settled, milliseconds)

    def close(self, member: SimulatedMember, options: CloseOptions | None = None) -> None:
        """As an application does: waits, and runs what is to be run on its thread meanwhile."""
        future = member.close(options)
        end = self.cluster.now + 60_000
        while not future.done():
            assert self.cluster.now < end, member.group.membership
            self.cluster.box.advance(10)
            member.run_events()
            for other in self.members:
                other.background_step()
                if other is not member:
                    other.application_step()
        member.run_events()
        assert not member.owned
        member.alive = False

    def delivered_all(self) -> bool:
        """Whether there is no gap before the last record that anybody got."""
        seen: dict[TopicPartition, set[int]] = {}
        for member in self.members:
            for partition, offset in member.delivered:
                seen.setdefault(partition, set()).add(offset)
        return all(offsets == set(range(max(offsets) + 1)) for offsets in seen.values())
