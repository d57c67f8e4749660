"""Both requests of KIP-714, step by step on a clock that stands still."""

from __future__ import annotations

import logging

import pytest

from barnabas.common.errors import Errors
from barnabas.common.identifiers import METADATA_TOPIC_ID, ZERO_UUID, Uuid, uuid_to_string
from barnabas.metrics.registry import Metrics
from barnabas.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from barnabas.protocol.messages.push_telemetry import PushTelemetryRequest
from barnabas.records.batch import CompressionType
from barnabas.records.compression import compress
from barnabas.server.timer.mock_timer import MockTimer
from barnabas.telemetry.client_metrics_manager import CACHE_MAX_SIZE, ClientMetricsManager
from barnabas.telemetry.telemetry_client import TelemetryClient
from telemetry_fixtures import SOME_ID, Exports, client, subscription

INTERVAL_MS = 10_000


class Bench:
    """A manager with a subscription to everything, every ten seconds."""

    def __init__(self, cache_size: int = CACHE_MAX_SIZE, max_bytes: int = 1_000) -> None:
        self.timer = MockTimer()
        self.clock = self.timer.clock
        self.metrics = Metrics(clock=self.clock)
        self.exports = Exports()
        self.ids = iter(Uuid(number.to_bytes(16, "big")) for number in range(100, 10_000))
        self.manager = ClientMetricsManager(
            self.exports,
            max_bytes,
            self.timer,
            self.clock,
            self.metrics,
            cache_size=cache_size,
            new_id=lambda: next(self.ids),
        )
        self.manager.update_subscription("all", subscription(interval_ms=INTERVAL_MS))

    def get(self, uuid: Uuid = SOME_ID, by: TelemetryClient | None = None) -> GetTelemetrySubscriptionsResponse:
        request = GetTelemetrySubscriptionsRequest(client_instance_id=uuid)
        return self.manager.process_get_telemetry_subscriptions(request, by or client())

    def push(
        self,
        uuid: Uuid = SOME_ID,
        by: TelemetryClient | None = None,
        *,
        subscription_id: int | None = None,
        metrics: bytes = b"otlp",
        terminating: bool = False,
        compression: int = 0,
    ) -> Errors:
        if subscription_id is None:
            instance = self.manager.instance(uuid)
            subscription_id = 0 if instance is None else instance.subscription.subscription_id
        request = PushTelemetryRequest(
            client_instance_id=uuid,
            subscription_id=subscription_id,
            metrics=metrics,
            terminating=terminating,
            compression_type=compression,
        )
        return Errors.for_code(self.manager.process_push_telemetry(request, by or client()).error_code)

    def advance(self, milliseconds: int) -> None:
        self.timer.advance_clock(milliseconds)

    def value(self, name: str, **tags: str) -> float | None:
        metric = self.metrics.metric(self.metrics.metric_name(name, "client-metrics", tags))
        return None if metric is None else metric.value()


@pytest.fixture
def bench() -> Bench:
    return Bench()


# -- asking what is wanted


@pytest.mark.mechanism("Q12")
def test_a_client_without_an_id_gets_one_and_is_told_what_is_wanted(bench: Bench) -> None:
    answer = bench.get(ZERO_UUID)
    assert answer.client_instance_id == Uuid((100).to_bytes(16, "big"))
    assert answer.requested_metrics == ["*"]
    assert answer.push_interval_ms == INTERVAL_MS
    assert answer.telemetry_max_bytes == 1_000
    assert answer.delta_temporality
    assert answer.accepted_compression_types == [4, 3, 1, 2]
    assert answer.error_code == Errors.NONE
    instance = bench.manager.instance(answer.client_instance_id)
    assert instance is not None
    assert instance.subscription.subscription_id == answer.subscription_id


@pytest.mark.mechanism("Q12")
def test_an_id_that_is_taken_is_not_given_again(bench: Bench) -> None:
    bench.get(Uuid((100).to_bytes(16, "big")))
    assert bench.get(ZERO_UUID, client(2)).client_instance_id == Uuid((101).to_bytes(16, "big"))


@pytest.mark.mechanism("Q12")
def test_a_client_keeps_its_id_at_another_broker(bench: Bench) -> None:
    other = Bench()
    assert bench.get(SOME_ID).subscription_id == other.get(SOME_ID).subscription_id
    assert other.push() is Errors.NONE


@pytest.mark.mechanism("Q13")
def test_asking_again_has_to_wait_for_the_interval(bench: Bench) -> None:
    bench.get()
    bench.advance(INTERVAL_MS - 1)
    answer = bench.get()
    assert answer.error_code == Errors.THROTTLING_QUOTA_EXCEEDED
    assert answer.client_instance_id == ZERO_UUID
    bench.advance(1)
    assert bench.get().error_code == Errors.NONE
    assert bench.value("throttle-count", client_instance_id="AQIDBAUGBwgJCgsMDQ4PEA") == 1


