"""What a broker says that it can do, to clients of every age (R03)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from barnabas.broker.handlers.broker_api_versions import BrokerApiVersionManager
from barnabas.common.errors import Errors
from barnabas.metadata.cache import FinalizedFeatures
from barnabas.metadata.metadata_version import MetadataVersion
from barnabas.network.client.node_api_versions import NodeApiVersions
from barnabas.network.transport.local.offer import LocalSocketOffer
from barnabas.protocol.api_keys import ApiKey, Scope
from barnabas.protocol.framing import encode_request
from barnabas.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.versions import VersionRange
from barnabas.server.api_versions_handler import ApiVersionsHandler
from barnabas.server.request import Request
from handler_fixtures import HandlerBench, sent_bytes
from network_fixtures import request_from

CLUSTER_ID, NODE_ID = "cluster", 1
APIS = {
    ApiKey.API_VERSIONS,
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
}
SUPPORTED = {"metadata.version": VersionRange(7, 30), "group.version": VersionRange(0, 1)}


def spoken(**versions: tuple[int, int]) -> NodeApiVersions:
    return NodeApiVersions(
        ApiVersion(api_key=ApiKey[name], min_version=lowest, max_version=highest)
        for name, (lowest, highest) in versions.items()
    )


class Bench(HandlerBench):
    def __init__(self, apis: Collection[ApiKey] = APIS, **options: Any) -> None:
        super().__init__()
        self.controller: NodeApiVersions | None = None
        self.levels = {"metadata.version": 30, "group.version": 1, "off.version": 0}
        self.epoch = 55
        self.manager = BrokerApiVersionManager(
            apis,
            SUPPORTED,
            lambda: FinalizedFeatures(MetadataVersion.IBP_4_3_IV0, dict(self.levels), self.epoch),
            lambda: self.controller,
            **options,
        )
        self.family = ApiVersionsHandler(self.helper, self.manager, CLUSTER_ID, NODE_ID)

    def get(self, version: int = 5, **fields: Any) -> ApiVersionsResponse:
        fields = {"client_software_name": "test", "client_software_version": "1.0", **fields}
        answer: ApiVersionsResponse = self.ask(self.family, ApiVersionsRequest(**fields), version)
        return answer

    def advertised(self) -> dict[ApiKey, tuple[int, int]]:
        rows = {row.api_key: (row.min_version, row.max_version) for row in self.get().api_keys}
        return {key: rows[key] for key in ApiKey if key in rows}

    def raw(self, version: int) -> Request:
        """A request of a version that does not exist, with a body that nobody can read."""
        frame = bytearray(encode_request(ApiVersionsRequest(), 0, 9, "future"))
        frame[6:8] = version.to_bytes(2, "big", signed=True)
        return request_from(bytes(frame) + b"\0\xff\xff", self.times)


@pytest.mark.mechanism("R03")
@pytest.mark.parametrize("version", range(6))
def test_every_version_gets_a_response(version: int) -> None:
    answer = Bench().get(version)
    assert answer.error_code == 0
    assert {row.api_key for row in answer.api_keys} == {key.value for key in APIS}
    assert [row.api_key for row in answer.api_keys] == sorted(row.api_key for row in answer.api_keys)
    assert not answer.zk_migration_ready
    if version < 3:
        assert answer.finalized_features_epoch == -1
    else:
        assert answer.finalized_features_epoch == 55
        levels = {row.name: (row.min_version_level, row.max_version_level) for row in answer.finalized_features}
        assert levels == {"metadata.version": (30, 30), "group.version": (1, 1)}


@pytest.mark.mechanism("R03")
@pytest.mark.parametrize(("version", "names"), [(3, ["metadata.version"]), (4, ["group.version", "metadata.version"])])
def test_old_clients_do_not_hear_of_features_that_can_be_off(version: int, names: list[str]) -> None:
    assert [row.name for row in Bench().get(version).supported_features] == names


@pytest.mark.mechanism("R03")
@pytest.mark.parametrize("version", [6, 99, -1])
def test_a_version_of_the_future_gets_a_response_in_version_0(version: int) -> None:
    b = Bench()
    request = b.raw(version)
    b.handle(b.family, request)
    frame = sent_bytes(b.responses(request)[0])
    assert int.from_bytes(frame[4:8], "big") == 9
    answer = ApiVersionsResponse.decode(frame[8:], 0)
    assert answer.error_code == Errors.UNSUPPORTED_VERSION
    assert [(row.api_key, row.min_version, row.max_version) for row in answer.api_keys] == [(18, 0, 5)]


@pytest.mark.mechanism("R03")
@pytest.mark.parametrize("version", [3, 5])
@pytest.mark.parametrize("field", ["client_software_name", "client_software_version"])
@pytest.mark.parametrize("text", ["", "-a", "a-", "a b", "a_b", ".a", "ä"])
def test_software_that_has_no_proper_name_is_refused(version: int, field: str, text: str) -> None:
    answer = Bench().get(version, **{field: text})
    assert answer.error_code == Errors.INVALID_REQUEST
    assert not answer.api_keys


def test_the_software_of_a_client_is_remembered() -> None:
    b = Bench()
    request = b.request(ApiVersionsRequest(client_software_name="a.b-c", client_software_version="1"), 3)
    b.handle(b.family, request)
    assert (request.context.client_software_name, request.context.client_software_version) == ("a.b-c", "1")


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("name", ["barnabas", "librdkafka", "Barnabas", "barnabas2"])
def test_only_our_clients_hear_of_the_local_socket(name: str, version: int) -> None:
    def answered(offer: LocalSocketOffer | None) -> bytes:
        b = Bench()
        request = b.request(ApiVersionsRequest(client_software_name=name, client_software_version="1"), version)
        request.context.local_socket = offer
        b.handle(b.family, request)
        return bytes(sent_bytes(b.responses(request)[0]))[8:]

    offer = LocalSocketOffer(broker_name=b"\0barnabas/b", client_name=b"\0barnabas/c", client_host="::1", client_port=7)
    told = LocalSocketOffer.in_response(ApiVersionsResponse.decode(answered(offer), version))
    if name == "barnabas" and version >= 3:
        assert told == offer
    else:
        assert told is None
        assert answered(offer) == answered(None)


@pytest.mark.mechanism("R03")
@pytest.mark.parametrize(
    ("cluster_id", "node_id", "error"),
    [
        (CLUSTER_ID, NODE_ID, Errors.NONE),
        (None, -1, Errors.NONE),
        ("other", NODE_ID, Errors.REBOOTSTRAP_REQUIRED),
        (CLUSTER_ID, 2, Errors.REBOOTSTRAP_REQUIRED),
        (None, NODE_ID, Errors.INVALID_REQUEST),
        (CLUSTER_ID, -1, Errors.INVALID_REQUEST),
    ],
)
def test_a_client_that_means_somebody_else_is_told(cluster_id: str | None, node_id: int, error: Errors) -> None:
    answer = Bench().get(5, cluster_id=cluster_id, node_id=node_id)
    assert answer.error_code == error
    assert bool(answer.api_keys) is (error is Errors.NONE)


@pytest.mark.mechanism("R03")
def test_what_is_forwarded_is_advertised_as_far_as_the_controller_speaks_it() -> None:
    b = Bench()
    assert b.advertised() == {
        key: tuple(VersionRange(0, 13) if key is ApiKey.PRODUCE else key.stable_versions) for key in APIS
    }
    b.controller = spoken(CREATE_TOPICS=(3, 6), FETCH=(0, 17))
    advertised = b.advertised()
    assert advertised[ApiKey.CREATE_TOPICS] == (3, 6)
    assert advertised[ApiKey.FETCH] == (4, 18)
    assert ApiKey.DELETE_TOPICS not in advertised
    b.controller = spoken(CREATE_TOPICS=(8, 9), DELETE_TOPICS=(0, 99))
    advertised = b.advertised()
    assert ApiKey.CREATE_TOPICS not in advertised
    assert advertised[ApiKey.DELETE_TOPICS] == (1, 6)
    assert b.manager.advertised().keys() == advertised.keys()


@pytest.mark.mechanism("R03")
def test_a_listener_accepts_what_has_a_handler_whatever_the_controller_speaks() -> None:
    b = Bench()
    b.controller = spoken()
    assert b.manager.enabled_apis.keys() == APIS
    assert all(key.scope & Scope.BROKER for key in b.manager.enabled_apis)


@pytest.mark.parametrize(("unstable", "highest"), [(False, 5), (True, 6)])
def test_unstable_versions_are_spoken_only_if_they_are_enabled(unstable: bool, highest: int) -> None:
    b = Bench(unstable=unstable)
    assert b.advertised()[ApiKey.INIT_PRODUCER_ID] == (0, highest)


def test_the_lists_are_made_anew_only_if_something_has_changed() -> None:
    b = Bench()
    one, other = (b.manager.api_versions_response(0, 5) for _ in range(2))
    assert one.api_keys is other.api_keys
    assert one.finalized_features is other.finalized_features
    b.levels["group.version"] = 0
    b.epoch = 60
    changed = b.manager.api_versions_response(7, 5)
    assert [row.name for row in changed.finalized_features] == ["metadata.version"]
    assert (changed.finalized_features_epoch, changed.throttle_time_ms) == (60, 7)
    b.controller = spoken()
    assert b.manager.api_versions_response(0, 5).api_keys is not one.api_keys


TELEMETRY = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}


@pytest.mark.mechanism("R03")
def test_telemetry_is_advertised_while_somebody_wants_it() -> None:
    wanted = False
    b = Bench(apis=APIS | TELEMETRY, telemetry=lambda: wanted)
    assert not b.advertised().keys() & TELEMETRY
    assert not b.manager.advertised().keys() & TELEMETRY
    wanted = True
    assert b.advertised().keys() >= TELEMETRY
    assert b.manager.advertised().keys() >= TELEMETRY
    wanted = False
    assert not b.advertised().keys() & TELEMETRY
    # A client that has connected before may still send them.
    assert b.manager.enabled_apis.keys() >= TELEMETRY
