"""Requests inside Envelopes: how the controller sees what a broker forwards (KIP-590).

A client cannot reach the controllers. So a broker that gets, say, a CreateTopics wraps it, header and all, in an Envelope
together with who the client is, and sends that on its own connection:

    client --CreateTopics--> broker --Envelope(principal, address, CreateTopics)--> controller
    client <--CreateTopics-- broker <--Envelope(CreateTopics response)------------- controller

On the controller the request inside is a `Request` like any other, with the *client's* principal and address for its
authorization and the *broker's* connection for its answer. Whoever handles it does not notice: its answer is put into an
Envelope on the way out, and there alone.
"""

from __future__ import annotations

import ipaddress
from typing import Any

from barnabas.common.errors import (
    ClusterAuthorizationError,
    Errors,
    InvalidRequestError,
    PrincipalDeserializationError,
    ProtocolError,
    UnsupportedVersionError,
)
from barnabas.network.memory_pool import UNBOUNDED
from barnabas.protocol.api_keys import Trait
from barnabas.protocol.framing import response_parts
from barnabas.protocol.headers import parse_request_header
from barnabas.protocol.message import Response
from barnabas.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas.security.principal import KafkaPrincipal, deserialize_principal
from barnabas.security.request_context import RequestContext
from barnabas.server.request import Request

FRAME_SIZE = 4
"""A frame begins with its size, and what is inside an Envelope has none."""


class ForwardedRequest(Request):
    """The request inside an Envelope. It answers with the Envelope's correlation id, on the Envelope's connection."""

    __slots__ = ("_client_address", "_principal", "envelope")

    def __init__(self, envelope: Request, principal: KafkaPrincipal, client_address: str, data: memoryview) -> None:
        header = parse_request_header(data)
        super().__init__(
            envelope.processor_id, envelope.context, header, data, UNBOUNDED, envelope.start_time_ns, envelope.times
        )
        self.request_dequeue_time_ns = envelope.request_dequeue_time_ns
        self.envelope = envelope
        self._principal = principal
        self._client_address = client_address

    @property
    def request_context(self) -> RequestContext:
        """Who and where are the client's; the listener is the one that the Envelope came over."""
        context = self.context
        return RequestContext(
            self._principal,
            self._client_address,
            context.listener_name,
            context.security_protocol,
            self.api_key,
            self.api_version,
            self.client_id,
            self.correlation_id,
        )


def open_envelope(request: Request) -> ForwardedRequest:
    """The request inside; whether the broker may forward at all has been checked.

    What is wrong with the Envelope is raised: `UnsupportedVersionError` if the controller does not speak the version
    inside, whereupon the broker hangs up on its client, which then finds out what is spoken now.
    """
    body = request.body
    assert isinstance(body, EnvelopeRequest)
    if body.request_principal is None:
        raise PrincipalDeserializationError("an Envelope without a principal")
    principal = deserialize_principal(body.request_principal)
    try:
        address = str(ipaddress.ip_address(bytes(body.client_host_address)))
    except ValueError:
        raise InvalidRequestError(
            f"an Envelope with a client address of {len(body.client_host_address)} bytes, neither IPv4 nor IPv6"
        ) from None
    data = memoryview(body.request_data)
    try:
        inner = ForwardedRequest(request, principal, address, data)
    except UnsupportedVersionError:
        raise
    except ProtocolError as error:
        raise InvalidRequestError(f"the request inside an Envelope: {error}") from None
    if Trait.FORWARDABLE not in inner.api_key.traits:
        raise InvalidRequestError(f"{inner.api_key.title} is not a request that can be forwarded")
    if inner.api_version not in inner.api_key.versions:
        raise UnsupportedVersionError(
            f"{inner.api_key.title} v{inner.api_version} in an Envelope; versions {inner.api_key.versions} are spoken here"
        )
    try:
        inner.body  # noqa: B018 - what cannot be decoded is the Envelope's fault
    except ProtocolError as error:
        raise InvalidRequestError(f"the request inside an Envelope: {error}") from None
    return inner


def envelope_error(error: BaseException) -> Errors:
    """What an Envelope says that could not be opened or may not be sent."""
    if isinstance(
        error,
        InvalidRequestError | UnsupportedVersionError | PrincipalDeserializationError | ClusterAuthorizationError,
    ):
        return Errors.for_exception(error)
    return Errors.UNKNOWN_SERVER_ERROR


def enveloped_parts(request: Request, envelope: Request, response: Response) -> list[Any]:
    """The answer to a forwarded request as the frame of the Envelope's answer.

    If the answer says that this is not the controller, so does the Envelope, and carries nothing: the broker has to look
    for the controller and send the request again, and the client must not hear of that.
    """
    if says_not_controller(response):
        wrapped = EnvelopeResponse(error_code=Errors.NOT_CONTROLLER)
    else:
        parts = response_parts(response, request.api_version, request.correlation_id)
        wrapped = EnvelopeResponse(response_data=b"".join(parts)[FRAME_SIZE:])
    return response_parts(wrapped, envelope.api_version, envelope.correlation_id)


def says_not_controller(message: Any) -> bool:
    """Whether any error code of a response, at whatever depth, is NOT_CONTROLLER."""
    for field in message.fields:
        value = getattr(message, field.name)
        if field.name == "error_code":
            if value == Errors.NOT_CONTROLLER:
                return True
        elif isinstance(value, list) and value and hasattr(value[0], "fields"):
            if any(map(says_not_controller, value)):
                return True
    return False

