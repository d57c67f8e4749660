"""Allocates producer IDs, which must be unique in the cluster, from blocks of the controller (KIP-730)."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.errors import CoordinatorLoadInProgressError, Errors
from barnabas.common.scheduler import ONCE, ScheduledTask, Scheduler
from barnabas.network.client.client_request import ClientResponse

if TYPE_CHECKING:
    from barnabas.server.controller_channel import ControllerChannel

log = logging.getLogger(__name__)

PREFETCH_THRESHOLD: Final = 0.9
"""The used fraction of a block at which the next one is requested."""
RETRY_BACKOFF_MS: Final = 50
_MAX_ID: Final = (1 << 63) - 1


class _Block:
    """A block of IDs that the controller has allocated to this broker."""

    __slots__ = ("first", "next_id", "prefetch_at", "stop")

    def __init__(self, first: int, size: int) -> None:
        self.first = first
        self.next_id = first
        self.stop = first + size
        self.prefetch_at = first + int(size * PREFETCH_THRESHOLD)

    @property
    def is_used_up(self) -> bool:
        return self.next_id >= self.stop

    def __repr__(self) -> str:
        return f"_Block({self.first} to {self.stop - 1}, next {self.next_id})"


class _Waiter(NamedTuple):
    future: Future[int]
    timeout: ScheduledTask


class ProducerIdManager:
    """Allocates producer IDs from blocks of a thousand that the controller has reserved for this broker.

        ids 3000 to 3999    3000 3001 ... 3899 3900 ... 3999            the current block
                                                 |
                                                 requests the next: it arrives before this one is used up
        ids 7000 to 7999                                                the next block

    IDs that are left when a broker stops are lost. There are 2^63 of them.

    If none is left and the next block has not arrived, Kafka responds with COORDINATOR_LOAD_IN_PROGRESS, and the
    producer retries after a backoff of 100 ms. :meth:`generate_producer_id` does so, for callers with their own
    retries. :meth:`next_producer_id` waits instead: the block usually arrives within a millisecond or two.
    """

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        channel: ControllerChannel,
        scheduler: Scheduler,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._channel = channel
        self._scheduler = scheduler
        self._now_ms = clock.hi_res_milliseconds
        self._lock = threading.Lock()
        """Guards the fields below. No future is completed, and nothing is sent or scheduled, while it is held."""
        self._current = _Block(0, 0)
        self._next: _Block | None = None
        self._in_flight = False
        self._retry_at_ms = -1
        """The time of the next request after a refusal by the controller."""
        self._waiters: deque[_Waiter] = deque()
        self._retry_scheduled = False

    def prefetch(self) -> None:
        """Requests the first block, so that the first producer need not wait for it."""
        with self._lock:
            wanted = self._current.is_used_up and self._wants_block()
        if wanted:
            self._request_block()

    def generate_producer_id(self) -> int:
        """Returns the next ID; raises :class:`CoordinatorLoadInProgressError` if there is none now."""
        with self._lock:
            producer_id, wanted = self._take()
        if wanted:
            self._request_block()
        if producer_id is None:
            raise CoordinatorLoadInProgressError("The block of producer IDs is used up; the next one is requested.")
        return producer_id

    def next_producer_id(self, timeout_ms: int) -> Future[int]:
        """Returns the next ID when it is available; fails with the same error after ``timeout_ms``.

        The future may be completed on any thread.
        """
        future: Future[int] = Future()
        with self._lock:
            producer_id, wanted = self._take()
        if producer_id is not None:
            future.set_result(producer_id)
        else:
            self._wait(future, timeout_ms)
        if wanted:
            self._request_block()
        return future

    def _take(self) -> tuple[int | None, bool]:
        """Returns an ID, and whether to request a block. The lock must be held."""
        if self._current.is_used_up and self._next is not None:
            self._current, self._next = self._next, None
        block = self._current
        if block.is_used_up:
            return None, self._wants_block()
        producer_id = block.next_id
        block.next_id += 1
        return producer_id, producer_id >= block.prefetch_at and self._wants_block()

    def _wants_block(self) -> bool:
        """Returns whether the caller must request a block; true for one caller only. The lock must be held."""
        if self._in_flight or self._next is not None or self._now_ms() < self._retry_at_ms:
            return False
        self._in_flight = True
        return True

    # -- waiting

    def _wait(self, future: Future[int], timeout_ms: int) -> None:
        timeout = self._scheduler.schedule("producer-id-timeout", lambda: self._time_out(future), timeout_ms, ONCE)
        with self._lock:
            self._waiters.append(_Waiter(future, timeout))
            retry_in_ms = self._schedule_retry()
        if retry_in_ms is not None:
            self._retry_later(retry_in_ms)
        self._serve_waiters()  # a block may have arrived meanwhile

    def _time_out(self, future: Future[int]) -> None:
        with self._lock:
            waiting = [waiter for waiter in self._waiters if waiter.future is future]
            for waiter in waiting:
                self._waiters.remove(waiter)
        for waiter in waiting:
            waiter.future.set_exception(
                CoordinatorLoadInProgressError("The controller did not allocate producer IDs in time.")
            )

    def _serve_waiters(self) -> None:
        while True:
            with self._lock:
                if not self._waiters:
                    return
                producer_id, wanted = self._take()
                waiter = None if producer_id is None else self._waiters.popleft()
            if wanted:
                self._request_block()
            if waiter is None or producer_id is None:
                return
            waiter.timeout.cancel()
            waiter.future.set_result(producer_id)

    def _schedule_retry(self) -> int | None:
        """Returns the delay of a retry for the waiters, if no other is scheduled. The lock must be held."""
        if not self._waiters or self._in_flight or self._retry_scheduled or self._next is not None:
            return None
        self._retry_scheduled = True
        return max(self._retry_at_ms - self._now_ms(), 0)

    def _retry_later(self, delay_ms: int) -> None:
        self._scheduler.schedule("allocate-producer-ids", self._retry, delay_ms, ONCE)

    def _retry(self) -> None:
        with self._lock:
            self._retry_scheduled = False
            wanted = bool(self._waiters) and self._wants_block()
        if wanted:
            self._request_block()

    # -- blocks

    def _request_block(self) -> None:
        from barnabas.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest

        request = AllocateProducerIdsRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch())
        log.debug("Requesting producer IDs from the controller")
        self._channel.send_request(request, _Exchange(self))

    def on_response(self, response: ClientResponse) -> None:
        block = self._block_from(response)
        with self._lock:
            self._in_flight = False
            if block is None:
                self._retry_at_ms = self._now_ms() + RETRY_BACKOFF_MS
            else:
                self._retry_at_ms = -1
                self._next = block
            retry_in_ms = self._schedule_retry()
        if retry_in_ms is not None:
            self._retry_later(retry_in_ms)
        self._serve_waiters()

    def timed_out(self) -> None:
        log.warning("No controller was available in time to allocate producer IDs")
        with self._lock:
            self._in_flight = False
            self._retry_at_ms = self._now_ms() + RETRY_BACKOFF_MS
            retry_in_ms = self._schedule_retry()
        if retry_in_ms is not None:
            self._retry_later(retry_in_ms)

    def _block_from(self, response: ClientResponse) -> _Block | None:
        from barnabas.protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse

        failure = response.authentication_error or response.version_mismatch
        if failure is not None:
            log.error("Cannot request producer IDs from the controller: %s", failure)
            return None
        body = response.body
        if not isinstance(body, AllocateProducerIdsResponse):
            log.error("The controller sent no response to the request for producer IDs")
            return None
        if body.error_code:
            # STALE_BROKER_EPOCH and BROKER_ID_NOT_REGISTERED end when the broker has registered again.
            log.warning("The controller allocated no producer IDs: %s", Errors.for_code(body.error_code).name)
            return None
        first, size = body.producer_id_start, body.producer_id_len
        if first < 0 or size <= 0 or first > _MAX_ID - size:
            log.error("The controller allocated an invalid block of %d producer IDs from %d", size, first)
            return None
        if first < self._current.stop and self._current.stop:
            log.error("The controller allocated producer IDs from %d again, after %r", first, self._current)
            return None
        log.debug("The controller allocated the producer IDs %d to %d", first, first + size - 1)
        return _Block(first, size)


class _Exchange:
    """One request in progress."""

    __slots__ = ("_manager",)

    def __init__(self, manager: ProducerIdManager) -> None:
        self._manager = manager

    def on_complete(self, response: ClientResponse) -> None:
        self._manager.on_response(response)

    def on_timeout(self) -> None:
        self._manager.timed_out()
