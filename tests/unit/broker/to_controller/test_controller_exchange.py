"""The end of a request to the controller is an event of whoever sent it."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.to_controller.controller_exchange import ControllerExchange
from barnabas.common.clock import MockClock
from barnabas.common.events.event_queue import EventQueueClosedError, KafkaEventQueue, QueuedCall


@pytest.mark.parametrize(("first", "order"), [(False, ["other", "end"]), (True, ["end", "other"])])
def test_the_end_comes_in_turn_or_ahead_of_all_others(first: bool, order: list[str]) -> None:
    queue = KafkaEventQueue("test", MockClock())
    ran: list[str] = []
    exchange = ControllerExchange(queue, "test", lambda _response: ran.append("end"), first=first)
    queue.append(QueuedCall("other", lambda: ran.append("other")))
    exchange.on_timeout()
    queue.run_until_idle()
    assert ran == order


def test_the_response_is_passed_on_and_its_absence_too() -> None:
    queue = KafkaEventQueue("test", MockClock())
    got: list[Any] = []
    exchange = ControllerExchange(queue, "test", got.append)
    answer: Any = object()
    exchange.on_complete(answer)
    exchange.on_timeout()
    assert not got, "not on the thread of the channel"
    queue.run_until_idle()
    assert got == [answer, None]


def test_what_fails_is_named_unless_it_only_came_too_late(caplog: pytest.LogCaptureFixture) -> None:
    call = QueuedCall("a report", lambda: None)
    call.handle_exception(EventQueueClosedError("closing"))
    assert not caplog.records
    call.handle_exception(ValueError("bug"))
    assert "a report failed" in caplog.text
