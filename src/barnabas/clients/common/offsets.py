"""Offsets of a consumer group: what consumers commit, and producers in a transaction."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """The next offset that a group will read from a partition, and the group's own metadata for it."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None

    def __post_init__(self) -> None:
        if self.offset < 0:
            raise ValueError(f"Invalid negative offset {self.offset}")


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """The member and group that offsets come from. With a group id alone, no check is made that this member still has
    the partitions; with the generation and the member id, the group coordinator checks (KIP-447)."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None

    def __post_init__(self) -> None:
        if self.generation_id > 0 and not self.member_id:
            raise ValueError(f"Passed in group metadata {self!r} has generationId > 0 but the member.id is unknown")
