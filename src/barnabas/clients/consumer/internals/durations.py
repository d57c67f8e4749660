"""Sums of durations."""

from __future__ import annotations


class Durations:
    """Counts events and sums up their durations. Written by one thread, read by any.

    Recording adds to two integers; `CountedAvg` computes averages from them.
    """

    __slots__ = ("count", "longest_ms", "total_ms")

    def __init__(self) -> None:
        self.count = 0
        self.total_ms = 0
        self.longest_ms = 0
        """The maximum since it was last set to 0."""

    def add(self, elapsed_ms: int) -> None:
        if elapsed_ms > 0:
            self.total_ms += elapsed_ms
            self.longest_ms = max(self.longest_ms, elapsed_ms)
        self.count += 1

    def __repr__(self) -> str:
        return f"Durations({self.count} times, {self.total_ms} ms, at most {self.longest_ms})"
