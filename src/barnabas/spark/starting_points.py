"""Parses where a query starts and where a batch ends: by offsets, or by time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from barnabas.common.config_def import ConfigError
from barnabas.spark.offsets import EARLIEST, LATEST, Offsets, parse_offsets

STARTING: Final = (
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingOffsets",
)
ENDING: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")


@dataclass(frozen=True, slots=True)
class Point:
    """A position in all partitions. `offset` and `timestamp` apply to all; the maps have one for each.

    Exactly one of the four is set. Offsets may be `EARLIEST` or `LATEST`.
    """

    option: str
    offset: int | None = None
    timestamp: int | None = None
    offsets: Offsets | None = None
    timestamps: Offsets | None = None

    @property
    def is_start(self) -> bool:
        return self.option in STARTING

    def refuse_latest(self) -> None:
        """Refuses `LATEST` as the start: the batch would always be empty."""
        if self.offset == LATEST:
            raise ConfigError(f"{self.option} can't be latest for batch queries.", name=self.option)
        for partition, offset in (self.offsets or {}).items():
            if offset == LATEST:
                raise ConfigError(
                    f"{self.option} for {partition} can't be latest (-1) for batch queries.", name=self.option
                )


EARLIEST_POINT: Final = Point("startingOffsets", offset=EARLIEST)
LATEST_POINT: Final = Point("endingOffsets", offset=LATEST)


def starting_point(options: Mapping[str, str]) -> Point | None:
    return _point(options, "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")


def ending_point(options: Mapping[str, str]) -> Point | None:
    point = _point(options, "endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
    if point is not None:
        if point.offset == EARLIEST:
            raise ConfigError("endingOffsets can't be earliest.", name="endingOffsets")
        for partition, offset in (point.offsets or {}).items():
            if offset == EARLIEST:
                raise ConfigError(f"endingOffsets for {partition} can't be earliest (-2).", name="endingOffsets")
    return point


def unmatched_is_latest(options: Mapping[str, str]) -> bool:
    """Returns whether to start at the end, instead of failing, if all records are older than the timestamp."""
    name = "startingOffsetsByTimestampStrategy"
    text = options.get(name, "error").strip().lower()
    if text not in {"error", "latest"}:
        raise ConfigError(f"{name} must be error or latest, not {options[name]!r}.", name=name)
    return text == "latest"


def _point(options: Mapping[str, str], timestamp: str, by_timestamp: str, by_offset: str) -> Point | None:
    """Validates all three options; the first one that is set applies."""
    found: list[Point] = []
    if timestamp in options:
        text = str(options[timestamp]).strip()
        if not text.isdecimal():
            raise ConfigError(
                f"{timestamp} must be a time in milliseconds since 1970, not {options[timestamp]!r}.", name=timestamp
            )
        found.append(Point(timestamp, timestamp=int(text)))
    if by_timestamp in options:
        found.append(Point(by_timestamp, timestamps=parse_offsets(by_timestamp, options[by_timestamp], least=0)))
    if by_offset in options:
        text = options[by_offset].strip()
        word = {"earliest": EARLIEST, "latest": LATEST}.get(text.lower())
        if word is not None:
            found.append(Point(by_offset, offset=word))
        else:
            found.append(Point(by_offset, offsets=parse_offsets(by_offset, text)))
    return found[0] if found else None
