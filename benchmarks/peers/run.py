"""All that a run has found, as far as it has come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.peers.budget import Timing
from benchmarks.peers.rounds import Failed, Measured


@dataclass(frozen=True, slots=True)
class Kept:
    """A profile as the pages speak of it: its file, below the results, and the parts that it has by group."""

    file: str
    shares: Mapping[str, float]
    is_earlier: bool = False
    """This run has made none; it is the last one that was made."""


@dataclass(slots=True)
class Run:
    machine: dict[str, Any]
    measured: list[Measured] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)
    timings: dict[str, Timing] = field(default_factory=dict)
    profiles: dict[str, Kept] = field(default_factory=dict)
    seconds: float = 0.0
    is_whole: bool = False
    """No case was left out by hand, and it was not interrupted."""

    @property
    def missed(self) -> list[Measured]:
        return [one for one in self.measured if one.reached is False]
