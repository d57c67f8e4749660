"""Version negotiation: the first exchange of every connection, and a peer that does not play along."""

from __future__ import annotations

import re

import pytest

from barnabas.common.errors import Errors, UnsupportedVersionError
from barnabas.network.client.connection_failure import FIRST_RESPONSE_LIMIT
from barnabas.network.client.node import Node
from barnabas.network.client.node_api_versions import ApiVersions, NodeApiVersions
from barnabas.network.client.node_connection import ConnectionState
from barnabas.network.client.version_negotiation import NEWEST, version_to_try_next
from barnabas.network.reactor.channel import ChannelState, InvalidReceiveError
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.versions import VersionRange
from unit.network.client.client_doubles import LIMIT, NODE, OTHER, Harness, Sent, all_versions


def refusal(*offered: tuple[int, int]) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        error_code=Errors.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=low, max_version=high) for low, high in offered],
    )


def refuse(harness: Harness, asked: Sent, body: ApiVersionsResponse) -> Sent | None:
    """Answers in version 0, as a node does that does not know the version; what it is asked next, if anything."""
    harness.answer(asked, body, version=0)
    assert harness.poll() == []
    return harness.selector.sent.popleft() if harness.selector.sent else None


def test_the_newest_version_is_asked_for_first() -> None:
    asked = Harness().connect()
    assert asked.header.api_key is ApiKey.API_VERSIONS
    assert asked.header.api_version == NEWEST == 5
    assert asked.header.client_id == "test"
    body = asked.body
    assert isinstance(body, ApiVersionsRequest)
    assert body.client_software_name == "barnabas"
    assert re.fullmatch(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?", body.client_software_version)
    assert (body.cluster_id, body.node_id) == (None, -1)


@pytest.mark.parametrize(
    ("offered", "expected"),
    [([(0, 3)], 3), ([(0, 0)], 0), ([], 0), ([(0, 99)], 4), ([(7, 9)], 0), ([(-5, -2)], 0)],
)
def test_a_node_that_does_not_know_the_version_is_asked_in_one_that_it_has(
    offered: list[tuple[int, int]], expected: int
) -> None:
    harness = Harness()
    again = refuse(harness, harness.connect(), refusal(*offered))
    assert again is not None
    assert again.header.api_version == expected
    assert harness.client.connection_state("1") is ConnectionState.CHECKING_API_VERSIONS
    harness.answer(again, all_versions(HEARTBEAT=(0, 1)))
    harness.poll()
    assert harness.ready()
    harness.send(HeartbeatRequest())
    assert harness.selector.sent.popleft().header.api_version == 1


def test_a_node_that_refuses_everything_is_asked_a_few_times_and_then_given_up() -> None:
    harness = Harness()
    asked: Sent | None = harness.connect()
    tried = []
    while asked is not None:
        tried.append(asked.header.api_version)
        asked = refuse(harness, asked, refusal((0, 99)))
    assert tried == [5, 4, 3, 2, 1, 0]
    assert harness.client.connection_failed(NODE)
    assert "UNSUPPORTED_VERSION" in harness.last_error()


def test_any_other_error_costs_the_connection() -> None:
    harness = Harness()
    asked = harness.connect()
    harness.answer(asked, ApiVersionsResponse(error_code=Errors.INVALID_REQUEST))
    harness.poll()
    assert harness.selector.closed_by_client == ["1"]
    assert harness.client.connection_failed(NODE)
    assert "refused to send its API versions: INVALID_REQUEST" in harness.last_error()
    assert harness.updater.disconnects == [("1", None)]


def test_what_to_try_next_is_always_older() -> None:
    for tried in range(6):
        for low in range(-1, 8):
            for high in range(-1, 8):
                following = version_to_try_next(tried, refusal((low, high)))
                assert (following is None) == (tried == 0)
                assert following is None or 0 <= following < tried
    assert version_to_try_next(3, ApiVersionsResponse(error_code=Errors.INVALID_REQUEST)) is None


def test_the_node_that_is_meant_is_named_when_it_is_known() -> None:
    """KIP-1242: an address that has changed hands is found out before anything else is sent there."""
    bootstrap = Node(-1, "boot.example", 9092)
    harness = Harness(nodes=[bootstrap, NODE])
    harness.updater.cluster = "the-cluster"
    body = harness.connect(bootstrap).body
    assert isinstance(body, ApiVersionsRequest)
    assert (body.cluster_id, body.node_id) == (None, -1), "of a bootstrap server only the address is known"
    body = harness.connect(NODE).body
    assert isinstance(body, ApiVersionsRequest)
    assert (body.cluster_id, body.node_id) == ("the-cluster", 1)


@pytest.mark.parametrize("able", [True, False])
def test_a_node_of_another_cluster_sends_the_client_back_to_its_bootstrap_servers(able: bool) -> None:
    harness = Harness()
    harness.updater.rebootstraps = able
    harness.make_ready(OTHER)
    request = harness.send(HeartbeatRequest(), OTHER)
    asked = harness.connect()
    harness.answer(asked, ApiVersionsResponse(error_code=Errors.REBOOTSTRAP_REQUIRED))
    responses = harness.poll()
    if able:
        assert [response.request for response in responses] == [request]
        assert harness.updater.rebootstrapped == [harness.now]
        assert not harness.selector.channels
    else:
        assert responses == []
        assert harness.updater.rebootstrapped == []
        assert "REBOOTSTRAP_REQUIRED" in harness.last_error()
        assert list(harness.selector.channels) == ["2"]


def test_what_else_has_arrived_on_a_connection_that_is_closed_meanwhile_is_dropped() -> None:
    harness = Harness()
    harness.updater.rebootstraps = True
    harness.make_ready(OTHER)
    harness.send(HeartbeatRequest(), OTHER)
    beat = harness.selector.sent.popleft()
    asked = harness.connect()
    harness.answer(asked, ApiVersionsResponse(error_code=Errors.REBOOTSTRAP_REQUIRED))
    harness.answer(beat, HeartbeatResponse())
    (response,) = harness.poll()
    assert response.disconnected
    assert harness.updater.rebootstrapped == [harness.now]


def test_a_connection_lost_during_its_handshake_leaves_no_question_behind() -> None:
    harness = Harness()
    assert not harness.ready()
    channel = harness.selector.channels["1"]
    harness.selector.accept("1")
    harness.selector.after_events(lambda: setattr(channel, "state", ChannelState.AUTHENTICATE))
    harness.poll()
    assert not harness.selector.sent, "not before TLS and SASL are through"
    assert harness.client.connection_state("1") is ConnectionState.CONNECTING
    harness.selector.lose("1", error=EOFError())
    harness.poll()
    assert "during authentication" in harness.last_error()
    harness.clock.advance(50)
    assert not harness.ready()
    harness.selector.channels["1"].state = ChannelState.READY  # not yet reported as connected
    harness.poll()
    assert not harness.selector.sent


def test_a_client_may_do_without_asking() -> None:
    harness = Harness(discover_broker_versions=False)
    assert not harness.ready()
    harness.selector.accept("1")
    harness.poll()
    assert harness.ready()
    assert not harness.selector.sent
    harness.send(HeartbeatRequest())
    assert harness.selector.sent.popleft().header.api_version == 4
    assert harness.selector.channels["1"].max_receive_size == LIMIT


# -- a peer that is not Kafka


def test_a_peer_may_send_little_until_it_has_shown_what_it_is() -> None:
    harness = Harness()
    asked = harness.connect()
    assert harness.selector.channels["1"].max_receive_size == FIRST_RESPONSE_LIMIT
    harness.answer(asked, all_versions())
    harness.poll()
    assert harness.selector.channels["1"].max_receive_size == LIMIT


@pytest.mark.parametrize(
    ("first", "text"),
    [
        (b"HTTP", "it responded in HTTP; this is a web server"),
        (b"\x15\x03\x03\x00", "it responded with a TLS alert record; the listener expects TLS"),
        (b"\x16\x03\x01\x02", "it responded with a TLS handshake record; the listener expects TLS"),
        (b"SSH-", "text that begins with 'SSH-'"),
        (b"220 ", "text that begins with '220 '"),
        (b"-ERR", "text that begins with '-ERR'"),
        (b"\x4a\x00\x00\x00", "bytes that stand for a length of 1241513984"),
        (b"\xff\xff\xff\xfe", "bytes that stand for a length of -2"),
    ],
)
def test_other_protocols_are_recognized(first: bytes, text: str) -> None:
    size = int.from_bytes(first, signed=True)
    assert not 0 <= size <= FIRST_RESPONSE_LIMIT, "so the selector refuses it at once"
    harness = Harness()
    harness.connect()
    harness.selector.lose("1", error=InvalidReceiveError("refused", size))
    harness.poll()
    assert harness.last_error().startswith("one.example:9092 does not speak Kafka's protocol: ")
    assert text in harness.last_error()


@pytest.mark.parametrize("error", [EOFError(), ConnectionResetError(104, "reset by peer"), None])
def test_a_connection_closed_without_a_word_may_be_a_tls_listener(error: Exception | None) -> None:
    harness = Harness()
    harness.connect()
    harness.selector.lose("1", error=error)
    harness.poll()
    assert harness.last_error() == (
        "one.example:9092 closed the connection before it sent its API versions; the listener may expect "
        "TLS, or this is not a Kafka broker"
    )


def test_a_frame_that_responds_to_nothing_raises_doubt() -> None:
    harness = Harness()
    harness.connect()
    harness.selector.deliver("1", b"what is this?")
    harness.poll()
    assert "sent an invalid response" in harness.last_error()
    assert "may not be a Kafka broker" in harness.last_error()


def test_a_large_response_of_a_node_that_is_known_is_not_taken_for_letters() -> None:
    harness = Harness()
    harness.make_ready()
    harness.send(HeartbeatRequest())
    harness.selector.lose("1", error=InvalidReceiveError("refused", int.from_bytes(b"HTTP")))
    (response,) = harness.poll()
    assert response.disconnected
    assert response.reason == f"one.example:9092 sent a response of 1213486160 bytes; 0 to {LIMIT} are accepted"


# -- what the nodes speak


def test_versions_features_and_unknown_apis_are_kept() -> None:
    response = ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=ApiKey.FETCH, min_version=4, max_version=12),
            ApiVersion(api_key=30_000, min_version=1, max_version=2),
        ],
        supported_features=[SupportedFeatureKey(name="metadata.version", min_version=1, max_version=25)],
        finalized_features=[FinalizedFeatureKey(name="transaction.version", max_version_level=2, min_version_level=2)],
        finalized_features_epoch=77,
    )
    versions = NodeApiVersions.of_response(response)
    assert versions.supported == {ApiKey.FETCH: VersionRange(4, 12)}
    assert versions.unknown_apis == {30_000: VersionRange(1, 2)}
    assert versions.supported_features == {"metadata.version": VersionRange(1, 25)}
    assert versions.finalized_features == {"transaction.version": 2}
    assert versions.latest_usable_version(ApiKey.FETCH) == 12
    assert versions.latest_usable_version(ApiKey.FETCH, VersionRange(4, 7)) == 7
    with pytest.raises(UnsupportedVersionError):
        versions.latest_usable_version(ApiKey.FETCH, VersionRange(13, 18))
    assert repr(versions) == "NodeApiVersions(Fetch 4-12, API 30000 1-2)"


def test_an_unstable_version_is_used_only_on_demand() -> None:
    versions = NodeApiVersions([ApiVersion(api_key=ApiKey.INIT_PRODUCER_ID, min_version=0, max_version=6)])
    assert ApiKey.INIT_PRODUCER_ID.versions.highest == 6
    assert versions.latest_usable_version(ApiKey.INIT_PRODUCER_ID) == 5
    assert versions.latest_usable_version(ApiKey.INIT_PRODUCER_ID, VersionRange(0, 6)) == 6


def test_the_newest_word_about_features_counts() -> None:
    def of(epoch: int, level: int) -> NodeApiVersions:
        return NodeApiVersions([], finalized_features={"transaction.version": level}, finalized_features_epoch=epoch)

    all_nodes = ApiVersions()
    assert all_nodes.finalized_features.epoch == -1
    all_nodes.update("1", of(10, 2))
    all_nodes.update("2", of(5, 1))
    assert all_nodes.finalized_features.levels == {"transaction.version": 2}
    all_nodes.remove("1")
    assert all_nodes.get("1") is None
    assert all_nodes.get("2") is not None
    assert all_nodes.finalized_features.epoch == 10, "the cluster has not forgotten it either"
