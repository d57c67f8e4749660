"""The append state of a batch in plain Python: the twin of `compiled.append_state`."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from barnabas._kernels.pure.record_codec import BytesLike, Headers, encode_number, encode_payload, size_of_payload
from barnabas._kernels.varint import MAX_VARLONG_SIZE, size_of_varint, size_of_varlong

_MAX_INT32: Final = 2**31 - 1
_MAX_INT64: Final = 2**63 - 1
_NO_TIMESTAMP: Final = -1
_BATCH_HEADER_SIZE: Final = 61
_MAX_RECORD_OVERHEAD: Final = 21


class RecordFuture:
    """The fields of a record's future.

    One is made for every record, and most are dropped unread. So it has neither lock nor list: all records of a batch
    share ``batch_result``, and a future is an index into it. The size of a null key or value is -1.
    """

    __slots__ = ("batch_result", "index", "key_size", "timestamp_ms", "value_size")

    def __init__(self, batch_result: Any, index: int, timestamp_ms: int, key_size: int, value_size: int) -> None:
        self.batch_result = batch_result
        self.index = index
        self.timestamp_ms = timestamp_ms
        self.key_size = key_size
        self.value_size = value_size


class AppendState:
    """The records of a batch under construction.

    `append` and its variants write a record and return its offset delta. `size_factor` turns the bytes written so far
    into the bytes expected after compression, which `has_room_for` and `try_append` compare with `max_size` (a limit
    for the whole batch, header included). One record always fits, so that a record larger than the limit gets a batch
    of its own. `take` ends the batch and returns its bytes.

    A producer calls `accept`, which writes a record and returns its future. Many threads may call it, while another one
    closes the batch; all other methods belong to one thread, or are guarded by their owner's lock. `accept` decides
    nothing: it rejects a record that makes the batch reach `limit`, where its owner must decide.
    """

    def __init__(self, base_timestamp: int | None, max_size: int, size_factor: float) -> None:
        self.max_size = max_size
        self.size_factor = size_factor
        self.max_timestamp = _NO_TIMESTAMP
        self.offset_delta_of_max_timestamp = -1
        self._base_timestamp = None if base_timestamp is None else _check_timestamp(base_timestamp)
        self.is_open = True
        self._parts: list[bytes] | None = []
        self._size = 0
        self.record_count = 0
        self._next_delta = 0
        self._lock = threading.Lock()
        """Makes `accept` and `close_for_appends` atomic; the compiled twin uses critical sections."""
        self._now: Callable[[], int] | None = None
        self._sticky_bytes = 0
        self.limit = 0
        """`accept` rejects a record that makes the batch reach this estimated size."""
        self.sticky_limit = 0
        """`accept` rejects records for the sticky partition once the batch has reached this estimated size."""
        self.max_record_size = 0
        """An upper bound of the size of a batch with only the largest record."""
        self.thunks: list[list[Any]] | None = None
        """Index, callback and future of each record that has a callback."""

    def give_futures(self, future_type: type[RecordFuture], result: Any, now: Callable[[], int] | None) -> None:
        """Makes `accept` create futures of this subclass of `RecordFuture`.

        ``now`` returns the time in milliseconds; None means the system's clock. A subclass adds no fields, and its
        ``__init__`` is not called by the compiled twin.
        """
        self._future_type = future_type
        self._result = result
        self._now = now

    def accept(
        self,
        timestamp_ms: int | None,
        key: Any,
        value: Any,
        headers: Any,
        callback: Any,
        sticky: bool,
        decided: bool = False,
    ) -> Any:
        """Appends a record and returns its future, or None if the record is rejected.

        A record is rejected if it makes the batch reach `limit`, where its owner must decide; or if it goes to the
        sticky partition and the batch has reached `sticky_limit`, where the partitioner must decide. With ``decided``
        it is rejected only if it does not fit. Without a timestamp the record gets the current time.
        """
        if (key is not None and type(key) is not bytes) or (value is not None and type(value) is not bytes):
            return None
        if headers is None:
            headers = ()
        elif headers and type(headers) not in {list, tuple}:
            return None
        if timestamp_ms is None:
            timestamp_ms = time.time_ns() // 1_000_000 if self._now is None else self._now()
        elif timestamp_ms < 0:
            return None
        with self._lock:
            before = self.estimated_size
            if not self.is_open or (sticky and not decided and before >= self.sticky_limit):
                return None
            index = self._next_delta
            if not self._write(index, timestamp_ms, key, value, headers, sys.maxsize if decided else self.limit):
                return None
            if sticky:
                # The first record brings the header with it.
                self._sticky_bytes += self.estimated_size - (before if index else 0)
            key_size = -1 if key is None else len(key)
            value_size = -1 if value is None else len(value)
            future = self._future_type(self._result, index, timestamp_ms, key_size, value_size)
            if callback is not None:
                self.add_thunk(index, callback, future)
            return future

    def take_sticky_bytes(self) -> int:
        """Returns the bytes that `accept` has appended for the sticky partition since the last call."""
        with self._lock:
            taken, self._sticky_bytes = self._sticky_bytes, 0
            return taken

    def add_thunk(self, index: int, callback: Any, future: Any) -> None:
        """Registers ``callback``, to be called with the metadata of ``future`` when the batch is done."""
        if self.thunks is None:
            self.thunks = []
        self.thunks.append([index, callback, future])

    @property
    def base_timestamp(self) -> int:
        """The base of the timestamp deltas: the first record's timestamp, unless given; -1 before the first record."""
        return _NO_TIMESTAMP if self._base_timestamp is None else self._base_timestamp

    @property
    def last_offset_delta(self) -> int:
        """The offset delta of the last record; -1 before the first."""
        return self._next_delta - 1

    def append(self, timestamp_ms: int, key: BytesLike | None, value: BytesLike | None, headers: Headers = ()) -> int:
        """Adds a record at the next offset; returns its offset delta."""
        return self.append_with_delta(self._next_delta, timestamp_ms, key, value, headers)

    def append_with_delta(
        self,
        offset_delta: int,
        timestamp_ms: int,
        key: BytesLike | None,
        value: BytesLike | None,
        headers: Headers = (),
    ) -> int:
        """Adds a record with an explicit offset delta, which may leave a gap but not go back."""
        self._write(offset_delta, timestamp_ms, key, value, headers)
        return offset_delta

    def try_append(
        self, timestamp_ms: int, key: BytesLike | None, value: BytesLike | None, headers: Headers = ()
    ) -> int | None:
        """Appends if `has_room_for` allows it, in one call; otherwise returns None."""
        delta = self._next_delta
        if not self.is_open or not self._write(delta, timestamp_ms, key, value, headers, sys.maxsize):
            return None
        return delta

    def has_room_for(
        self, key: BytesLike | None, value: BytesLike | None, headers: Headers = (), timestamp_ms: int | None = None
    ) -> bool:
        """Whether one more record should stay within `max_size`; without a timestamp, the longest delta is assumed."""
        if not self.is_open:
            return False
        if self._next_delta == 0:
            return True
        room = self.max_size - self.estimated_size
        size = 1 + size_of_varint(self._next_delta) + size_of_payload(key, value, headers)
        if timestamp_ms is None:
            size += MAX_VARLONG_SIZE
        else:
            size += size_of_varlong(_check_timestamp(timestamp_ms) - self.base_timestamp)
        return size + size_of_varint(size) <= room

    @property
    def records_size(self) -> int:
        """The bytes of all records so far, before compression."""
        return self._size

    @property
    def estimated_size(self) -> int:
        """The expected size of the batch if it is closed now, header included."""
        return _BATCH_HEADER_SIZE + int(self._size * self.size_factor)

    def close_for_appends(self) -> None:
        """Stops accepting records; those appended wait for `take`."""
        with self._lock:
            self.is_open = False

    def take(self, reserve: int) -> bytearray:
        """Returns all records in one buffer, after `reserve` zero bytes for the header. Works once."""
        self.close_for_appends()
        if self._parts is None:
            raise RuntimeError("the records of this batch have been taken already")
        parts, self._parts = [bytes(reserve), *self._parts], None
        return bytearray().join(parts)

    def _write(
        self,
        delta: int,
        timestamp_ms: int,
        key: BytesLike | None,
        value: BytesLike | None,
        headers: Headers,
        limit: int | None = None,
    ) -> bool:
        """Writes a record; checks everything before it changes anything. With a limit, False if the record does not fit
        or makes the batch reach it."""
        if self._parts is None or not self.is_open:
            raise RuntimeError("this batch is closed: no more records can be appended")
        if not self._next_delta <= delta <= _MAX_INT32:
            raise ValueError(f"offset delta {delta} does not follow {self._next_delta - 1} within 31 bits")
        _check_timestamp(timestamp_ms)
        base = timestamp_ms if self._base_timestamp is None else self._base_timestamp
        timestamp_delta = timestamp_ms - base
        if timestamp_delta > _MAX_INT64:
            raise ValueError(f"timestamp {timestamp_ms} is too far from the base timestamp {base}")
        payload = encode_payload(key, value, headers)
        body = b"\0" + encode_number(timestamp_delta) + encode_number(delta) + payload
        length = encode_number(len(body))
        size = len(length) + len(body)
        if limit is not None and (
            (self._next_delta and size > self.max_size - self.estimated_size)
            or _BATCH_HEADER_SIZE + int((self._size + size) * self.size_factor) >= limit
        ):
            return False
        if self._size + size > _MAX_INT32 - _BATCH_HEADER_SIZE:
            raise ValueError(f"a record of {size} bytes makes the batch larger than 2 GiB")
        self._parts += (length, body)
        self._base_timestamp = base
        self._size += size
        self.max_record_size = max(self.max_record_size, _BATCH_HEADER_SIZE + _MAX_RECORD_OVERHEAD + len(payload))
        self.record_count += 1
        self._next_delta = delta + 1
        if timestamp_ms > self.max_timestamp:
            self.max_timestamp = timestamp_ms
            self.offset_delta_of_max_timestamp = delta
        return True


def _check_timestamp(timestamp_ms: int) -> int:
    if not _NO_TIMESTAMP <= timestamp_ms <= _MAX_INT64:
        raise ValueError(f"invalid timestamp {timestamp_ms}")
    return timestamp_ms
