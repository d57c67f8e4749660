"""The answer that says "all of this failed", for every API (R12).

A handler answers with what became of each part of a request. What it cannot deal with, a right it has no say in, an
unexpected error, fails the request as a whole, and the client still has to find the error where it looks for it. Some
answers have an error code of their own. The others have one for each topic, partition, group or resource, so the
request is gone through once more, and all that it asked about gets the same code:

    >>> error_response(request, 0, NotControllerError())
    CreateTopicsResponse(throttle_time_ms=0, topics=[CreatableTopicResult(name='orders', error_code=41, ...)])

Where an answer has changed its shape over the versions, that of the request decides.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Final

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.message import Response
from barnabas.server.error_responses import top_level
from barnabas.server.error_responses.failure import AnswerTo, Failure
from barnabas.server.request import Request

_FAMILIES: Final = ("data", "admin", "coordinators", "share")
"""The modules with answers of a shape of their own. They are imported when the first request fails, because they need
the messages of nearly all APIs, and a node has better things to do when it starts."""


@cache
def answers() -> dict[ApiKey, AnswerTo]:
    """How to answer each API."""
    table: dict[ApiKey, AnswerTo] = dict.fromkeys(top_level.APIS, top_level.answer)
    for family in _FAMILIES:
        table.update(import_module(f"{__name__}.{family}").ANSWERS)
    return table


def error_response(request: Request, throttle_time_ms: int, error: BaseException) -> Response | None:
    """The answer to a request that `error` ended; None where the API gives none (Produce with acks=0)."""
    failure = Failure.of(error, throttle_time_ms, request.api_version)
    # The body of an ApiVersions may be of a version yet to be invented. Nothing of it is needed.
    body = None if request.api_key is ApiKey.API_VERSIONS else request.body
    return answers()[request.api_key](body, failure)
