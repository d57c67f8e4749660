"""A pattern for topics that the broker resolves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SubscriptionPattern:
    """A regular expression in the syntax of RE2/J, which the group coordinator matches with the names of topics
    (KIP-848). No member has to know all topics of the cluster then, and all members see the same ones.

        consumer.subscribe(SubscriptionPattern("orders-.*"))

    A pattern of Python's, from ``re.compile``, is matched by the consumer itself instead.
    """

    pattern: str

    def __post_init__(self) -> None:
        if not self.pattern:
            raise ValueError("Topic pattern to subscribe to cannot be empty")

    def __str__(self) -> str:
        return self.pattern
