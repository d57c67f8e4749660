"""The records of coordinators and their serialization."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.protocol.internal.framing import CoordinatorKey, CoordinatorRecordTypes, CoordinatorValue
from barnabas.protocol.message import Buffer


class CoordinatorRecord(NamedTuple):
    """A change of a coordinator's state: a key, its new value, and the version to write it in.

    Without a value it is a tombstone, which deletes the key.
    """

    key: CoordinatorKey
    value: CoordinatorValue | None = None
    version: int = 0


class CoordinatorRecordSerde:
    """Serializes the records of one internal topic, such as ``__consumer_offsets``."""

    __slots__ = ("_types",)

    def __init__(self, types: CoordinatorRecordTypes) -> None:
        self._types = types

    def serialize(self, record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
        """Returns key and value."""
        value = None if record.value is None else self._types.encode_value(record.value, record.version)
        return self._types.encode_key(record.key), value

    def deserialize(self, key: Buffer, value: Buffer | None) -> CoordinatorRecord:
        """Decodes a record.

        Raises `UnsupportedVersionError` for a record type or version of a later Kafka, and `ProtocolError` for bytes
        that are not a record.
        """
        decoded_key, decoded_value, version = self._types.decode(key, value)
        return CoordinatorRecord(decoded_key, decoded_value, 0 if version is None else version)
