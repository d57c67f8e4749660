"""Certificates: the subject as Java writes it, the alternative names, and bytes that are no certificate."""

from __future__ import annotations

import base64
import contextlib

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID, ObjectIdentifier
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.security.tls.certificate import DerError, DerReader, object_identifier, read_certificate
from oracles.line_program import LineProgram
from tls_fixtures import PKI
from unit.security.tls.java_tls import java

__all__ = ["java"]

EMAIL = NameOID.EMAIL_ADDRESS


def attribute(kind: ObjectIdentifier, value: str, form: _ASN1Type | None = None) -> x509.NameAttribute[str]:
    return x509.NameAttribute(kind, value, form, _validate=False)


SUBJECTS = {
    "plain": [[attribute(NameOID.ORGANIZATION_NAME, "Castle")], [attribute(NameOID.COMMON_NAME, "alice")]],
    "e-mail": [[attribute(NameOID.COMMON_NAME, "alice")], [attribute(EMAIL, "alice@castle.example")]],
    "escapes": [[attribute(NameOID.COMMON_NAME, 'K., "Land=Surveyor"; a+b <c> \\ #1')]],
    "blanks": [[attribute(NameOID.COMMON_NAME, "  two  inside  ")], [attribute(NameOID.ORGANIZATION_NAME, "#first")]],
    "all blank": [[attribute(NameOID.ORGANIZATION_NAME, "Castle")], [attribute(NameOID.COMMON_NAME, "  ")]],
    "several in one": [
        [attribute(NameOID.COMMON_NAME, "alice"), attribute(NameOID.USER_ID, "17"), attribute(EMAIL, "a@b.example")],
        [attribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "Messengers"), attribute(NameOID.LOCALITY_NAME, "Village")],
    ],
    "all keywords": [
        [attribute(NameOID.COUNTRY_NAME, "CZ")],
        [attribute(NameOID.STATE_OR_PROVINCE_NAME, "Bohemia")],
        [attribute(NameOID.LOCALITY_NAME, "Prague")],
        [attribute(NameOID.STREET_ADDRESS, "Golden Lane 22")],
        [attribute(NameOID.DOMAIN_COMPONENT, "example")],
        [attribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "Messengers")],
        [attribute(NameOID.USER_ID, "barnabas")],
        [attribute(NameOID.SERIAL_NUMBER, "17")],
        [attribute(NameOID.TITLE, "Dr.")],
        [attribute(NameOID.GIVEN_NAME, "Barnabas")],
        [attribute(NameOID.SURNAME, "of the Castle")],
        [attribute(NameOID.DN_QUALIFIER, "q")],
        [attribute(ObjectIdentifier("1.3.6.1.4.1.99999.7"), "own")],
    ],
    "unicode": [[attribute(NameOID.COMMON_NAME, "Žofie Müller 🏰")], [attribute(NameOID.ORGANIZATION_NAME, "城")]],
    "null": [[attribute(NameOID.COMMON_NAME, "a\0b")]],
    "printable": [[attribute(NameOID.COMMON_NAME, "alice", _ASN1Type.PrintableString)]],
    "ia5": [[attribute(NameOID.COMMON_NAME, "alice", _ASN1Type.IA5String)]],
    "t61": [[attribute(NameOID.COMMON_NAME, "alice", _ASN1Type.T61String)]],
    "line end": [[attribute(NameOID.COMMON_NAME, "\ralice\n")]],
}


def certificate_of(subject: list[list[x509.NameAttribute[str]]]) -> bytes:
    return PKI.authority.issue(x509.Name([x509.RelativeDistinguishedName(parts) for parts in subject])).der


@pytest.mark.java
@pytest.mark.mechanism("A03")
@pytest.mark.parametrize("kind", SUBJECTS)
def test_a_subject_is_written_as_java_writes_it(java: LineProgram, kind: str) -> None:
    der = certificate_of(SUBJECTS[kind])
    answer = java.ask({"op": "subject", "certificate": base64.b64encode(der).decode()})
    assert read_certificate(der).subject == answer["result"]


