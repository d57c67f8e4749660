"""The future that `KafkaProducer.send` returns."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from barnabas._kernels import append_state
from barnabas.clients.producer.record_metadata import RecordMetadata
from barnabas.common.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from barnabas.clients.producer.internals.produce_request_result import ProduceRequestResult

log = logging.getLogger(__name__)


class FutureRecordMetadata(append_state.RecordFuture):
    """Resolves to the `RecordMetadata` of one record.

    The append state of a batch (`AppendState.accept`) makes futures: an index into the batch's `ProduceRequestResult`,
    and the record's timestamp and sizes. It has the methods of a `concurrent.futures.Future` (it cannot be cancelled),
    and can be awaited.
    """

    __slots__ = ()

    batch_result: ProduceRequestResult

    def done(self) -> bool:
        result, _ = self.batch_result.find(self.index)
        return result.is_done

    def cancel(self) -> bool:
        """Returns false: a record that was accepted is sent."""
        return False

    def cancelled(self) -> bool:
        return False

    def running(self) -> bool:
        return not self.done()

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Returns the record's metadata. Blocks until it is known; raises the error, or `TimeoutError` after
        ``timeout`` seconds."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self.value()

    def get(self, timeout: float | None = None) -> RecordMetadata:
        """Returns `result`: the name that kafka-python has for it."""
        return self.result(timeout)

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Returns the error, or None. Blocks like `result`."""
        deadline = None if timeout is None else SYSTEM_CLOCK.nanoseconds() / 1e6 + timeout * 1e3
        while True:
            result, index = self.batch_result.find(self.index)
            remaining = None if deadline is None else deadline - SYSTEM_CLOCK.nanoseconds() / 1e6
            if not result.wait(remaining):
                raise TimeoutError(f"no response for a record of {result.topic_partition} within {timeout} s")
            if result.parts is None:
                return None if result.errors is None else result.errors(index)

    def value(self) -> RecordMetadata:
        """Where the record is, for callers who know that it is known."""
        result, index = self.batch_result.find(self.index)
        base_offset, append_time = result.base_offset, result.log_append_time
        topic, partition = result.topic_partition
        return RecordMetadata(
            topic,
            partition,
            base_offset if base_offset < 0 else base_offset + index,
            self.timestamp_ms if append_time < 0 else append_time,
            self.key_size,
            self.value_size,
        )

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        """Calls ``callback(future)`` when the outcome is known, on the producer's I/O thread; at once if it is."""
        result, _ = self.batch_result.find(self.index)

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
            return f"FutureRecordMetadata({self.batch_result.topic_partition}, pending)"
        error = self.exception()
        outcome = str(self.value()) if error is None else repr(error)
        return f"FutureRecordMetadata({outcome})"
