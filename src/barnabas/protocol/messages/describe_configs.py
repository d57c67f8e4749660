"""DescribeConfigs (API 32): shows the configuration of topics, brokers, groups and telemetry subscriptions.

Any broker responds for topics, groups and client metrics. Only the broker itself knows its own configuration and
loggers, so requests for these must go to it. Resource types: 2 topic, 4 broker (an empty name is the dynamic default
for all brokers), 8 broker logger, 16 client metrics, 32 group. ``configuration_keys`` null lists all keys.

``config_source`` says where the value in force comes from: 1 topic, 2 this broker dynamically, 3 all brokers
dynamically, 4 the broker's properties file, 5 built-in default, 6 broker logger, 7 client metrics, 8 group.
``synonyms`` lists every source that sets the value, highest precedence first. ``config_type``: 1 boolean, 2 string, 3
int, 4 short, 5 long, 6 double, 7 list, 8 class, 9 password. A sensitive value is always null.

Versions: v2 client-side throttling (KIP-219); v3 types and documentation (KIP-569); v4 flexible.
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, boolean, int8, int16, int32, string
from barnabas.protocol.message import Request, Response, Struct


class DescribeConfigsResource(Struct):
    resource_type: int = int8(default=0)
    resource_name: str = string(default="")
    configuration_keys: list[str] | None = array("string", default_factory=list, nullable="0+")


class DescribeConfigsRequest(Request, api_key=ApiKey.DESCRIBE_CONFIGS):
    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource, default_factory=list)
    include_synonyms: bool = boolean("1+", default=False)
    include_documentation: bool = boolean("3+", default=False)


class DescribeConfigsSynonym(Struct):
    name: str = string("1+", default="")
    value: str | None = string("1+", default="", nullable="0+")
    source: int = int8("1+", default=0)


class DescribeConfigsResourceResult(Struct):
    name: str = string(default="")
    value: str | None = string(default="", nullable="0+")
    read_only: bool = boolean(default=False)
    config_source: int = int8("1+", default=-1, ignorable=True)
    is_sensitive: bool = boolean(default=False)
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, "1+", default_factory=list, ignorable=True)
    config_type: int = int8("3+", default=0, ignorable=True)
    documentation: str | None = string("3+", default="", nullable="0+", ignorable=True)


class DescribeConfigsResult(Struct):
    error_code: int = int16(default=0)
    error_message: str | None = string(default="", nullable="0+")
    resource_type: int = int8(default=0)
    resource_name: str = string(default="")
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult, default_factory=list)


class DescribeConfigsResponse(Response, api_key=ApiKey.DESCRIBE_CONFIGS):
    throttle_time_ms: int = int32(default=0)
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult, default_factory=list)
