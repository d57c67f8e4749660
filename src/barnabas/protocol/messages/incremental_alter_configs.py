"""IncrementalAlterConfigs (API 44): changes single configuration keys and leaves the others alone (KIP-339).

Forwarded to the controller; a broker handles requests for its own loggers itself. ``config_operation``: 0 set, 1 delete
(back to the default), 2 append to and 3 subtract from a list-valued key. Resource types and names are as in
DescribeConfigs; for client metrics and groups, setting the first key creates the resource, deleting the last one
removes it. All keys of one resource change together or not at all.

Versions: v1 flexible.
"""

from __future__ import annotations

from typing import ClassVar

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, boolean, int8, int32, string
from barnabas.protocol.message import Request, Response, Struct
from barnabas.protocol.messages.alter_configs import AlterConfigsResourceResponse


class AlterableConfig(Struct):
    name: str = string(default="")
    config_operation: int = int8(default=0)
    value: str | None = string(default="", nullable="0+")


class AlterConfigsResource(Struct):
    resource_type: int = int8(default=0)
    resource_name: str = string(default="")
    configs: list[AlterableConfig] = array(AlterableConfig, default_factory=list)


class IncrementalAlterConfigsRequest(Request, api_key=ApiKey.INCREMENTAL_ALTER_CONFIGS):
    max_entries: ClassVar[int] = 20_000
    """Each resource is validated with all its settings on the controller thread, which broker heartbeats need too."""
    resources: list[AlterConfigsResource] = array(AlterConfigsResource, default_factory=list)
    validate_only: bool = boolean(default=False)


class IncrementalAlterConfigsResponse(Response, api_key=ApiKey.INCREMENTAL_ALTER_CONFIGS):
    throttle_time_ms: int = int32(default=0)
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse, default_factory=list)
