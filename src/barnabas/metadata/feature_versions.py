"""The features of a cluster besides ``metadata.version``, and their levels (KIP-584, KIP-1022)."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.common.dataclass import dataclass, field
from barnabas.metadata import metadata_version
from barnabas.metadata.metadata_version import MINIMUM_VERSION, MetadataVersion


@dataclass(frozen=True, slots=True)
class FeatureLevel:
    """A level of a feature: the metadata version of new clusters that start with it, and its dependencies."""

    level: int
    since: MetadataVersion
    needs: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Feature:
    """A behaviour that all nodes must agree on before any of them uses it, and that a record enables.

    Level 0 means disabled. A feature that is not in the log has level 0.

    >>> TRANSACTION_VERSION.default_level(MetadataVersion.IBP_4_3_IV0)
    2
    >>> TRANSACTION_VERSION.default_level(MetadataVersion.IBP_3_9_IV0)
    0
    """

    name: str
    levels: tuple[FeatureLevel, ...]
    served: bool = True
    """Whether this broker implements it. Other features stay disabled in a new cluster, but their levels are known, so
    that a directory of Apache Kafka that uses them can be opened."""

    @property
    def highest(self) -> int:
        return self.levels[-1].level

    def default_level(self, version: MetadataVersion) -> int:
        """Returns the level of a new cluster that is formatted for this metadata version."""
        return max(level.level for level in self.levels if level.since <= version) if self.served else 0

    def missing(self, level: int, levels: Mapping[str, int]) -> dict[str, int]:
        """Returns the features that must be raised before this one can reach ``level``, and their levels."""
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
"""1: the voters are in the log and can change (KIP-853). Its level is not a metadata record but a control record of
Raft, so an image does not contain it."""

TRANSACTION_VERSION = _feature(
    "transaction.version",
    FeatureLevel(1, MetadataVersion.IBP_4_0_IV2),
    FeatureLevel(2, MetadataVersion.IBP_4_0_IV2),
)
"""1: flexible records in ``__transaction_state``; 2: the producer epoch increases with every transaction (KIP-890)."""

GROUP_VERSION = _feature("group.version", FeatureLevel(1, MetadataVersion.IBP_4_0_IV0))
"""1: groups that the coordinator rebalances (KIP-848)."""

ELR_VERSION = _feature(
    "eligible.leader.replicas.version",
    FeatureLevel(1, MetadataVersion.IBP_4_1_IV0, {metadata_version.FEATURE_NAME: MetadataVersion.IBP_4_0_IV1}),
)
"""1: eligible leader replicas, which left the ISR but have every committed record, may be elected (KIP-966)."""

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