@pytest.mark.mechanism("Q13")
def test_a_push_counts_as_the_last_time_for_asking(bench: Bench) -> None:
    bench.get()
    bench.advance(INTERVAL_MS - 1)
    assert bench.push() is Errors.NONE
    bench.advance(1)
    assert bench.get().error_code == Errors.THROTTLING_QUOTA_EXCEEDED


# -- pushing


@pytest.mark.mechanism("Q13")
@pytest.mark.parametrize("share", [0.0, 0.5, 1.5])
def test_the_first_push_after_asking_may_come_at_any_time(bench: Bench, share: float) -> None:
    """Clients wait for 0.5 to 1.5 intervals, so that they do not all come at once."""
    bench.get()
    bench.advance(int(INTERVAL_MS * share))
    assert bench.push() is Errors.NONE
    assert bench.push() is Errors.THROTTLING_QUOTA_EXCEEDED


@pytest.mark.mechanism("Q13")
def test_later_pushes_come_once_per_interval(bench: Bench) -> None:
    bench.get()
    assert bench.push() is Errors.NONE
    for _ in range(3):
        bench.advance(INTERVAL_MS - 1)
        assert bench.push() is Errors.THROTTLING_QUOTA_EXCEEDED
        bench.advance(1)
        assert bench.push() is Errors.NONE
    assert len(bench.exports.pushes) == 4
    assert bench.value("throttle-count", client_instance_id="AQIDBAUGBwgJCgsMDQ4PEA") == 3


@pytest.mark.mechanism("Q13")
def test_the_date_makes_no_difference(bench: Bench) -> None:
    """A clock that is set back by an hour must not silence clients for an hour."""
    bench.get()
    bench.push()
    bench.clock.set_milliseconds(0)
    bench.advance(INTERVAL_MS)
    assert bench.push() is Errors.NONE


@pytest.mark.mechanism("Q13")
@pytest.mark.parametrize("reserved", [ZERO_UUID, METADATA_TOPIC_ID])
def test_a_push_without_an_id_is_refused(bench: Bench, reserved: Uuid) -> None:
    assert bench.push(reserved) is Errors.INVALID_REQUEST
    assert bench.manager.instance(reserved) is None


