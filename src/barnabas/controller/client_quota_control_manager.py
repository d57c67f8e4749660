"""Client quotas: the limits set per entity (KIP-546). The brokers enforce them."""

from __future__ import annotations

import ipaddress
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING

from barnabas.common.errors import ApiError, InvalidRequestError
from barnabas.common.snapshot_registry import SnapshotRegistry, TimelineHashMap
from barnabas.controller.result import ControllerResult, check_operation_size, error_fields
from barnabas.metadata.client_quotas import CLIENT_ID, IP, USER, ClientQuotaEntity
from barnabas.protocol.internal.metadata import ClientQuotaRecord
from barnabas.protocol.internal.metadata import EntityData as RecordEntity
from barnabas.raft.client import ApiMessageAndVersion

if TYPE_CHECKING:
    from barnabas.protocol.messages.alter_client_quotas import (
        AlterClientQuotasRequest,
        AlterClientQuotasResponse,
        EntityData,
        OpData,
        RequestEntryData,
    )

log = logging.getLogger(__name__)


class QuotaType(Enum):
    """The type of a quota's value, with the largest value that brokers can hold; None for a fraction."""

    INT = float(2**31 - 1)
    LONG = float(2**63 - 1)
    DOUBLE = None


USER_AND_CLIENT_QUOTAS: Mapping[str, QuotaType] = {
    "producer_byte_rate": QuotaType.LONG,
    "consumer_byte_rate": QuotaType.LONG,
    "request_percentage": QuotaType.DOUBLE,
    "controller_mutation_rate": QuotaType.DOUBLE,
}
IP_QUOTAS: Mapping[str, QuotaType] = {"connection_creation_rate": QuotaType.INT}


def is_ip_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


class ClientQuotaControlManager:
    """Holds the limits by entity.

    The changes of an entity are atomic; each entity of a request succeeds or fails by itself. Setting a limit to its
    present value, or removing a limit that is not set, succeeds and writes nothing.

    For ``ip``, Kafka also accepts host names, if they resolve. The controller does no I/O, so `is_resolvable` decides
    whether a name resolves; by default only addresses are accepted.
    """

    def __init__(self, registry: SnapshotRegistry, is_resolvable: Callable[[str], bool] = is_ip_address) -> None:
        self._registry = registry
        self._is_resolvable = is_resolvable
        self._quotas: TimelineHashMap[ClientQuotaEntity, TimelineHashMap[str, float]] = TimelineHashMap(registry)

    def limits(self, entity: ClientQuotaEntity) -> Mapping[str, float]:
        found = self._quotas.get(entity)
        return {} if found is None else found.present

    def alter_client_quotas(self, request: AlterClientQuotasRequest) -> ControllerResult[AlterClientQuotasResponse]:
        from barnabas.protocol.messages.alter_client_quotas import AlterClientQuotasResponse, ResponseEntryData

        records: list[ApiMessageAndVersion] = []
        responses = []
        by_entity: dict[tuple[tuple[str, str | None], ...], list[RequestEntryData]] = {}
        for entry in request.entries:
            key = tuple(sorted(((part.entity_type, part.entity_name) for part in entry.entity), key=repr))
            by_entity.setdefault(key, []).append(entry)
        for entries in by_entity.values():
            error: ApiError | None = None
            try:
                if len(entries) > 1:
                    raise InvalidRequestError("The request has the same entity more than once.")
                records += self._alter(entries[0].entity, entries[0].ops)
            except ApiError as raised:
                error = raised
            code, message = error_fields(error)
            # Sorted by type, as in DescribeClientQuotas: clients compare the two.
            entity = sorted(entries[0].entity, key=lambda part: part.entity_type)
            responses.append(ResponseEntryData(error_code=code, error_message=message, entity=entity))
        check_operation_size(len(records))
        result = ControllerResult.atomic_of(records, AlterClientQuotasResponse(entries=responses))
        return result.without_records() if request.validate_only else result

    def _alter(self, parts: Iterable[EntityData], operations: Iterable[OpData]) -> list[ApiMessageAndVersion]:
        entity = self._entity(parts)
        allowed = IP_QUOTAS if IP in entity.to_dict() else USER_AND_CLIENT_QUOTAS
        current = self.limits(entity)
        records = []
        seen = set()
        for operation in operations:
            if operation.key in seen:
                raise InvalidRequestError(f"The request has the quota {operation.key} more than once.")
            seen.add(operation.key)
            if operation.remove:
                if operation.key in current:
                    records.append(self._record(entity, operation.key, 0.0, remove=True))
            else:
                _check_value(allowed, operation.key, operation.value)
                if current.get(operation.key) != operation.value:
                    records.append(self._record(entity, operation.key, operation.value, remove=False))
        return records

    def _entity(self, parts: Iterable[EntityData]) -> ClientQuotaEntity:
        names: dict[str, str | None] = {}
        for part in parts:
            if part.entity_type not in (USER, CLIENT_ID, IP):
                raise InvalidRequestError(f"Unknown entity type {part.entity_type!r}.")
            if part.entity_type in names:
                raise InvalidRequestError(f"The entity has more than one {part.entity_type}.")
            if part.entity_name == "":
                raise InvalidRequestError(f"The name of a {part.entity_type} must not be empty.")
            names[part.entity_type] = part.entity_name
        if not names:
            raise InvalidRequestError("A quota needs an entity.")
        address = names.get(IP)
        if IP in names and len(names) > 1:
            raise InvalidRequestError("The quota of an IP address cannot be combined with a user or client ID.")
        if address is not None and not self._is_resolvable(address):
            raise InvalidRequestError(f"Not an IP address: {address!r}")
        return ClientQuotaEntity.of(names)

    def _record(self, entity: ClientQuotaEntity, key: str, value: float, remove: bool) -> ApiMessageAndVersion:
        parts = [RecordEntity(entity_type=kind, entity_name=name) for kind, name in entity.parts]
        return ApiMessageAndVersion(ClientQuotaRecord(entity=parts, key=key, value=value, remove=remove), 0)

    def replay(self, record: ClientQuotaRecord) -> None:
        entity = ClientQuotaEntity.of({part.entity_type: part.entity_name for part in record.entity})
        quotas = self._quotas.get(entity)
        if record.remove:
            if quotas is not None:
                quotas.pop(record.key)
                if not quotas:
                    self._quotas.pop(entity)
            log.info("Removed quota %s of %s", record.key, entity.to_dict())
        else:
            if quotas is None:
                quotas = self._quotas[entity] = TimelineHashMap(self._registry, nested=True)
            quotas[record.key] = record.value
            log.info("Set quota %s of %s to %s", record.key, entity.to_dict(), record.value)


def _check_value(allowed: Mapping[str, QuotaType], key: str, value: float) -> None:
    kind = allowed.get(key)
    if kind is None:
        raise InvalidRequestError(f"Unknown quota {key!r} for this entity; known are {', '.join(sorted(allowed))}.")
    if not math.isfinite(value) or value <= 0:
        raise InvalidRequestError(f"The quota {key} must be greater than 0: {value}")
    if kind.value is not None:
        if value > kind.value:
            raise InvalidRequestError(f"The quota {key} is too large: {value}")
        if value % 1.0 > 1e-6:
            raise InvalidRequestError(f"The quota {key} must be a whole number: {value}")
