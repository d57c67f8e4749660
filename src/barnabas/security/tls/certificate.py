"""The parts of an X.509 certificate that a broker looks at: its subject and its subject alternative names.

OpenSSL has verified the certificate by then; what it does not give is the subject in the form in which Kafka's ACLs
name it. This is a strict reader of the few DER structures in between, so that TLS needs no other library.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.common.dataclass import dataclass

SEQUENCE: Final = 0x30
SET: Final = 0x31
OBJECT_IDENTIFIER: Final = 0x06
OCTET_STRING: Final = 0x04
_VERSION: Final = 0xA0
_EXTENSIONS: Final = 0xA3
_BOOLEAN: Final = 0x01
_ALTERNATIVE_NAMES: Final = "2.5.29.17"

_STRINGS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
"""UTF8, Printable, T61, IA5, General and BMP string: the types whose bytes Java shows as text."""
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
"""RFC 2253's keywords. Every other attribute is named by its object identifier, and its value is shown in hex."""
_ESCAPED: Final = frozenset(',=+<>#;"\\')


class DerError(ValueError):
    """The bytes are not the expected DER structure."""


class Element(NamedTuple):
    """One DER element: its tag, its contents, and all of its bytes."""

    tag: int
    contents: bytes
    whole: bytes


class DerReader:
    """Reads consecutive DER elements. Lengths are checked before anything is copied."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def more(self) -> bool:
        return self._at < len(self._data)

    def peek(self) -> int:
        """Returns the tag of the next element, or -1 at the end."""
        return self._data[self._at] if self.more else -1

    def next(self, tag: int | None = None) -> Element:
        """Returns the next element, which must have this tag."""
        data, start = self._data, self._at
        if start + 2 > len(data):
            raise DerError("the structure ends too early")
        found = data[start]
        if found & 0x1F == 0x1F:
            raise DerError(f"unsupported tag {found:#x}")
        if tag is not None and found != tag:
            raise DerError(f"tag {found:#x} where {tag:#x} is expected")
        length = data[start + 1]
        at = start + 2
        if length & 0x80:
            size = length & 0x7F
            if not 1 <= size <= 4:
                raise DerError(f"a length of {size} bytes")
            if at + size > len(data):
                raise DerError("the structure ends too early")
            length = int.from_bytes(data[at : at + size])
            at += size
        if length > len(data) - at:
            raise DerError(f"{length} bytes announced, {len(data) - at} left")
        self._at = at + length
        return Element(found, data[at : self._at], data[start : self._at])

    def inside(self, tag: int) -> DerReader:
        """Returns a reader of the contents of the next element."""
        return DerReader(self.next(tag).contents)


def object_identifier(contents: bytes) -> str:
    """Decodes an object identifier to its dotted form.

    >>> object_identifier(bytes.fromhex("550403"))
    '2.5.4.3'
    """
    if not contents or contents[-1] & 0x80:
        raise DerError("an incomplete object identifier")
    numbers: list[int] = []
    value = 0
    for byte in contents:
        value = value << 7 | byte & 0x7F
        if value >> 128:
            raise DerError("an object identifier with a number of more than 128 bits")
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a broker looks at."""

    subject: str
    """RFC 2253, as Java's ``X500Principal.getName()`` has it."""
    alternative_names: frozenset[bytes]
    """The encoded names, for comparisons."""


def read_certificate(der: bytes) -> Certificate:
    """Reads a certificate; raises `DerError` if it is not one."""
    fields = DerReader(der).inside(SEQUENCE).inside(SEQUENCE)
    if fields.peek() == _VERSION:
        fields.next()
    for _ in ("serial number", "signature algorithm", "issuer", "validity"):
        fields.next()
    subject = fields.next(SEQUENCE)
    names: frozenset[bytes] = frozenset()
    while fields.more:
        field = fields.next()
        if field.tag == _EXTENSIONS:
            names = _alternative_names(DerReader(field.contents).inside(SEQUENCE))
    return Certificate(distinguished_name(subject.contents), names)


def _alternative_names(extensions: DerReader) -> frozenset[bytes]:
    found: set[bytes] = set()
    while extensions.more:
        extension = extensions.inside(SEQUENCE)
        identifier = object_identifier(extension.next(OBJECT_IDENTIFIER).contents)
        if extension.peek() == _BOOLEAN:
            extension.next()
        value = extension.next(OCTET_STRING).contents
        if identifier == _ALTERNATIVE_NAMES:
            names = DerReader(value).inside(SEQUENCE)
            while names.more:
                found.add(names.next().whole)
    return frozenset(found)


def distinguished_name(contents: bytes) -> str:
    """Formats the contents of an X.501 name: the most specific part first, the parts of one component with a plus."""
    components = []
    name = DerReader(contents)
    while name.more:
        component = name.inside(SET)
        attributes = []
        while component.more:
            attribute = component.inside(SEQUENCE)
            identifier = object_identifier(attribute.next(OBJECT_IDENTIFIER).contents)
            attributes.append(_attribute(identifier, attribute.next()))
        components.append("+".join(attributes))
    return ",".join(reversed(components))


def _attribute(identifier: str, value: Element) -> str:
    keyword = _KEYWORDS.get(identifier)
    if keyword is None or value.tag not in _STRINGS:
        return f"{keyword or identifier}=#{value.whole.hex()}"
    # Java reads all string types as UTF-8.
    text = value.contents.decode("utf-8", "replace")
    escaped = "".join(f"\\{letter}" if letter in _ESCAPED else "\\00" if letter == "\0" else letter for letter in text)
    inner = escaped.lstrip(" \r")
    leading = len(escaped) - len(inner)
    kept = inner.rstrip(" \r")
    trailing = inner[len(kept) :]
    return f"{keyword}={_each_escaped(escaped[:leading])}{kept}{_each_escaped(trailing)}"


def _each_escaped(blanks: str) -> str:
    return "".join(f"\\{blank}" for blank in blanks)