@pytest.mark.mechanism("Q13")
def test_a_push_for_another_subscription_is_refused_and_the_client_may_ask_at_once(bench: Bench) -> None:
    answer = bench.get()
    assert bench.push(subscription_id=answer.subscription_id + 1) is Errors.UNKNOWN_SUBSCRIPTION_ID
    assert bench.value("unknown-subscription-request-count") == 1
    assert bench.get().error_code == Errors.NONE
    # And push after that, when its random delay is over.
    bench.advance(INTERVAL_MS // 2)
    assert bench.push() is Errors.NONE
    assert bench.get().error_code == Errors.THROTTLING_QUOTA_EXCEEDED


@pytest.mark.mechanism("Q13")
@pytest.mark.parametrize("unknown", [5, -1, 127])
def test_an_unknown_compression_is_refused_and_the_client_may_ask_at_once(bench: Bench, unknown: int) -> None:
    bench.get()
    assert bench.push(compression=unknown) is Errors.UNSUPPORTED_COMPRESSION_TYPE
    assert bench.get().error_code == Errors.NONE
    assert bench.push() is Errors.NONE


@pytest.mark.mechanism("Q13")
@pytest.mark.parametrize("codec", list(CompressionType))
def test_every_compression_is_undone(bench: Bench, codec: CompressionType) -> None:
    bench.get()
    assert bench.push(metrics=bytes(compress(codec, b"abc" * 100)), compression=codec) is Errors.NONE
    context, payload = bench.exports.pushes[0]
    assert payload.data == b"abc" * 100
    assert payload.compression is codec
    assert payload.client_instance_id == SOME_ID
    assert context.client == client()
    assert context.push_interval_ms == INTERVAL_MS
    assert context.received_ms == bench.clock.milliseconds()


@pytest.mark.mechanism("Q13")
def test_too_much_is_refused_and_a_matter_of_this_push_only(bench: Bench) -> None:
    bench.get()
    assert bench.push(metrics=bytes(1_001)) is Errors.TELEMETRY_TOO_LARGE
    assert bench.get().error_code == Errors.THROTTLING_QUOTA_EXCEEDED
    bench.advance(INTERVAL_MS)
    assert bench.push(metrics=bytes(1_000)) is Errors.NONE
    assert [len(payload.data) for _, payload in bench.exports.pushes] == [1_000]


@pytest.mark.mechanism("Q13")
@pytest.mark.parametrize("codec", list(CompressionType)[1:])
def test_what_is_too_much_when_decompressed_is_refused_as_well(bench: Bench, codec: CompressionType) -> None:
    bench.get()
    compressed = bytes(compress(codec, bytes(1_001)))
    assert len(compressed) < 1_000
    assert bench.push(metrics=compressed, compression=codec) is Errors.TELEMETRY_TOO_LARGE
    assert bench.exports.pushes == []


@pytest.mark.mechanism("Q13")
@pytest.mark.parametrize("codec", [CompressionType.GZIP, CompressionType.SNAPPY])
def test_what_cannot_be_decompressed_is_an_invalid_record(bench: Bench, codec: CompressionType) -> None:
    bench.get()
    assert bench.push(metrics=b"\xff\xff\xff\xff\xff", compression=codec) is Errors.INVALID_RECORD
    assert bench.exports.pushes == []


@pytest.mark.mechanism("Q13")
def test_the_last_push_of_a_client_does_not_wait_and_nothing_follows_it(bench: Bench) -> None:
    bench.get()
    bench.push()
    assert bench.push(terminating=True) is Errors.NONE
    assert bench.exports.pushes[-1][1].is_terminating
    for _ in range(3):
        bench.advance(INTERVAL_MS)
        assert bench.push() is Errors.INVALID_REQUEST
        assert bench.push(terminating=True) is Errors.INVALID_REQUEST
    bench.manager.update_subscription("other", subscription("other", interval_ms=100))
    assert bench.push() is Errors.INVALID_REQUEST


@pytest.mark.mechanism("Q13")
def test_a_last_push_that_is_refused_is_the_last_all_the_same(bench: Bench) -> None:
    bench.get()
    assert bench.push(terminating=True, metrics=bytes(1_001)) is Errors.TELEMETRY_TOO_LARGE
    bench.advance(INTERVAL_MS)
    assert bench.push() is Errors.INVALID_REQUEST


@pytest.mark.mechanism("Q15")
def test_a_push_without_metrics_is_not_exported(bench: Bench) -> None:
    bench.get()
    assert bench.push(metrics=b"") is Errors.NONE
    assert bench.exports.pushes == []


@pytest.mark.mechanism("Q15")
def test_an_exporter_that_fails_is_the_clients_invalid_record(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.get()
    bench.exports.failure = RuntimeError("no room")
    assert bench.push() is Errors.INVALID_RECORD
    assert "no room" in caplog.text
    tag = {"client_instance_id": "AQIDBAUGBwgJCgsMDQ4PEA"}
    assert bench.value("plugin-error-count", **tag) == 1
    assert bench.value("plugin-export-count", **tag) is None
    bench.exports.failure = None
    bench.advance(INTERVAL_MS)
    assert bench.push() is Errors.NONE
    assert bench.value("plugin-export-count", **tag) == 1
    assert bench.value("plugin-export-time-max", **tag) == 0


# -- subscriptions that change


@pytest.mark.mechanism("Q14")
def test_a_changed_subscription_reaches_a_client_with_its_next_request(bench: Bench) -> None:
    old = bench.get()
    bench.push()
    bench.manager.update_subscription("all", subscription(metrics=["producer."], interval_ms=500))
    assert bench.push(subscription_id=old.subscription_id) is Errors.UNKNOWN_SUBSCRIPTION_ID
    new = bench.get()
    assert new.error_code == Errors.NONE
    assert (new.requested_metrics, new.push_interval_ms) == (["producer."], 500)
    assert new.client_instance_id == old.client_instance_id
    assert new.subscription_id != old.subscription_id
    assert bench.push() is Errors.NONE


@pytest.mark.mechanism("Q14")
def test_a_client_may_ask_at_once_when_what_is_wanted_of_it_has_changed(bench: Bench) -> None:
    bench.get()
    bench.manager.update_subscription("more", subscription("more", interval_ms=500))
    assert bench.get().push_interval_ms == 500


@pytest.mark.mechanism("Q14")
def test_a_change_that_is_none_for_a_client_does_not_open_its_gate(bench: Bench) -> None:
    answer = bench.get()
    bench.push()
    bench.manager.update_subscription("others", subscription("others", client_id="other"))
    assert bench.push(subscription_id=answer.subscription_id) is Errors.THROTTLING_QUOTA_EXCEEDED
    assert bench.get().error_code == Errors.THROTTLING_QUOTA_EXCEEDED


@pytest.mark.mechanism("Q14")
def test_a_subscription_that_is_gone_asks_for_nothing(bench: Bench) -> None:
    bench.get()
    bench.manager.update_subscription("all", None)
    assert bench.get().requested_metrics == []
    assert bench.manager.subscriptions == {}
    bench.manager.update_subscription("never there", None)
    bench.advance(1)
    assert bench.get().error_code == Errors.THROTTLING_QUOTA_EXCEEDED


# -- the cache


@pytest.mark.mechanism("Q14")
def test_there_is_room_for_so_many_clients() -> None:
    assert CACHE_MAX_SIZE == 16_384


@pytest.mark.mechanism("Q14")
def test_the_client_heard_of_least_lately_has_to_go() -> None:
    bench = Bench(cache_size=2)
    ids = [bench.get(ZERO_UUID, client(number)).client_instance_id for number in (1, 2)]
    bench.push(ids[0], client(1))
    third = bench.get(ZERO_UUID, client(3)).client_instance_id
    assert [bench.manager.instance(one) is not None for one in (*ids, third)] == [True, False, True]
    assert bench.value("instance-count") == 2


@pytest.mark.mechanism("Q14")
def test_an_evicted_client_leaves_nothing_behind() -> None:
    """Otherwise a client that asks for a new ID with each request takes memory until these IDs expire."""
    bench = Bench(cache_size=2)
    first = bench.get(ZERO_UUID, client(1)).client_instance_id
    bench.push(first, client(1))
    name = uuid_to_string(first)
    assert bench.value("plugin-export-count", client_instance_id=name) == 1
    for _ in range(100):
        bench.get(ZERO_UUID, client(2))
    assert bench.timer.size() == bench.value("instance-count") == 2
    assert list(bench.manager.connections) == [client(2).connection_id]
    assert bench.value("plugin-export-count", client_instance_id=name) is None


@pytest.mark.mechanism("Q14")
def test_a_cache_that_is_too_small_is_told_of_once_in_five_minutes(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(cache_size=1)
    caplog.set_level(logging.WARNING)
    for number in range(3):
        bench.get(ZERO_UUID, client(number))
    bench.advance(60_000)
    assert caplog.text.count("more than") == 1
    bench.advance(5 * 60_000)
    for number in range(2):
        bench.get(ZERO_UUID, client(number))
    bench.advance(60_000)
    assert caplog.text.count("more than") == 2


@pytest.mark.mechanism("Q14")
@pytest.mark.parametrize(("interval_ms", "expected_ms"), [(100, 60_000), (20_000, 60_000), (50_000, 150_000)])
def test_a_silent_client_is_forgotten_after_three_intervals_or_a_minute(interval_ms: int, expected_ms: int) -> None:
    bench = Bench()
    bench.manager.update_subscription("all", subscription(interval_ms=interval_ms))
    bench.get()
    bench.push()
    bench.advance(expected_ms - 1)
    assert bench.manager.instance(SOME_ID) is not None
    bench.advance(1)
    assert bench.manager.instance(SOME_ID) is None
    assert bench.manager.connections == {}
    assert bench.value("plugin-export-count", client_instance_id="AQIDBAUGBwgJCgsMDQ4PEA") is None


@pytest.mark.mechanism("Q14")
def test_each_request_starts_the_time_anew(bench: Bench) -> None:
    bench.get()
    for _ in range(5):
        bench.advance(59_999)
        bench.push()
    assert bench.manager.instance(SOME_ID) is not None
    assert bench.timer.size() == 1


@pytest.mark.mechanism("Q14")
def test_a_client_is_forgotten_with_its_connection(bench: Bench) -> None:
    bench.get()
    bench.push()
    bench.manager.on_disconnect("some other connection")
    assert bench.manager.instance(SOME_ID) is not None
    bench.manager.on_disconnect(client().connection_id)
    assert bench.manager.instance(SOME_ID) is None
    assert bench.manager.connections == {}
    assert bench.timer.size() == 0
    assert bench.value("instance-count") == 0
    assert bench.value("plugin-export-count", client_instance_id="AQIDBAUGBwgJCgsMDQ4PEA") is None


@pytest.mark.mechanism("Q14")
def test_a_client_that_has_changed_its_connection_survives_the_end_of_the_old_one(bench: Bench) -> None:
    bench.get(by=client(1))
    bench.push(by=client(2))
    bench.manager.on_disconnect(client(1).connection_id)
    assert bench.manager.instance(SOME_ID) is not None
    bench.manager.on_disconnect(client(2).connection_id)
    assert bench.manager.instance(SOME_ID) is None


@pytest.mark.mechanism("Q14")
def test_whoever_was_forgotten_may_come_back(bench: Bench) -> None:
    answer = bench.get()
    bench.manager.on_disconnect(client().connection_id)
    assert bench.push(subscription_id=answer.subscription_id) is Errors.NONE


def test_close_takes_its_metrics_away(bench: Bench) -> None:
    bench.get()
    bench.push()
    bench.manager.close()
    assert [name for name in bench.metrics.metrics if name.group == "client-metrics"] == []
    assert bench.timer.size() == 0


def test_requests_after_the_timer_has_ended_get_a_response(bench: Bench) -> None:
    bench.timer.close()
    assert bench.get().error_code == Errors.NONE
