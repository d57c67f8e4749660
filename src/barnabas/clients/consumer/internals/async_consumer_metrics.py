"""Metrics of the queues between the consumer's threads (KIP-1068)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from barnabas.clients.consumer.internals.consumer_metrics import GROUP
from barnabas.clients.consumer.internals.durations import Durations
from barnabas.metrics.metric import KafkaMetric
from barnabas.metrics.registry import Metrics
from barnabas.metrics.stats import CountedAvg, CountedMax

if TYPE_CHECKING:
    from barnabas.clients.consumer.internals.application_events import ApplicationEventQueue
    from barnabas.clients.consumer.internals.background_events import BackgroundEventQueue
    from barnabas.clients.consumer.internals.network_client_delegate import NetworkClientDelegate

TICK_MS: Final = 1_000
"""How often averages and maxima are updated."""


class AsyncConsumerMetrics:
    """Measures the waiting times and lengths of the consumer's queues, under Kafka's names.

    The application sends events to the background thread in one queue, and receives errors and callbacks in another;
    requests wait in a third until their node is ready. A long time in the first means that the background thread does
    not get to run, in the second that the application does not poll, in the third that connections are slow or brokers
    busy.

    The queues sum up their times. Averages and maxima are computed when they are read, and once a second by `turned`,
    so that their windows are right.
    """

    def __init__(
        self,
        metrics: Metrics,
        application: ApplicationEventQueue,
        background: BackgroundEventQueue,
        delegate: NetworkClientDelegate,
    ) -> None:
        self._metrics = metrics
        self._shown: list[tuple[Durations, KafkaMetric, KafkaMetric]] = []
        self._between_turns = Durations()
        self._last_turn_ms: int | None = None
        self._next_tick_ms = 0
        self._times(
            "time-between-network-thread-poll",
            "from one turn of the background thread to the next",
            self._between_turns,
        )
        self._value("application-event-queue-size", "Wishes of the application that wait.", lambda: len(application))
        self._times("application-event-queue-time", "that a wish of the application waited", application.waited)
        self._times(
            "application-event-queue-processing-time",
            "that the background thread took for all wishes that were there",
            application.processed,
        )
        self._value(
            "application-events-expired-count",
            "Calls whose time was over before the background thread was done with them.",
            lambda: application.expired,
        )
        self._value("background-event-queue-size", "Events for the application that wait.", lambda: len(background))
        self._times("background-event-queue-time", "that an event for the application waited", background.waited)
        self._times(
            "background-event-queue-processing-time",
            "that the application's thread took for all events that were there",
            background.processed,
        )
        self._value("unsent-requests-queue-size", "Requests that could not be sent yet.", lambda: delegate.unsent_count)
        self._times("unsent-requests-queue-time", "that a request waited until it could be sent", delegate.waited)

    def _value(self, name: str, description: str, value: Callable[[], int]) -> None:
        self._metrics.add_metric(
            self._metrics.metric_name(name, GROUP, description=description), lambda *_: float(value())
        )

    def _times(self, name: str, what: str, durations: Durations) -> None:
        metrics = self._metrics
        average = metrics.add_metric(
            metrics.metric_name(f"{name}-avg", GROUP, description=f"Milliseconds {what}, on average."),
            CountedAvg(lambda: durations.total_ms, lambda: durations.count),
        )
        longest = metrics.add_metric(
            metrics.metric_name(f"{name}-max", GROUP, description=f"Milliseconds {what}, at most."),
            CountedMax(lambda: durations.longest_ms, lambda: durations.count),
        )
        self._shown.append((durations, average, longest))

    def turned(self, now: int) -> None:
        """Called when the background thread begins an iteration."""
        if self._last_turn_ms is not None:
            self._between_turns.add(now - self._last_turn_ms)
        self._last_turn_ms = now
        if now >= self._next_tick_ms:
            self._next_tick_ms = now + TICK_MS
            date_ms = self._metrics.clock.milliseconds()
            for durations, average, longest in self._shown:
                average.value(date_ms)
                longest.value(date_ms)
                durations.longest_ms = 0
