"""Who has which partitions: the shapes in which assignments come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from barnabas.common.identifiers import Uuid

Assignment = Mapping[Uuid, frozenset[int]]
"""Partitions by topic id, with no topic that has none. Never changed once made."""

EpochAssignment = Mapping[Uuid, Mapping[int, int]]
"""The same, with the epoch since which each partition has been assigned to its member."""

NO_ASSIGNMENT: Assignment = {}


class ResolvedRegularExpression(NamedTuple):
    """The topics that a regular expression stands for."""

    topics: frozenset[str]
    version: int
    """The offset of the metadata image in which they were looked for."""
    timestamp_ms: int


UNRESOLVED = ResolvedRegularExpression(frozenset(), 0, -1)


def without_epochs(assignment: EpochAssignment) -> dict[Uuid, frozenset[int]]:
    return {topic_id: frozenset(partitions) for topic_id, partitions in assignment.items()}


def from_request(topic_partitions: Iterable[Any] | None) -> dict[Uuid, set[int]] | None:
    """What a member says it owns; None if it says nothing."""
    if topic_partitions is None:
        return None
    made: dict[Uuid, set[int]] = {}
    for entry in topic_partitions:
        made.setdefault(entry.topic_id, set()).update(entry.partitions)
    return made
