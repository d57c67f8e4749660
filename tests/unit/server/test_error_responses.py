"""The response to a request that failed as a whole, for every API and version, beside the Java client's own."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from barnabas.common.clock import MockClock
from barnabas.common.errors import (
    Errors,
    InvalidRequestError,
    InvalidTopicError,
    NotControllerError,
    UnsupportedVersionError,
)
from barnabas.common.identifiers import Uuid
from barnabas.metrics.yammer.registry import MetricsRegistry
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import Field
from barnabas.protocol.framing import encode_request
from barnabas.protocol.message import Request as RequestBody
from barnabas.protocol.message import Response, Struct
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.server.error_responses import error_response, responses
from barnabas.server.request import Request
from barnabas.server.request_metrics import RequestTimes
from network_fixtures import request_from
from oracles.java import ErrorCall, JavaOracle, OracleError
from oracles.messages import versions_of

THROTTLE_MS = 1234
SAID = "the cellar door is locked"
UNORDERED = frozenset({ApiKey.PRODUCE, ApiKey.WRITE_TXN_MARKERS, ApiKey.OFFSET_FETCH})
"""Kafka collects these responses in hash maps, so their order means nothing."""
NOT_TOLD = frozenset(
    {
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.FIND_COORDINATOR,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
    }
)
"""Kafka throttles these clients like any other, but forgets to tell them so when the request fails. We tell them."""

LEAKY = frozenset({ApiKey.UNREGISTER_BROKER, ApiKey.UNREGISTER_CONTROLLER, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS})
"""Here Kafka shows the text of an unexpected error to the client. We do not."""
FAILS_IN_KAFKA = {
    ApiKey.PRODUCE: 'records()" is null',  # partitions without records
    ApiKey.DESCRIBE_ACLS: "contains UNKNOWN elements",  # in the empty request, which Kafka refuses to read
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "is null",  # all users, when even the error response fails
}


@pytest.fixture
def times() -> RequestTimes:
    clock = MockClock()
    return RequestTimes(MetricsRegistry(clock), clock)


def as_received(body: RequestBody, version: int, times: RequestTimes) -> Request:
    return request_from(encode_request(body, version, 7, "client"), times)


# Requests with something in every field, no two values the same, so that a mix-up shows.


def filled(struct: type[Struct], version: int, number: Iterator[int], nulls: bool) -> Any:
    return struct(
        **{
            field.name: value_of(field, version, number, nulls)
            for field in struct.fields
            if version in field.versions or field.is_tagged(version)
        }
    )


def value_of(field: Field, version: int, number: Iterator[int], nulls: bool) -> Any:
    if nulls and version in field.nullable:
        return None
    if field.kind == "array":
        element = field.element
        if isinstance(element, str):
            return [scalar(element, number) for _ in range(3)]
        assert element is not None
        return [filled(element, version, number, nulls) for _ in range(2)]
    if field.kind == "struct":
        assert isinstance(field.element, type)
        return filled(field.element, version, number, nulls)
    return scalar(field.kind, number)


def scalar(kind: str, number: Iterator[int]) -> Any:
    here = next(number)
    if kind == "string":
        return f"name-{here}"
    if kind == "uuid":
        return Uuid(random.Random(here).randbytes(16))
    if kind == "bool":
        return here % 2 == 0
    if kind == "float64":
        return here / 2
    if kind in {"bytes", "records"}:
        return b"%d" % here
    return here % 100 + 1 if kind == "int8" else here


def requests_of(api_key: ApiKey, version: int) -> list[RequestBody]:
    made = [filled(api_key.request, version, count(1), nulls) for nulls in (False, True)]
    return [*made, api_key.request()]


# What the comparison has to put up with.


def reworded(struct: Any, old: str, new: str) -> None:
    """The usual messages of the codes are in our own words; whether one is there is what has to be the same."""
    for field in struct.fields:
        value = getattr(struct, field.name)
        if field.name == "error_message" and value == old:
            setattr(struct, field.name, new)
        elif isinstance(value, list) and value and isinstance(value[0], Struct):
            for element in value:
                reworded(element, old, new)


def in_order(value: Any) -> Any:
    if isinstance(value, list):
        return sorted(map(in_order, value), key=repr)
    if isinstance(value, Struct):
        return {field.name: in_order(getattr(value, field.name)) for field in value.fields}
    return value


@pytest.mark.java
@pytest.mark.mechanism("R12")
@pytest.mark.parametrize("api_key", ApiKey, ids=lambda key: key.title)
def test_same_response_as_kafka(
    api_key: ApiKey, java_oracle: JavaOracle, times: RequestTimes, record_property: Callable[[str, object], None]
) -> None:
    usual = {row["code"]: row["message"] for row in java_oracle.errors()}
    cases = [
        (version, body, error, message)
        for version in versions_of(api_key.request)
        for body in requests_of(api_key, version)
        for error, message in (
            (Errors.CLUSTER_AUTHORIZATION_FAILED, None),
            (Errors.INVALID_REQUEST, SAID),
            (Errors.UNSUPPORTED_VERSION, None),
            (Errors.UNKNOWN_SERVER_ERROR, SAID),
        )
    ]
    theirs = java_oracle.error_responses(
        ErrorCall(api_key, version, body.encode(version), error, message, THROTTLE_MS)
        for version, body, error, message in cases
    )
    for (version, body, error, message), their_bytes in zip(cases, theirs, strict=True):
        exception = error.to_exception(message)
        assert exception is not None
        ours = error_response(as_received(body, version, times), THROTTLE_MS, exception)
        if isinstance(their_bytes, OracleError):
            assert FAILS_IN_KAFKA.get(api_key, "-") in str(their_bytes), (version, error)
            continue
        if not their_bytes:
            assert ours is None, (version, error)
            continue
        assert ours is not None, (version, error)
        expected: Any = api_key.response.decode(their_bytes, version)
        reworded(expected, usual[error], error.message)
        if api_key in LEAKY and error is Errors.UNKNOWN_SERVER_ERROR:
            reworded(expected, SAID, error.message)
        ours = api_key.response.decode(ours.encode(version), version)
        if api_key in NOT_TOLD and any(
            field.name == "throttle_time_ms" and version in field.versions for field in expected.fields
        ):
            assert expected.throttle_time_ms == 0, "Kafka tells by now"
            expected.throttle_time_ms = THROTTLE_MS
        if api_key in UNORDERED:
            assert in_order(ours) == in_order(expected), (version, error)
        else:
            assert ours.encode(version) == expected.encode(version), (version, error, ours, expected)
    record_property("error_responses_java", len(cases))


# What has to hold wherever there is no Java.


@pytest.mark.mechanism("R12")
def test_every_api_has_a_response_in_every_version(times: RequestTimes) -> None:
    assert responses().keys() == set(ApiKey)
    for api_key in ApiKey:
        for version in versions_of(api_key.request):
            for body in requests_of(api_key, version):
                request = as_received(body, version, times)
                response = error_response(request, THROTTLE_MS, NotControllerError())
                if response is None:
                    assert isinstance(body, ProduceRequest)
                    assert body.acks == 0
                else:
                    response.encode(version)


def codes_of(response: Response | None) -> set[int]:
    """All error codes of a response, at whatever depth."""
    found: set[int] = set()
    structs: list[Any] = [response]
    while structs:
        struct = structs.pop()
        for field in struct.fields:
            value = getattr(struct, field.name)
            if field.name in {"error_code", "partition_error_code"}:
                found.add(value)
            elif isinstance(value, list) and value and isinstance(value[0], Struct):
                structs += value
    return found


@pytest.mark.mechanism("R12")
@pytest.mark.parametrize("api_key", ApiKey, ids=lambda key: key.title)
def test_the_code_is_in_every_response_to_a_request_about_something(api_key: ApiKey, times: RequestTimes) -> None:
    for version in versions_of(api_key.request):
        body = filled(api_key.request, version, count(1), nulls=False)
        response = error_response(as_received(body, version, times), 0, InvalidTopicError())
        assert response is not None
        read = api_key.response.decode(response.encode(version), version)
        if api_key is ApiKey.DESCRIBE_LOG_DIRS and version < 3:
            assert codes_of(read) == {0}, "these versions cannot say"
        else:
            assert Errors.INVALID_TOPIC_EXCEPTION in codes_of(read), version


@pytest.mark.mechanism("R06")
@pytest.mark.mechanism("R12")
def test_a_producer_that_wants_no_response_gets_none(times: RequestTimes) -> None:
    data = [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=3, records=b"")])]
    for acks in (0, 1, -1):
        request = as_received(ProduceRequest(acks=acks, topic_data=data), 9, times)
        assert (error_response(request, 0, InvalidTopicError()) is None) == (acks == 0)


@pytest.mark.mechanism("R12")
def test_an_older_fetch_finds_the_error_in_its_partitions(times: RequestTimes) -> None:
    topics = [FetchTopic(topic="t", topic_id=Uuid(b"t" * 16), partitions=[FetchPartition(partition=3)])]
    body = FetchRequest(session_id=9, topics=topics)
    for version, partitions in ((6, 1), (12, 1), (13, 0)):
        response = error_response(as_received(body, version, times), 0, InvalidRequestError())
        assert isinstance(response, FetchResponse)
        assert sum(len(topic.partitions) for topic in response.responses) == partitions
        assert (response.error_code, response.session_id if version > 6 else 9) == (Errors.INVALID_REQUEST, 9)


@pytest.mark.mechanism("R12")
def test_topics_are_deleted_by_name_or_id(times: RequestTimes) -> None:
    topic_id = Uuid(b"0123456789abcdef")
    named = as_received(DeleteTopicsRequest(topic_names=["a", "b"]), 5, times)
    told = error_response(named, 0, NotControllerError())
    assert isinstance(told, DeleteTopicsResponse)
    assert [(row.name, row.error_code) for row in told.responses] == [("a", 41), ("b", 41)]
    body = DeleteTopicsRequest(topics=[DeleteTopicState(name="a"), DeleteTopicState(topic_id=topic_id)])
    told = error_response(as_received(body, 6, times), 0, NotControllerError())
    assert isinstance(told, DeleteTopicsResponse)
    assert [(row.name, row.topic_id) for row in told.responses] == [("a", Uuid(bytes(16))), (None, topic_id)]


@pytest.mark.mechanism("R12")
def test_an_unexpected_error_keeps_its_text_to_itself(times: RequestTimes) -> None:
    request = as_received(CreateTopicsRequest(topics=[CreatableTopic(name="t")]), 7, times)
    for error, message in (
        (ValueError("password of /etc/shadow"), None),
        (InvalidTopicError("a name with a ?"), "a name with a ?"),
        (InvalidTopicError(), None),
        (TimeoutError("after 3 s"), "after 3 s"),
    ):
        response = error_response(request, 0, error)
        assert isinstance(response, CreateTopicsResponse)
        assert response.topics[0].error_message == message


@pytest.mark.mechanism("R12")
def test_a_version_of_the_future_gets_a_response_without_reading_the_body(times: RequestTimes) -> None:
    frame = bytearray(encode_request(ApiVersionsRequest(), 3, 7, "client"))
    frame[6:8] = (99).to_bytes(2)
    response = error_response(request_from(bytes(frame), times), 0, UnsupportedVersionError())
    assert isinstance(response, ApiVersionsResponse)
    (row,) = ApiVersionsResponse.decode(response.encode(0), 0).api_keys
    assert (row.api_key, row.min_version, row.max_version) == (18, 0, ApiKey.API_VERSIONS.versions.highest)
    other = error_response(request_from(bytes(frame), times), 0, InvalidRequestError())
    assert isinstance(other, ApiVersionsResponse)
    assert other.api_keys == []
