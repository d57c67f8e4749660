"""Error responses for requests that failed as a whole, for every API (R12).

A handler reports a result for each part of a request. An error that it does not handle, such as a missing permission or
an unexpected exception, fails the whole request, and the client must find the error where it expects it. Some responses
have a top-level error code. The others have one per topic, partition, group or resource, so every item of the request
gets the same code:

    >>> error_response(request, 0, NotControllerError())
    CreateTopicsResponse(throttle_time_ms=0, topics=[CreatableTopicResult(name='orders', error_code=41, ...)])

If the form of a response depends on the version, the version of the request decides.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Final

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.message import Response
from barnabas.server.error_responses import top_level
from barnabas.server.error_responses.failure import Failure, ResponseTo
from barnabas.server.request import Request

_FAMILIES: Final = ("data", "admin", "coordinators", "share")
"""The modules for responses without a top-level error code. They are imported when the first request fails, because
they need the messages of nearly all APIs, which would slow down the start of a node."""


@cache
def responses() -> dict[ApiKey, ResponseTo]:
    """Returns the function that makes the error response of each API."""
    table: dict[ApiKey, ResponseTo] = dict.fromkeys(top_level.APIS, top_level.response)
    for family in _FAMILIES:
        table.update(import_module(f"{__name__}.{family}").RESPONSES)
    return table


def error_response(request: Request, throttle_time_ms: int, error: BaseException) -> Response | None:
    """Returns the response to a request that failed with `error`; None if it has no response (Produce, acks=0)."""
    failure = Failure.of(error, throttle_time_ms, request.api_version)
    # The body of an ApiVersions may have an unknown future version. It is not needed.
    body = None if request.api_key is ApiKey.API_VERSIONS else request.body
    return responses()[request.api_key](body, failure)
