"""OffsetForLeaderEpoch: two permissions, either of which will do."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.handlers.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from barnabas.common.errors import Errors
from barnabas.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.replica.results import EpochEndOffsetResult
from barnabas.security.acl import CLUSTER_NAME, AclOperation, ResourceType
from unit.broker.handlers.data_bench import ALICE, DataBench, acls, questions

BODY = OffsetForLeaderEpochRequest(
    replica_id=-1,
    topics=[
        OffsetForLeaderTopic(
            topic="t",
            partitions=[
                OffsetForLeaderPartition(partition=0, current_leader_epoch=5, leader_epoch=4),
                OffsetForLeaderPartition(partition=1, leader_epoch=3),
                OffsetForLeaderPartition(partition=2, current_leader_epoch=-2, leader_epoch=3),
            ],
        ),
        OffsetForLeaderTopic(topic="compact", partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0)]),
    ],
)
DESCRIBE_T = (AclOperation.DESCRIBE, ResourceType.TOPIC, "t")
CLUSTER_ACTION = (AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)


def answers(bench: DataBench, version: int = 4) -> dict[str, tuple[Errors, int, int]]:
    handler = OffsetForLeaderEpochHandler(bench.helper, bench.auth, bench.replicas)
    response: Any = bench.answered(handler, BODY, version, principal=ALICE)
    return {
        f"{topic.topic}-{found.partition}": (Errors(found.error_code), found.leader_epoch, found.end_offset)
        for topic in response.topics
        for found in topic.partitions
    }


@pytest.mark.parametrize("version", [2, 3, 4])
def test_every_version(version: int) -> None:
    bench = DataBench()
    assert answers(bench, version) == dict.fromkeys(("t-0", "t-1", "t-2", "compact-0"), (Errors.NONE, 3, 42))
    assert bench.replicas.epoch_calls == [
        (("t", 0), 5, 4),
        (("t", 1), None, 3),
        (("t", 2), -2, 3),  # only -1 means that the client knows no epoch
        (("compact", 0), None, 0),
    ]


def test_an_error() -> None:
    bench = DataBench()
    bench.replicas.epoch_result = EpochEndOffsetResult(Errors.FENCED_LEADER_EPOCH)
    assert answers(bench)["t-0"] == (Errors.FENCED_LEADER_EPOCH, -1, -1)


def test_consumers_need_describe() -> None:
    auth = acls(DESCRIBE_T)
    assert answers(DataBench(auth=auth)) == {
        "t-0": (Errors.NONE, 3, 42),
        "t-1": (Errors.NONE, 3, 42),
        "t-2": (Errors.NONE, 3, 42),
        "compact-0": (Errors.TOPIC_AUTHORIZATION_FAILED, -1, -1),
    }
    # That a consumer is no broker is nothing to write down.
    assert [action.log_if_denied for actions in questions(auth) for action in actions] == [False, True, True]


def test_brokers_need_nothing_else() -> None:
    bench = DataBench(auth=acls(CLUSTER_ACTION))
    assert {answer[0] for answer in answers(bench).values()} == {Errors.NONE}
