"""What a broker says that it can do (R03)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from barnabas.metadata.cache import FinalizedFeatures
from barnabas.network.node_api_versions import NodeApiVersions
from barnabas.protocol.api_keys import ApiKey, Scope, Trait
from barnabas.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from barnabas.protocol.versions import VersionRange
from barnabas.server.api_version_manager import ApiVersionManager

FIRST_VERSION_WITH_LEVEL_0 = 4
"""Of ApiVersions: clients before it take a feature that can be at level 0 for a mistake, and give up (KAFKA-17011)."""


class BrokerApiVersionManager(ApiVersionManager):
    """The APIs that have a handler here, narrowed down to what the controller speaks where it is asked in the end.

    A client sends each request in the newest version that it finds advertised. For a request that is forwarded, a
    version that this broker speaks and its controller does not would be a promise that cannot be kept:

    ==================== =========== =============== ============
    API                  this broker the controller  advertised
    ==================== =========== =============== ============
    Fetch                4-18        0-17            4-18
    CreateTopics         2-7         2-6             2-6
    CreateTopics         2-7         not served      not at all
    ==================== =========== =============== ============

    Before the first connection to a controller nothing is known of it, and all is advertised. What a listener *accepts*
    is not narrowed: the controller may have changed since the client asked, and then it is the controller's to refuse.

    Every new connection of every client gets this list. So its parts are made when something has changed, and not
    otherwise; ``controller_versions`` is compared by identity, since a new connection to a controller gives a new one.
    """

    def __init__(
        self,
        apis: Collection[ApiKey],
        supported_features: Mapping[str, VersionRange],
        features: Callable[[], FinalizedFeatures],
        controller_versions: Callable[[], NodeApiVersions | None] = lambda: None,
        *,
        unstable: bool = False,
    ) -> None:
        super().__init__(Scope.BROKER, apis, unstable=unstable)
        self._features = features
        self._controller_versions = controller_versions
        rows = [
            SupportedFeatureKey(name=name, min_version=versions.lowest, max_version=versions.highest)
            for name, versions in sorted(supported_features.items())
        ]
        self._supported = rows
        self._supported_without_level_0 = [row for row in rows if row.min_version > 0]
        # Each pair is replaced as a whole, so a thread that reads it sees parts that belong together.
        self._api_rows: tuple[NodeApiVersions | None, list[ApiVersion]] = (None, self._rows_for(None))
        self._finalized: tuple[Mapping[str, int], list[FinalizedFeatureKey]] = ({}, [])

    def advertised(self) -> dict[ApiKey, VersionRange]:
        return self._intersect(self._controller_versions())

    def _intersect(self, controller: NodeApiVersions | None) -> dict[ApiKey, VersionRange]:
        own = super().advertised()
        if controller is None:
            return own
        result: dict[ApiKey, VersionRange] = {}
        for key, spoken in own.items():
            if Trait.FORWARDABLE in key.traits:
                there = controller.supported.get(key)
                if there is None:
                    continue
                spoken = VersionRange(max(spoken.lowest, there.lowest), min(spoken.highest, there.highest))  # noqa: PLW2901
                if spoken.lowest > spoken.highest:
                    continue
            result[key] = spoken
        return result

    def _rows_for(self, controller: NodeApiVersions | None) -> list[ApiVersion]:
        return [
            ApiVersion(api_key=key.value, min_version=spoken.lowest, max_version=spoken.highest)
            for key, spoken in sorted(self._intersect(controller).items())
        ]

    def api_versions_response(self, throttle_time_ms: int, version: int) -> ApiVersionsResponse:
        """The answer to a client that asks in this version."""
        controller = self._controller_versions()
        known_controller, rows = self._api_rows
        if controller is not known_controller:
            rows = self._rows_for(controller)
            self._api_rows = (controller, rows)
        features = self._features()
        levels, finalized = self._finalized
        if features.levels != levels:
            finalized = [
                FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
                for name, level in sorted(features.levels.items())
                if level > 0
            ]
            self._finalized = (features.levels, finalized)
        old_client = version < FIRST_VERSION_WITH_LEVEL_0
        return ApiVersionsResponse(
            api_keys=rows,
            throttle_time_ms=throttle_time_ms,
            supported_features=self._supported_without_level_0 if old_client else self._supported,
            finalized_features_epoch=features.epoch,
            finalized_features=finalized,
        )
