"""DescribeProducers: names first, then rights, then whether there is such a topic."""

from __future__ import annotations

from typing import Any

from barnabas.broker.handlers.describe_producers import DescribeProducersHandler
from barnabas.common.errors import Errors
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from barnabas.security.acl import AclOperation, ResourceType
from unit.broker.handlers.data_bench import ALICE, DataBench, acls


def ask(bench: DataBench, *topics: str) -> Any:
    handler = DescribeProducersHandler(bench.helper, bench.auth, bench.cache, bench.replicas)
    body = DescribeProducersRequest(topics=[TopicRequest(name=name, partition_indexes=[0, 1]) for name in topics])
    return bench.answered(handler, body, 0, principal=ALICE).topics


def codes(topics: Any) -> dict[str, list[Errors]]:
    return {topic.name: [Errors(part.error_code) for part in topic.partitions] for topic in topics}


def test_what_is_known() -> None:
    answered = ask(DataBench(), "t", "nope", "bad name!")
    assert codes(answered) == {
        "t": [Errors.NONE] * 2,
        "nope": [Errors.UNKNOWN_TOPIC_OR_PARTITION] * 2,
        "bad name!": [Errors.INVALID_TOPIC_EXCEPTION] * 2,
    }
    assert [part.partition_index for topic in answered for part in topic.partitions] == [0, 1] * 3
    assert "bad name!" in answered[2].partitions[0].error_message


def test_read_is_needed() -> None:
    bench = DataBench(auth=acls((AclOperation.READ, ResourceType.TOPIC, "t")))
    assert codes(ask(bench, "t", "compact", "nope")) == {
        "t": [Errors.NONE] * 2,
        "compact": [Errors.TOPIC_AUTHORIZATION_FAILED] * 2,
        "nope": [Errors.TOPIC_AUTHORIZATION_FAILED] * 2,
    }
