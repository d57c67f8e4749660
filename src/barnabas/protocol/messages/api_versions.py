"""ApiVersions (API 18): asks a node for the APIs, versions and features that it supports.

The first request on nearly every connection, served before authentication and on every kind of listener. The client
then uses the highest version of each API that both sides support. Because this request comes before the versions are
negotiated, it has two special rules:

- The response to an unknown version is a **v0 body** with UNSUPPORTED_VERSION and one entry, the versions of
  ApiVersions itself; the client retries with one of those (KIP-511).
- The **response header is always v0**, even for flexible versions. A client that expected a tag section there would
  misread the error.

``supported_features`` are the levels that this node supports, ``finalized_features`` the levels in force in the
cluster, as of the metadata offset ``finalized_features_epoch`` (-1: unknown). All of these are tagged fields, hence
absent below v3. The broker's metrics show the client's software name and version. They may contain letters, digits,
dots and hyphens only; other characters are refused with INVALID_REQUEST.

Versions: v1 throttle time; v2 client-side throttling (KIP-219); v3 flexible, client software (KIP-511), features
(KIP-584); v4 a feature's lowest version may be 0 (v3 leaves such features out, KAFKA-17011); v5 the client sends the
cluster and node id that it expects, and gets REBOOTSTRAP_REQUIRED if another node has that address now (KIP-1242).
"""

from __future__ import annotations

import re
from typing import Final

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, boolean, int16, int32, int64, string
from barnabas.protocol.message import Request, Response, Struct

SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""What names and versions of client software look like."""


class ApiVersionsRequest(Request, api_key=ApiKey.API_VERSIONS):
    client_software_name: str = string("3+", default="", ignorable=True)
    client_software_version: str = string("3+", default="", ignorable=True)
    cluster_id: str | None = string("5+", default=None, nullable="5+", ignorable=True)
    node_id: int = int32("5+", default=-1, ignorable=True)


class ApiVersion(Struct):
    api_key: int = int16(default=0)
    min_version: int = int16(default=0)
    max_version: int = int16(default=0)


class SupportedFeatureKey(Struct):
    name: str = string("3+", default="")
    min_version: int = int16("3+", default=0)
    max_version: int = int16("3+", default=0)


class FinalizedFeatureKey(Struct):
    """A feature level in force; both levels are equal, because a finalized feature is no longer a range."""

    name: str = string("3+", default="")
    max_version_level: int = int16("3+", default=0)
    min_version_level: int = int16("3+", default=0)


class ApiVersionsResponse(Response, api_key=ApiKey.API_VERSIONS):
    error_code: int = int16(default=0)
    api_keys: list[ApiVersion] = array(ApiVersion, default_factory=list)
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    supported_features: list[SupportedFeatureKey] = array(
        SupportedFeatureKey, "3+", default_factory=list, tag=0, ignorable=True
    )
    finalized_features_epoch: int = int64("3+", default=-1, tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = array(
        FinalizedFeatureKey, "3+", default_factory=list, tag=2, ignorable=True
    )
    zk_migration_ready: bool = boolean("3+", default=False, tag=3, ignorable=True)
