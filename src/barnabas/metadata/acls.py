"""The ACL part of an image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from barnabas.common.dataclass import dataclass, field
from barnabas.common.identifiers import Uuid, uuid_to_string
from barnabas.metadata.errors import MetadataReplayError
from barnabas.metadata.map_delta import MapDelta
from barnabas.metadata.persistent_map import PersistentMap
from barnabas.protocol.internal.metadata import AccessControlEntryRecord, RemoveAccessControlEntryRecord

if TYPE_CHECKING:
    from barnabas.metadata.writer import ImageWriter, ImageWriterOptions


class AccessControlEntry(NamedTuple):
    """Allows or denies an operation on resources; the codes are those of CreateAcls."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

    @classmethod
    def from_record(cls, record: AccessControlEntryRecord) -> AccessControlEntry:
        return cls(
            record.resource_type,
            record.resource_name,
            record.pattern_type,
            record.principal,
            record.host,
            record.operation,
            record.permission_type,
        )

    def to_record(self, acl_id: Uuid) -> AccessControlEntryRecord:
        return AccessControlEntryRecord(id=acl_id, **self._asdict())


@dataclass(frozen=True, slots=True)
class AclsImage:
    """Entries by ID. Two entries may be equal: a removal refers to the ID."""

    entries: PersistentMap[Uuid, AccessControlEntry] = field(default_factory=PersistentMap)

    def __bool__(self) -> bool:
        return bool(self.entries)

    def write(self, writer: ImageWriter, _options: ImageWriterOptions) -> None:
        for acl_id, entry in sorted(self.entries.items()):
            writer.write(entry.to_record(acl_id))


class AclsDelta:
    """Added and removed entries."""

    def __init__(self, image: AclsImage) -> None:
        self.image = image
        self._entries = MapDelta(image.entries)

    @classmethod
    def of_everything(cls, image: AclsImage) -> AclsDelta:
        delta = cls(AclsImage())
        delta._entries = MapDelta.of_everything(image.entries)
        return delta

    @property
    def changes(self) -> Mapping[Uuid, AccessControlEntry | None]:
        """The entry by ID, None for a removed one."""
        return self._entries.changes

    def add(self, record: AccessControlEntryRecord) -> None:
        self._entries.put(record.id, AccessControlEntry.from_record(record))

    def remove(self, record: RemoveAccessControlEntryRecord) -> None:
        if self._entries.get(record.id) is None:
            raise MetadataReplayError(f"cannot remove ACL {uuid_to_string(record.id)}: it does not exist")
        self._entries.remove(record.id)

    def finish_snapshot(self) -> None:
        self._entries.finish_snapshot()

    def __bool__(self) -> bool:
        return bool(self._entries)

    def apply(self) -> AclsImage:
        return AclsImage(self._entries.apply()) if self else self.image
