"""What becomes of requests that cannot be sent at once."""

from __future__ import annotations

import pytest

from barnabas.clients.consumer.internals.request_managers import UnsentRequest
from barnabas.clients.consumer.testing import ConsumerCluster
from barnabas.common.errors import InvalidTopicError
from barnabas.common.topic_partition import TopicPartition
from barnabas.network.client.client_request import ClientResponse
from barnabas.network.client.node import Node
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.versions import VersionRange


class Asking:
    """A cluster, and what has come of a request to it."""

    def __init__(self) -> None:
        self.cluster = ConsumerCluster({"t": 1}, nodes=2)
        self.consumer = self.cluster.consumer()
        self.delegate = self.consumer._core.parts.delegate
        self.responses: list[ClientResponse] = []
        self.took_ms = 0

    def ask(self, node: Node | None, timeout_ms: int | None = None, versions: VersionRange | None = None) -> None:
        started = self.cluster.clock.hi_res_milliseconds()
        self.delegate.add(
            [
                UnsentRequest(
                    MetadataRequest(topics=[]), node, self.responses.append, timeout_ms, allowed_versions=versions
                )
            ],
            started,
        )
        self.cluster.turn_until(self.consumer, lambda: bool(self.responses))
        self.took_ms = self.cluster.clock.hi_res_milliseconds() - started
        assert not self.delegate.has_unsent_requests()


@pytest.fixture
def asking() -> Asking:
    return Asking()


def test_waits_for_the_connection(asking: Asking) -> None:
    asking.ask(asking.cluster.nodes[2])
    assert asking.responses[0].body is not None
    assert [handled.node_id for handled in asking.cluster.handled if handled.header.api_key is ApiKey.METADATA][-1] == 2


def test_any_node_will_do(asking: Asking) -> None:
    asking.cluster.stop(1)
    asking.ask(None)
    assert asking.responses[0].body is not None


def test_a_node_that_is_down(asking: Asking) -> None:
    asking.cluster.stop(2)
    asking.ask(asking.cluster.nodes[2])
    assert asking.responses[0].disconnected
    assert not asking.responses[0].timed_out
    assert asking.took_ms < 5_000, "as soon as it is known"


def test_nobody_can_be_asked(asking: Asking) -> None:
    asking.cluster.stop(1)
    asking.cluster.stop(2)
    asking.ask(None, timeout_ms=3_000)
    assert asking.responses[0].timed_out
    assert 3_000 <= asking.took_ms < 5_000


def test_a_close_does_not_wait_for_any_node(asking: Asking) -> None:
    asking.cluster.stop(1)
    asking.cluster.stop(2)
    delegate, now = asking.delegate, asking.cluster.clock.hi_res_milliseconds()
    for node in (None, asking.cluster.nodes[2]):
        delegate.add([UnsentRequest(MetadataRequest(topics=[]), node, asking.responses.append)], now)
    delegate.drop_requests_to_any_node(now)
    assert [response.disconnected for response in asking.responses] == [True]
    assert delegate.unsent_count == 1, "a request to one node may still be sent"


def test_no_version_that_both_have(asking: Asking) -> None:
    asking.cluster.versions[ApiKey.METADATA] = (0, 9)
    asking.ask(asking.cluster.nodes[1], versions=VersionRange(12, 13))
    assert asking.responses[0].version_mismatch is not None


def test_a_request_that_cannot_be_encoded_fails_alone(asking: Asking) -> None:
    wrong, right = MetadataRequest(topics=[MetadataRequestTopic(name="\ud800")]), MetadataRequest(topics=[])
    node, failed = asking.cluster.nodes[1], list[ClientResponse]()
    asking.delegate.add(
        [UnsentRequest(wrong, node, failed.append), UnsentRequest(right, node, asking.responses.append)], 0
    )
    asking.cluster.turn_until(asking.consumer, lambda: bool(asking.responses))
    assert asking.responses[0].body is not None
    assert "name" in str(failed[0].version_mismatch)


def test_a_topic_that_no_request_can_name_is_reported_and_can_be_replaced(asking: Asking) -> None:
    cluster, consumer = asking.cluster, asking.consumer
    cluster.append("t", 0, [b"x"])
    consumer.assign([TopicPartition("\ud800", 0)])
    with pytest.raises(InvalidTopicError, match="UTF-8"):
        cluster.run(consumer, lambda: consumer.poll(1_000))
    consumer.assign([TopicPartition("t", 0)])
    consumer.seek(TopicPartition("t", 0), 0)
    assert cluster.run(consumer, lambda: consumer.poll(10_000))


def test_a_completion_that_fails_harms_nobody(asking: Asking, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_response: ClientResponse) -> None:
        raise ZeroDivisionError

    asking.cluster.stop(2)
    asking.delegate.add([UnsentRequest(MetadataRequest(topics=[]), asking.cluster.nodes[2], fail)], 0)
    asking.cluster.turn_until(asking.consumer, lambda: not asking.delegate.has_unsent_requests())
    assert "failed" in caplog.text
