"""Client quotas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from barnabas.clients.admin.internals.admin_api_driver import error_of
from barnabas.clients.admin.internals.node_choice import ANY, CONTROLLER
from barnabas.clients.admin.internals.operation import Operation
from barnabas.clients.admin.results import Results
from barnabas.common.errors import ApiError, UnknownServerError, raise_for_code
from barnabas.protocol.messages import alter_client_quotas as alter_api
from barnabas.protocol.messages import describe_client_quotas as describe_api

_EXACT, _DEFAULT, _SPECIFIED = 0, 1, 2
Quotas: TypeAlias = dict[str, float]


@dataclass(frozen=True, slots=True)
class ClientQuotaEntity:
    """The owner of a quota: a user, a client id, both, or an address. A name of None is the default of its kind.

    >>> ClientQuotaEntity.of({"user": "alice", "client-id": None})
    ClientQuotaEntity(parts=(('client-id', None), ('user', 'alice')))
    """

    parts: tuple[tuple[str, str | None], ...]

    @classmethod
    def of(cls, parts: Mapping[str, str | None]) -> ClientQuotaEntity:
        """Makes an entity of its parts: ``{"user": "anna", "client-id": None}``; None is the default."""
        return cls(tuple(sorted(parts.items())))

    def __str__(self) -> str:
        return ", ".join(f"default {kind}" if name is None else f"{kind} {name}" for kind, name in self.parts)


class AnyName:
    """In a filter: any name, or the default."""

    def __repr__(self) -> str:
        return "ANY_NAME"


ANY_NAME: Final = AnyName()
"""In a filter of `KafkaAdminClient.describe_client_quotas`: any name, or the default."""


async def describe_client_quotas(
    operation: Operation, components: Mapping[str, str | AnyName | None] | None = None, *, strict: bool = False
) -> dict[ClientQuotaEntity, Quotas]:
    """Returns all quotas, or those of entities with these parts: a name, None for the default, `ANY_NAME`.

    ``strict`` leaves out entities that have further parts."""
    request = describe_api.DescribeClientQuotasRequest(
        components=[_component(kind, name) for kind, name in (components or {}).items()], strict=strict
    )

    def read(response: describe_api.DescribeClientQuotasResponse) -> dict[ClientQuotaEntity, Quotas]:
        raise_for_code(response.error_code, response.error_message)
        return {
            ClientQuotaEntity.of({part.entity_type: part.entity_name for part in entry.entity}): {
                value.key: value.value for value in entry.values
            }
            for entry in response.entries or ()
        }

    return await operation.ask(ANY, request, read)


def _component(kind: str, name: str | AnyName | None) -> describe_api.ComponentData:
    if isinstance(name, AnyName):
        return describe_api.ComponentData(entity_type=kind, match_type=_SPECIFIED, match=None)
    return describe_api.ComponentData(entity_type=kind, match_type=_DEFAULT if name is None else _EXACT, match=name)


async def alter_client_quotas(
    operation: Operation,
    alterations: Mapping[ClientQuotaEntity, Mapping[str, float | None]],
    *,
    validate_only: bool = False,
    partial: bool = False,
) -> Results[ClientQuotaEntity, None]:
    """Sets quotas of entities; None removes one."""
    request = alter_api.AlterClientQuotasRequest(
        entries=[
            alter_api.RequestEntryData(
                entity=[alter_api.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.parts],
                ops=[
                    alter_api.OpData(key=key, value=0.0 if value is None else float(value), remove=value is None)
                    for key, value in changes.items()
                ],
            )
            for entity, changes in alterations.items()
        ],
        validate_only=validate_only,
    )
    entities: Sequence[ClientQuotaEntity] = list(alterations)

    def read(response: alter_api.AlterClientQuotasResponse) -> Results[ClientQuotaEntity, None]:
        included: dict[ClientQuotaEntity, ApiError | None] = {
            ClientQuotaEntity.of({part.entity_type: part.entity_name for part in entry.entity}): error_of(
                entry.error_code, entry.error_message
            )
            for entry in response.entries
        }
        return _by_key(entities, included)

    return (await operation.ask(CONTROLLER, request, read)).checked(partial)


def _by_key(
    keys: Iterable[ClientQuotaEntity], included: Mapping[ClientQuotaEntity, ApiError | None]
) -> Results[ClientQuotaEntity, None]:
    failed: dict[ClientQuotaEntity, ApiError] = {}
    for key in keys:
        error = included.get(key, UnknownServerError(f"The controller's response does not include {key}."))
        if error is not None:
            failed[key] = error
    return Results({key: None for key in keys if key not in failed}, failed)
