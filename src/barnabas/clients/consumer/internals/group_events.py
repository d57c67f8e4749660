"""Events between the group managers and the application thread."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from enum import Enum

from barnabas.clients.common.offsets import OffsetAndMetadata
from barnabas.clients.consumer.internals.background_events import BackgroundEvent, BackgroundEventQueue
from barnabas.clients.consumer.internals.background_future import new_future
from barnabas.clients.consumer.internals.subscription_state import SubscriptionState
from barnabas.clients.consumer.rebalance_listener import ConsumerRebalanceListener
from barnabas.common.topic_partition import TopicPartition


class RebalanceCallback(Enum):
    """The listener method to call."""

    ASSIGNED = "assigned"
    REVOKED = "revoked"
    LOST = "lost"


class RebalanceListenerEvent(BackgroundEvent):
    """Calls a listener. The rebalance continues when the background thread is notified of its return."""

    __slots__ = ("id", "kind", "listener", "partitions")

    def __init__(
        self,
        event_id: int,
        kind: RebalanceCallback,
        partitions: Sequence[TopicPartition],
        listener: ConsumerRebalanceListener,
    ) -> None:
        self.id = event_id
        self.kind = kind
        self.partitions = partitions
        self.listener = listener
        """The listener at the time of the event: `unsubscribe` may have removed it since."""

    def call(self) -> None:
        """Runs the listener on the application's thread."""
        getattr(self.listener, f"on_partitions_{self.kind.value}")(self.partitions)

    def __repr__(self) -> str:
        return f"RebalanceListenerEvent({self.id}, {self.kind.value}, {', '.join(map(str, self.partitions))})"


class OffsetsCommittedEvent(BackgroundEvent):
    """Tells interceptors that an automatic commit has succeeded."""

    __slots__ = ("offsets",)

    def __init__(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.offsets = offsets

    def __repr__(self) -> str:
        return f"OffsetsCommittedEvent({self.offsets})"


class RebalanceListenerInvoker:
    """Calls listeners on the application's thread, one after the other. Used by the background thread.

    The member may be removed while its listener runs. So the partitions of a call are determined when its turn comes,
    and revoked partitions are not reported as lost as well.
    """

    def __init__(self, subscriptions: SubscriptionState, background_events: BackgroundEventQueue) -> None:
        self._subscriptions = subscriptions
        self._events = background_events
        self._ids = itertools.count(1)
        self._calls: deque[_Call] = deque()
        """The first one is running."""
        self._current_id = 0

    def invoke(self, kind: RebalanceCallback, partitions: Callable[[], Iterable[TopicPartition]]) -> Future[None]:
        """Calls the listener; the future is done when it has returned, or at once if there is none.

        An empty assignment is still reported, because it marks the end of a rebalance; an empty revocation is not.
        """
        call = _Call(kind, partitions)
        self._calls.append(call)
        if len(self._calls) == 1:
            self._start()
        return call.future

    def _start(self) -> None:
        """Starts the first call. Calls without a listener or partitions complete here."""
        while self._calls:
            call = self._calls[0]
            listener = self._subscriptions.subscription.listener
            partitions = tuple(sorted(call.partitions()))
            if listener is not None and (partitions or call.kind is RebalanceCallback.ASSIGNED):
                self._current_id = next(self._ids)
                self._events.put(RebalanceListenerEvent(self._current_id, call.kind, partitions, listener))
                return
            call.future.set_result(None)
            self._calls.popleft()

    def done(self, event_id: int, error: Exception | None) -> None:
        if event_id != self._current_id or not self._calls:
            return
        self._current_id = 0
        call = self._calls[0]
        if error is None:
            call.future.set_result(None)
        else:
            call.future.set_exception(error)
        # Only now: callbacks of this call may add the next one.
        self._calls.popleft()
        self._start()


class _Call:
    __slots__ = ("future", "kind", "partitions")

    def __init__(self, kind: RebalanceCallback, partitions: Callable[[], Iterable[TopicPartition]]) -> None:
        self.kind = kind
        self.partitions = partitions
        self.future: Future[None] = new_future()
