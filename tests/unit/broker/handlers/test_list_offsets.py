"""ListOffsets: which questions are understood in which version, and how far who may see."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from barnabas.broker.handlers.list_offsets import ListOffsetsHandler
from barnabas.common.errors import (
    Errors,
    FencedLeaderEpochError,
    OffsetNotAvailableError,
    UnknownTopicOrPartitionError,
)
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.replica.results import IsolationLevel, OffsetResult
from barnabas.security.acl import AclOperation, ResourceType
from unit.broker.handlers.data_bench import ALICE, DataBench, Quotas, acls, questions

DESCRIBE_T = (AclOperation.DESCRIBE, ResourceType.TOPIC, "t")
LATEST = 11


def ask(
    bench: DataBench, *asked: tuple[str, int, int], version: int = LATEST, epoch: int = -1, **fields: Any
) -> dict[str, tuple[Errors, int, int, int]]:
    """The responses to topic, partition and timestamp: error, timestamp, offset and leader epoch."""
    body = ListOffsetsRequest(
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(partition_index=index, timestamp=timestamp, current_leader_epoch=epoch)
                ],
            )
            for topic, index, timestamp in asked
        ],
        **{"replica_id": -1, **fields},
    )
    handler = ListOffsetsHandler(bench.helper, bench.auth, bench.replicas)
    response = bench.answered(handler, body, version, principal=ALICE)
    answers = {}
    for topic in response.topics:
        for found in topic.partitions:
            name = f"{topic.name}-{found.partition_index}"
            assert name not in answers
            answers[name] = Errors(found.error_code), found.timestamp, found.offset, found.leader_epoch
    return answers


@pytest.mark.parametrize("version", range(1, 12))
def test_every_version(version: int) -> None:
    assert ask(DataBench(), ("t", 0, 1700), version=version) == {"t-0": (Errors.NONE, 7, 42, 3 if version >= 4 else -1)}


@pytest.mark.parametrize(
    ("timestamp", "since"), [(0, 1), (-1, 1), (-2, 1), (-3, 7), (-4, 8), (-5, 9), (-6, 11), (-7, 99), (-(2**63), 99)]
)
def test_each_named_position_came_with_a_version(timestamp: int, since: int) -> None:
    for version in range(1, 12):
        bench = DataBench()
        answer = ask(bench, ("t", 0, timestamp), version=version)["t-0"]
        if version >= since:
            assert answer[0] is Errors.NONE
            assert bench.replicas.offset_calls[0][1] == timestamp
        else:
            assert answer == (Errors.UNSUPPORTED_VERSION, -1, -1, -1)
            assert bench.replicas.offset_calls == []


@pytest.mark.parametrize(
    ("replica_id", "level", "isolation", "only_leader"),
    [
        (-1, 0, IsolationLevel.READ_UNCOMMITTED, True),
        (-1, 1, IsolationLevel.READ_COMMITTED, True),
        (2, 1, None, True),
        (-2, 1, None, False),
    ],
)
def test_who_asks(replica_id: int, level: int, isolation: IsolationLevel | None, only_leader: bool) -> None:
    bench = DataBench()
    ask(bench, ("t", 1, -1), replica_id=replica_id, isolation_level=level, epoch=5)
    assert bench.replicas.offset_calls == [(TopicPartition("t", 1), -1, isolation, 5, only_leader)]


@pytest.mark.parametrize(("epoch", "compared"), [(-1, None), (-2, -2)])
def test_only_minus_one_means_that_no_epoch_is_compared(epoch: int, compared: int | None) -> None:
    bench = DataBench()
    ask(bench, ("t", 1, -1), epoch=epoch)
    assert bench.replicas.offset_calls[0][3] == compared


def test_a_partition_twice() -> None:
    bench = DataBench()
    answers = ask(bench, ("t", 0, -1), ("t", 1, -1), ("t", 0, -2))
    assert answers["t-0"] == (Errors.INVALID_REQUEST, -1, -1, -1)
    assert answers["t-1"][0] is Errors.NONE


@pytest.mark.parametrize("error", [UnknownTopicOrPartitionError, FencedLeaderEpochError])
def test_errors(error: type[Exception]) -> None:
    bench = DataBench()
    bench.replicas.offset = error()
    assert ask(bench, ("t", 0, -1)) == {"t-0": (Errors.for_exception(error()), -1, -1, -1)}


def test_a_bug_is_an_error_of_its_partition_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    bench = DataBench()
    bench.replicas.offset = RuntimeError("a bug")
    assert ask(bench, ("t", 0, -1))["t-0"][0] is Errors.UNKNOWN_SERVER_ERROR
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


@pytest.mark.mechanism("R12")
@pytest.mark.parametrize(("version", "error"), [(4, Errors.LEADER_NOT_AVAILABLE), (5, Errors.OFFSET_NOT_AVAILABLE)])
def test_old_clients_do_not_know_that_an_offset_is_not_available(version: int, error: Errors) -> None:
    bench = DataBench()
    bench.replicas.offset = OffsetNotAvailableError()
    assert ask(bench, ("t", 0, -1), version=version)["t-0"][0] is error


def test_no_such_offset_is_no_error() -> None:
    bench = DataBench()
    bench.replicas.offset = OffsetResult()
    assert ask(bench, ("t", 0, 2**62)) == {"t-0": (Errors.NONE, -1, -1, -1)}


def test_an_isolation_level_that_there_is_not() -> None:
    bench = DataBench()
    assert ask(bench, ("t", 0, -1), isolation_level=3)["t-0"][0] is Errors.INVALID_REQUEST


def test_describe_is_needed() -> None:
    auth = acls(DESCRIBE_T)
    bench = DataBench(auth=auth)
    answers = ask(bench, ("t", 0, -1), ("compact", 0, -1), ("t", 1, -1))
    assert {name: answer[0] for name, answer in answers.items()} == {
        "t-0": Errors.NONE,
        "t-1": Errors.NONE,
        "compact-0": Errors.TOPIC_AUTHORIZATION_FAILED,
    }
    assert len(questions(auth)) == 1
    assert [call[0].topic for call in bench.replicas.offset_calls] == ["t", "t"]


def test_the_request_quota_counts() -> None:
    bench = DataBench(Quotas(request=50))
    handler = ListOffsetsHandler(bench.helper, bench.auth, bench.replicas)
    assert bench.answered(handler, ListOffsetsRequest(replica_id=-1), LATEST).throttle_time_ms == 50
