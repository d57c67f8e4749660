"""The API versions and features that a broker advertises (R03)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from barnabas.metadata.cache import FinalizedFeatures
from barnabas.network.client.node_api_versions import NodeApiVersions
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
"""The ApiVersions version since which clients accept features with level 0; older ones fail on it (KAFKA-17011)."""

TELEMETRY_APIS: Final = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})
"""The APIs with which clients push their metrics (KIP-714)."""


class BrokerApiVersionManager(ApiVersionManager):
    """Advertises the APIs that have a handler; forwarded APIs are limited to the controller's versions.

    A client sends each request in the newest advertised version. A forwarded request in a version that the controller
    does not support would fail:

    ==================== =========== =============== ============
    API                  this broker the controller  advertised
    ==================== =========== =============== ============
    Fetch                4-18        0-17            4-18
    CreateTopics         2-7         2-6             2-6
    CreateTopics         2-7         not served      not at all
    ==================== =========== =============== ============

    Before the first connection to a controller its versions are unknown, and all are advertised. The versions that a
    listener *accepts* are not limited: the controller may have changed since, and then it refuses the request itself.

    Telemetry APIs are listed only while ``telemetry`` returns true. Some clients print a line when they find them, and
    most brokers have no subscription to client metrics. They are accepted all the same: a client may have connected
    before the last subscription was deleted.

    Every new client connection gets this list. So its parts are rebuilt only when something has changed;
    ``controller_versions`` is compared by identity, since each new connection to a controller gives a new object.
    """

    def __init__(
        self,
        apis: Collection[ApiKey],
        supported_features: Mapping[str, VersionRange],
        features: Callable[[], FinalizedFeatures],
        controller_versions: Callable[[], NodeApiVersions | None] = lambda: None,
        telemetry: Callable[[], bool] = lambda: True,
        *,
        unstable: bool = False,
    ) -> None:
        super().__init__(Scope.BROKER, apis, unstable=unstable)
        self._features = features
        self._controller_versions = controller_versions
        self._telemetry = telemetry
        rows = [
            SupportedFeatureKey(name=name, min_version=versions.lowest, max_version=versions.highest)
            for name, versions in sorted(supported_features.items())
        ]
        self._supported = rows
        self._supported_without_level_0 = [row for row in rows if row.min_version > 0]
        # Each pair is replaced as a whole, so a reading thread sees consistent parts.
        self._api_rows: tuple[NodeApiVersions | None, bool, list[ApiVersion]] = (
            None,
            False,
            self._rows_for(None, with_telemetry=False),
        )
        self._finalized: tuple[Mapping[str, int], list[FinalizedFeatureKey]] = ({}, [])

    def advertised(self) -> dict[ApiKey, VersionRange]:
        return self._intersect(self._controller_versions(), with_telemetry=self._telemetry())

    def _intersect(self, controller: NodeApiVersions | None, *, with_telemetry: bool) -> dict[ApiKey, VersionRange]:
        own = super().advertised()
        if not with_telemetry:
            own = {key: spoken for key, spoken in own.items() if key not in TELEMETRY_APIS}
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

    def _rows_for(self, controller: NodeApiVersions | None, *, with_telemetry: bool) -> list[ApiVersion]:
        return [
            ApiVersion(api_key=key.value, min_version=spoken.lowest, max_version=spoken.highest)
            for key, spoken in sorted(self._intersect(controller, with_telemetry=with_telemetry).items())
        ]

    def api_versions_response(self, throttle_time_ms: int, version: int) -> ApiVersionsResponse:
        """Returns the ApiVersions response for a client that uses this version."""
        controller = self._controller_versions()
        with_telemetry = self._telemetry()
        known_controller, had_telemetry, rows = self._api_rows
        if controller is not known_controller or with_telemetry is not had_telemetry:
            rows = self._rows_for(controller, with_telemetry=with_telemetry)
            self._api_rows = (controller, with_telemetry, rows)
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
