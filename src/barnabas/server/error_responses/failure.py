"""The error of a request that failed as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from barnabas.common.errors import Errors
from barnabas.protocol.message import Response

T = TypeVar("T")
P = TypeVar("P")


class Failure(NamedTuple):
    """An error with the details that an error response needs.

    Kafka's APIs do not agree on error messages. Some always have the default text of the code (`usual_message`). Some
    have the exception's message (`message`), or null if that is only the default text. Some have the exception's
    message or else the default text (`full_message`). Most have no message.
    """

    error: Errors
    message: str | None
    """The exception's message, if it differs from the code's text. None for an unexpected error: its text may contain
    file names, addresses or other clients' data, and belongs only in the log."""
    throttle_time_ms: int
    version: int
    """The version of the response."""

    @property
    def usual_message(self) -> str:
        return self.error.message

    @property
    def full_message(self) -> str:
        return self.usual_message if self.message is None else self.message

    @classmethod
    def of(cls, error: BaseException, throttle_time_ms: int, version: int) -> Failure:
        code = Errors.for_exception(error)
        message: str | None = str(error)
        if code is Errors.UNKNOWN_SERVER_ERROR or not message or message == code.message:
            message = None
        return cls(code, message, throttle_time_ms, version)


ResponseTo = Callable[[Any, Failure], Response | None]
"""Makes the error response to the body of a request; None if it has no response."""


def failed_topics(
    topics: Iterable[Any], new_topic: Callable[[Any, list[P]], T], new_partition: Callable[[int], P]
) -> list[T]:
    """Returns a response for each topic of a request, made from the responses for its partitions."""
    return [new_topic(topic, [new_partition(one.partition_index) for one in topic.partitions]) for topic in topics]


def failed_resources(
    resources: Iterable[Any], new_result: Callable[..., T], error: Errors, message: str | None
) -> list[T]:
    """Returns a response for each resource of a request about configurations."""
    return [
        new_result(
            error_code=error,
            error_message=message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource in resources
    ]
