"""``auto.offset.reset``: where to start if there is no committed offset, or it is out of range."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from barnabas.clients.common.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from barnabas.common.config_def import ConfigError

_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,9})?)S)?)?",
    re.IGNORECASE,
)


class StrategyType(Enum):
    LATEST = "latest"
    EARLIEST = "earliest"
    NONE = "none"
    BY_DURATION = "by_duration"


@dataclass(frozen=True, slots=True)
class AutoOffsetResetStrategy:
    """The end, the beginning, an error, or a duration back from now (KIP-1106).

    >>> AutoOffsetResetStrategy.parse("by_duration:P1DT2H").duration_ms
    93600000
    """

    type: StrategyType
    duration_ms: int | None = None

    @classmethod
    def parse(cls, text: str) -> AutoOffsetResetStrategy:
        kind, _, duration = text.strip().partition(":")
        if kind.lower() == "by_duration":
            return cls(StrategyType.BY_DURATION, _milliseconds(duration))
        try:
            return cls(StrategyType(text.strip().lower()))
        except ValueError:
            raise ConfigError(
                f"Invalid value {text} for configuration auto.offset.reset: it must be earliest, latest, none or "
                "by_duration:PnDTnHnMn.nS.",
                name="auto.offset.reset",
            ) from None

    def timestamp(self, date_ms: int) -> int:
        """Returns the ListOffsets timestamp at this time."""
        match self.type:
            case StrategyType.LATEST:
                return LATEST_TIMESTAMP
            case StrategyType.EARLIEST:
                return EARLIEST_TIMESTAMP
            case StrategyType.BY_DURATION:
                assert self.duration_ms is not None
                return date_ms - self.duration_ms
            case StrategyType.NONE:
                raise ValueError("there is no timestamp for a strategy that does not reset")

    def __str__(self) -> str:
        return self.type.value if self.duration_ms is None else f"{self.type.value}:{self.duration_ms} ms"


LATEST: Final = AutoOffsetResetStrategy(StrategyType.LATEST)
EARLIEST: Final = AutoOffsetResetStrategy(StrategyType.EARLIEST)
NONE: Final = AutoOffsetResetStrategy(StrategyType.NONE)


def _milliseconds(text: str) -> int:
    """Converts an ISO 8601 duration in days and smaller units, which have a fixed length."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        raise ConfigError(
            f"Invalid value by_duration:{text} for configuration auto.offset.reset: the duration must be "
            "like PnDTnHnMn.nS and not negative.",
            name="auto.offset.reset",
        )
    whole = {name: int(match[name] or 0) for name in ("days", "hours", "minutes")}
    seconds = float(match["seconds"] or 0)
    minutes = (whole["days"] * 24 + whole["hours"]) * 60 + whole["minutes"]
    return minutes * 60_000 + int(seconds * 1000)
