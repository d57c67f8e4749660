"""GetTelemetrySubscriptions and PushTelemetry as requests."""

from __future__ import annotations

import pytest

from barnabas.broker.handlers.telemetry import TelemetryHandler
from barnabas.common.errors import Errors
from barnabas.common.identifiers import ZERO_UUID
from barnabas.metrics.registry import Metrics
from barnabas.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from barnabas.protocol.messages.push_telemetry import PushTelemetryRequest
from barnabas.security.principal import KafkaPrincipal
from barnabas.server.throttling import UNLIMITED, UNLIMITED_BANDWIDTH, ClientQuota
from barnabas.server.timer.mock_timer import MockTimer
from barnabas.telemetry.client_metrics_manager import ClientMetricsManager
from handler_fixtures import FakeQuota, HandlerBench
from telemetry_fixtures import SOME_ID, Exports, subscription


class Quotas:
    """A request quota, and no other."""

    produce: ClientQuota = UNLIMITED_BANDWIDTH
    fetch: ClientQuota = UNLIMITED_BANDWIDTH
    controller_mutation = UNLIMITED

    def __init__(self, request: FakeQuota) -> None:
        self.request = request


class Bench(HandlerBench):
    def __init__(self, throttle_time_ms: int = 0) -> None:
        timer = MockTimer()
        self.quota = FakeQuota(throttle_time_ms)
        super().__init__(Quotas(self.quota), timer.clock)
        self.exports = Exports()
        self.manager = ClientMetricsManager(self.exports, 1_000, timer, timer.clock, Metrics(clock=timer.clock))
        self.manager.update_subscription("all", subscription(client_id="test", client_software_name="unknown"))
        self.handler = TelemetryHandler(self.helper, self.manager)


@pytest.mark.mechanism("Q12")
def test_a_client_asks_and_pushes() -> None:
    bench = Bench()
    answer = bench.ask(bench.handler, GetTelemetrySubscriptionsRequest(), 0)
    assert answer.error_code == Errors.NONE
    assert answer.client_instance_id != ZERO_UUID
    assert answer.requested_metrics == ["*"]
    assert answer.accepted_compression_types == [4, 3, 1, 2]
    request = bench.request(
        PushTelemetryRequest(
            client_instance_id=answer.client_instance_id, subscription_id=answer.subscription_id, metrics=b"otlp"
        ),
        0,
        principal=KafkaPrincipal("User", "alice"),
    )
    bench.handle(bench.handler, request)
    assert bench.answer(request).error_code == Errors.NONE
    ((context, payload),) = bench.exports.pushes
    assert payload.data == b"otlp"
    assert isinstance(payload.data, bytes), "and no view of the request, which goes"
    client = context.client
    assert (client.client_id, client.principal, client.address, client.listener) == (
        "test",
        "User:alice",
        "127.0.0.1",
        "PLAINTEXT",
    )


@pytest.mark.mechanism("Q13")
def test_refusals_are_responses_with_the_throttle_time_of_the_request_quota() -> None:
    bench = Bench(throttle_time_ms=30)
    push = PushTelemetryRequest(client_instance_id=SOME_ID, subscription_id=1, metrics=b"otlp")
    answer = bench.ask(bench.handler, push, 0)
    assert (answer.error_code, answer.throttle_time_ms) == (Errors.UNKNOWN_SUBSCRIPTION_ID, 30)
    asked = GetTelemetrySubscriptionsRequest(client_instance_id=SOME_ID)
    assert bench.ask(bench.handler, asked, 0).error_code == Errors.NONE
    again = bench.ask(bench.handler, asked, 0)
    assert (again.error_code, again.throttle_time_ms) == (Errors.THROTTLING_QUOTA_EXCEEDED, 30)


@pytest.mark.parametrize("body", [GetTelemetrySubscriptionsRequest(), PushTelemetryRequest(client_instance_id=SOME_ID)])
def test_what_goes_wrong_unexpectedly_makes_clients_stop(
    body: GetTelemetrySubscriptionsRequest | PushTelemetryRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench()

    def fail(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(bench.manager, "_instance", fail)
    assert bench.ask(bench.handler, body, 0).error_code == Errors.INVALID_REQUEST
