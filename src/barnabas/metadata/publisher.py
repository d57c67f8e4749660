"""Publishers: process changes of the metadata."""

from __future__ import annotations

import abc
from typing import TypeAlias

from barnabas.common.dataclass import dataclass
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.provenance import MetadataProvenance
from barnabas.raft.client import UNKNOWN_LEADER, LeaderAndEpoch

NO_CONTROLLER = UNKNOWN_LEADER
"""The leader of the metadata log is the active controller; before the first election there is none."""


@dataclass(frozen=True, slots=True)
class LogDeltaManifest:
    """The delta comes from batches of the log."""

    provenance: MetadataProvenance
    leader_and_epoch: LeaderAndEpoch
    num_batches: int
    num_bytes: int
    elapsed_ns: int
    """How long the replay took."""


@dataclass(frozen=True, slots=True)
class SnapshotManifest:
    """The delta is the difference to a snapshot, or, for a new publisher, everything."""

    provenance: MetadataProvenance
    elapsed_ns: int


LoaderManifest: TypeAlias = LogDeltaManifest | SnapshotManifest


class MetadataPublisher(abc.ABC):
    """Applies changes of the metadata: starts replicas, changes quotas, replaces the cache.

    All methods run on the loader's thread, one call at a time, in the order of the log. A publisher that blocks delays
    all updates of the node. Arguments must not be modified; images may be kept, because they are immutable.

    The first call of a publisher is always :meth:`on_metadata_update` with everything, as a delta from the empty image.
    """

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The name in log messages, unique among the publishers of a loader."""

    @abc.abstractmethod
    def on_metadata_update(self, delta: MetadataDelta, new_image: MetadataImage, manifest: LoaderManifest) -> None:
        """Processes a new image; ``delta`` has the changes since the previous one (``delta.image``)."""

    def on_controller_change(self, leader_and_epoch: LeaderAndEpoch) -> None:  # noqa: B027 - optional
        """Processes a change of the active controller."""

    def close(self) -> None:  # noqa: B027 - optional
        """Called last."""
