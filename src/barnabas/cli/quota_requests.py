"""Requests that describe and alter quotas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from barnabas.cli.cluster import http_document
from barnabas.cli.console import CommandError
from barnabas.clients.common.blocking_client import BlockingClient
from barnabas.common.errors import Errors
from barnabas.network.client.node import Node
from barnabas.protocol.messages import alter_client_quotas as alter
from barnabas.protocol.messages import describe_client_quotas as describe
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from barnabas.quota.usage import QuotaUsage

Parts = tuple[tuple[str, str | None], ...]
"""An entity in the form of the protocol: sorted pairs of type and name. The name None is the default entity."""

HTTP_LISTENER: Final = "barnabas.http.listener"
_BROKER_RESOURCE: Final = 4
_EXACT, _DEFAULT, _SPECIFIED = 0, 1, 2


def describe_quotas(
    client: BlockingClient, parts: Mapping[str, str | None] | None = None
) -> dict[Parts, dict[str, float]]:
    """Returns the limits of all entities, or of those that have these parts."""
    components = [
        describe.ComponentData(entity_type=kind, match_type=_DEFAULT if name is None else _EXACT, match=name)
        for kind, name in (parts or {}).items()
    ]
    response: describe.DescribeClientQuotasResponse = client.send(
        describe.DescribeClientQuotasRequest(components=components, strict=False)
    )
    _raise_for(response.error_code, response.error_message, "cannot read the quotas")
    return {
        tuple(sorted((part.entity_type, part.entity_name) for part in entry.entity)): {
            value.key: value.value for value in entry.values
        }
        for entry in response.entries or ()
    }


def alter_quotas(client: BlockingClient, parts: Parts, operations: Mapping[str, float | None]) -> None:
    """Sets limits of one entity; None removes a limit."""
    entry = alter.RequestEntryData(
        entity=[alter.EntityData(entity_type=kind, entity_name=name) for kind, name in parts],
        ops=[
            alter.OpData(key=key, value=0.0 if value is None else value, remove=value is None)
            for key, value in operations.items()
        ],
    )
    response: alter.AlterClientQuotasResponse = client.send(alter.AlterClientQuotasRequest(entries=[entry]))
    for result in response.entries:
        _raise_for(result.error_code, result.error_message, "cannot change the quotas")


def http_listener(client: BlockingClient, node: Node) -> str | None:
    """Returns the HTTP listener of a broker; None if it has none, or is not a Barnabas broker."""
    resource = DescribeConfigsResource(
        resource_type=_BROKER_RESOURCE, resource_name=str(node.id), configuration_keys=[HTTP_LISTENER]
    )
    response: DescribeConfigsResponse = client.send(DescribeConfigsRequest(resources=[resource]), node)
    for result in response.results:
        _raise_for(result.error_code, result.error_message, f"cannot read the settings of broker {node.id}")
        for config in result.configs:
            if config.name == HTTP_LISTENER:
                return config.value or None
    return None


def read_usage(address: str) -> tuple[dict[str, Any], list[QuotaUsage]]:
    """Reads the ``/quotas`` page of a broker; returns the page and its usage entries."""
    page = http_document(address, "/quotas")
    try:
        usages = [QuotaUsage.from_json(entry) for entry in page["quotas"]]
        if not {"node", "callback", "windows"} <= page.keys():
            raise KeyError(address)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise CommandError(f"unexpected document at {address}/quotas: not the HTTP endpoint of a broker") from None
    return page, usages


def _raise_for(code: int, message: str | None, what: str) -> None:
    if code:
        error = Errors.for_code(code)
        raise CommandError(f"{what}: {message or error.message} ({error.name})")
