"""DescribeConfigs (v1-4) on a controller: this node's own settings, and those in the metadata.

The settings of a node come from its configuration, which is above this layer; so who can describe them is handed in. It
authorizes as well (DescribeConfigs on the resource), because it alone knows which resources there are.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.controller.handlers.backend import Backend
from barnabas.protocol.messages.describe_configs import DescribeConfigsResponse, DescribeConfigsResult
from barnabas.server.request import Request
from barnabas.server.request_local import RequestLocal

DescribeConfigs = Callable[[Request], list[DescribeConfigsResult]]


class DescribeConfigsHandler:
    """Tells the settings of this node."""

    def __init__(self, backend: Backend, describe: DescribeConfigs) -> None:
        self._backend = backend
        self._describe = describe

    def describe_configs(self, request: Request, _local: RequestLocal) -> None:
        self._backend.send(request, DescribeConfigsResponse(results=self._describe(request)))
