"""Principals: how they are written, compared and sent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.common.errors import PrincipalDeserializationError
from barnabas.network.server.endpoint import SecurityProtocol
from barnabas.network.server.plane import ConnectionContext
from barnabas.protocol.api_keys import ApiKey
from barnabas.security.principal import (
    ANONYMOUS,
    KafkaPrincipal,
    deserialize_principal,
    serialize_principal,
)
from barnabas.security.request_context import RequestContext

text = st.text(st.characters(codec="utf-8"), max_size=40)


def test_a_principal_is_written_with_a_colon() -> None:
    assert str(KafkaPrincipal("User", "alice")) == "User:alice"
    assert str(ANONYMOUS) == "User:ANONYMOUS"
    assert KafkaPrincipal.parse("Group:a:b") == KafkaPrincipal("Group", "a:b")
    assert KafkaPrincipal.parse("User:") == KafkaPrincipal("User", "")


@pytest.mark.parametrize("wrong", ["", "alice", "User alice"])
def test_what_is_no_principal_is_said(wrong: str) -> None:
    with pytest.raises(ValueError, match="type:name"):
        KafkaPrincipal.parse(wrong)


@given(text.filter(lambda kind: ":" not in kind), text)
def test_what_is_written_can_be_read(kind: str, name: str) -> None:
    principal = KafkaPrincipal(kind, name)
    assert KafkaPrincipal.parse(str(principal)) == principal


def test_a_token_makes_nobody_another() -> None:
    with_token = KafkaPrincipal("User", "alice", token_authenticated=True)
    assert with_token == KafkaPrincipal("User", "alice")
    assert hash(with_token) == hash(KafkaPrincipal("User", "alice"))
    assert with_token != KafkaPrincipal("User", "bob")
    assert with_token != KafkaPrincipal("Group", "alice")


def test_the_bytes_are_kafkas() -> None:
    # int16 version, compact strings (length + 1), a boolean, no tagged fields
    assert serialize_principal(KafkaPrincipal("User", "alice", True)) == b"\x00\x00\x05User\x06alice\x01\x00"


@given(text, text, st.booleans())
def test_there_and_back(kind: str, name: str, token: bool) -> None:
    principal = KafkaPrincipal(kind, name, token)
    read = deserialize_principal(serialize_principal(principal))
    assert (read, read.token_authenticated) == (principal, token)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "0 bytes"),
        (b"\x00", "1 bytes"),
        (b"\x00\x01\x05User\x06alice\x00\x00", "principal: 1"),
        (b"\xff\xff\x05User\x06alice\x00\x00", "principal: -1"),
        (b"\x00\x00\x05User\x06ali", "DefaultPrincipalData"),
        (b"\x00\x00\x05User\x06alice\x00\x00more", "4 bytes left over"),
    ],
)
def test_other_bytes_are_an_error_with_a_code(data: bytes, why: str) -> None:
    with pytest.raises(PrincipalDeserializationError, match=why) as failure:
        deserialize_principal(data)
    assert failure.value.code == 97


@given(st.binary(max_size=60))
def test_any_bytes_are_a_principal_or_that_error(data: bytes) -> None:
    for attempt in (data, b"\x00\x00" + data):
        try:
            deserialize_principal(memoryview(attempt))
        except PrincipalDeserializationError:
            continue


def test_who_has_not_said_is_anonymous() -> None:
    connection = ConnectionContext("id", "192.0.2.7", "PLAINTEXT", SecurityProtocol.PLAINTEXT, False)
    context = RequestContext.of(connection, ApiKey.FETCH, 13, "me", 7)
    assert context.principal is ANONYMOUS
    assert (context.client_address, context.listener_name, context.api_key) == ("192.0.2.7", "PLAINTEXT", ApiKey.FETCH)
    connection.principal = KafkaPrincipal("User", "alice")
    assert RequestContext.of(connection, ApiKey.FETCH, 13).principal.name == "alice"
    assert repr(context) == (
        "RequestContext(Fetch v13 of User:ANONYMOUS at 192.0.2.7, client 'me', correlation id 7, listener PLAINTEXT)"
    )
