"""The two ways from a processor to a handler, and which requests are let in at all."""

from __future__ import annotations

import sys
import threading

import pytest

from barnabas.common.clock import MockClock
from barnabas.common.errors import InvalidRequestError, UnsupportedVersionError
from barnabas.network.reactor.memory_pool import UNBOUNDED
from barnabas.network.server.endpoint import SecurityProtocol
from barnabas.network.server.plane import ConnectionContext
from barnabas.protocol.api_keys import ApiKey, Scope
from barnabas.protocol.headers import ParsedHeader
from barnabas.server.api_version_manager import ApiVersionManager
from barnabas.server.data_plane import DataPlane, HandOff
from barnabas.server.request import Request
from barnabas.server.request_local import RequestLocal
from network_fixtures import FakeProcessorHandle, Plane, Policy, heartbeat, leave_group, request_from

CONTEXT = ConnectionContext("c", "127.0.0.1", "PLAINTEXT", SecurityProtocol.PLAINTEXT, False)


class Bench(Plane):
    """A plane that notes what was handled, and on which thread."""

    def __init__(self, policy: Policy, queue_size: int = 500) -> None:
        super().__init__(policy, self._note, clock=MockClock(), queue_size=queue_size)
        self.handled: list[int] = []
        self.locals: list[RequestLocal] = []
        self.channel.add_processor(FakeProcessorHandle(asleep=False))

    def _note(self, request: Request, local: RequestLocal) -> None:
        assert local.is_confined
        self.handled.append(request.correlation_id)
        self.locals.append(local)
        self.answer(request)

    def short(self, number: int) -> Request:
        return request_from(heartbeat(number), self.times)

    def long(self, number: int) -> Request:
        return request_from(leave_group(number), self.times)

    def queued(self) -> list[int]:
        numbers = []
        while isinstance(item := self.channel.receive_request(0), Request):
            numbers.append(item.correlation_id)
        return numbers


@pytest.mark.mechanism("N11")
def test_with_the_queue_policy_everything_is_queued() -> None:
    b = Bench(Policy.QUEUE)
    b.data_plane.submit([b.short(1), b.long(2), b.short(3)])
    assert b.handled == []
    assert b.queued() == [1, 2, 3]


@pytest.mark.mechanism("N11")
def test_with_the_direct_policy_a_processor_handles_short_requests_itself() -> None:
    b = Bench(Policy.DIRECT)
    b.data_plane.submit([b.short(1), b.long(2), b.short(3), b.long(4)])
    assert b.handled == [1, 3]
    assert b.queued() == [2, 4]


@pytest.mark.mechanism("N11")
@pytest.mark.parametrize("waiting", ["request", "callback"])
def test_with_the_direct_policy_nothing_overtakes_what_is_queued(waiting: str) -> None:
    b = Bench(Policy.DIRECT)
    if waiting == "request":
        b.data_plane.submit([b.long(1)])
    else:
        b.channel.send_callback(lambda _: None, b.long(1))
    b.data_plane.submit([b.short(2), b.short(3)])
    assert b.handled == []
    while b.channel.receive_request(0) is not None:
        pass
    b.data_plane.submit([b.short(4)])
    assert b.handled == [4]


@pytest.mark.mechanism("N13")
def test_every_network_thread_that_handles_requests_has_a_local_of_its_own() -> None:
    b = Bench(Policy.DIRECT)
    for _ in range(2):
        b.data_plane.submit([b.short(1)])
    thread = threading.Thread(target=lambda: b.data_plane.submit([b.short(2)]))
    thread.start()
    thread.join()
    first, second, other = b.locals
    assert first is second
    assert other is not first


@pytest.mark.mechanism("N12")
def test_a_handler_that_raises_on_a_network_thread_does_not_keep_the_others_from_being_handled() -> None:
    b = Bench(Policy.DIRECT)
    note = b.apis.script

    def fail_first(request: Request, local: RequestLocal) -> None:
        if request.correlation_id == 1:
            raise RuntimeError("a bug")
        note(request, local)

    b.apis.script = fail_first
    b.data_plane.submit([b.short(1), b.short(2)])
    assert b.handled == [2]


