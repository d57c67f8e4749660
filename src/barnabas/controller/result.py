"""What an operation of the controller comes to: records to write, and an answer to give once they are committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from barnabas.common.errors import ApiError, Errors, PolicyViolationError
from barnabas.raft.client import ApiMessageAndVersion

T = TypeVar("T")

MAX_RECORDS_PER_USER_OP = 10_000
"""What one request may write at most. It has to fit into one batch, and must not stall the controller for others."""


class ControllerResult(Generic[T]):
    """Records and response.

    *Atomic* records go into one batch and are committed together or not at all. Others may be spread over several
    batches, of which a crash can leave the first ones: fine where each record stands for itself, as when thousands of
    partitions lose a member of their ISR.

    No records at all means that the operation only looked, or failed. The response still waits for what was in flight
    before, because it may be based on it.
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
        """For a request that only wants to know what would happen."""
        return ControllerResult([], self.response, False)

    def __repr__(self) -> str:
        kind = "atomic " if self.is_atomic else ""
        return f"ControllerResult({len(self.records)} {kind}records, {self.response!r})"


def check_operation_size(count: int) -> None:
    """Refuses an operation that would write more than one request may."""
    if count > MAX_RECORDS_PER_USER_OP:
        raise PolicyViolationError(
            f"The request would write {count} records; at most {MAX_RECORDS_PER_USER_OP} are allowed. "
            f"Split the request."
        )


def error_fields(error: ApiError | None) -> tuple[int, str | None]:
    """Code and message, as most responses carry them for each item: (0, None) for success.

    That is all that will be asked of the error. Its traceback is dropped: it refers to the frame that caught the error
    and so to the error, and only the garbage collector would free either, for each item of a large request.
    """
    if error is None:
        return Errors.NONE.value, None
    error.__traceback__ = None
    return Errors.for_exception(error).value, str(error)
