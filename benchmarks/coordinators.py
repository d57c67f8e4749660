"""What the group coordinator takes: rebalances of a large group, many committed offsets, heartbeats of many groups.

All of it is seen from outside, by members and administrators on connections of their own.

*Rebalance*: 199 members are at work, a 200th joins, and later leaves. It counts how long it takes until all members
have what they are to have. They hear of it from their heartbeats, one each second; with the heartbeats that clients
send by default (3 s, and 5 s of the newer protocol), nobody could settle within 3 s.

*Heartbeats*: three brokers, with one group, with a thousand and with ten thousand, take turns in answering heartbeats
of all of their groups.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from barnabas.common.errors import Errors
from barnabas.common.identifiers import random_uuid, uuid_to_string
from barnabas.protocol.message import Request
from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from benchmarks.broker_process import BrokerProcess
from benchmarks.group_members import GroupView, Member, MemberLoop, classic_member, consumer_member
from benchmarks.measure import Row
from benchmarks.waiting import until
from benchmarks.wire_client import TIMEOUT_S, WireClient

MEMBERS = 200
PARTITIONS = 400
REBALANCES = 5
HEARTBEAT_S = 1.0
SETTLED_MS = 3000.0

OFFSET_GROUPS = 250
FETCHES = 5
FETCHED_MS = 1000.0

GROUPS = (1, 1_000, 10_000)
HEARTBEATS = 1000
HEARTBEAT_ROUNDS = 7
FLAT = 1.5
SESSION_MS = 1_800_000

_OVERRIDES = {
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.heartbeat.interval.ms": int(HEARTBEAT_S * 1000),
    "group.consumer.min.heartbeat.interval.ms": int(HEARTBEAT_S * 1000),
    # Groups that are not heard of while others are measured must not go.
    "group.consumer.max.session.timeout.ms": SESSION_MS,
    "group.consumer.session.timeout.ms": SESSION_MS,
}
_PROTOCOLS: dict[str, Callable[[GroupView, int], Member]] = {
    "classic": classic_member,
    "consumer": consumer_member,
}


def run() -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with BrokerProcess(directory / "one", overrides=_OVERRIDES) as broker:
            await_coordinator(broker)
            rows = rebalances(broker) + offsets(broker)
        return rows + heartbeats(directory)


def await_coordinator(broker: BrokerProcess) -> None:
    """Until the internal topic is there and loaded."""
    request = FindCoordinatorRequest(coordinator_keys=["any"])
    with WireClient(broker.bootstrap_servers) as client:
        until(
            lambda: not client.ask(request, 4, FindCoordinatorResponse).coordinators[0].error_code,
            "there is a coordinator",
            TIMEOUT_S,
        )


# -- rebalances


def rebalances(broker: BrokerProcess) -> list[Row]:
    case = f"rebalance of {MEMBERS} members, {PARTITIONS} partitions, a heartbeat each {HEARTBEAT_S:g} s"
    rows = []
    with WireClient(broker.bootstrap_servers) as client:
        client.create_topic("work", PARTITIONS)
    for protocol, member in _PROTOCOLS.items():
        joins, leaves = rebalance_ms(broker, protocol, member)
        for what, each in (("one joins", joins), ("one leaves", leaves)):
            median = statistics.median(each)
            limit = f"{SETTLED_MS:,.0f} ms"
            rows.append(Row(case, f"{protocol}, {what}", median, "ms", SETTLED_MS / median, limit, 1.0))
            rows.append(Row(case, f"{protocol}, {what}: slowest", max(each), "ms"))
    return rows


def rebalance_ms(
    broker: BrokerProcess, protocol: str, member: Callable[[GroupView, int], Member]
) -> tuple[list[float], list[float]]:
    """Of each round: until everybody has settled after one has joined, and after it has left."""
    view = GroupView(f"{protocol}-large", "work", PARTITIONS, HEARTBEAT_S)
    joins, leaves = [], []
    with MemberLoop(broker.bootstrap_servers) as members:
        for number in range(MEMBERS - 1):
            members.add(member(view, number), number * HEARTBEAT_S / MEMBERS)
        members.run_until(lambda: view.is_settled(MEMBERS - 1))
        for number in range(MEMBERS, MEMBERS + REBALANCES):
            members.add(member(view, number))
            joins.append(1000 * members.run_until(lambda: view.is_settled(MEMBERS)))
            view.leaving.add(number)
            members.run_until(lambda number=number: number not in view.epochs)  # type: ignore[misc]
            leaves.append(1000 * members.run_until(lambda: view.is_settled(MEMBERS - 1)))
    return joins, leaves


# -- offsets


def offsets(broker: BrokerProcess) -> list[Row]:
    """All in one request, as offsets of many groups can be since version 8."""
    ids = [f"reader-{number}" for number in range(OFFSET_GROUPS)]
    count = OFFSET_GROUPS * PARTITIONS
    numbers = list(range(PARTITIONS))
    with WireClient(broker.bootstrap_servers) as client:
        started = time.perf_counter()
        for group_id in ids:
            commit(client, group_id)
        committed = time.perf_counter() - started
        every = [OffsetFetchRequestGroup(group_id=group_id, topics=None) for group_id in ids]
        named = [
            OffsetFetchRequestGroup(
                group_id=group_id, topics=[OffsetFetchRequestTopics(name="work", partition_indexes=numbers)]
            )
            for group_id in ids
        ]
        case = f"{count:,} committed offsets of {OFFSET_GROUPS} groups"
        rows = [Row(case, f"commit, {PARTITIONS} in a request", count / committed, "offsets/s")]
        for what, groups in (("fetch all", every), ("fetch by name", named)):
            for stable in (False, True):
                times = [fetch_ms(client, groups, count, stable=stable) for _ in range(FETCHES)]
                median = statistics.median(times)
                name = f"{what}, stable" if stable else what
                rows.append(Row(case, name, median, "ms", FETCHED_MS / median, f"{FETCHED_MS:,.0f} ms", 1.0))
    return rows


def commit(client: WireClient, group_id: str) -> None:
    partitions = [
        OffsetCommitRequestPartition(partition_index=number, committed_offset=number) for number in range(PARTITIONS)
    ]
    topic = OffsetCommitRequestTopic(name="work", partitions=partitions)
    (answer,) = client.ask(OffsetCommitRequest(group_id=group_id, topics=[topic]), 9, OffsetCommitResponse).topics
    assert {one.error_code for one in answer.partitions} == {Errors.NONE}


def fetch_ms(client: WireClient, groups: list[OffsetFetchRequestGroup], count: int, *, stable: bool) -> float:
    """Until the answer has been read and decoded."""
    started = time.perf_counter()
    answer = client.ask(OffsetFetchRequest(groups=groups, require_stable=stable), 9, OffsetFetchResponse)
    taken = time.perf_counter() - started
    assert sum(len(topic.partitions) for group in answer.groups for topic in group.topics) == count
    return taken * 1000


# -- heartbeats


def heartbeats(directory: Path) -> list[Row]:
    rows = []
    with ExitStack() as stack:
        measured = {
            number: stack.enter_context(Heartbeats(directory / f"groups-{number}", number).opened())
            for number in GROUPS
        }
        for protocol in _PROTOCOLS:
            for one in measured.values():
                one.make_groups(protocol)
            walls, cpus = take_turns(measured, protocol)
            case = f"{protocol} heartbeats, one after the other, of each group in turn"
            fewest = GROUPS[0]
            for number in GROUPS:
                name, against = ("1 group" if number == 1 else f"{number:,} groups"), f"{fewest} group"
                is_first = number == fewest
                # What counts is the processor's time: a neighbour who wants it for a moment spoils the other one.
                for unit, rates, target in (("/s", walls, None), ("/s of processor time", cpus, 1 / FLAT)):
                    ratio = None if is_first else rates[number] / rates[fewest]
                    rows.append(Row(case, name, rates[number], unit, ratio, against, None if is_first else target))
    return rows


def take_turns(measured: dict[int, Heartbeats], protocol: str) -> tuple[dict[int, float], dict[int, float]]:
    """Heartbeats per second of time and of the broker's processor time: medians of the rounds."""
    walls: dict[int, list[float]] = {number: [] for number in measured}
    cpus: dict[int, list[float]] = {number: [] for number in measured}
    for one in measured.values():
        one.send(protocol)
    for _ in range(HEARTBEAT_ROUNDS):
        for number, one in measured.items():
            wall, cpu = one.send(protocol)
            walls[number].append(HEARTBEATS / wall)
            cpus[number].append(HEARTBEATS / cpu)
    return (
        {number: statistics.median(values) for number, values in walls.items()},
        # The clock of a process ticks a hundred times a second: too coarse for the median of short rounds.
        {number: statistics.harmonic_mean(values) for number, values in cpus.items()},
    )


