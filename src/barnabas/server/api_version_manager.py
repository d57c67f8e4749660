"""Which APIs a listener serves, in which versions."""

from __future__ import annotations

from collections.abc import Collection

from barnabas.protocol.api_keys import ApiKey, Scope
from barnabas.protocol.headers import ParsedHeader
from barnabas.protocol.versions import VersionRange


class ApiVersionManager:
    """Holds the APIs of a scope, all or the given ones, without unstable versions unless they are enabled.

    ApiVersions is served in every version: its handler responds to an unknown version with version 0 and an error,
    from which a newer client learns the supported versions.
    """

    def __init__(self, scope: Scope, apis: Collection[ApiKey] | None = None, *, unstable: bool = False) -> None:
        self.scope = scope
        self.unstable = unstable
        self._ranges: dict[ApiKey, VersionRange] = {
            key: key.versions if unstable else key.stable_versions
            for key in ApiKey
            if key.scope & scope and (apis is None or key in apis)
        }

    def is_enabled(self, header: ParsedHeader) -> bool:
        served = self._ranges.get(header.api_key)
        if served is None:
            return False
        return served.lowest <= header.api_version <= served.highest or header.api_key is ApiKey.API_VERSIONS

    @property
    def enabled_apis(self) -> dict[ApiKey, VersionRange]:
        return dict(self._ranges)

    def advertised(self) -> dict[ApiKey, VersionRange]:
        """Returns the versions that an ApiVersions response lists."""
        return {key: key.advertised_versions(unstable=self.unstable) for key in self._ranges}
