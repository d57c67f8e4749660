"""Requests inside Envelopes: how the controller sees what a broker forwards (KIP-590).

A client cannot reach the controllers. So a broker that gets, say, a CreateTopics wraps it, header and all, in an
Envelope together with who the client is, and sends that on its own connection:

    client --CreateTopics--> broker --Envelope(principal, address, CreateTopics)--> controller
    client <--CreateTopics-- broker <--Envelope(CreateTopics response)------------- controller

On the controller the request inside is a `Request` like any other, with the *client's* principal and address for its
authorization and the *broker's* connection for its answer. Whoever handles it does not notice: its answer is put into
an Envelope on the way out, and there alone.

What an Envelope's own error code tells the broker:

============================ =========================================== ===========================================
``NONE``                     the answer is inside, whatever it says      gives it to the client
``NOT_CONTROLLER``           this node is not the active controller      finds the controller and sends it again
``UNSUPPORTED_VERSION``      what is inside cannot be read or served     hangs up on the client, which asks anew
``CLUSTER_AUTHORIZATION_..`` the broker may not forward                  tells the client UNKNOWN_SERVER_ERROR, as
                                                                         with every other code: it is none of the
                                                                         client's doing
============================ =========================================== ===========================================
"""

from __future__ import annotations

import ipaddress
from functools import cache
from typing import Any

from barnabas.common.errors import (
    Errors,
    InvalidRequestError,
    PrincipalDeserializationError,
    ProtocolError,
    UnsupportedVersionError,
)
from barnabas.network.memory_pool import UNBOUNDED
from barnabas.protocol.api_keys import ApiKey, Trait
from barnabas.protocol.framing import LENGTH_SIZE, response_parts
from barnabas.protocol.headers import parse_request_header
from barnabas.protocol.message import Buffer, Response, Struct
from barnabas.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas.security.principal import KafkaPrincipal, deserialize_principal
from barnabas.security.request_context import RequestContext
from barnabas.server.request import Request


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

    What is wrong with the Envelope itself is raised as what it is. Whatever is wrong with the bytes inside, the header,
    the version or the body, is UNSUPPORTED_VERSION. A broker of another version may have forwarded in good faith what
    makes no sense here; and of an INVALID_REQUEST it would not know whose fault it was, its own or its client's.
    """
    body = request.body
    assert isinstance(body, EnvelopeRequest)
    if body.request_principal is None:
        raise PrincipalDeserializationError("an Envelope without a principal")
    principal = deserialize_principal(body.request_principal)
    address = _client_address(body.client_host_address)
    try:
        inner = ForwardedRequest(request, principal, address, memoryview(body.request_data))
    except UnsupportedVersionError:
        raise
    except ProtocolError as error:
        raise UnsupportedVersionError(f"the request inside an Envelope: {error}") from None
    if Trait.FORWARDABLE not in inner.api_key.traits:
        raise InvalidRequestError(f"{inner.api_key.title} is not a request that can be forwarded")
    try:
        inner.body  # noqa: B018 - decoded here, because what cannot be decoded has no answer of its own
    except ProtocolError as error:
        raise UnsupportedVersionError(f"the request inside an Envelope: {error}") from None
    return inner


def _client_address(packed: Buffer) -> str:
    """The client's address as text. An IPv4 address in its IPv6 form is the same host, and ACLs know the former."""
    try:
        address = ipaddress.ip_address(bytes(packed))
    except ValueError:
        raise InvalidRequestError(
            f"an Envelope with a client address of {len(packed)} bytes, neither IPv4 nor IPv6"
        ) from None
    return str(getattr(address, "ipv4_mapped", None) or address)


def enveloped_parts(request: Request, envelope: Request, response: Response) -> list[Any]:
    """The answer to a forwarded request as the frame of the Envelope's answer.

    If the answer says that this is not the controller, so does the Envelope, and carries nothing: the broker has to
    look for the controller and send the request again, and the client must not hear of that.
    """
    if says_not_controller(response):
        wrapped = EnvelopeResponse(error_code=Errors.NOT_CONTROLLER)
    else:
        parts = response_parts(response, request.api_version, request.correlation_id)
        wrapped = EnvelopeResponse(response_data=b"".join(parts)[LENGTH_SIZE:])  # a frame, but without its size
    return response_parts(wrapped, envelope.api_version, envelope.correlation_id)


def says_not_controller(response: Response) -> bool:
    """Whether any error code of a response, at whatever depth, means that another node is the controller.

    DescribeQuorum is about the leader of the metadata log. That is the controller, too, but has its own error code.
    """
    is_quorum = response.api_key is ApiKey.DESCRIBE_QUORUM
    return _has_code(response, Errors.NOT_LEADER_OR_FOLLOWER if is_quorum else Errors.NOT_CONTROLLER)


def _has_code(struct: Struct, code: int) -> bool:
    has_code, nested = _places_of_codes(type(struct))
    if has_code and struct.error_code == code:  # type: ignore[attr-defined]
        return True
    return any(_has_code(element, code) for name in nested for element in getattr(struct, name) or ())


@cache
def _places_of_codes(struct: type[Struct]) -> tuple[bool, tuple[str, ...]]:
    """Whether a struct has an error code itself, and in which of its arrays there are some.

    A CreateTopics answer lists some thirty settings for each topic. They are not looked through, for they have none.
    """
    nested = tuple(
        field.name
        for field in struct.fields
        if field.kind == "array" and isinstance(field.element, type) and any(_places_of_codes(field.element))
    )
    return any(field.name == "error_code" for field in struct.fields), nested
