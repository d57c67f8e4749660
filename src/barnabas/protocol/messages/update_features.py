"""UpdateFeatures (API 57): raises or lowers feature levels of the cluster, such as ``metadata.version`` (KIP-584).

An administrator's request, forwarded to the controller, usually the last step of an upgrade: brokers run the new code
first, then the new formats are enabled. A level must be supported by every registered broker and controller. A
``max_version_level`` below 1 removes the feature. Levels go up by default; ``upgrade_type`` 2 permits a lossless
downgrade, 3 also a lossy one. Nothing changes with ``validate_only``.

Versions: v1 ``upgrade_type`` in place of ``allow_downgrade``, ``validate_only`` (KIP-778); v2 all or nothing, so there
are no results per feature (KIP-1022).
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, boolean, int8, int16, int32, string
from barnabas.protocol.message import Request, Response, Struct


class FeatureUpdateKey(Struct):
    feature: str = string(default="")
    max_version_level: int = int16(default=0)
    allow_downgrade: bool = boolean("0", default=False)
    upgrade_type: int = int8("1+", default=1)


class UpdateFeaturesRequest(Request, api_key=ApiKey.UPDATE_FEATURES):
    timeout_ms: int = int32(default=60000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey, default_factory=list)
    validate_only: bool = boolean("1+", default=False)


class UpdatableFeatureResult(Struct):
    feature: str = string(default="")
    error_code: int = int16(default=0)
    error_message: str | None = string(default="", nullable="0+")


class UpdateFeaturesResponse(Response, api_key=ApiKey.UPDATE_FEATURES):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(default="", nullable="0+")
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, "0-1", default_factory=list, ignorable=True)
