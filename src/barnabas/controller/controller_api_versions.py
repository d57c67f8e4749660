"""ApiVersions of a controller (R03)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from barnabas.metadata.cache import FinalizedFeatures
from barnabas.protocol.api_keys import ApiKey, Scope
from barnabas.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from barnabas.protocol.versions import VersionRange
from barnabas.server.api_version_manager import ApiVersionManager

FIRST_WITH_LEVEL_0 = 4
"""First ApiVersions version whose clients accept a feature with minimum level 0; older ones fail (KAFKA-17011)."""


class ControllerApiVersionManager(ApiVersionManager):
    """The APIs that have a handler on this controller, and the features of the cluster.

    The clients are connecting brokers and tools that talk to the controllers directly. Unlike a broker's response, this
    one is not intersected with another node's versions: a controller forwards nothing.
    """

    def __init__(
        self,
        apis: Collection[ApiKey],
        supported_features: Mapping[str, VersionRange],
        features: Callable[[], FinalizedFeatures],
        *,
        unstable: bool = False,
    ) -> None:
        super().__init__(Scope.CONTROLLER, apis, unstable=unstable)
        self._features = features
        self._apis = [
            ApiVersion(api_key=key, min_version=versions.lowest, max_version=versions.highest)
            for key, versions in sorted(self.advertised().items())
        ]
        self._supported = [
            SupportedFeatureKey(name=name, min_version=versions.lowest, max_version=versions.highest)
            for name, versions in sorted(supported_features.items())
        ]

    def api_versions_response(self, throttle_time_ms: int, version: int) -> ApiVersionsResponse:
        """Returns the response to an ApiVersions request of this version."""
        features = self._features()
        return ApiVersionsResponse(
            api_keys=self._apis,
            throttle_time_ms=throttle_time_ms,
            supported_features=[row for row in self._supported if row.min_version > 0 or version >= FIRST_WITH_LEVEL_0],
            finalized_features_epoch=features.epoch,
            finalized_features=[
                FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
                for name, level in sorted(features.levels.items())
                if level > 0
            ],
        )
