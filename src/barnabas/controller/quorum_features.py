"""The features that this controller's software supports."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.common.dataclass import dataclass
from barnabas.metadata import metadata_version
from barnabas.metadata.feature_versions import FEATURES
from barnabas.metadata.metadata_version import LATEST_VERSION, MINIMUM_VERSION
from barnabas.protocol.versions import VersionRange

DISABLED = VersionRange(0, 0)
"""The range of a feature that a node does not know: it can only be disabled."""


def default_supported_features() -> dict[str, VersionRange]:
    """Returns the supported levels of every feature of this software; a node sends them when it registers."""
    features = {name: VersionRange(0, feature.highest) for name, feature in FEATURES.items()}
    features[metadata_version.FEATURE_NAME] = VersionRange(MINIMUM_VERSION.value, LATEST_VERSION.value)
    return features


def reason_not_supported(who: str, supported: VersionRange, level: int) -> str | None:
    """Returns why a node cannot run a feature at this level, None if it can."""
    if level in supported:
        return None
    if supported.highest == 0:
        return f"{who} does not have this feature."
    return f"{who} supports only levels {supported}."


@dataclass(frozen=True, slots=True)
class QuorumFeatures:
    """The features of this node, and the other nodes of the quorum, which must also support them."""

    node_id: int
    supported: Mapping[str, VersionRange]
    quorum_node_ids: tuple[int, ...]

    def supported_range(self, name: str) -> VersionRange:
        return self.supported.get(name, DISABLED)

    def is_controller_id(self, node_id: int) -> bool:
        return node_id in self.quorum_node_ids
