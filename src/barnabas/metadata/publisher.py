"""Publishers: who is told when the metadata changes, and what they are told."""

from __future__ import annotations

import abc
from typing import TypeAlias

from barnabas.common.dataclass import dataclass
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.provenance import MetadataProvenance
from barnabas.raft.client import UNKNOWN_LEADER, LeaderAndEpoch

NO_CONTROLLER = UNKNOWN_LEADER
"""Who leads the metadata log is the active controller; before the first is elected, there is none."""


@dataclass(frozen=True, slots=True)
class LogDeltaManifest:
    """The delta comes from batches of the log."""

    provenance: MetadataProvenance
    leader_and_epoch: LeaderAndEpoch
    num_batches: int
    num_bytes: int
    elapsed_ns: int
    """How long replaying them took."""


@dataclass(frozen=True, slots=True)
class SnapshotManifest:
    """The delta is the difference between what was known and a snapshot, or, for a new publisher, everything."""

    provenance: MetadataProvenance
    elapsed_ns: int


LoaderManifest: TypeAlias = LogDeltaManifest | SnapshotManifest


class MetadataPublisher(abc.ABC):
    """Turns changes of the metadata into deeds: starts replicas, changes quotas, swaps the cache.

    All methods run on the loader's thread, one call at a time, and in the order of the log. A publisher that blocks
    keeps the whole node from hearing news. Nothing that is handed over may be changed; images may be kept, as they
    never change.

    The first call of a publisher is always :meth:`on_metadata_update` with everything there is, as a delta from the
    empty image.
    """

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """What it is called in the log, and known by: no two publishers of a loader have the same name."""

    @abc.abstractmethod
    def on_metadata_update(self, delta: MetadataDelta, new_image: MetadataImage, manifest: LoaderManifest) -> None:
        """There is a new image; ``delta`` is what led to it from the one before (``delta.image``)."""

    def on_controller_change(self, leader_and_epoch: LeaderAndEpoch) -> None:  # noqa: B027 - most do not care
        """There is another active controller, or none."""

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """There will be no further call."""
