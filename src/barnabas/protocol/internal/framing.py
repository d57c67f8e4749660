"""How internal records encode their type and version.

A request has its API key and version in its header; a record in a log has only a key and a value. Kafka stores the type
and version of a record in one of two ways.

*Metadata records* (``__cluster_metadata``, ``__remote_log_metadata``) have no key. Their value opens with three
unsigned varints: a frame version (1), the record type, the record's version. Then comes the body.

*Coordinator records* (``__consumer_offsets``, ``__transaction_state``, ``__share_group_state``) are identified by their
key. The key opens with an int16 that is the record type; the value opens with an int16 that is the version of the
value. A key without a value is a tombstone.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from types import ModuleType
from typing import Any, ClassVar

from barnabas.common.errors import ProtocolError, UnsupportedVersionError
from barnabas.protocol.codec.runtime import read_uvarint, uvarint
from barnabas.protocol.message import Buffer, Message

FRAME_VERSION = 1


class TypedRecord(Message):
    """A message whose record contains the number of its type."""

    record_type: ClassVar[int]

    def __init_subclass__(cls, *, record_type: int | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        if record_type is not None:
            cls.record_type = record_type


class MetadataRecord(TypedRecord):
    """A record of the metadata log."""


class CoordinatorKey(TypedRecord):
    """The key of a coordinator's record."""


class CoordinatorValue(TypedRecord):
    """The value of a coordinator's record."""


class MetadataRecordTypes:
    """Decodes the record types of one metadata log."""

    def __init__(self, name: str, types: Iterable[type[MetadataRecord]]) -> None:
        self._name = name
        self._types = {cls.record_type: cls for cls in types}

    def __iter__(self) -> Any:
        return iter(self._types.values())

    def encode(self, record: MetadataRecord, version: int) -> bytes:
        return b"".join((uvarint(FRAME_VERSION), uvarint(record.record_type), uvarint(version), record.encode(version)))

    def decode(self, value: Buffer) -> tuple[MetadataRecord, int]:
        """Returns the record and the version it was written in."""
        try:
            frame_version, position = read_uvarint(value, 0)
            record_type, position = read_uvarint(value, position)
            version, position = read_uvarint(value, position)
        except IndexError:
            raise ProtocolError(f"{self._name}: {len(value)} bytes end inside the frame of a metadata record") from None
        if frame_version != FRAME_VERSION:
            raise UnsupportedVersionError(f"{self._name}: frame version {frame_version}, only {FRAME_VERSION} is known")
        cls = self._types.get(record_type)
        if cls is None:
            raise UnsupportedVersionError(f"{self._name}: unknown record type {record_type}")
        record, end = cls.decode_from(value, version, position)
        if end != len(value):
            raise ProtocolError(f"{self._name}: {len(value) - end} bytes left over after a {cls.__name__} v{version}")
        return record, version


class CoordinatorRecordTypes:
    """Encodes and decodes the record types of one coordinator's topic."""

    def __init__(self, topic: str, pairs: Iterable[tuple[type[CoordinatorKey], type[CoordinatorValue]]]) -> None:
        self._topic = topic
        self._pairs = {key.record_type: (key, value) for key, value in pairs}

    def __iter__(self) -> Any:
        return iter(self._pairs.values())

    def encode_key(self, key: CoordinatorKey) -> bytes:
        """Encodes a key. Its type determines its version, because the bytes of a key must never change."""
        return struct.pack(">h", key.record_type) + key.encode(key.versions.highest)

    def encode_value(self, value: CoordinatorValue, version: int) -> bytes:
        return struct.pack(">h", version) + value.encode(version)

    def decode(self, key: Buffer, value: Buffer | None) -> tuple[CoordinatorKey, CoordinatorValue | None, int | None]:
        """Returns the key, the value (none for a tombstone) and the version of the value."""
        record_type = self._number(key, "key")
        pair = self._pairs.get(record_type)
        if pair is None:
            raise UnsupportedVersionError(f"{self._topic}: unknown record type {record_type}")
        key_type, value_type = pair
        decoded_key = self._body(key_type, key, key_type.versions.highest)
        if value is None:
            return decoded_key, None, None
        version = self._number(value, "value")
        return decoded_key, self._body(value_type, value, version), version

    def _number(self, data: Buffer, part: str) -> int:
        if len(data) < 2:
            raise ProtocolError(f"{self._topic}: a {part} of {len(data)} bytes is too short: it starts with an int16")
        number: int = struct.unpack_from(">h", data)[0]
        return number

    def _body(self, cls: type[Any], data: Buffer, version: int) -> Any:
        message, end = cls.decode_from(data, version, 2)
        if end != len(data):
            raise ProtocolError(f"{self._topic}: {len(data) - end} bytes left over after a {cls.__name__} v{version}")
        return message


def metadata_types(module: ModuleType) -> list[type[MetadataRecord]]:
    """Returns the record types that a module declares."""
    return [found for found in vars(module).values() if isinstance(found, type) and is_own(found, MetadataRecord)]


def is_own(found: type, base: type) -> bool:
    """Whether a class is a proper subclass of the base."""
    return issubclass(found, base) and found is not base
