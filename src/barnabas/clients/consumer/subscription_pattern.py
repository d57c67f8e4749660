"""A topic pattern that the broker resolves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SubscriptionPattern:
    """A regular expression in RE2/J syntax, which the group coordinator matches against topic names (KIP-848). Then no
    member needs to know all topics of the cluster, and all members see the same ones.

        consumer.subscribe(SubscriptionPattern("orders-.*"))

    The consumer itself matches a Python pattern, from ``re.compile``.
    """

    pattern: str

    def __post_init__(self) -> None:
        if not self.pattern:
            raise ValueError("Topic pattern to subscribe to cannot be empty")

    def __str__(self) -> str:
        return self.pattern
