"""Many members of one group in one thread, as close to the protocol as it gets: each is a generator on a connection.

A member yields what it asks (and how long it waits before), and gets the answer. As it hears of a rebalance from the
answers to its heartbeats, and only then, a group settles no sooner than the heartbeats allow.
"""

from __future__ import annotations

import heapq
import itertools
import selectors
import socket
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from barnabas.common.errors import Errors
from barnabas.common.identifiers import random_uuid, uuid_to_string
from barnabas.coordinator.group.consumer_protocol import read_assignment, write_assignment
from barnabas.protocol.framing import encode_request
from barnabas.protocol.message import Request, Response
from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from barnabas.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

TIMEOUT_S = 60.0


class Ask(NamedTuple):
    request: Request
    version: int
    response: type[Response]
    after_s: float = 0.0
    """How long to wait before it is sent."""


Member = Generator[Ask, Any, None]


@dataclass(slots=True)
class GroupView:
    """What the members know, all together."""

    group_id: str
    topic: str
    partitions: int
    heartbeat_s: float
    epochs: dict[int, int] = field(default_factory=dict)
    """Of members that have what they are to have: the generation, or the member epoch."""
    owned: dict[int, list[int]] = field(default_factory=dict)
    leaving: set[int] = field(default_factory=set)
    """Those that leave with their next request."""

    def is_settled(self, members: int) -> bool:
        """Whether so many are at the same epoch, and have all the partitions between them, in fair parts."""
        if len(self.epochs) != members or len(self.owned) != members:
            return False
        sizes = set(map(len, self.owned.values()))
        return (
            len(set(self.epochs.values())) == 1
            and max(sizes) - min(sizes) <= 1
            and sorted(itertools.chain.from_iterable(self.owned.values())) == list(range(self.partitions))
        )

    def forget(self, number: int) -> None:
        self.epochs.pop(number, None)
        self.owned.pop(number, None)


def classic_member(view: GroupView, number: int) -> Member:
    """Joins, syncs, sends heartbeats; whoever leads deals out the partitions in ranges."""
    subscription = b"\0\1" + ConsumerProtocolSubscription(topics=[view.topic]).encode(1)
    member_id = ""
    while True:
        view.forget(number)
        join = JoinGroupRequest(
            group_id=view.group_id,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=60_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription)],
        )
        joined: JoinGroupResponse = yield Ask(join, 9, JoinGroupResponse)
        if joined.error_code == Errors.MEMBER_ID_REQUIRED:
            member_id = joined.member_id
            continue
        _check(joined.error_code)
        generation = joined.generation_id
        sync = SyncGroupRequest(
            group_id=view.group_id,
            generation_id=generation,
            member_id=member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=_ranges(view, [one.member_id for one in joined.members]),
        )
        synced: SyncGroupResponse = yield Ask(sync, 5, SyncGroupResponse)
        if synced.error_code == Errors.REBALANCE_IN_PROGRESS:
            continue
        _check(synced.error_code)
        view.epochs[number] = generation
        view.owned[number] = _read_range(synced.assignment)
        heartbeat = HeartbeatRequest(group_id=view.group_id, generation_id=generation, member_id=member_id)
        error: int = Errors.NONE
        while error == Errors.NONE:
            if number in view.leaving:
                view.forget(number)
                leave = LeaveGroupRequest(group_id=view.group_id, members=[MemberIdentity(member_id=member_id)])
                yield Ask(leave, 5, LeaveGroupResponse)
                return
            error = (yield Ask(heartbeat, 4, HeartbeatResponse, view.heartbeat_s)).error_code
        if error != Errors.REBALANCE_IN_PROGRESS:
            _check(error)


