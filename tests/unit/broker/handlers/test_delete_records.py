"""DeleteRecords: what is asked of the replica manager, and what is answered without it."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.handlers.delete_records import DeleteRecordsHandler
from barnabas.common.errors import Errors
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from barnabas.replica.results import DeleteRecordsResult
from barnabas.security.acl import AclOperation, ResourceType
from unit.broker.handlers.data_bench import ALICE, DataBench, Quotas, acls


def handler_of(bench: DataBench) -> DeleteRecordsHandler:
    return DeleteRecordsHandler(bench.helper, bench.auth, bench.cache, bench.replicas)


def up_to(*offsets: tuple[str, int, int]) -> DeleteRecordsRequest:
    return DeleteRecordsRequest(
        timeout_ms=1500,
        topics=[
            DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)])
            for name, index, offset in offsets
        ],
    )


def answers(response: Any) -> dict[str, tuple[int, Errors]]:
    found = [
        (f"{topic.name}-{part.partition_index}", (part.low_watermark, Errors(part.error_code)))
        for topic in response.topics
        for part in topic.partitions
    ]
    assert len({name for name, _ in found}) == len(found)
    return dict(found)


@pytest.mark.parametrize("version", range(3))
def test_every_version(version: int) -> None:
    bench = DataBench()
    bench.replicas.delete_results[TopicPartition("compact", 0)] = DeleteRecordsResult(Errors.POLICY_VIOLATION)
    body = up_to(("t", 0, 5), ("t", 1, -1), ("compact", 0, 3), ("t", 9, 1), ("nope", 0, 1))
    assert answers(bench.answered(handler_of(bench), body, version)) == {
        "t-0": (5, Errors.NONE),
        "t-1": (-1, Errors.NONE),
        "compact-0": (-1, Errors.POLICY_VIOLATION),
        "t-9": (-1, Errors.UNKNOWN_TOPIC_OR_PARTITION),
        "nope-0": (-1, Errors.UNKNOWN_TOPIC_OR_PARTITION),
    }
    ((timeout_ms, offsets),) = bench.replicas.deleted
    assert timeout_ms == 1500
    assert offsets == {("t", 0): 5, ("t", 1): -1, ("compact", 0): 3}


def test_it_gets_a_response_when_the_replicas_have_followed() -> None:
    bench = DataBench(Quotas(request=70))
    bench.replicas.parks = True
    request = bench.dispatch(handler_of(bench), up_to(("t", 0, 5)), 2)
    assert not bench.is_answered(request)
    bench.replicas.complete()
    assert answers(bench.answer(request)) == {"t-0": (5, Errors.NONE)}
    assert bench.answer(request).throttle_time_ms == 70


def test_delete_is_needed() -> None:
    bench = DataBench(auth=acls((AclOperation.DELETE, ResourceType.TOPIC, "t")))
    response = bench.answered(handler_of(bench), up_to(("t", 0, 5), ("compact", 0, 5)), 2, principal=ALICE)
    assert answers(response) == {"t-0": (5, Errors.NONE), "compact-0": (-1, Errors.TOPIC_AUTHORIZATION_FAILED)}
    bench.answered(handler_of(bench), up_to(("compact", 0, 5)), 2, principal=ALICE)
    assert len(bench.replicas.deleted) == 1


def test_a_partition_twice_gets_its_last_offset() -> None:
    bench = DataBench()
    assert answers(bench.answered(handler_of(bench), up_to(("t", 0, 5), ("t", 0, 7)), 2)) == {"t-0": (7, Errors.NONE)}
