"""The future of a record in Python: what `_fast` is compiled from, and takes over where that was not built."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
from collections.abc import Callable, Generator
from typing import Any

from barnabas.clients.producer.internals.produce_request_result import ProduceRequestResult
from barnabas.clients.producer.record_metadata import RecordMetadata
from barnabas.common.clock import SYSTEM_CLOCK

log = logging.getLogger(__name__)


class FutureRecordMetadata:
    """What ``send`` returns: the promise of a `RecordMetadata`.

    One is made for every record, and most are thrown away without being looked at. So it is five fields, and no lock,
    no list, nothing that the batch would have to keep: the batch has one result for all of its records, and a future
    is a place in it. Whatever a future can do beyond that is made when it is asked for.

    It has the methods of a `concurrent.futures.Future` (it cannot be cancelled), and can be awaited.
    """

    __slots__ = ("_index", "_key_size", "_result", "_timestamp_ms", "_value_size")

    def __init__(
        self, result: ProduceRequestResult, index: int, timestamp_ms: int, key_size: int, value_size: int
    ) -> None:
        self._result = result
        self._index = index
        self._timestamp_ms = timestamp_ms
        self._key_size = key_size
        self._value_size = value_size

    def done(self) -> bool:
        result, _ = self._result.find(self._index)
        return result.is_done

    def cancel(self) -> bool:
        """Always false: a record that was accepted is sent."""
        return False

    def cancelled(self) -> bool:
        return False

    def running(self) -> bool:
        return not self.done()

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Where the record is. Blocks until that is known; raises what went wrong, or `TimeoutError` after so many
        seconds."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self.value()

    def get(self, timeout: float | None = None) -> RecordMetadata:
        """Returns `result`: the name that kafka-python has for it."""
        return self.result(timeout)

    def exception(self, timeout: float | None = None) -> Exception | None:
        """What went wrong, or None. Blocks like `result`."""
        deadline = None if timeout is None else SYSTEM_CLOCK.nanoseconds() / 1e6 + timeout * 1e3
        while True:
            result, index = self._result.find(self._index)
            remaining = None if deadline is None else deadline - SYSTEM_CLOCK.nanoseconds() / 1e6
            if not result.wait(remaining):
                raise TimeoutError(f"no answer for a record of {result.topic_partition} within {timeout} s")
            if result.parts is None:
                return None if result.errors is None else result.errors(index)

    def value(self) -> RecordMetadata:
        """Where the record is, for callers who know that it is known."""
        result, index = self._result.find(self._index)
        base_offset, append_time = result.base_offset, result.log_append_time
        topic, partition = result.topic_partition
        return RecordMetadata(
            topic,
            partition,
            base_offset if base_offset < 0 else base_offset + index,
            self._timestamp_ms if append_time < 0 else append_time,
            self._key_size,
            self._value_size,
        )

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        """Calls ``callback(future)`` when the outcome is known, on the producer's I/O thread; at once if it is."""
        result, _ = self._result.find(self._index)

        def listener() -> None:
            if result.parts is not None:
                self.add_done_callback(callback)
                return
            try:
                callback(self)
            except Exception:
                log.exception("A callback of %r failed", self)

        result.add_listener(listener)

    def to_concurrent(self) -> concurrent.futures.Future[RecordMetadata]:
        """The same as a `concurrent.futures.Future`, for ``wait`` and ``as_completed``."""
        future: concurrent.futures.Future[RecordMetadata] = concurrent.futures.Future()
        future.set_running_or_notify_cancel()

        def transfer(done: Any) -> None:
            error = done.exception()
            if error is None:
                future.set_result(done.value())
            else:
                future.set_exception(error)

        self.add_done_callback(transfer)
        return future

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        return asyncio.wrap_future(self.to_concurrent()).__await__()

    def __repr__(self) -> str:
        if not self.done():
            return f"FutureRecordMetadata({self._result.topic_partition}, pending)"
        error = self.exception()
        outcome = str(self.value()) if error is None else repr(error)
        return f"FutureRecordMetadata({outcome})"
