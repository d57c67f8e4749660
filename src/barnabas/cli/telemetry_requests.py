"""Requests that list, describe and alter subscriptions to client metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from barnabas.cli.console import CommandError
from barnabas.clients.common.blocking_client import BlockingClient
from barnabas.common.errors import Errors
from barnabas.protocol.messages import incremental_alter_configs as alter
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from barnabas.protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse

_CLIENT_METRICS: Final = 16
_SET, _DELETE = 0, 1


def subscriptions(client: BlockingClient) -> list[str]:
    """Returns the names of all subscriptions."""
    response: ListConfigResourcesResponse = client.send(ListConfigResourcesRequest(resource_types=[_CLIENT_METRICS]))
    _raise_for(response.error_code, None, "cannot list the subscriptions")
    return [resource.resource_name for resource in response.config_resources]


def describe_subscriptions(client: BlockingClient) -> dict[str, dict[str, Any]]:
    """Returns all subscriptions. ``metrics`` and ``match`` are lists, ``interval.ms`` is a number."""
    names = subscriptions(client)
    if not names:
        return {}
    resources = [
        DescribeConfigsResource(resource_type=_CLIENT_METRICS, resource_name=name, configuration_keys=None)
        for name in names
    ]
    response: DescribeConfigsResponse = client.send(DescribeConfigsRequest(resources=resources))
    found = {}
    for result in response.results:
        _raise_for(result.error_code, result.error_message, f"cannot read the subscription {result.resource_name}")
        values = {config.name: config.value or "" for config in result.configs}
        found[result.resource_name] = {
            "metrics": _entries(values["metrics"]),
            "interval.ms": int(values["interval.ms"]),
            "match": _entries(values["match"]),
        }
    return found


def alter_subscription(client: BlockingClient, name: str, settings: Mapping[str, str | None]) -> None:
    """Sets settings of a subscription; None removes one. Removing all of them deletes the subscription."""
    resource = alter.AlterConfigsResource(
        resource_type=_CLIENT_METRICS,
        resource_name=name,
        configs=[
            alter.AlterableConfig(name=key, config_operation=_DELETE if value is None else _SET, value=value)
            for key, value in settings.items()
        ],
    )
    response: alter.IncrementalAlterConfigsResponse = client.send(
        alter.IncrementalAlterConfigsRequest(resources=[resource])
    )
    for result in response.responses:
        _raise_for(result.error_code, result.error_message, f"cannot change the subscription {name}")


def _entries(text: str) -> list[str]:
    return [entry.strip() for entry in text.split(",") if entry.strip()]


def _raise_for(code: int, message: str | None, what: str) -> None:
    if code:
        error = Errors.for_code(code)
        raise CommandError(f"{what}: {message or error.message} ({error.name})")
