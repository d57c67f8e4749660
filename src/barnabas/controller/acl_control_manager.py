"""Access control entries in the metadata log. The authorizer enforces them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from barnabas.common.errors import ApiError, InvalidRequestError
from barnabas.common.identifiers import Uuid, random_uuid, uuid_to_string
from barnabas.common.snapshot_registry import SnapshotRegistry, TimelineHashMap
from barnabas.controller.result import ControllerResult, check_operation_size, error_fields
from barnabas.metadata.acls import AccessControlEntry
from barnabas.metadata.errors import MetadataReplayError
from barnabas.protocol.internal.metadata import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from barnabas.raft.client import ApiMessageAndVersion

if TYPE_CHECKING:
    from barnabas.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
    from barnabas.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse

log = logging.getLogger(__name__)

ANY = 1
"""Matches anything in a filter. The same number for resource, pattern, operation and permission types."""
CLUSTER = 4
CLUSTER_NAME = "kafka-cluster"
WILDCARD = "*"
PATTERN_MATCH, PATTERN_LITERAL, PATTERN_PREFIXED = 2, 3, 4
_RESOURCE_TYPES = range(2, 8)
_OPERATIONS = range(2, 16)
_PERMISSIONS = (2, 3)


class AclControlManager:
    """Holds the ACL entries by id, and the ids per entry, to check whether an entry exists."""

    def __init__(self, registry: SnapshotRegistry, new_uuid: Callable[[], Uuid] = random_uuid) -> None:
        self._new_uuid = new_uuid
        self._by_id: TimelineHashMap[Uuid, AccessControlEntry] = TimelineHashMap(registry)
        self._counts: TimelineHashMap[AccessControlEntry, int] = TimelineHashMap(registry)
        """The number of ids of an entry: one, unless another writer has added duplicates."""

    @property
    def entries(self) -> Mapping[Uuid, AccessControlEntry]:
        return self._by_id.present

    def create_acls(self, request: CreateAclsRequest) -> ControllerResult[CreateAclsResponse]:
        """Creates ACLs. Results are in request order; an existing entry is a success and writes nothing."""
        from barnabas.protocol.messages.create_acls import AclCreationResult, CreateAclsResponse

        records: list[ApiMessageAndVersion] = []
        results = []
        created = set()
        for creation in request.creations:
            error: ApiError | None = None
            try:
                _check_creation(creation)
                entry = _entry(creation)
                if entry not in self._counts and entry not in created:
                    created.add(entry)
                    records.append(ApiMessageAndVersion(entry.to_record(self._unused_id()), 0))
            except ApiError as raised:
                error = raised
            code, message = error_fields(error)
            results.append(AclCreationResult(error_code=code, error_message=message))
        check_operation_size(len(records))
        return ControllerResult.atomic_of(records, CreateAclsResponse(results=results))

    def _unused_id(self) -> Uuid:
        while (acl_id := self._new_uuid()) in self._by_id:
            pass
        return acl_id

    def delete_acls(self, request: DeleteAclsRequest) -> ControllerResult[DeleteAclsResponse]:
        from barnabas.protocol.messages.delete_acls import (
            DeleteAclsFilterResult,
            DeleteAclsMatchingAcl,
            DeleteAclsResponse,
        )

        removed: dict[Uuid, ApiMessageAndVersion] = {}
        results = []
        for wanted in request.filters:
            try:
                _check_filter(wanted)
            except ApiError as error:
                code, message = error_fields(error)
                results.append(DeleteAclsFilterResult(error_code=code, error_message=message))
                continue
            matching = []
            for acl_id, entry in self._by_id.items():
                if _matches(wanted, entry):
                    removed[acl_id] = ApiMessageAndVersion(RemoveAccessControlEntryRecord(id=acl_id), 0)
                    matching.append(DeleteAclsMatchingAcl(error_code=0, error_message=None, **entry._asdict()))
            results.append(DeleteAclsFilterResult(error_code=0, error_message=None, matching_acls=matching))
        check_operation_size(len(removed))
        return ControllerResult.atomic_of(list(removed.values()), DeleteAclsResponse(filter_results=results))

    def replay(self, record: AccessControlEntryRecord) -> None:
        entry = AccessControlEntry.from_record(record)
        previous = self._by_id.get(record.id)
        if previous is not None:
            self._uncount(previous)
        self._by_id[record.id] = entry
        self._counts[entry] = (self._counts.get(entry) or 0) + 1
        log.info("Added ACL %s: %s", uuid_to_string(record.id), entry)

    def replay_removal(self, record: RemoveAccessControlEntryRecord) -> None:
        entry = self._by_id.pop(record.id)
        if entry is None:
            raise MetadataReplayError(f"cannot remove ACL {uuid_to_string(record.id)}: it does not exist")
        self._uncount(entry)
        log.info("Removed ACL %s: %s", uuid_to_string(record.id), entry)

    def _uncount(self, entry: AccessControlEntry) -> None:
        count = self._counts[entry] - 1
        if count:
            self._counts[entry] = count
        else:
            self._counts.pop(entry)


def _entry(creation: AclCreation) -> AccessControlEntry:
    return AccessControlEntry(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


def _check_creation(creation: AclCreation) -> None:
    if creation.resource_type not in _RESOURCE_TYPES:
        raise InvalidRequestError(f"An ACL cannot have the resource type {creation.resource_type}.")
    if creation.resource_pattern_type not in (PATTERN_LITERAL, PATTERN_PREFIXED):
        raise InvalidRequestError(f"The pattern type must be LITERAL or PREFIXED: {creation.resource_pattern_type}")
    if creation.operation not in _OPERATIONS:
        raise InvalidRequestError(f"An ACL cannot have the operation {creation.operation}.")
    if creation.permission_type not in _PERMISSIONS:
        raise InvalidRequestError(f"The permission type must be ALLOW or DENY: {creation.permission_type}")
    if not creation.resource_name:
        raise InvalidRequestError("The resource name must not be empty.")
    if creation.resource_type == CLUSTER and creation.resource_name != CLUSTER_NAME:
        raise InvalidRequestError(f"The cluster resource must be named {CLUSTER_NAME}: {creation.resource_name!r}")
    kind, colon, _ = creation.principal.partition(":")
    if not colon or not kind:
        raise InvalidRequestError(f"The principal must have the form type:name: {creation.principal!r}")


def _check_filter(wanted: DeleteAclsFilter) -> None:
    if wanted.resource_type_filter != ANY and wanted.resource_type_filter not in _RESOURCE_TYPES:
        raise InvalidRequestError(f"Unknown resource type {wanted.resource_type_filter}.")
    if wanted.pattern_type_filter not in (ANY, PATTERN_MATCH, PATTERN_LITERAL, PATTERN_PREFIXED):
        raise InvalidRequestError(f"Unknown pattern type {wanted.pattern_type_filter}.")
    if wanted.operation != ANY and wanted.operation not in _OPERATIONS:
        raise InvalidRequestError(f"Unknown operation {wanted.operation}.")
    if wanted.permission_type != ANY and wanted.permission_type not in _PERMISSIONS:
        raise InvalidRequestError(f"Unknown permission type {wanted.permission_type}.")


def _matches(wanted: DeleteAclsFilter, entry: AccessControlEntry) -> bool:
    return (
        wanted.resource_type_filter in (ANY, entry.resource_type)
        and _pattern_matches(wanted.pattern_type_filter, wanted.resource_name_filter, entry)
        and wanted.principal_filter in (None, entry.principal)
        and wanted.host_filter in (None, entry.host)
        and wanted.operation in (ANY, entry.operation)
        and wanted.permission_type in (ANY, entry.permission_type)
    )


def _pattern_matches(pattern_type: int, name: str | None, entry: AccessControlEntry) -> bool:
    if pattern_type not in (ANY, PATTERN_MATCH, entry.pattern_type):
        return False
    if name is None:
        return True
    if pattern_type != PATTERN_MATCH:
        return name == entry.resource_name
    if entry.pattern_type == PATTERN_PREFIXED:
        return name.startswith(entry.resource_name)
    return entry.resource_name in (name, WILDCARD)
