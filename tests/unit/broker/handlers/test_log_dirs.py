"""DescribeLogDirs and AlterReplicaLogDirs: what is passed on, and who may ask."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.handlers.log_dirs import LogDirsHandler
from barnabas.common.errors import Errors
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from barnabas.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from barnabas.security.acl import CLUSTER_NAME, AclOperation, ResourceType
from unit.broker.handlers.data_bench import ALICE, DataBench, acls

DESCRIBE = (AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
ALTER = (AclOperation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
SOME = [DescribableLogDirTopic(topic="t", partitions=[0, 1]), DescribableLogDirTopic(topic="nope", partitions=[5])]


def handler_of(bench: DataBench) -> LogDirsHandler:
    return LogDirsHandler(bench.helper, bench.auth, bench.replicas)


@pytest.mark.parametrize("version", range(1, 6))
@pytest.mark.parametrize(("topics", "asked"), [(None, None), ([], set()), (SOME, {("t", 0), ("t", 1), ("nope", 5)})])
def test_describe(version: int, topics: Any, asked: Any) -> None:
    bench = DataBench()
    response = bench.answered(handler_of(bench), DescribeLogDirsRequest(topics=topics), version)
    assert bench.replicas.described == [asked]
    assert [result.log_dir for result in response.results] == ["/a", "/b"]
    assert response.results[1].total_bytes == (5 if version >= 4 else -1)
    assert response.error_code == 0


@pytest.mark.parametrize(("version", "error"), [(2, 0), (3, Errors.CLUSTER_AUTHORIZATION_FAILED)])
def test_who_may_describe(version: int, error: int) -> None:
    body = DescribeLogDirsRequest(topics=None)
    bench = DataBench(auth=acls(ALTER, (AclOperation.READ, ResourceType.TOPIC, "t")))
    bench.auth = acls((AclOperation.READ, ResourceType.TOPIC, "t"))
    response = bench.answered(handler_of(bench), body, version, principal=ALICE)
    assert (response.error_code, response.results, bench.replicas.described) == (error, [], [])
    bench = DataBench(auth=acls(DESCRIBE))
    assert bench.answered(handler_of(bench), body, version, principal=ALICE).results


MOVES = AlterReplicaLogDirsRequest(
    dirs=[
        AlterReplicaLogDir(path="/a", topics=[AlterReplicaLogDirTopic(name="t", partitions=[0, 1])]),
        AlterReplicaLogDir(path="/b", topics=[AlterReplicaLogDirTopic(name="compact", partitions=[0])]),
    ]
)


def codes(response: Any) -> dict[str, Errors]:
    return {
        f"{topic.topic_name}-{result.partition_index}": Errors(result.error_code)
        for topic in response.results
        for result in topic.partitions
    }


@pytest.mark.parametrize("version", [1, 2])
def test_alter(version: int) -> None:
    bench = DataBench()
    bench.replicas.move_results[TopicPartition("t", 1)] = Errors.LOG_DIR_NOT_FOUND
    response = bench.answered(handler_of(bench), MOVES, version)
    assert bench.replicas.moved == {("t", 0): "/a", ("t", 1): "/a", ("compact", 0): "/b"}
    assert codes(response) == {"t-0": Errors.NONE, "t-1": Errors.LOG_DIR_NOT_FOUND, "compact-0": Errors.NONE}
    assert len(response.results) == 2


def test_who_may_alter() -> None:
    bench = DataBench(auth=acls(DESCRIBE))
    response = bench.answered(handler_of(bench), MOVES, 2, principal=ALICE)
    assert set(codes(response).values()) == {Errors.CLUSTER_AUTHORIZATION_FAILED}
    assert len(codes(response)) == 3
    assert bench.replicas.moved == {}
    bench = DataBench(auth=acls(ALTER))
    assert set(codes(bench.answered(handler_of(bench), MOVES, 2, principal=ALICE)).values()) == {Errors.NONE}
