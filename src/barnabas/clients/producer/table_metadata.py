"""Where the rows of a table have gone, or why not all of them have."""

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
    """Where rows of a table are in one partition.

    Others may write there at the same time, so there can be more offsets between the first and the last than rows.
    Both are -1 where the broker did not tell, as with ``acks=0``.
    """

    first_offset: int
    last_offset: int
    count: int


@dataclass(frozen=True, slots=True)
class TableMetadata:
    """Where the rows of a table are."""

    topic: str
    rows: int
    partitions: Mapping[int, PartitionOffsets]


class TableSendError(BarnabasError):
    """Not all rows of a table were acknowledged. The cause is the first error that there was.

    ``rows`` has the numbers of the rows that were not, in ascending order, as a numpy array; `written` says where the
    others are. A row that was not acknowledged may still have been written, if it was sent and no answer came.
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
        return isinstance(self.error, ApiError) and self.error.retriable


class TableFuture(concurrent.futures.Future[TableMetadata]):
    """What ``send_table`` returns: the promise of a `TableMetadata`. It cannot be cancelled, and can be awaited."""

    def __init__(self) -> None:
        super().__init__()
        self.set_running_or_notify_cancel()

    def get(self, timeout: float | None = None) -> TableMetadata:
        """Returns `result`, as the future of ``send`` does."""
        return self.result(timeout)

    def __await__(self) -> Generator[Any, None, TableMetadata]:
        return asyncio.wrap_future(self).__await__()
