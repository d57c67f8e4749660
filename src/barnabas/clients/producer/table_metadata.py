"""The outcome of sending a table."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barnabas.common.errors import ApiError, BarnabasError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """The offsets of a table's rows in one partition.

    Other producers may write at the same time, so the range can hold more offsets than rows. Both are -1 if the broker
    did not return them, as with ``acks=0``.
    """

    first_offset: int
    last_offset: int
    count: int


@dataclass(frozen=True, slots=True)
class TableMetadata:
    """The offsets of a table's rows by partition."""

    topic: str
    rows: int
    partitions: Mapping[int, PartitionOffsets]


class TableSendError(BarnabasError):
    """Raised if not all rows of a table were acknowledged. The cause is the first error.

    ``rows`` has the numbers of the unacknowledged rows, in ascending order, as a numpy array; `written` has the offsets
    of the others. An unacknowledged row may still have been written, if it was sent and no response came.
    """

    def __init__(self, error: Exception, rows: npt.NDArray[np.int64], written: TableMetadata) -> None:
        total = written.rows + len(rows)
        reason = str(error) or type(error).__name__
        super().__init__(f"{len(rows)} of {total} rows for {written.topic} were not acknowledged: {reason}")
        self.__cause__ = error
        self.rows = rows
        self.written = written

    @property
    def error(self) -> Exception:
        """The first error."""
        assert isinstance(self.__cause__, Exception)
        return self.__cause__

    @property
    def retriable(self) -> bool:
        """Whether sending the rows again may succeed."""
        return isinstance(self.error, ApiError) and self.error.retriable


class TableFuture(concurrent.futures.Future[TableMetadata]):
    """The future of a `TableMetadata` that ``send_table`` returns. It cannot be cancelled, and can be awaited."""

    def __init__(self) -> None:
        super().__init__()
        self.set_running_or_notify_cancel()

    def get(self, timeout: float | None = None) -> TableMetadata:
        """Returns `result`, as the future of ``send`` does."""
        return self.result(timeout)

    def __await__(self) -> Generator[Any, None, TableMetadata]:
        return asyncio.wrap_future(self).__await__()
