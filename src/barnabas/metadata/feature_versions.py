"""The features of a cluster besides ``metadata.version``, and the levels they come in (KIP-584, KIP-1022)."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.common.dataclass import dataclass, field
from barnabas.metadata import metadata_version
from barnabas.metadata.metadata_version import MINIMUM_VERSION, MetadataVersion


@dataclass(frozen=True, slots=True)
class FeatureLevel:
    """A level of a feature: with which metadata version a new cluster starts at it, and what it needs."""

    level: int
    since: MetadataVersion
    needs: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Feature:
    """Something that all nodes must agree on before any of them does it, and that is therefore turned on by a record.

    Level 0 is the state without it. A feature that the log says nothing about is at level 0.

    >>> TRANSACTION_VERSION.default_level(MetadataVersion.IBP_4_3_IV0)
    2
    >>> TRANSACTION_VERSION.default_level(MetadataVersion.IBP_3_9_IV0)
    0
    """

    name: str
    levels: tuple[FeatureLevel, ...]
    served: bool = True
    """Whether it does anything here. What does not stays off in a new cluster, but the levels are known: a directory of
    Apache Kafka's, where it is on, can be opened."""

    @property
    def highest(self) -> int:
        return self.levels[-1].level

    def default_level(self, version: MetadataVersion) -> int:
        """The level that a cluster formatted for this metadata version starts with."""
        return max(level.level for level in self.levels if level.since <= version) if self.served else 0

    def missing(self, level: int, levels: Mapping[str, int]) -> dict[str, int]:
        """What would have to be raised before this feature can get to ``level``: the features, and how far."""
        for candidate in self.levels:
            if candidate.level == level:
                return {name: least for name, least in candidate.needs.items() if levels.get(name, 0) < least}
        raise ValueError(f"{self.name} has no level {level}; its levels are 0 to {self.highest}")


def _feature(name: str, *levels: FeatureLevel, served: bool = True) -> Feature:
    return Feature(name, (FeatureLevel(0, MINIMUM_VERSION), *levels), served)


KRAFT_VERSION = _feature(
    "kraft.version",
    FeatureLevel(1, MetadataVersion.IBP_3_9_IV0, {metadata_version.FEATURE_NAME: MetadataVersion.IBP_3_9_IV0}),
)
"""1: the voters are in the log and can change (KIP-853). The only one that is no record of the metadata log but a
control record of raft, so an image does not know it."""

TRANSACTION_VERSION = _feature(
    "transaction.version",
    FeatureLevel(1, MetadataVersion.IBP_4_0_IV2),
    FeatureLevel(2, MetadataVersion.IBP_4_0_IV2),
)
"""1: flexible records in ``__transaction_state``; 2: the producer epoch rises with every transaction (KIP-890)."""

GROUP_VERSION = _feature("group.version", FeatureLevel(1, MetadataVersion.IBP_4_0_IV0))
"""1: groups that the coordinator rebalances (KIP-848)."""

ELR_VERSION = _feature(
    "eligible.leader.replicas.version",
    FeatureLevel(1, MetadataVersion.IBP_4_1_IV0, {metadata_version.FEATURE_NAME: MetadataVersion.IBP_4_0_IV1}),
)
"""1: replicas that left the ISR too late to have missed a committed record may still be elected (KIP-966)."""

SHARE_VERSION = _feature("share.version", FeatureLevel(1, MetadataVersion.IBP_4_2_IV0), served=False)
"""1: share groups (KIP-932)."""

STREAMS_VERSION = _feature("streams.version", FeatureLevel(1, MetadataVersion.IBP_4_2_IV1), served=False)
"""1: groups of Kafka Streams that the coordinator rebalances (KIP-1071)."""

FEATURES: Mapping[str, Feature] = {
    feature.name: feature
    for feature in (
        KRAFT_VERSION,
        TRANSACTION_VERSION,
        GROUP_VERSION,
        ELR_VERSION,
        SHARE_VERSION,
        STREAMS_VERSION,
    )
}
