"""The client quotas part of an image."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from barnabas.common.dataclass import dataclass, field
from barnabas.common.errors import InvalidRequestError, UnsupportedVersionError
from barnabas.metadata.map_delta import NestedMapDelta
from barnabas.metadata.persistent_map import PersistentMap
from barnabas.protocol.internal.metadata import ClientQuotaRecord, EntityData

if TYPE_CHECKING:
    from barnabas.metadata.writer import ImageWriter, ImageWriterOptions
    from barnabas.protocol.messages import describe_client_quotas as messages

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"

_DESCRIBED_FIRST = ("consumer_byte_rate", "request_percentage", "producer_byte_rate")
"""Kafka lists limits in the order of the hash codes of their names, and the tests of some clients expect that order.
The protocol allows any order, so this is Kafka's."""

_MATCH_EXACT = 0
_MATCH_DEFAULT = 1
_MATCH_SPECIFIED = 2


class ClientQuotaEntity(NamedTuple):
    """The entity of a quota: a user, a client ID, a user with a client ID, or an IP address.

    A name of None is the default, for example the quota of all users without their own.

    >>> ClientQuotaEntity.of({"client-id": "billing", "user": None})
    ClientQuotaEntity(parts=(('client-id', 'billing'), ('user', None)))
    """

    parts: tuple[tuple[str, str | None], ...]
    """Type and name, sorted by type, so that equal entities are equal tuples."""

    @classmethod
    def of(cls, parts: Mapping[str, str | None]) -> ClientQuotaEntity:
        # Types are distinct, so names, one of which may be None, are never compared.
        return cls(tuple(sorted(parts.items())))

    def to_dict(self) -> dict[str, str | None]:
        return dict(self.parts)


Limits = Mapping[str, float]
"""The quotas of one entity by key, such as ``producer_byte_rate``. Must not be modified."""

_NO_LIMITS: Limits = {}


@dataclass(frozen=True, slots=True)
class ClientQuotasImage:
    """Limits by entity; an entity without limits is not included."""

    entities: PersistentMap[ClientQuotaEntity, Limits] = field(default_factory=PersistentMap)

    def __bool__(self) -> bool:
        return bool(self.entities)

    def of(self, entity: ClientQuotaEntity) -> Limits:
        return self.entities.get(entity, _NO_LIMITS)

    def write(self, writer: ImageWriter, _options: ImageWriterOptions) -> None:
        for entity, limits in self._in_order():
            for key, value in sorted(limits.items()):
                parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity.parts]
                writer.write(ClientQuotaRecord(entity=parts, key=key, value=value))

    def describe(self, request: messages.DescribeClientQuotasRequest) -> messages.DescribeClientQuotasResponse:
        """Returns the entities that match a filter. Raises InvalidRequestError for an invalid filter."""
        from barnabas.protocol.messages import describe_client_quotas as messages

        exact, specified = _read_filter(request.components)
        entries = [
            messages.EntryData(
                entity=[messages.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.parts],
                values=[messages.ValueData(key=key, value=limits[key]) for key in sorted(limits, key=_described_order)],
            )
            for entity, limits in self._in_order()
            if _matches(entity.to_dict(), exact, specified, request.strict)
        ]
        return messages.DescribeClientQuotasResponse(entries=entries)

    def _in_order(self) -> list[tuple[ClientQuotaEntity, Limits]]:
        """Returns users first, then users with a client ID: quotas for more clients come first."""
        return sorted(
            self.entities.items(),
            key=lambda item: (
                len(item[0].parts),
                [(kind, name is not None, name or "") for kind, name in item[0].parts],
            ),
        )


def _described_order(key: str) -> tuple[int, str]:
    place = _DESCRIBED_FIRST.index(key) if key in _DESCRIBED_FIRST else len(_DESCRIBED_FIRST)
    return place, key


def _read_filter(components: Iterable[messages.ComponentData]) -> tuple[dict[str, str | None], set[str]]:
    """Returns the requested names by type, and the types with any name."""
    exact: dict[str, str | None] = {}
    specified: set[str] = set()
    for component in components:
        kind = component.entity_type
        if not kind:
            raise InvalidRequestError("a filter component has an empty entity type")
        if kind in exact or kind in specified:
            raise InvalidRequestError(f"entity type {kind} appears more than once in the filter")
        if kind not in (USER, CLIENT_ID, IP):
            raise UnsupportedVersionError(f"entity type {kind} is not supported")
        if component.match_type == _MATCH_EXACT:
            if component.match is None:
                raise InvalidRequestError(f"an exact match of entity type {kind} needs a name")
            exact[kind] = component.match
        elif component.match_type in (_MATCH_DEFAULT, _MATCH_SPECIFIED):
            if component.match is not None:
                raise InvalidRequestError(
                    f"match type {component.match_type} of entity type {kind} must not have a name"
                )
            if component.match_type == _MATCH_DEFAULT:
                exact[kind] = None
            else:
                specified.add(kind)
        else:
            raise InvalidRequestError(f"unknown match type {component.match_type}")
    kinds = exact.keys() | specified
    if IP in kinds and len(kinds) > 1:
        raise InvalidRequestError("a filter cannot combine an IP address with a user or client ID")
    return exact, specified


def _matches(
    parts: Mapping[str, str | None], exact: Mapping[str, str | None], specified: set[str], strict: bool
) -> bool:
    if strict and len(parts) != len(exact) + len(specified):
        return False
    return all(kind in parts and parts[kind] == name for kind, name in exact.items()) and specified <= parts.keys()


class ClientQuotasDelta:
    """Changed limits."""

    def __init__(self, image: ClientQuotasImage) -> None:
        self.image = image
        self._entities = NestedMapDelta(image.entities)

    @classmethod
    def of_everything(cls, image: ClientQuotasImage) -> ClientQuotasDelta:
        delta = cls(ClientQuotasImage())
        delta._entities = NestedMapDelta.of_everything(image.entities)
        return delta

    @property
    def changes(self) -> Mapping[ClientQuotaEntity, Mapping[str, float | None]]:
        """The changed limits by entity: the new value, or None for a removed one."""
        return self._entities.changes

    def replay(self, record: ClientQuotaRecord) -> None:
        entity = ClientQuotaEntity.of({part.entity_type: part.entity_name for part in record.entity})
        if record.remove:
            self._entities.remove(entity, record.key)
        else:
            self._entities.put(entity, record.key, record.value)

    def finish_snapshot(self) -> None:
        self._entities.finish_snapshot()

    def __bool__(self) -> bool:
        return bool(self._entities)

    def apply(self) -> ClientQuotasImage:
        return ClientQuotasImage(self._entities.apply()) if self else self.image

    def __repr__(self) -> str:
        return f"ClientQuotasDelta({self.changes!r})"
