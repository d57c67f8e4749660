"""DOC ApiVersions."""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, boolean, int16, int32, int64, string
from barnabas.protocol.message import Request, Response, Struct


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
