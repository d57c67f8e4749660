"""What holds for groups with our consumers in them, whoever the broker is."""

from __future__ import annotations

import re
import threading
import time
from typing import Any

import pytest
from benchmarks.waiting import until

from barnabas.clients.consumer import (
    CloseOptions,
    GroupMembershipOperation,
    KafkaConsumer,
    OffsetAndMetadata,
    SubscriptionPattern,
    TopicPartition,
)
from barnabas.clients.consumer.errors import CommitFailedError, IllegalStateError
from barnabas.common.errors import FencedInstanceIdError, RebalanceInProgressError
from clients.member_processes import overlaps
from clients.our_consumers import (
    EVERYTHING,
    KINDS,
    OurWriter,
    ThreadMember,
    end,
    process_member,
    settle,
    unique,
    wait_for_all,
)


def members_come_and_go(kind: str, bootstrap: str, topic: str) -> None:
    group = unique("g")
    writer = OurWriter(bootstrap, topic)
    members: list[ThreadMember] = []
    try:
        first = ThreadMember(kind, bootstrap, group, [topic])
        members.append(first)
        settle([first])
        second = ThreadMember(kind, bootstrap, group, [topic])
        members.append(second)
        settle([first, second])
        third = ThreadMember(kind, bootstrap, group, [topic])
        members.append(third)
        settle([first, second, third])
        second.close()
        settle([first, third])
        first.close()
        settle([third])
        writer.close()
        wait_for_all(members, writer.written)
        third.close()
    finally:
        writer.close()
        end(members)
    assert not overlaps(members)  # type: ignore[arg-type]
    assert not [call for member in members for call in member.calls if call[0] == "lost"]
    if kind != "cooperative-sticky":
        # What was read once is not read again by who takes over: it was committed before it was given up. (In a
        # cooperative classic group members read on while they join, and cannot commit what they read then.)
        read = [record for member in members for record in member.records]
        assert len(read) == len(set(read))


def a_member_crashes(kind: str, bootstrap: str, topic: str) -> None:
    group = unique("g")
    writer = OurWriter(bootstrap, topic)
    members: list[Any] = []
    try:
        first = process_member(kind, bootstrap, group, topic)
        members.append(first)
        settle([first])
        second = ThreadMember(kind, bootstrap, group, [topic])
        members.append(second)
        settle([first, second])
        first.kill()
        settle([second])
        writer.close()
        wait_for_all(members, writer.written)
        second.close()
    finally:
        writer.close()
        end(members)
    assert not overlaps(members)


def a_member_that_does_not_poll_loses_its_partitions(kind: str, bootstrap: str, topic: str) -> None:
    group = unique("g")
    members: list[ThreadMember] = []
    try:
        slow = ThreadMember(kind, bootstrap, group, [topic], **{"max.poll.interval.ms": 5000})
        members.append(slow)
        settle([slow])
        slow.pause()
        other = ThreadMember(kind, bootstrap, group, [topic])
        members.append(other)
        until(lambda: other.partitions == EVERYTHING, what=lambda: other.calls)
        slow.resume()
        settle([slow, other])
        assert ("lost", tuple(TopicPartition(topic, number) for number in sorted(EVERYTHING))) in slow.calls
        for member in members:
            member.close()
    finally:
        end(members)


def a_static_member_comes_back_to_its_partitions(kind: str, bootstrap: str, topic: str) -> None:
    group = unique("g")
    members: list[ThreadMember] = []
    try:
        first = ThreadMember(kind, bootstrap, group, [topic], **{"group.instance.id": "first"})
        members.append(first)
        settle([first])
        second = ThreadMember(kind, bootstrap, group, [topic], **{"group.instance.id": "second"})
        members.append(second)
        settle([first, second])
        had, calls = set(second.partitions), len(first.calls)
        second.close()
        again = ThreadMember(kind, bootstrap, group, [topic], **{"group.instance.id": "second"})
        members.append(again)
        until(lambda: again.partitions == had, what=lambda: (had, again.calls, first.calls))
        assert len(first.calls) == calls, "the other member has noticed nothing"
        again.close(CloseOptions(group_membership_operation=GroupMembershipOperation.LEAVE_GROUP))
        settle([first])  # well before the session would have ended
        first.close()
    finally:
        end(members)


def a_static_id_that_is_used_twice_fences_one(kind: str, bootstrap: str, topic: str) -> None:
    """In a classic group the newer process wins, in the newer protocol the one that is there."""
    group = unique("g")
    settings = {"group.instance.id": "same"}
    members: list[ThreadMember] = []
    try:
        first = ThreadMember(kind, bootstrap, group, [topic], **settings)
        members.append(first)
        settle([first])
        second = ThreadMember(kind, bootstrap, group, [topic], **settings)
        members.append(second)
        if kind == "consumer":
            until(lambda: second.error is not None)
            assert first.error is None
            assert "UNRELEASED" in repr(second.error).upper() or "instance" in str(second.error)
        else:
            until(lambda: first.error is not None)
            assert isinstance(first.error, FencedInstanceIdError)
            settle([second])
    finally:
        end(members)


