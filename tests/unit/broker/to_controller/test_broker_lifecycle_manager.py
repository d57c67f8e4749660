"""A broker's way in and out of the cluster, one event at a time."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError
from typing import Any

import pytest

from barnabas.broker.node.broker_state import BrokerState
from barnabas.broker.publishers.lifecycle_publisher import LifecyclePublisher
from barnabas.broker.to_controller.broker_lifecycle_manager import (
    CATCH_UP_INTERVAL_MS,
    CONTROLLED_SHUTDOWN_INTERVAL_MS,
    BrokerLifecycleConfig,
    BrokerLifecycleManager,
    BrokerRegistrationError,
    BrokerRegistrationInfo,
)
from barnabas.common.clock import MockClock
from barnabas.common.errors import Errors, KafkaTimeoutError
from barnabas.common.identifiers import Uuid
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import EMPTY_IMAGE
from barnabas.metadata.provenance import MetadataProvenance
from barnabas.metadata.publisher import SnapshotManifest
from barnabas.network.server.endpoint import Endpoint, SecurityProtocol
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from barnabas.protocol.versions import VersionRange
from controller_channel_fixtures import FakeControllerChannel

INTERVAL_MS = 2_000
EPOCH = 12
DIRECTORIES = [Uuid(bytes(15) + bytes([200 + number])) for number in (2, 1)]
INFO = BrokerRegistrationInfo(
    "cluster",
    [Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "host", 9092)],
    {"metadata.version": VersionRange(7, 30), "group.version": VersionRange(0, 1)},
    previous_broker_epoch=5,
)


class Bench:
    """A manager whose queue is run by hand."""

    def __init__(self, *, cordoning: bool = False, **config: Any) -> None:
        self.clock = MockClock()
        self.channel = FakeControllerChannel(self.clock)
        self.offset = 10
        self.halted = 0
        self.manager = BrokerLifecycleManager(
            BrokerLifecycleConfig(1, "rack", INTERVAL_MS, **config),
            DIRECTORIES,
            clock=self.clock,
            on_directory_failure_unreported=self._halt,
            cordoned_log_dirs_supported=lambda: cordoning,
        )

    def _halt(self) -> None:
        self.halted += 1

    def start(self) -> None:
        self.manager.start(lambda: self.offset, self.channel, INFO, threaded=False)
        self.run()

    def run(self, after_ms: float = 0) -> None:
        self.clock.advance(after_ms)
        self.manager.queue.run_until_idle()

    def is_in(self, state: BrokerState) -> bool:
        return self.manager.state is state

    def heartbeat(self) -> BrokerHeartbeatRequest:
        """The heartbeat that is under way."""
        body = self.channel.sent[0].body
        assert isinstance(body, BrokerHeartbeatRequest)
        return body

    def answer(self, **fields: Any) -> None:
        self.channel.take().answer(BrokerHeartbeatResponse(**fields))
        self.run()

    def register(self, **fields: Any) -> None:
        self.channel.take().answer(BrokerRegistrationResponse(**{"broker_epoch": EPOCH, **fields}))
        self.run()

    def bring_to(self, state: BrokerState) -> None:
        self.start()
        self.register()
        self.offset = EPOCH
        if state is BrokerState.STARTING:
            return
        self.answer(is_caught_up=True, is_fenced=True)
        if state is BrokerState.RECOVERY:
            return
        self.manager.set_ready_to_unfence()
        self.run()
        self.answer(is_caught_up=True, is_fenced=False)
        if state is BrokerState.RUNNING:
            return
        self.manager.begin_controlled_shutdown()
        self.run()

    def is_silent_for(self, milliseconds: float) -> bool:
        """Whether nothing is sent before so much time has passed, and something then."""
        self.run(milliseconds - 1)
        silent = not self.channel.sent
        self.run(1)
        return silent and bool(self.channel.sent)


def test_a_broker_registers_with_all_that_is_known_of_it() -> None:
    b = Bench()
    assert b.is_in(BrokerState.NOT_RUNNING)
    b.start()
    assert b.channel.started == 1
    assert b.is_in(BrokerState.STARTING)
    sent = b.channel.sent[0].body
    assert isinstance(sent, BrokerRegistrationRequest)
    assert (sent.broker_id, sent.cluster_id, sent.rack, sent.previous_broker_epoch) == (1, "cluster", "rack", 5)
    assert sent.incarnation_id == b.manager.incarnation_id != bytes(16)
    assert sent.log_dirs == sorted(DIRECTORIES)
    [listener] = sent.listeners
    assert (listener.name, listener.host, listener.port, listener.security_protocol) == ("PLAINTEXT", "host", 9092, 0)
    features = {
        feature.name: (feature.min_supported_version, feature.max_supported_version) for feature in sent.features
    }
    assert features == {"metadata.version": (7, 30), "group.version": (0, 1)}
    assert not sent.is_migrating_zk_broker
    assert b.manager.broker_epoch == -1


def test_a_start_takes_no_longer_than_its_exchanges() -> None:
    b = Bench()
    b.start()
    b.register()
    assert b.manager.broker_epoch == EPOCH
    first = b.heartbeat()
    assert (first.broker_epoch, first.current_metadata_offset, first.want_fence) == (EPOCH, 10, True)
    b.answer(is_caught_up=False)
    assert b.is_in(BrokerState.STARTING)
    b.manager.metadata_applied(EPOCH)
    b.run()
    assert b.heartbeat().current_metadata_offset == EPOCH, "as soon as the registration has been read"
    b.answer(is_caught_up=True)
    assert b.is_in(BrokerState.RECOVERY)
    assert b.manager.initial_catch_up_future.done()
    unfenced = b.manager.set_ready_to_unfence()
    b.run()
    assert not b.heartbeat().want_fence
    assert not unfenced.done()
    b.answer(is_caught_up=True, is_fenced=False)
    assert b.is_in(BrokerState.RUNNING)
    assert unfenced.result(0) is None
    assert b.clock.nanoseconds() == 0, "no time has passed"


def test_metadata_that_arrive_during_an_exchange_are_reported_right_after_it() -> None:
    b = Bench()
    b.start()
    b.register()
    b.manager.metadata_applied(EPOCH - 1)
    b.manager.metadata_applied(EPOCH)
    b.run()
    assert len(b.channel.sent) == 1, "one exchange at a time"
    b.answer(is_caught_up=False)
    assert b.heartbeat().current_metadata_offset == EPOCH


def test_metadata_that_arrive_before_the_response_to_the_registration_are_in_the_first_heartbeat() -> None:
    b = Bench()
    b.start()
    b.manager.metadata_applied(EPOCH)
    b.run()
    b.register()
    assert b.heartbeat().current_metadata_offset == EPOCH


def test_the_publisher_tells_of_metadata() -> None:
    b = Bench()
    b.start()
    provenance = MetadataProvenance(EPOCH, 1, 0, True)
    image = MetadataDelta(EMPTY_IMAGE).apply(provenance)
    LifecyclePublisher(1, b.manager).on_metadata_update(MetadataDelta(image), image, SnapshotManifest(provenance, 0))
    b.run()
    b.register()
    assert b.heartbeat().current_metadata_offset == EPOCH


def test_a_broker_that_nobody_tells_of_metadata_asks_itself() -> None:
    b = Bench()
    b.start()
    b.register()
    b.answer(is_caught_up=False)
    assert b.is_silent_for(CATCH_UP_INTERVAL_MS)


@pytest.mark.parametrize("registered", [False, True])
def test_a_broker_that_is_ready_before_it_has_caught_up_is_unfenced_at_once(registered: bool) -> None:
    b = Bench()
    if registered:
        b.bring_to(BrokerState.STARTING)
        b.manager.set_ready_to_unfence()
        b.run()
    else:
        b.start()
        b.manager.set_ready_to_unfence()
        b.run()
        b.register()
    b.answer(is_caught_up=True)
    assert b.is_in(BrokerState.RECOVERY)
    assert not b.heartbeat().want_fence
    b.answer(is_caught_up=True, is_fenced=False)
    assert b.is_in(BrokerState.RUNNING)


def test_a_running_broker_sends_a_heartbeat_every_interval() -> None:
    b = Bench()
    b.bring_to(BrokerState.RUNNING)
    for offset in (20, 30):
        b.offset = offset
        assert b.is_silent_for(INTERVAL_MS)
        sent = b.heartbeat()
        assert (sent.current_metadata_offset, sent.want_fence, sent.want_shut_down) == (offset, False, False)
        b.answer(is_caught_up=True, is_fenced=False)


@pytest.mark.parametrize("how", ["refuse", "mismatch", "time_out", "error"])
@pytest.mark.parametrize("what", ["registration", "heartbeat"])
def test_an_exchange_that_fails_is_repeated_after_a_growing_backoff(what: str, how: str) -> None:
    b = Bench()
    b.start()
    if what == "heartbeat":
        b.register()
    expected = type(b.channel.sent[0].body)
    for backoff_ms in (100, 200, 400):
        sent = b.channel.take()
        if how == "error":
            sent.answer(expected.api_key.response(error_code=Errors.DUPLICATE_BROKER_REGISTRATION))
        else:
            getattr(sent, how)()
        b.run()
        b.run(backoff_ms * 0.97)
        assert not b.channel.sent
        b.run(backoff_ms * 0.06)
        assert isinstance(b.channel.sent[0].body, expected)


def test_a_failed_exchange_is_not_hurried_by_news() -> None:
    b = Bench()
    b.start()
    b.register()
    b.manager.set_ready_to_unfence()
    b.run()
    b.channel.take().time_out()
    b.run()
    assert not b.channel.sent


def test_a_broker_that_cannot_register_in_time_gives_up() -> None:
    b = Bench(initial_registration_timeout_ms=5_000)
    b.start()
    b.run(5_000)
    assert b.is_in(BrokerState.SHUTTING_DOWN)
    with pytest.raises(KafkaTimeoutError, match="could not register"):
        b.manager.initial_catch_up_future.result(0)
    assert b.manager.initial_unfence_future.cancelled()
    assert b.channel.shutdowns == 1


def test_the_last_refusal_is_named_when_the_time_is_over() -> None:
    b = Bench(initial_registration_timeout_ms=5_000)
    b.start()
    b.register(error_code=Errors.DUPLICATE_BROKER_REGISTRATION)
    b.run(5_000)
    with pytest.raises(KafkaTimeoutError, match="within 5000 ms: DUPLICATE_BROKER_REGISTRATION: "):
        b.manager.initial_catch_up_future.result(0)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            Errors.CLUSTER_AUTHORIZATION_FAILED,
            "its principal User:ANONYMOUS needs CLUSTER_ACTION on the cluster; set super.users=User:ANONYMOUS",
        ),
        (Errors.INCONSISTENT_CLUSTER_ID, "belong to another cluster"),
        (Errors.UNSUPPORTED_VERSION, "feature level"),
        (Errors.INVALID_REGISTRATION, "log directories or features"),
    ],
)
def test_a_refusal_that_will_not_change_ends_the_start_at_once(error: Errors, told: str) -> None:
    b = Bench()
    b.start()
    b.register(error_code=error)
    assert b.is_in(BrokerState.SHUTTING_DOWN)
    with pytest.raises(BrokerRegistrationError, match=f"refused to register broker 1 with {error.name}: .*{told}"):
        b.manager.initial_catch_up_future.result(0)
    assert b.channel.shutdowns == 1


def test_a_registration_in_time_ends_the_wait() -> None:
    b = Bench(initial_registration_timeout_ms=5_000)
    b.bring_to(BrokerState.RECOVERY)
    b.run(5_000)
    assert b.is_in(BrokerState.RECOVERY)


def test_a_controlled_shutdown_waits_for_the_controller() -> None:
    b = Bench()
    b.bring_to(BrokerState.PENDING_CONTROLLED_SHUTDOWN)
    assert b.heartbeat().want_shut_down
    b.answer(is_fenced=False)
    assert b.is_silent_for(CONTROLLED_SHUTDOWN_INTERVAL_MS), "the first time it asks again soon"
    b.answer(is_fenced=False)
    assert b.is_silent_for(INTERVAL_MS)
    assert not b.manager.controlled_shutdown_future.done()
    b.answer(is_fenced=True, should_shut_down=True)
    assert b.is_in(BrokerState.SHUTTING_DOWN)
    assert b.manager.controlled_shutdown_future.result(0) is None
    assert b.channel.shutdowns == 1
    assert not b.channel.sent


@pytest.mark.parametrize("state", [BrokerState.STARTING, BrokerState.RECOVERY])
def test_a_broker_that_does_not_run_stops_without_asking(state: BrokerState) -> None:
    b = Bench()
    b.bring_to(state)
    b.manager.begin_controlled_shutdown()
    b.run()
    assert b.is_in(BrokerState.SHUTTING_DOWN)
    assert b.manager.controlled_shutdown_future.done()


def test_closing_ends_everything_and_may_be_repeated() -> None:
    b = Bench()
    b.bring_to(BrokerState.STARTING)
    late = b.channel.take()
    b.manager.close()
    b.manager.close()
    assert b.is_in(BrokerState.SHUTTING_DOWN)
    assert b.channel.shutdowns == 1
    with pytest.raises(CancelledError):
        b.manager.initial_catch_up_future.result(0)
    late.answer(BrokerHeartbeatResponse())
    b.manager.set_ready_to_unfence()
    b.run(INTERVAL_MS)
    assert not b.channel.sent


def test_a_failed_directory_is_reported_at_once_and_from_then_on() -> None:
    b = Bench()
    b.bring_to(BrokerState.RUNNING)
    b.manager.propagate_directory_failure(DIRECTORIES[0], 1_000)
    b.run()
    assert b.heartbeat().offline_log_dirs == [DIRECTORIES[0]]
    b.answer(is_fenced=False)
    b.manager.propagate_directory_failure(DIRECTORIES[1], 1_000)
    b.run()
    assert b.heartbeat().offline_log_dirs == DIRECTORIES
    b.answer(is_fenced=False)
    b.run(1_000)
    assert not b.halted


def test_a_broker_that_cannot_report_a_failed_directory_stops() -> None:
    b = Bench()
    b.bring_to(BrokerState.RUNNING)
    b.manager.propagate_directory_failure(DIRECTORIES[0], 1_000)
    b.run()
    b.manager.propagate_directory_failure(DIRECTORIES[1], 5_000)
    b.run()
    b.answer(is_fenced=False)
    b.run(1_000)
    halted_after_the_first = b.halted
    b.run(4_000)
    assert (halted_after_the_first, b.halted) == (0, 1), "the first was in the heartbeat that has been answered"


@pytest.mark.parametrize("supported", [False, True])
def test_cordoned_directories_are_told_where_they_are_understood(supported: bool) -> None:
    b = Bench(cordoning=supported)
    b.bring_to(BrokerState.RUNNING)
    b.manager.propagate_directory_cordoned(DIRECTORIES)
    b.run()
    assert b.heartbeat().cordoned_log_dirs == (sorted(DIRECTORIES) if supported else None)


def test_a_broker_registers_again_when_told_to() -> None:
    b = Bench()
    b.bring_to(BrokerState.RUNNING)
    b.manager.resend_broker_registration()
    b.run()
    b.register(broker_epoch=EPOCH + 9)
    assert b.heartbeat().broker_epoch == EPOCH + 9 == b.manager.broker_epoch
    assert b.is_in(BrokerState.RUNNING)


def test_changed_listeners_are_registered_in_the_same_epoch() -> None:
    b = Bench()
    b.bring_to(BrokerState.RUNNING)
    b.manager.advertise([Endpoint("LATE", host="host", port=9094)])
    b.run()
    assert [listener.name for listener in registration(b).listeners] == ["LATE"]
    b.register()
    assert b.heartbeat().broker_epoch == EPOCH
    assert b.is_in(BrokerState.RUNNING)


def test_listeners_that_change_during_a_registration_are_registered_after_it() -> None:
    b = Bench()
    b.start()
    b.manager.advertise([Endpoint("LATE", host="host", port=9094)])
    b.run()
    assert [listener.name for listener in registration(b).listeners] == ["PLAINTEXT"], "one exchange at a time"
    b.register()
    assert [listener.name for listener in registration(b).listeners] == ["LATE"]
    b.register()
    assert b.heartbeat().broker_epoch == EPOCH


def registration(b: Bench) -> BrokerRegistrationRequest:
    """The registration that is under way."""
    body = b.channel.sent[0].body
    assert isinstance(body, BrokerRegistrationRequest)
    return body


def test_a_broker_that_was_unregistered_registers_again(caplog: pytest.LogCaptureFixture) -> None:
    b = Bench()
    b.bring_to(BrokerState.RUNNING)
    b.run(INTERVAL_MS)
    b.answer(error_code=Errors.STALE_BROKER_EPOCH)
    assert "does not know broker 1 with epoch 12 any more: it was unregistered" in caplog.text
    b.run(110)
    request = b.channel.sent[0].body
    assert isinstance(request, BrokerRegistrationRequest)
    assert request.incarnation_id == b.manager.incarnation_id
    assert request.previous_broker_epoch == -1, "that of the earlier process was for the first time"
    b.register(broker_epoch=40)
    assert (b.heartbeat().broker_epoch, b.heartbeat().want_fence) == (40, False)
    b.answer(is_fenced=True, is_caught_up=False)
    assert b.is_silent_for(CATCH_UP_INTERVAL_MS), "it has yet to read its registration"
    b.offset = 40
    b.answer(is_fenced=False, is_caught_up=True)
    assert b.is_silent_for(INTERVAL_MS)
    assert b.is_in(BrokerState.RUNNING)


def test_a_running_broker_goes_on_trying_to_register_again() -> None:
    b = Bench()
    b.bring_to(BrokerState.RUNNING)
    b.run(INTERVAL_MS)
    b.answer(error_code=Errors.STALE_BROKER_EPOCH)
    b.run(110)
    b.register(error_code=Errors.CLUSTER_AUTHORIZATION_FAILED)
    b.run(220)
    b.register(broker_epoch=40)
    assert b.heartbeat().broker_epoch == 40


def test_a_broker_that_the_controller_does_not_know_stops_without_it() -> None:
    b = Bench()
    b.bring_to(BrokerState.PENDING_CONTROLLED_SHUTDOWN)
    b.answer(error_code=Errors.STALE_BROKER_EPOCH)
    assert b.is_in(BrokerState.SHUTTING_DOWN)
    assert b.manager.controlled_shutdown_future.result(0) is None


@pytest.mark.parametrize("asked", [False, True])
def test_a_broker_that_is_registering_again_stops_without_the_controller(asked: bool) -> None:
    b = Bench()
    b.bring_to(BrokerState.RUNNING)
    b.run(INTERVAL_MS)
    b.answer(error_code=Errors.STALE_BROKER_EPOCH)
    if asked:
        b.run(110)
        assert isinstance(b.channel.sent[0].body, BrokerRegistrationRequest)
    b.manager.begin_controlled_shutdown()
    b.run()
    assert b.is_in(BrokerState.SHUTTING_DOWN)


def test_there_is_no_way_back() -> None:
    for state in BrokerState:
        for following in BrokerState:
            assert not state.can_become(following) or following > state
    assert {state for state in BrokerState if not state.can_become(BrokerState.SHUTTING_DOWN)} == {
        BrokerState.SHUTTING_DOWN
    }


def test_the_thread_has_kafkas_name() -> None:
    b = Bench()
    b.manager.start(lambda: 0, b.channel, INFO)
    names = {thread.name for thread in threading.enumerate()}
    b.manager.close()
    assert "broker-1-lifecycle-manager-event-handler" in names
