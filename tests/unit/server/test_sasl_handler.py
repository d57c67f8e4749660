"""Error responses to requests that arrive instead of a SASL token."""

from __future__ import annotations

import pytest

from barnabas.common.errors import Errors, IllegalSaslStateError, ProtocolError
from barnabas.protocol.framing import encode_request
from barnabas.protocol.headers import parse_request_header
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.server.sasl_handler import refuse_during_authentication
from network_fixtures import produce

pytestmark = pytest.mark.mechanism("A04")


def refused(frame: bytes) -> bytes:
    payload = frame[4:]
    return refuse_during_authentication(parse_request_header(payload), payload, IllegalSaslStateError("too early"))


def test_it_is_the_response_of_the_requests_own_api() -> None:
    response = refused(encode_request(HeartbeatRequest(group_id="g"), 4, 7, "test"))
    assert response[4:8] == b"\0\0\0\7"
    assert HeartbeatResponse.decode_from(response, 4, 9)[0].error_code == Errors.ILLEGAL_SASL_STATE


def test_a_request_without_a_response() -> None:
    assert refused(produce(7, acks=0)) == b""


def test_an_unsupported_version() -> None:
    frame = encode_request(HeartbeatRequest(group_id="g"), 4, 7, "test")
    assert refused(frame[:6] + b"\0\x63" + frame[8:]) == b""


def test_a_broken_body() -> None:
    with pytest.raises(ProtocolError):
        refused(encode_request(HeartbeatRequest(group_id="g"), 4, 7, "test")[:-3])
