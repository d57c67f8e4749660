"""The append state of a batch in plain Python: the twin of `compiled.append_state`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final

from barnabas._kernels.pure.record_codec import VARINTS, BytesLike, Headers, encode_headers, size_of_payload
from barnabas._kernels.varint import MAX_VARLONG_SIZE, encode_varint, encode_varlong, size_of_varint, size_of_varlong

_MAX_INT32: Final = 2**31 - 1
_MAX_INT64: Final = 2**63 - 1
_NO_TIMESTAMP: Final = -1
_BATCH_HEADER_SIZE: Final = 61
_MAX_RECORD_OVERHEAD: Final = 21
# Upper bound of a record's size without headers, key bytes and value bytes: attributes and header count (1 each), three
# lengths and the offset delta (5 each), the timestamp delta (10).
_AMPLE_RECORD_OVERHEAD: Final = 32


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

    __slots__ = (
        "_base_timestamp",
        "_fast_base",
        "_finished",
        "_future_type",
        "_gaps",
        "_lock",
        "_next_delta",
        "_now",
        "_parts",
        "_result",
        "_size",
        "_sticky_bytes",
        "limit",
        "max_record_size",
        "max_size",
        "max_timestamp",
        "offset_delta_of_max_timestamp",
        "size_factor",
        "sticky_limit",
        "thunks",
    )

    def __init__(self, base_timestamp: int | None, max_size: int, size_factor: float) -> None:
        self.max_size = max_size
        self.size_factor = size_factor
        self.max_timestamp = _NO_TIMESTAMP
        self.offset_delta_of_max_timestamp = -1
        self._base_timestamp = None if base_timestamp is None else _check_timestamp(base_timestamp)
        self._parts: list[bytes] | None = []
        self._finished: list[bytes] | None = None
        self._size = 0
        self._gaps = 0
        self._next_delta = 0
        # The base timestamp while the fast path of `append` is open. It is closed before the first record, and where a
        # sum on it could overflow.
        self._fast_base: int | None = None
        self._lock = threading.Lock()
        """Makes `accept` and `close_for_appends` atomic; the compiled twin needs only the interpreter lock."""
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
        if not self.is_open:
            return None
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
        payload = size_of_payload(key, value, headers)
        with self._lock:
            if self._parts is None:
                return None
            before = self.estimated_size
            if sticky and not decided and before >= self.sticky_limit:
                return None
            if not decided:
                base = timestamp_ms if self._base_timestamp is None else self._base_timestamp
                size = 1 + size_of_varint(self._next_delta) + size_of_varlong(timestamp_ms - base) + payload
                size += size_of_varint(size)
                if _BATCH_HEADER_SIZE + int((self._size + size) * self.size_factor) >= self.limit:
                    return None
            index = self.try_append(timestamp_ms, key, value, headers)
            if index is None:
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
    def record_count(self) -> int:
        return self._next_delta - self._gaps

    @property
    def last_offset_delta(self) -> int:
        """The offset delta of the last record; -1 before the first."""
        return self._next_delta - 1

    @property
    def records_size(self) -> int:
        """The bytes of all records so far, before compression."""
        return self._size

    @property
    def is_open(self) -> bool:
        return self._parts is not None

    def append(self, timestamp_ms: int, key: BytesLike | None, value: BytesLike | None, headers: Headers = ()) -> int:
        """Adds a record at the next offset; returns its offset delta."""
        base = self._fast_base
        delta = self._next_delta
        if base is None or type(value) is not bytes or headers:
            return self._append_any(delta, timestamp_ms, key, value, headers)
        try:
            timestamp_delta = timestamp_ms - base
            if timestamp_delta < 0:
                return self._append_any(delta, timestamp_ms, key, value, headers)
            timestamp_part = VARINTS[timestamp_delta]
            offset_part = VARINTS[delta]
            value_size = len(value)
            value_part = VARINTS[value_size]
            if key is None:
                size = len(timestamp_part) + len(offset_part) + len(value_part) + value_size + 3
                size_part = VARINTS[size]
                self._parts += (size_part, b"\0", timestamp_part, offset_part, b"\x01", value_part, value, b"\0")  # type: ignore[operator]
            elif type(key) is bytes:
                key_size = len(key)
                key_part = VARINTS[key_size]
                size = (
                    len(timestamp_part) + len(offset_part) + len(key_part) + key_size + len(value_part) + value_size + 2
                )
                size_part = VARINTS[size]
                self._parts += (  # type: ignore[operator]
                    size_part,
                    b"\0",
                    timestamp_part,
                    offset_part,
                    key_part,
                    key,
                    value_part,
                    value,
                    b"\0",
                )
            else:
                return self._append_any(delta, timestamp_ms, key, value, headers)
        except (IndexError, TypeError):
            # The number is not in the table, a value is not a number, or the appender is closed.
            return self._append_any(delta, timestamp_ms, key, value, headers)
        self._size += size + len(size_part)
        self._next_delta = delta + 1
        bound = size - 1 - len(timestamp_part) - len(offset_part) + _BATCH_HEADER_SIZE + _MAX_RECORD_OVERHEAD
        self.max_record_size = max(self.max_record_size, bound)
        if timestamp_ms > self.max_timestamp:
            self.max_timestamp = timestamp_ms
            self.offset_delta_of_max_timestamp = delta
        return delta

    def append_with_delta(
        self,
        offset_delta: int,
        timestamp_ms: int,
        key: BytesLike | None,
        value: BytesLike | None,
        headers: Headers = (),
    ) -> int:
        """Adds a record with an explicit offset delta, which may leave a gap but not go back."""
        return self._append_any(offset_delta, timestamp_ms, key, value, headers)

    def try_append(
        self, timestamp_ms: int, key: BytesLike | None, value: BytesLike | None, headers: Headers = ()
    ) -> int | None:
        """Appends if `has_room_for` allows it, in one call; otherwise returns None."""
        if self._next_delta:
            size = _AMPLE_RECORD_OVERHEAD + (0 if key is None else len(key)) + (0 if value is None else len(value))
            if (
                headers or size > self.max_size - _BATCH_HEADER_SIZE - self._size * self.size_factor
            ) and not self.has_room_for(key, value, headers, timestamp_ms):
                return None
        return self.append(timestamp_ms, key, value, headers) if self._parts is not None else None

    def has_room_for(
        self,
        key: BytesLike | None,
        value: BytesLike | None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> bool:
        """Whether one more record should stay within `max_size`; without a timestamp, the longest delta is assumed."""
        if self._parts is None:
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
    def estimated_size(self) -> int:
        """The expected size of the batch if it is closed now, header included."""
        return _BATCH_HEADER_SIZE + int(self._size * self.size_factor)

    def close_for_appends(self) -> None:
        """Stops accepting records; those appended wait for `take`."""
        with self._lock:
            if self._parts is not None:
                self._finished = self._parts
                self._parts = None

    def take(self, reserve: int) -> bytearray:
        """Returns all records in one buffer, after `reserve` zero bytes for the header. Works once."""
        self.close_for_appends()
        if self._finished is None:
            raise RuntimeError("the records of this batch have been taken already")
        parts = self._finished
        self._finished = None
        parts.insert(0, bytes(reserve))
        return bytearray().join(parts)

    def _append_any(
        self, delta: int, timestamp_ms: int, key: BytesLike | None, value: BytesLike | None, headers: Headers
    ) -> int:
        """Appends any record: checks everything before it changes anything."""
        if self._parts is None:
            raise RuntimeError("this batch is closed: no more records can be appended")
        if not self._next_delta <= delta <= _MAX_INT32:
            raise ValueError(f"offset delta {delta} does not follow {self._next_delta - 1} within 31 bits")
        _check_timestamp(timestamp_ms)
        base = timestamp_ms if self._base_timestamp is None else self._base_timestamp
        timestamp_delta = timestamp_ms - base
        if timestamp_delta > _MAX_INT64:
            raise ValueError(f"timestamp {timestamp_ms} is too far from the base timestamp {base}")
        parts = [
            b"",
            b"\0",
            VARINTS[timestamp_delta] if 0 <= timestamp_delta < 8192 else encode_varlong(timestamp_delta),
            VARINTS[delta] if delta < 8192 else encode_varint(delta),
        ]
        for field in (key, value):
            if field is None:
                parts.append(b"\x01")
            else:
                data = field if type(field) is bytes else memoryview(field).tobytes()
                size = len(data)
                parts += (VARINTS[size] if size < 8192 else encode_varint(size), data)
        parts.append(encode_headers(headers) if headers else b"\0")
        size = sum(map(len, parts))
        payload = size - sum(map(len, parts[:4]))
        parts[0] = VARINTS[size] if size < 8192 else encode_varint(min(size, _MAX_INT32))
        size += len(parts[0])
        if self._size + size > _MAX_INT32 - _BATCH_HEADER_SIZE:
            raise ValueError(f"a record of {size} bytes makes the batch larger than 2 GiB")
        self._parts += parts
        self._base_timestamp = base
        self._size += size
        self.max_record_size = max(self.max_record_size, _BATCH_HEADER_SIZE + _MAX_RECORD_OVERHEAD + payload)
        self._gaps += delta - self._next_delta
        self._next_delta = delta + 1
        # The table ends at 8191, for deltas as for sizes: so the fast path adds less than 8192 to the timestamp, and
        # less than 8192 records of at most 8 KiB to the size.
        self._fast_base = base if base < _MAX_INT64 - 8192 and self._size < _MAX_INT32 // 2 else None
        if timestamp_ms > self.max_timestamp:
            self.max_timestamp = timestamp_ms
            self.offset_delta_of_max_timestamp = delta
        return delta


def _check_timestamp(timestamp_ms: int) -> int:
    if not _NO_TIMESTAMP <= timestamp_ms <= _MAX_INT64:
        raise ValueError(f"invalid timestamp {timestamp_ms}")
    return timestamp_ms
