"""What the serializers of schema registries put in front of a value: a magic byte, and the id of its schema.

00 | 00 00 00 07 | body                  Confluent; Apicurio 3, and earlier ones with 4-byte ids
00 | 00 00 00 00 00 00 00 07 | body      Apicurio 2
00 | 00 00 00 07 | 02 02 | body          Protobuf: also the indexes of the message within its file
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Column

_MAGIC: Final = 0
_LONGEST_VARINT: Final = 10
_MOST_INDEXES: Final = 100


@dataclass(frozen=True, slots=True)
class WireFormat:
    """The header, with ids of 4 or 8 bytes."""

    id_bytes: int = 4

    def __post_init__(self) -> None:
        if self.id_bytes not in {4, 8}:
            raise ValueError(f"the id of a schema has 4 or 8 bytes, not {self.id_bytes}")

    @property
    def size(self) -> int:
        return 1 + self.id_bytes

    def schema_id(self, value: bytes) -> int:
        """The id of the schema; ValueError if there is no header."""
        if len(value) < self.size or value[0] != _MAGIC:
            raise ValueError("there is no schema registry's header")
        return int.from_bytes(value[1 : self.size])

    def body(self, value: bytes) -> bytes:
        """What comes after the header."""
        self.schema_id(value)
        return value[self.size :]

    def id_column(self, value: Column) -> Column:
        """`schema_id` for Spark; null if there is no header."""
        from pyspark.sql import functions as sf  # an extra

        has_header = (sf.length(value) >= self.size) & (sf.substring(value, 1, 1) == sf.lit(bytes([_MAGIC])))
        digits = sf.conv(sf.hex(sf.substring(value, 2, self.id_bytes)), 16, 10)
        return sf.when(has_header, digits.try_cast("bigint"))


def message_indexes(body: bytes) -> tuple[list[int], bytes]:
    """Which message of its file a Protobuf value is, and the message: a count and so many indexes, as varints.

    The first message of a file, which is by far the most frequent one, is a single zero.
    """
    position, count = varint(body, 0)
    if not 0 <= count <= _MOST_INDEXES:
        raise ValueError(f"{count} is no number of message indexes")
    indexes = []
    for _ in range(count):
        position, index = varint(body, position)
        indexes.append(index)
    return indexes or [0], body[position:]


def varint(value: bytes, position: int) -> tuple[int, int]:
    """The position after a zigzag varint, and the number."""
    number = 0
    for place, octet in enumerate(value[position : position + _LONGEST_VARINT]):
        number |= (octet & 0x7F) << (7 * place)
        if not octet & 0x80:
            return position + place + 1, (number >> 1) ^ -(number & 1)
    raise ValueError("a varint has no end")
