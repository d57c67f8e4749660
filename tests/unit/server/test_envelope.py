"""Requests inside Envelopes: taken out, answered, and wrapped again."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.common.errors import (
    Errors,
    InvalidRequestError,
    NotControllerError,
    NotLeaderOrFollowerError,
    PrincipalDeserializationError,
    UnsupportedVersionError,
)
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.framing import encode_request
from barnabas.protocol.message import Request as RequestBody
from barnabas.protocol.message import Response
from barnabas.protocol.messages.alter_configs import AlterConfigsResourceResponse, AlterConfigsResponse
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.messages.describe_quorum import (
    DescribeQuorumResponse,
    ResponsePartitionData,
    ResponseTopicData,
)
from barnabas.protocol.messages.elect_leaders import ElectLeadersResponse, PartitionResult, ReplicaElectionResult
from barnabas.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.security.principal import KafkaPrincipal, serialize_principal
from barnabas.server.envelope import open_envelope, says_not_controller
from barnabas.server.request import Request
from handler_fixtures import HandlerBench, sent_bytes

ALICE = KafkaPrincipal("User", "alice")
BROKER = KafkaPrincipal("User", "broker-1")
INNER_CORRELATION_ID = 4711


@pytest.fixture
def bench() -> HandlerBench:
    return HandlerBench()


def enveloped(body: RequestBody | None = None, version: int = 7, **changes: Any) -> EnvelopeRequest:
    body = CreateTopicsRequest(topics=[CreatableTopic(name="orders")]) if body is None else body
    fields = {
        "request_data": encode_request(body, version, INNER_CORRELATION_ID, "alices-client")[4:],
        "request_principal": serialize_principal(ALICE),
        "client_host_address": bytes([192, 0, 2, 7]),
    }
    return EnvelopeRequest(**(fields | changes))


def received(bench: HandlerBench, envelope: EnvelopeRequest) -> Request:
    return bench.request(envelope, 0, principal=BROKER, client_id="broker", correlation_id=12)


# What is inside


@pytest.mark.mechanism("R10")
def test_the_request_inside_is_the_clients(bench: HandlerBench) -> None:
    envelope = received(bench, enveloped())
    inner = open_envelope(envelope)
    assert (inner.api_key, inner.api_version) == (ApiKey.CREATE_TOPICS, 7)
    assert (inner.client_id, inner.correlation_id) == ("alices-client", INNER_CORRELATION_ID)
    assert isinstance(inner.body, CreateTopicsRequest)
    assert [topic.name for topic in inner.body.topics] == ["orders"]
    context = inner.request_context
    assert (context.principal, context.client_address) == (ALICE, "192.0.2.7")
    assert context.api_key is ApiKey.CREATE_TOPICS
    assert context.listener_name == envelope.context.listener_name
    assert envelope.request_context.principal == BROKER, "the broker stays who it is"
    assert inner.is_forwarded
    assert inner.envelope is envelope
    assert inner.connection_id == envelope.connection_id


@pytest.mark.parametrize(
    ("packed", "text"),
    [
        (bytes([10, 0, 0, 1]), "10.0.0.1"),
        (bytes(15) + b"\1", "::1"),
        (bytes(10) + b"\xff\xff" + bytes([10, 0, 0, 1]), "10.0.0.1"),
    ],
)
def test_addresses(bench: HandlerBench, packed: bytes, text: str) -> None:
    inner = open_envelope(received(bench, enveloped(client_host_address=packed)))
    assert inner.request_context.client_address == text


def test_the_body_outlives_the_buffer(bench: HandlerBench) -> None:
    envelope = received(bench, enveloped())
    inner = open_envelope(envelope)
    envelope.release_buffer()
    inner.release_buffer()
    assert isinstance(inner.body, CreateTopicsRequest)


@pytest.mark.mechanism("R12")
@pytest.mark.parametrize(
    ("envelope", "error"),
    [
        (enveloped(request_principal=None), PrincipalDeserializationError),
        (enveloped(request_principal=b""), PrincipalDeserializationError),
        (enveloped(request_principal=b"\0\x63rest"), PrincipalDeserializationError),
        (enveloped(client_host_address=b"abc"), InvalidRequestError),
        (enveloped(client_host_address=b""), InvalidRequestError),
        (enveloped(HeartbeatRequest(), 4), InvalidRequestError),
        (enveloped(MetadataRequest(), 9), InvalidRequestError),
        (enveloped(enveloped(), 0), InvalidRequestError),
        (enveloped(request_data=b""), UnsupportedVersionError),
        (enveloped(request_data=b"\0\x13\0\7"), UnsupportedVersionError),
        (enveloped(request_data=b"\x7f\xff\0\0" + bytes(20)), UnsupportedVersionError),
        (enveloped(request_data=enveloped().request_data[:-3]), UnsupportedVersionError),
        (enveloped(request_data=b"\0\x13\0\x63" + enveloped().request_data[4:]), UnsupportedVersionError),
    ],
    ids=[
        "no principal",
        "an empty principal",
        "a principal of the future",
        "three bytes of address",
        "no address",
        "what nobody forwards",
        "what a broker answers itself",
        "an Envelope in an Envelope",
        "nothing inside",
        "half a header",
        "an API that does not exist",
        "a body cut short",
        "a version of the future",
    ],
)
def test_what_is_wrong_with_an_envelope(bench: HandlerBench, envelope: EnvelopeRequest, error: type[Exception]) -> None:
    """Of what is inside the broker learns only that this node cannot read it; what it has made itself is its own."""
    with pytest.raises(error):
        open_envelope(received(bench, envelope))


# The response


def answer_to(bench: HandlerBench, response: Response) -> EnvelopeResponse:
    inner = open_envelope(received(bench, enveloped()))
    bench.channel.send_response(inner, response)
    (sent,) = bench.responses(inner)
    frame = sent_bytes(sent)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert int.from_bytes(frame[4:8], "big") == 12, "the broker looks for its own number"
    assert frame[8] == 0, "no tagged fields in the header"
    return EnvelopeResponse.decode(frame[9:], 0)


@pytest.mark.mechanism("R10")
def test_the_response_is_wrapped_with_its_header(bench: HandlerBench) -> None:
    response = CreateTopicsResponse(topics=[CreatableTopicResult(name="orders", num_partitions=3)])
    answer = answer_to(bench, response)
    assert answer.error_code == Errors.NONE
    data = answer.response_data
    assert data is not None
    assert int.from_bytes(data[:4], "big") == INNER_CORRELATION_ID, "the client looks for its own number"
    assert data[4] == 0
    read = CreateTopicsResponse.decode(data[5:], 7)
    assert [(topic.name, topic.num_partitions) for topic in read.topics] == [("orders", 3)]


@pytest.mark.mechanism("R10")
def test_an_error_of_the_request_is_inside(bench: HandlerBench) -> None:
    code = Errors.TOPIC_ALREADY_EXISTS
    answer = answer_to(bench, CreateTopicsResponse(topics=[CreatableTopicResult(name="orders", error_code=code)]))
    assert answer.error_code == Errors.NONE
    assert answer.response_data


@pytest.mark.mechanism("R10")
def test_a_node_that_is_not_the_controller_says_so_on_the_envelope(bench: HandlerBench) -> None:
    """So the broker looks for the controller, and the client never hears of it."""
    topics = [
        CreatableTopicResult(name="orders"),
        CreatableTopicResult(name="bills", error_code=Errors.NOT_CONTROLLER),
    ]
    answer = answer_to(bench, CreateTopicsResponse(topics=topics))
    assert (answer.error_code, answer.response_data) == (Errors.NOT_CONTROLLER, None)


@pytest.mark.mechanism("R10")
@pytest.mark.mechanism("R12")
def test_so_does_an_error_that_ended_the_request(bench: HandlerBench) -> None:
    inner = open_envelope(received(bench, enveloped()))
    bench.helper.handle_error(inner, NotControllerError())
    (sent,) = bench.responses(inner)
    answer = EnvelopeResponse.decode(sent_bytes(sent)[9:], 0)
    assert (answer.error_code, answer.response_data) == (Errors.NOT_CONTROLLER, None)


def test_a_response_ends_the_envelope_too(bench: HandlerBench) -> None:
    envelope = received(bench, enveloped())
    inner = open_envelope(envelope)
    bench.channel.send_response(inner, CreateTopicsResponse())
    assert inner.terminal
    assert envelope.terminal


@pytest.mark.mechanism("R12")
def test_the_envelopes_own_error(bench: HandlerBench) -> None:
    envelope = received(bench, enveloped(client_host_address=b""))
    bench.helper.handle_error(envelope, InvalidRequestError("no address"))
    answer = bench.answer(envelope)
    assert (answer.error_code, answer.response_data) == (Errors.INVALID_REQUEST, None)


@pytest.mark.mechanism("R10")
@pytest.mark.parametrize(
    ("response", "moved"),
    [
        (AlterConfigsResponse(responses=[AlterConfigsResourceResponse(error_code=41)]), True),
        (AlterConfigsResponse(responses=[AlterConfigsResourceResponse(error_code=40)]), False),
        (AlterConfigsResponse(), False),
        (ElectLeadersResponse(error_code=41), True),
        (
            ElectLeadersResponse(
                replica_election_results=[ReplicaElectionResult(partition_result=[PartitionResult(error_code=41)])]
            ),
            True,
        ),
        (DescribeQuorumResponse(error_code=41), False),
        (
            DescribeQuorumResponse(topics=[ResponseTopicData(partitions=[ResponsePartitionData(error_code=6)])]),
            True,
        ),
        (CreateTopicsResponse(topics=[CreatableTopicResult(configs=None)]), False),
        (CreateTopicsResponse(topics=[CreatableTopicResult(configs=[CreatableTopicConfigs()])]), False),
    ],
)
def test_who_says_not_controller(response: Response, moved: bool) -> None:
    assert NotControllerError.code == 41
    assert NotLeaderOrFollowerError.code == 6
    assert says_not_controller(response) is moved