@pytest.mark.java
@pytest.mark.mechanism("A03")
@settings(max_examples=60)
@given(
    st.lists(
        st.lists(
            st.tuples(
                st.sampled_from([NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.USER_ID, EMAIL]),
                st.text(st.characters(codec="utf-8"), min_size=1, max_size=12),
            ),
            min_size=1,
            max_size=3,
            unique_by=lambda pair: pair[0],
        ),
        min_size=1,  # Java reads no certificate without a subject
        max_size=4,
    )
)
def test_any_subject_is_written_as_java_writes_it(
    java: LineProgram, subject: list[list[tuple[ObjectIdentifier, str]]]
) -> None:
    der = certificate_of([[attribute(kind, value) for kind, value in parts] for parts in subject])
    answer = java.ask({"op": "subject", "certificate": base64.b64encode(der).decode()})
    assert read_certificate(der).subject == answer["result"]


@pytest.mark.mechanism("A03")
def test_the_most_specific_part_comes_first() -> None:
    assert read_certificate(PKI.client.der).subject == "CN=alice,OU=Messengers,O=Castle"
    mail = certificate_of(SUBJECTS["e-mail"])
    assert read_certificate(mail).subject == (
        "1.2.840.113549.1.9.1=#1614616c69636540636173746c652e6578616d706c65,CN=alice"
    )


def test_alternative_names_are_found() -> None:
    names = read_certificate(PKI.server.der).alternative_names
    assert b"\x82\x09localhost" in names
    assert b"\x87\x04\x7f\x00\x00\x01" in names
    assert len(names) == 3
    assert not read_certificate(PKI.client.der).alternative_names


@given(st.binary(max_size=200))
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(DerError):
        read_certificate(data)


@settings(max_examples=300)
@given(st.data())
def test_a_damaged_certificate_is_read_or_refused(data: st.DataObject) -> None:
    der = bytearray(PKI.server_ec.der)
    for _ in range(data.draw(st.integers(1, 5))):
        der[data.draw(st.integers(0, len(der) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(DerError):
        assert isinstance(read_certificate(bytes(der)).subject, str)


@given(st.integers(0, 400))
def test_every_truncation_is_refused(length: int) -> None:
    der = PKI.server_ec.der
    with pytest.raises(DerError):
        read_certificate(der[: min(length, len(der) - 1)])


@pytest.mark.parametrize("dotted", ["2.5.4.3", "1.2.840.113549.1.9.1", "0.9.2342.19200300.100.1.25", "2.999.3", "1.39"])
def test_object_identifiers(dotted: str) -> None:
    name = x509.Name([x509.NameAttribute(ObjectIdentifier(dotted), "value", _validate=False)])
    attribute = DerReader(name.public_bytes()).inside(0x30).inside(0x31).inside(0x30)
    assert object_identifier(attribute.next(6).contents) == dotted


@pytest.mark.parametrize("encoded", ["", "80", "5580", "55" + "ff" * 30 + "01"])
def test_broken_object_identifiers(encoded: str) -> None:
    with pytest.raises(DerError):
        object_identifier(bytes.fromhex(encoded))


def test_what_the_reader_refuses() -> None:
    for encoded, reason in (
        ("3080", "a length of 0 bytes"),
        ("30850000000000", "a length of 5 bytes"),
        ("308201", "ends too early"),
        ("3005aa", "5 bytes announced, 1 left"),
        ("1f0100", "unsupported tag"),
        ("3100", "where 0x30 is expected"),
        ("", "ends too early"),
    ):
        with pytest.raises(DerError, match=reason):
            DerReader(bytes.fromhex(encoded)).next(0x30)


def test_certificates_of_version_1_have_no_extensions() -> None:
    pem = PKI.authority.certificate.public_bytes(serialization.Encoding.DER)
    assert read_certificate(pem).subject == "CN=Castle CA,O=Castle"
