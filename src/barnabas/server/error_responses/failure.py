"""What there is to say about a request that failed as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from barnabas.common.errors import Errors
from barnabas.protocol.message import Response

T = TypeVar("T")
P = TypeVar("P")


class Failure(NamedTuple):
    """An error on its way into an answer.

    Kafka's APIs do not agree on error messages. Some have the usual text of the code (`usual_message`), whatever
    happened; some have what the exception says (`message`), and null if that is nothing but the usual text; some have
    the one or else the other (`full_message`); most have no message at all.
    """

    error: Errors
    message: str | None
    """What the exception says, if it says more than the code. An unexpected error says nothing: its text may name
    files, addresses or the data of others, and is for our log alone."""
    throttle_time_ms: int
    version: int
    """The version of the answer."""

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


AnswerTo = Callable[[Any, Failure], Response | None]
"""Makes the answer to the body of a request; none if the API gives none."""


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
