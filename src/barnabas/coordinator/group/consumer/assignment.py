"""The data types of assignments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from barnabas.common.identifiers import Uuid

Assignment = Mapping[Uuid, frozenset[int]]
"""Partitions by topic ID, without empty topics. Immutable."""

EpochAssignment = Mapping[Uuid, Mapping[int, int]]
"""The same, with the epoch at which each partition was assigned to its member."""

NO_ASSIGNMENT: Assignment = {}


class ResolvedRegularExpression(NamedTuple):
    """The topics that match a regular expression."""

    topics: frozenset[str]
    version: int
    """The offset of the metadata image that was searched."""
    timestamp_ms: int


def without_epochs(assignment: EpochAssignment) -> dict[Uuid, frozenset[int]]:
    return {topic_id: frozenset(partitions) for topic_id, partitions in assignment.items()}


def from_request(topic_partitions: Iterable[Any] | None) -> dict[Uuid, set[int]] | None:
    """Returns the owned partitions of a request; None if it has none."""
    if topic_partitions is None:
        return None
    made: dict[Uuid, set[int]] = {}
    for entry in topic_partitions:
        made.setdefault(entry.topic_id, set()).update(entry.partitions)
    return made
