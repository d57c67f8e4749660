"""Topics that are created because somebody asked about them (R08)."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from barnabas.broker.to_controller.auto_topic_creation_manager import AutoTopicCreationManager, TopicSettings
from barnabas.common.errors import Errors, UnsupportedVersionError
from barnabas.network.client.node_api_versions import NodeApiVersions
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.framing import encode_response
from barnabas.protocol.messages.api_versions import ApiVersion
from barnabas.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.envelope import EnvelopeResponse
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.security.principal import KafkaPrincipal
from barnabas.server.envelope import ForwardedRequest, open_envelope
from barnabas.server.request import Request
from controller_channel_fixtures import FakeControllerChannel
from handler_fixtures import HandlerBench

ALICE = KafkaPrincipal("User", "alice")
OFFSETS = TopicSettings(50, 3, {"cleanup.policy": "compact"})


class Exceeded:
    """A mutation quota that is used up."""

    throttle_time_ms = 100
    is_exceeded = True

    def record(self, permits: float) -> None: ...


class Bench(HandlerBench):
    def __init__(self) -> None:
        super().__init__()
        self.controller = FakeControllerChannel(self.clock)
        self.manager = AutoTopicCreationManager(
            self.controller, TopicSettings(4, 2), {"__consumer_offsets": OFFSETS}, request_timeout_ms=5_000
        )

    def client(self) -> Request:
        return self.request(MetadataRequest(), 9, principal=ALICE, client_id="me", correlation_id=41)

    def create(self, *names: str, request: Request | None = None, **options: Any) -> dict[str | None, int]:
        return {topic.name: topic.error_code for topic in self.manager.create_topics(names, request, **options)}

    def opened(self) -> tuple[ForwardedRequest, CreateTopicsRequest]:
        inner = open_envelope(self.request(self.controller.sent[0].body, 0))
        assert isinstance(inner.body, CreateTopicsRequest)
        return inner, inner.body


@pytest.mark.mechanism("R08")
def test_the_controller_is_asked_and_the_client_told_to_ask_again() -> None:
    b = Bench()
    assert b.create("orders") == {"orders": Errors.UNKNOWN_TOPIC_OR_PARTITION}
    sent = b.controller.take().body
    assert isinstance(sent, CreateTopicsRequest)
    assert sent.timeout_ms == 5_000
    assert not sent.validate_only
    [topic] = sent.topics
    assert (topic.name, topic.num_partitions, topic.replication_factor, topic.configs) == ("orders", 4, 2, [])


@pytest.mark.mechanism("R08")
def test_what_a_client_causes_is_created_in_its_name() -> None:
    b = Bench()
    b.create("orders", request=b.client())
    inner, body = b.opened()
    assert inner.request_context.principal == ALICE
    assert inner.request_context.client_address == "127.0.0.1"
    assert (inner.client_id, inner.correlation_id) == ("me", 41)
    assert inner.api_version == ApiKey.CREATE_TOPICS.stable_versions.highest
    assert [topic.name for topic in body.topics] == ["orders"]


def test_the_version_inside_is_one_that_the_controller_speaks() -> None:
    b = Bench()
    b.controller.controller_api_versions = NodeApiVersions([ApiVersion(api_key=19, min_version=2, max_version=5)])
    b.create("orders", request=b.client())
    assert b.opened()[0].api_version == 5


def test_a_controller_that_creates_no_topics_leaves_nothing_in_flight() -> None:
    b = Bench()
    b.controller.controller_api_versions = NodeApiVersions([])
    with pytest.raises(UnsupportedVersionError):
        b.create("orders", request=b.client())
    assert not b.manager.in_flight


def test_internal_topics_have_settings_of_their_own() -> None:
    b = Bench()
    [answer] = b.manager.create_topics(["__consumer_offsets"])
    assert answer.is_internal
    [topic] = b.controller.take().body.topics
    assert (topic.num_partitions, topic.replication_factor) == (50, 3)
    assert [(config.name, config.value) for config in topic.configs] == [("cleanup.policy", "compact")]


@pytest.mark.mechanism("R08")
def test_a_name_that_no_topic_can_have_is_refused_here() -> None:
    b = Bench()
    assert b.create("or/ders", "fine") == {
        "or/ders": Errors.INVALID_TOPIC_EXCEPTION,
        "fine": Errors.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert [topic.name for topic in b.controller.take().body.topics] == ["fine"]
    b.create("or/ders")
    assert not b.controller.sent


@pytest.mark.mechanism("R08")
def test_a_topic_that_is_being_created_is_not_asked_for_again() -> None:
    b = Bench()
    b.create("orders")
    assert b.create("orders", "others", "others") == dict.fromkeys(
        ["orders", "others"], Errors.UNKNOWN_TOPIC_OR_PARTITION
    )
    first, second = b.controller.take(), b.controller.take()
    assert [topic.name for topic in second.body.topics] == ["others"]
    assert not b.controller.sent
    first.answer(CreateTopicsResponse(topics=[CreatableTopicResult(name="orders")]))
    assert b.manager.in_flight == {"others"}
    b.create("orders")
    assert b.controller.sent, "it failed, or was deleted again"


@pytest.mark.parametrize("how", ["refuse", "mismatch", "time_out"])
def test_a_creation_that_fails_can_be_tried_again(how: str) -> None:
    b = Bench()
    b.create("orders")
    getattr(b.controller.take(), how)()
    assert not b.manager.in_flight


@pytest.mark.mechanism("R08")
def test_a_client_without_mutation_quota_creates_nothing() -> None:
    b = Bench()
    answers = b.create("orders", "or/ders", request=b.client(), mutation_quota=Exceeded())
    assert answers == {"orders": Errors.UNKNOWN_TOPIC_OR_PARTITION, "or/ders": Errors.INVALID_TOPIC_EXCEPTION}
    assert not b.controller.sent
    assert not b.manager.in_flight


@pytest.mark.parametrize("enveloped", [False, True])
def test_why_a_topic_was_not_created_is_in_the_log(enveloped: bool, caplog: pytest.LogCaptureFixture) -> None:
    b = Bench()
    b.create("orders", "there", request=b.client() if enveloped else None)
    answer = CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name="orders", error_code=38, error_message="only one broker"),
            CreatableTopicResult(name="there", error_code=36, error_message="exists"),
        ]
    )
    sent = b.controller.take()
    with caplog.at_level(logging.WARNING):
        sent.answer(EnvelopeResponse(response_data=encode_response(answer, 7, 41)[4:]) if enveloped else answer)
    assert [record.getMessage() for record in caplog.records] == [
        "Topic orders was not created: INVALID_REPLICATION_FACTOR (only one broker)"
    ]


@pytest.mark.parametrize(
    "answer", [EnvelopeResponse(error_code=31), EnvelopeResponse(response_data=b"\0\0")], ids=["error", "garbage"]
)
def test_a_bad_envelope_is_in_the_log(answer: EnvelopeResponse, caplog: pytest.LogCaptureFixture) -> None:
    b = Bench()
    b.create("orders", request=b.client())
    b.controller.take().answer(answer)
    assert "The creation of orders failed" in caplog.text
    assert not b.manager.in_flight
