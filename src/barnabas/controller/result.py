"""The result of a controller operation: records to write, and a response to send once they are committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from barnabas.common.errors import ApiError, Errors, PolicyViolationError
from barnabas.raft.client import ApiMessageAndVersion

T = TypeVar("T")

MAX_RECORDS_PER_USER_OP = 10_000
"""The most records that one request may write. They must fit in one batch and must not stall the controller."""


class ControllerResult(Generic[T]):
    """Records and response.

    *Atomic* records go into one batch and are committed together or not at all. Other records may span several batches,
    of which a crash can leave only the first: fine if the records are independent, as when thousands of partitions lose
    a member of their ISR.

    Without records, the operation only read, or failed. The response still waits for earlier uncommitted records,
    because it may depend on them.
    """

    __slots__ = ("is_atomic", "records", "response")

    def __init__(self, records: Sequence[ApiMessageAndVersion], response: T, is_atomic: bool) -> None:
        self.records = records
        self.response = response
        self.is_atomic = is_atomic

    @classmethod
    def of(cls, records: Sequence[ApiMessageAndVersion], response: T) -> ControllerResult[T]:
        return cls(records, response, False)

    @classmethod
    def atomic_of(cls, records: Sequence[ApiMessageAndVersion], response: T) -> ControllerResult[T]:
        return cls(records, response, True)

    def without_records(self) -> ControllerResult[T]:
        """Returns the result for a request that only validates."""
        return ControllerResult([], self.response, False)

    def __repr__(self) -> str:
        kind = "atomic " if self.is_atomic else ""
        return f"ControllerResult({len(self.records)} {kind}records, {self.response!r})"


def check_operation_size(count: int) -> None:
    """Refuses an operation that would write more records than one request may."""
    if count > MAX_RECORDS_PER_USER_OP:
        raise PolicyViolationError(
            f"The request would write {count} records; at most {MAX_RECORDS_PER_USER_OP} are allowed. "
            f"Split the request."
        )


def error_fields(error: ApiError | None) -> tuple[int, str | None]:
    """Returns the code and message that most responses have per item: (0, None) for success.

    Drops the traceback, which nothing uses: it references the frame that caught the error and so the error itself, and
    only the garbage collector would free the two, for each item of a large request.
    """
    if error is None:
        return Errors.NONE.value, None
    error.__traceback__ = None
    return Errors.for_exception(error).value, str(error)
