"""Version ranges: which versions of a message a field exists in."""

from __future__ import annotations

from typing import NamedTuple

LATEST = 0x7FFF
"""The upper bound of a range that includes every later version."""


class VersionRange(NamedTuple):
    """An inclusive range of versions, written as Kafka writes it: ``3+``, ``0-13``, ``5`` or ``none``.

    >>> VersionRange.parse("3+")
    VersionRange(lowest=3, highest=32767)
    >>> 2 in VersionRange.parse("3+")
    False
    """

    lowest: int
    highest: int

    @classmethod
    def parse(cls, text: str) -> VersionRange:
        if text == "none":
            return NONE
        first, dash, last = text.partition("-")
        if dash:
            return cls(int(first), int(last))
        if first.endswith("+"):
            return cls(int(first[:-1]), LATEST)
        return cls(int(first), int(first))

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.lowest <= version <= self.highest

    def __str__(self) -> str:
        if self.highest < self.lowest:
            return "none"
        if self.highest == LATEST:
            return f"{self.lowest}+"
        return str(self.lowest) if self.lowest == self.highest else f"{self.lowest}-{self.highest}"


NONE = VersionRange(0, -1)
ALL = VersionRange(0, LATEST)
