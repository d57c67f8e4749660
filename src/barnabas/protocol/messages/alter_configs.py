"""DOC AlterConfigs."""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, boolean, int8, int16, int32, string
from barnabas.protocol.message import Request, Response, Struct


class AlterableConfig(Struct):
    name: str = string(default="")
    value: str | None = string(default="", nullable="0+")


class AlterConfigsResource(Struct):
    resource_type: int = int8(default=0)
    resource_name: str = string(default="")
    configs: list[AlterableConfig] = array(AlterableConfig, default_factory=list)


class AlterConfigsRequest(Request, api_key=ApiKey.ALTER_CONFIGS):
    resources: list[AlterConfigsResource] = array(AlterConfigsResource, default_factory=list)
    validate_only: bool = boolean(default=False)


class AlterConfigsResourceResponse(Struct):
    error_code: int = int16(default=0)
    error_message: str | None = string(default="", nullable="0+")
    resource_type: int = int8(default=0)
    resource_name: str = string(default="")


class AlterConfigsResponse(Response, api_key=ApiKey.ALTER_CONFIGS):
    throttle_time_ms: int = int32(default=0)
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse, default_factory=list)
