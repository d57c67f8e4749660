"""Requests inside Envelopes: the requests that a broker forwards to the controller (KIP-590).

A client cannot reach the controllers. So a broker that receives, for example, a CreateTopics wraps it, with its header
and the client's identity, in an Envelope, and sends that over its own connection:

    client --CreateTopics--> broker --Envelope(principal, address, CreateTopics)--> controller
    client <--CreateTopics-- broker <--Envelope(CreateTopics response)------------- controller

On the controller the inner request is an ordinary `Request`, with the *client's* principal and address for
authorization and the *broker's* connection for the response. Its handler needs no special code: the response is wrapped
in an Envelope only when it is sent.

The meaning of the Envelope's own error code, and the broker's reaction:

============================ =========================================== ===========================================
``NONE``                     the response is inside, even an error       passes it to the client
``NOT_CONTROLLER``           this node is not the active controller      finds the controller and retries
``UNSUPPORTED_VERSION``      the inner request cannot be read or served  disconnects the client, which retries
``CLUSTER_AUTHORIZATION_..`` the broker may not forward                  sends UNKNOWN_SERVER_ERROR to the client,
                                                                         as for every other code: the client did
                                                                         not cause it
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
from barnabas.network.reactor.memory_pool import UNBOUNDED
from barnabas.protocol.api_keys import ApiKey, Trait
from barnabas.protocol.framing import LENGTH_SIZE
from barnabas.protocol.headers import parse_request_header
from barnabas.protocol.message import Buffer, Response, Struct
from barnabas.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas.security.principal import KafkaPrincipal, deserialize_principal
from barnabas.security.request_context import RequestContext
from barnabas.server.request import Request


class ForwardedRequest(Request):
    """The request inside an Envelope. Its response has the Envelope's correlation id and connection."""

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
        """The client's principal and address, with the listener of the Envelope."""
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
    """Returns the inner request. The caller has checked that the broker may forward.

    An error of the Envelope itself is raised as such. Any error in the inner bytes (header, version or body) is
    UNSUPPORTED_VERSION: a broker of another version may have forwarded, correctly, a request that is unknown here, and
    could not tell from INVALID_REQUEST whether it or its client is at fault.
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
        inner.body  # noqa: B018 - decoded here, because an undecodable request has no error response of its own
    except ProtocolError as error:
        raise UnsupportedVersionError(f"the request inside an Envelope: {error}") from None
    return inner


def _client_address(packed: Buffer) -> str:
    """Returns the client's address as text. An IPv4-mapped IPv6 address becomes IPv4, the form that ACLs use."""
    try:
        address = ipaddress.ip_address(bytes(packed))
    except ValueError:
        raise InvalidRequestError(
            f"an Envelope with a client address of {len(packed)} bytes, neither IPv4 nor IPv6"
        ) from None
    return str(getattr(address, "ipv4_mapped", None) or address)


def enveloped_parts(request: Request, envelope: Request, response: Response) -> list[Any]:
    """Returns the frame of the EnvelopeResponse that carries the response to a forwarded request.

    If the response says that this is not the controller, the Envelope has NOT_CONTROLLER and no response inside: the
    broker then finds the controller and retries, and the client must not see the error.
    """
    if says_not_controller(response):
        wrapped = EnvelopeResponse(error_code=Errors.NOT_CONTROLLER)
    else:
        head, *rest = response.frame_parts(request.api_version, request.correlation_id)
        # A frame without its length prefix. It may have megabytes, so it is copied once.
        wrapped = EnvelopeResponse(response_data=b"".join((memoryview(head)[LENGTH_SIZE:], *rest)))
    return wrapped.frame_parts(envelope.api_version, envelope.correlation_id)


def says_not_controller(response: Response) -> bool:
    """Returns whether any error code of a response, at any depth, means that another node is the controller.

    DescribeQuorum goes to the leader of the metadata log. That is also the controller, but has its own error code.
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
    """Returns whether a struct has an error code, and which of its arrays contain error codes.

    A CreateTopics response lists about thirty configs per topic. They have no error code and are skipped.
    """
    nested = tuple(
        field.name
        for field in struct.fields
        if field.kind == "array" and isinstance(field.element, type) and any(_places_of_codes(field.element))
    )
    return any(field.name == "error_code" for field in struct.fields), nested
