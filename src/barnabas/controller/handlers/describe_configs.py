"""DescribeConfigs (v1-4) on a controller: this node's own configs, and those in the metadata.

The configs of a node belong to a higher layer, so the describing function is passed in. It also authorizes
(DescribeConfigs on the resource), because only it knows which resources exist.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.controller.handlers.backend import Backend
from barnabas.protocol.messages.describe_configs import DescribeConfigsResponse, DescribeConfigsResult
from barnabas.server.request import Request
from barnabas.server.request_local import RequestLocal

DescribeConfigs = Callable[[Request], list[DescribeConfigsResult]]


class DescribeConfigsHandler:
    """Describes the configs of this node."""

    def __init__(self, backend: Backend, describe: DescribeConfigs) -> None:
        self._backend = backend
        self._describe = describe

    def describe_configs(self, request: Request, _local: RequestLocal) -> None:
        self._backend.send(request, DescribeConfigsResponse(results=self._describe(request)))
