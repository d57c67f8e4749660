"""ListConfigResources (API 74): lists the resources that can have a configuration.

Any broker responds. ``resource_types`` (as in DescribeConfigs) selects; an empty list means all supported types:
topics, brokers, broker loggers, client metrics and groups. For client metrics and groups this is the only way to list
them.

Versions: v0 client metrics only, under the name ListClientMetricsResources (KIP-1000); v1 resource types (KIP-1142).
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int8, int16, int32, string
from barnabas.protocol.message import Request, Response, Struct


class ListConfigResourcesRequest(Request, api_key=ApiKey.LIST_CONFIG_RESOURCES):
    resource_types: list[int] = array("int8", "1+", default_factory=list)


class ConfigResource(Struct):
    resource_name: str = string(default="")
    resource_type: int = int8("1+", default=16, ignorable=True)


class ListConfigResourcesResponse(Response, api_key=ApiKey.LIST_CONFIG_RESOURCES):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    config_resources: list[ConfigResource] = array(ConfigResource, default_factory=list)
