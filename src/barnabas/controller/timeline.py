"""Data structures that can be taken back to an earlier moment: see `barnabas.common.timeline`."""

from __future__ import annotations

from barnabas.common.timeline import (
    LATEST_EPOCH,
    Revertable,
    Snapshot,
    SnapshotRegistry,
    TimelineHashMap,
    TimelineHashSet,
    TimelineObject,
)

__all__ = [
    "LATEST_EPOCH",
    "Revertable",
    "Snapshot",
    "SnapshotRegistry",
    "TimelineHashMap",
    "TimelineHashSet",
    "TimelineObject",
]
