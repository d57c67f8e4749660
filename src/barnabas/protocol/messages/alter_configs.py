"""AlterConfigs (API 33): replaces the whole configuration of a topic or broker.

Every key that is not listed returns to its default. Two administrators who each read, modify and write therefore undo
each other's work, which is why IncrementalAlterConfigs exists and this request is deprecated. Resource types and names
are as in DescribeConfigs. Each resource succeeds or fails by itself.

Versions: v1 client-side throttling (KIP-219); v2 flexible.
"""

from __future__ import annotations

from typing import ClassVar

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
    max_entries: ClassVar[int] = 20_000
    """Each resource is validated with all its settings on the controller thread, which broker heartbeats need too."""
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
