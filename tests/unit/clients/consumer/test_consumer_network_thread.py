"""A turn of the background thread, with managers that want this and that."""

from __future__ import annotations

from typing import Any, cast

import pytest

from barnabas.clients.consumer.internals import consumer_network_thread
from barnabas.clients.consumer.internals.background_events import BackgroundEventQueue
from barnabas.clients.consumer.internals.consumer_network_thread import ConsumerNetworkThread
from barnabas.clients.consumer.internals.network_client_delegate import NetworkClientDelegate
from barnabas.clients.consumer.internals.request_managers import (
    EMPTY,
    FOREVER,
    PatientRequestManager,
    PollResult,
    UnsentRequest,
)
from barnabas.common.clock import MockClock
from barnabas.protocol.messages.metadata import MetadataRequest


class Delegate:
    def __init__(self) -> None:
        self.added: list[UnsentRequest] = []
        self.waited: list[int] = []

    def add(self, requests: list[UnsentRequest], now: int) -> None:
        self.added += requests

    def poll(self, timeout_ms: int, now: int) -> None:
        self.waited.append(timeout_ms)

    def wakeup(self) -> None:
        pass


class Patient(PatientRequestManager):
    def __init__(self, result: PollResult) -> None:
        self.result = result

    def poll(self, now: int) -> PollResult:
        return self.result

    def poll_on_close(self, now: int) -> PollResult:
        return EMPTY


class Hurried:
    def __init__(self, longest_ms: int) -> None:
        self.longest_ms = longest_ms

    def poll(self, now: int) -> PollResult:
        return PollResult(300)

    def maximum_time_to_wait(self, now: int) -> int:
        return self.longest_ms

    def poll_on_close(self, now: int) -> PollResult:
        return EMPTY


def turn(*managers: Any) -> tuple[ConsumerNetworkThread, Delegate]:
    clock, delegate = MockClock(), Delegate()
    events = BackgroundEventQueue(clock)
    thread = ConsumerNetworkThread(managers, cast("NetworkClientDelegate", delegate), events, clock=clock)
    thread.run_once()
    return thread, delegate


def test_the_most_impatient_manager_says_how_long_to_wait() -> None:
    request = UnsentRequest(MetadataRequest(), None, lambda _response: None)
    thread, delegate = turn(Patient(EMPTY), Hurried(70), Patient(PollResult(200, [request])), Hurried(40))
    assert (delegate.added, delegate.waited) == ([request], [200])
    assert thread.maximum_time_to_wait_ms == 40


def test_a_manager_with_nothing_to_send_says_how_long_to_wait() -> None:
    _, delegate = turn(Patient(PollResult(150)), Patient(EMPTY), Hurried(40))
    assert (delegate.added, delegate.waited) == ([], [150])


def test_nothing_is_read_off_who_wants_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most managers say so in most turns."""
    nothing = cast("PollResult", object())
    monkeypatch.setattr(consumer_network_thread, "EMPTY", nothing)
    _, delegate = turn(Patient(nothing), Hurried(40), Patient(nothing))
    assert (delegate.added, delegate.waited) == ([], [300])


def test_nobody_is_in_a_hurry() -> None:
    thread, delegate = turn(Patient(EMPTY), Patient(PollResult(FOREVER)))
    assert (delegate.added, delegate.waited) == ([], [FOREVER])
    assert thread.maximum_time_to_wait_ms == FOREVER
    assert Patient(EMPTY).maximum_time_to_wait(0) == FOREVER