def _ranges(view: GroupView, members: Sequence[str]) -> list[SyncGroupRequestAssignment]:
    dealt = []
    for index, member_id in enumerate(members):
        numbers = range(index * view.partitions // len(members), (index + 1) * view.partitions // len(members))
        of_topic = ConsumerProtocolAssignmentTopicPartition(topic=view.topic, partitions=list(numbers))
        assignment = ConsumerProtocolAssignment(assigned_partitions=[of_topic])
        dealt.append(SyncGroupRequestAssignment(member_id=member_id, assignment=write_assignment(assignment, 1)))
    return dealt


def _read_range(data: bytes) -> list[int]:
    return [number for topic in read_assignment(data).assigned_partitions for number in topic.partitions]


def consumer_member(view: GroupView, number: int) -> Member:
    """Takes and gives back partitions as the answers to its heartbeats say, and confirms each change at once."""
    member_id = uuid_to_string(random_uuid())
    join = ConsumerGroupHeartbeatRequest(
        group_id=view.group_id,
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[view.topic],
        topic_partitions=[],
    )
    answer: ConsumerGroupHeartbeatResponse = yield Ask(join, 1, ConsumerGroupHeartbeatResponse)
    while True:
        _check(answer.error_code)
        heartbeat = ConsumerGroupHeartbeatRequest(
            group_id=view.group_id, member_id=member_id, member_epoch=answer.member_epoch
        )
        after_s = view.heartbeat_s
        if answer.assignment is not None:
            given = answer.assignment.topic_partitions
            view.owned[number] = [one for topic in given for one in topic.partitions]
            heartbeat.topic_partitions = [
                TopicPartitions(topic_id=topic.topic_id, partitions=topic.partitions) for topic in given
            ]
            after_s = 0
        view.epochs[number] = answer.member_epoch
        if number in view.leaving:
            view.forget(number)
            leave = ConsumerGroupHeartbeatRequest(group_id=view.group_id, member_id=member_id, member_epoch=-1)
            yield Ask(leave, 1, ConsumerGroupHeartbeatResponse)
            return
        answer = yield Ask(heartbeat, 1, ConsumerGroupHeartbeatResponse, after_s)


def _check(error_code: int) -> None:
    if error_code != Errors.NONE:
        raise RuntimeError(f"a member was told {Errors.for_code(error_code).name}")


class _Connection:
    __slots__ = ("asked", "correlation_id", "member", "received", "socket")

    def __init__(self, address: tuple[str, int], member: Member) -> None:
        self.socket = socket.create_connection(address, timeout=TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.member = member
        self.asked = next(member)
        self.correlation_id = 0
        self.received = bytearray()

    def send(self) -> None:
        self.correlation_id += 1
        self.socket.sendall(encode_request(self.asked.request, self.asked.version, self.correlation_id, "member"))

    def answer(self) -> Response | None:
        """Reads what is there; the answer, if it is there as a whole."""
        data = self.socket.recv(1 << 18)
        if not data:
            raise ConnectionError("the broker has closed the connection of a member")
        received = self.received
        received += data
        if len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4]):
            return None
        response, version = self.asked.response, self.asked.version
        start = 9 if response.api_key.response_header_version(version) else 8
        body = bytes(received)
        received.clear()
        return response.decode_from(body, version, start)[0]


class MemberLoop:
    """Runs members until something is the case. A context manager, which closes their connections."""

    def __init__(self, bootstrap_servers: str) -> None:
        host, _, port = bootstrap_servers.rpartition(":")
        self._address = (host, int(port))
        self._selector = selectors.DefaultSelector()
        self._due: list[tuple[float, int, _Connection]] = []
        self._number = itertools.count()
        self._connections: set[_Connection] = set()

    def add(self, member: Member, delay_s: float = 0.0) -> None:
        connection = _Connection(self._address, member)
        self._connections.add(connection)
        self._selector.register(connection.socket, selectors.EVENT_READ, connection)
        self._send_after(connection, delay_s)

    def _send_after(self, connection: _Connection, delay_s: float) -> None:
        heapq.heappush(self._due, (time.perf_counter() + delay_s, next(self._number), connection))

    def run_until(self, condition: Callable[[], bool]) -> float:
        """How many seconds that took."""
        started = time.perf_counter()
        while not condition():
            now = time.perf_counter()
            if now - started > TIMEOUT_S:
                raise TimeoutError(f"the group did not get there in {TIMEOUT_S:.0f} s")
            while self._due and self._due[0][0] <= now:
                heapq.heappop(self._due)[2].send()
            wait = self._due[0][0] - now if self._due else TIMEOUT_S
            for key, _ in self._selector.select(max(wait, 0)):
                self._take(key.data)
        return time.perf_counter() - started

    def _take(self, connection: _Connection) -> None:
        answer = connection.answer()
        if answer is None:
            return
        try:
            connection.asked = connection.member.send(answer)
        except StopIteration:
            self._close(connection)
        else:
            self._send_after(connection, connection.asked.after_s)

    def _close(self, connection: _Connection) -> None:
        self._selector.unregister(connection.socket)
        connection.socket.close()
        self._connections.discard(connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in list(self._connections):
            self._close(connection)
        self._selector.close()