@pytest.mark.mechanism("N11")
def test_the_default_policy_follows_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    for gil, policy, threads in ((True, HandOff.DIRECT, 1), (False, HandOff.QUEUE, 3)):
        monkeypatch.setattr(sys, "_is_gil_enabled", lambda gil=gil: gil, raising=False)
        assert HandOff.default() is policy
        assert policy.default_network_threads == threads
        b = Bench(Policy.QUEUE)
        versions = ApiVersionManager(Scope.BROKER)
        assert DataPlane(b.channel, b.runner, versions, MockClock()).hand_off is policy
    monkeypatch.delattr(sys, "_is_gil_enabled")
    assert HandOff.default() is HandOff.DIRECT


# ---------------------------------------------------------------------------------------------------- N09


def new_request(plane: DataPlane, api_key: ApiKey, version: int) -> Request:
    header = ParsedHeader(api_key, version, 1, "c", 10)
    return plane.new_request(0, CONTEXT, header, memoryview(b"body"), UNBOUNDED, 0)


@pytest.mark.mechanism("N09")
@pytest.mark.parametrize("policy", [Policy.QUEUE, Policy.DIRECT])
def test_an_api_is_served_in_its_versions_only(policy: Policy) -> None:
    plane = Bench(policy).data_plane
    lowest, highest = ApiKey.PRODUCE.versions
    for version in range(lowest, highest + 1):
        assert new_request(plane, ApiKey.PRODUCE, version).api_version == version
    for version in (lowest - 1, highest + 1, -1, 32767):
        with pytest.raises(UnsupportedVersionError, match=f"Produce v{version}"):
            new_request(plane, ApiKey.PRODUCE, version)


@pytest.mark.mechanism("N09")
def test_an_api_of_another_kind_of_listener_is_not_served() -> None:
    plane = Bench(Policy.QUEUE).data_plane
    with pytest.raises(InvalidRequestError, match="Vote is not enabled on this listener"):
        new_request(plane, ApiKey.VOTE, 1)


@pytest.mark.mechanism("N09")
@pytest.mark.parametrize("version", [-1, 0, 5, 6, 32767])
def test_api_versions_is_served_in_any_version(version: int) -> None:
    plane = Bench(Policy.QUEUE).data_plane
    assert new_request(plane, ApiKey.API_VERSIONS, version).api_version == version


@pytest.mark.mechanism("N09")
def test_unstable_versions_are_served_when_they_are_enabled() -> None:
    newest = ApiKey.INIT_PRODUCER_ID.versions.highest
    assert ApiKey.INIT_PRODUCER_ID.stable_versions.highest == newest - 1
    header = ParsedHeader(ApiKey.INIT_PRODUCER_ID, newest, 1, None, 8)
    assert not ApiVersionManager(Scope.BROKER).is_enabled(header)
    assert ApiVersionManager(Scope.BROKER, unstable=True).is_enabled(header)


@pytest.mark.mechanism("N09")
def test_a_listener_may_serve_a_few_apis_only() -> None:
    versions = ApiVersionManager(Scope.BROKER, {ApiKey.METADATA, ApiKey.API_VERSIONS, ApiKey.VOTE})
    assert set(versions.enabled_apis) == set(versions.advertised()) == {ApiKey.METADATA, ApiKey.API_VERSIONS}
    assert versions.is_enabled(ParsedHeader(ApiKey.METADATA, 0, 1, None, 8))
    assert versions.is_enabled(ParsedHeader(ApiKey.API_VERSIONS, 99, 1, None, 8))
    assert not versions.is_enabled(ParsedHeader(ApiKey.METADATA, 99, 1, None, 8))
    assert not versions.is_enabled(ParsedHeader(ApiKey.FETCH, 12, 1, None, 8))
    versions.enabled_apis.clear()
    assert versions.enabled_apis, "a copy"