class Heartbeats:
    """A broker with so many groups of one member each."""

    def __init__(self, directory: Path, groups: int) -> None:
        self._broker = BrokerProcess(directory, overrides=_OVERRIDES)
        self._groups = groups
        self._requests: dict[str, list[Request]] = {}
        self._next = 0

    @contextmanager
    def opened(self) -> Iterator[Heartbeats]:
        with self._broker:
            await_coordinator(self._broker)
            with WireClient(self._broker.bootstrap_servers) as self._client:
                self._client.create_topic("work")
                yield self

    def make_groups(self, protocol: str) -> None:
        make = self._classic if protocol == "classic" else self._consumer
        self._requests[protocol] = [make(f"{protocol}-{number}") for number in range(self._groups)]

    def _classic(self, group_id: str) -> Request:
        ask = self._client.ask
        join = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        joined = ask(join, 3, JoinGroupResponse)
        assert not joined.error_code, Errors.for_code(joined.error_code)
        sync = SyncGroupRequest(
            group_id=group_id,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[SyncGroupRequestAssignment(member_id=joined.member_id)],
        )
        synced = ask(sync, 3, SyncGroupResponse)
        assert not synced.error_code, Errors.for_code(synced.error_code)
        return HeartbeatRequest(group_id=group_id, generation_id=joined.generation_id, member_id=joined.member_id)

    def _consumer(self, group_id: str) -> Request:
        member_id = uuid_to_string(random_uuid())
        join = ConsumerGroupHeartbeatRequest(
            group_id=group_id,
            member_id=member_id,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=["work"],
            topic_partitions=[],
        )
        joined = self._client.ask(join, 1, ConsumerGroupHeartbeatResponse)
        assert not joined.error_code, joined.error_message
        given = [] if joined.assignment is None else joined.assignment.topic_partitions
        confirm = ConsumerGroupHeartbeatRequest(
            group_id=group_id, member_id=member_id, member_epoch=joined.member_epoch, topic_partitions=given
        )
        assert not self._client.ask(confirm, 1, ConsumerGroupHeartbeatResponse).error_code
        return ConsumerGroupHeartbeatRequest(group_id=group_id, member_id=member_id, member_epoch=joined.member_epoch)

    def send(self, protocol: str) -> tuple[float, float]:
        """A round of heartbeats: seconds, and seconds of the broker's processor time."""
        requests: Sequence[Request] = self._requests[protocol]
        version, response = (4, HeartbeatResponse) if protocol == "classic" else (1, ConsumerGroupHeartbeatResponse)
        cpu, started = self._broker.cpu_seconds, time.perf_counter()
        for _ in range(HEARTBEATS):
            answer = self._client.ask(requests[self._next % len(requests)], version, response)
            assert not answer.error_code
            self._next += 1
        # A round that took less than a tick has taken one.
        return time.perf_counter() - started, max(self._broker.cpu_seconds - cpu, 0.01)