def a_member_that_remains_keeps_its_partitions_for_a_while(kind: str, bootstrap: str, topic: str) -> None:
    group = unique("g")
    members: list[ThreadMember] = []
    try:
        first = ThreadMember(kind, bootstrap, group, [topic])
        members.append(first)
        settle([first])
        second = ThreadMember(kind, bootstrap, group, [topic])
        members.append(second)
        settle([first, second])
        began = time.monotonic()
        second.close(CloseOptions(group_membership_operation=GroupMembershipOperation.REMAIN_IN_GROUP))
        settle([first])
        assert time.monotonic() - began > 4, "a session has to end first"
        first.close()
    finally:
        end(members)


def patterns(kind: str, bootstrap: str, create_topic: Any) -> None:
    """A topic that comes later is found as well."""
    prefix = unique("pattern")
    create_topic(f"{prefix}-one", 2)
    create_topic(f"other-{prefix}", 1)
    asked: list[Any] = [re.compile(f"{prefix}-.*")]
    if kind == "consumer":
        asked.append(SubscriptionPattern(f"{prefix}-.*"))
    for number, pattern in enumerate(asked):
        member = ThreadMember(kind, bootstrap, unique("g"), pattern, **{"metadata.max.age.ms": 500})
        try:
            expected = {TopicPartition(f"{prefix}-one", 0), TopicPartition(f"{prefix}-one", 1)}
            expected |= {TopicPartition(f"{prefix}-later-{one}", 0) for one in range(number)}
            _until_owned(member, expected)
            if isinstance(pattern, SubscriptionPattern):
                member.close()
                continue  # a broker matches again after 10 seconds only
            later = TopicPartition(f"{prefix}-later-{number}", 0)
            create_topic(later.topic, 1)
            _until_owned(member, expected | {later})
            member.close()
        finally:
            end([member])


def _until_owned(member: ThreadMember, expected: set[TopicPartition]) -> None:
    until(lambda: member.owned == expected, what=lambda: (member.calls, member.error))


def commits(kind: str, bootstrap: str, topic: str) -> None:
    settings = {"bootstrap.servers": bootstrap, "group.id": unique("g"), "enable.auto.commit": False, **KINDS[kind]}
    one, two = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with KafkaConsumer(settings) as consumer:
        # Without a membership: a consumer that assigns by hand.
        consumer.assign([one, two])
        consumer.commit({one: OffsetAndMetadata(3, "mine", 0), two: 4})
        assert consumer.committed([one, two]) == {
            one: OffsetAndMetadata(3, "mine", 0),
            two: OffsetAndMetadata(4, ""),
        }
        assert consumer.committed([TopicPartition(topic, 2)]) == {TopicPartition(topic, 2): None}
        consumer.unsubscribe()
        # With one.
        consumer.subscribe([topic])
        deadline = time.monotonic() + 120
        while not consumer.assignment():
            assert time.monotonic() < deadline
            consumer.poll(100)
        assert consumer.group_metadata().generation_id > 0
        called: list[Any] = []
        future = consumer.commit_async({one: 7}, lambda offsets, error: called.append((dict(offsets), error)))
        future.result(60)
        until(lambda: consumer.poll(10) is not None and called)
        assert called == [({one: OffsetAndMetadata(7)}, None)]
        consumer.commit({two: 9})
        found = consumer.committed([one, two])
        assert {partition: one.offset for partition, one in found.items() if one is not None} == {one: 7, two: 9}
        metadata = consumer.group_metadata()
        # Somebody else who is no member, while the group has one.
        outsider = KafkaConsumer({**settings, "client.id": "outsider"})
        outsider.assign([one])
        with pytest.raises((CommitFailedError, RebalanceInProgressError)):
            outsider.commit({one: 1})
        outsider.close()
    assert metadata.member_id
    with KafkaConsumer(settings) as consumer:
        consumer.assign([one])
        found = consumer.committed([one])
        stored = found[one]
        assert stored is not None
        assert stored.offset == 7
        with pytest.raises(IllegalStateError):
            consumer.subscribe([topic])


def a_commit_during_a_rebalance(kind: str, bootstrap: str, topic: str) -> None:
    """Members that commit all the time while others come and go: a commit succeeds, or says why not; none hangs."""
    group = unique("g")
    outcomes: list[BaseException | None] = []
    stop = threading.Event()

    def run() -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, **KINDS[kind]}
        with KafkaConsumer({**settings, "auto.offset.reset": "earliest"}) as consumer:
            consumer.subscribe([topic])
            while not stop.is_set():
                consumer.poll(20)
                try:
                    consumer.commit(timeout_ms=60_000)
                    outcomes.append(None)
                except (CommitFailedError, RebalanceInProgressError) as error:
                    outcomes.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    members: list[ThreadMember] = []
    for thread in threads:
        thread.start()
    try:
        for _ in range(2):
            members.append(ThreadMember(kind, bootstrap, group, [topic]))
            until(lambda: members[-1].partitions)
            members[-1].close()
    finally:
        stop.set()
        for thread in threads:
            thread.join(120)
        end(members)
    assert not any(thread.is_alive() for thread in threads)
    assert outcomes.count(None) > 5
