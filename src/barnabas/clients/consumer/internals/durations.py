"""Times that are added up."""

from __future__ import annotations


class Durations:
    """How often something took its time, and how long. Written by one thread, read by any.

    To add to two integers is all that is done when it happens; see `CountedAvg` for what is made of them.
    """

    __slots__ = ("count", "longest_ms", "total_ms")

    def __init__(self) -> None:
        self.count = 0
        self.total_ms = 0
        self.longest_ms = 0
        """Since somebody has set it to 0."""

    def add(self, elapsed_ms: int) -> None:
        if elapsed_ms > 0:
            self.total_ms += elapsed_ms
            self.longest_ms = max(self.longest_ms, elapsed_ms)
        self.count += 1

    def __repr__(self) -> str:
        return f"Durations({self.count} times, {self.total_ms} ms, at most {self.longest_ms})"
