"""The internal topics and the record types each of them holds."""

from __future__ import annotations

from types import ModuleType

from barnabas.protocol.internal import (
    consumer_groups,
    consumer_offsets,
    metadata,
    remote_log,
    share_group_state,
    share_groups,
    streams_groups,
    transaction_state,
)
from barnabas.protocol.internal.framing import (
    CoordinatorKey,
    CoordinatorRecordTypes,
    CoordinatorValue,
    MetadataRecord,
    MetadataRecordTypes,
)


def _metadata_types(module: ModuleType) -> list[type[MetadataRecord]]:
    return [found for found in vars(module).values() if isinstance(found, type) and _is_own(found, MetadataRecord)]


def _pairs(*modules: ModuleType) -> list[tuple[type[CoordinatorKey], type[CoordinatorValue]]]:
    """Keys and values belong together by name: ``OffsetCommitKey`` and ``OffsetCommitValue``."""
    return [
        (found, vars(module)[name.removesuffix("Key") + "Value"])
        for module in modules
        for name, found in vars(module).items()
        if isinstance(found, type) and _is_own(found, CoordinatorKey)
    ]


def _is_own(found: type, base: type) -> bool:
    return issubclass(found, base) and found is not base


CLUSTER_METADATA = MetadataRecordTypes("__cluster_metadata", _metadata_types(metadata))
REMOTE_LOG_METADATA = MetadataRecordTypes("__remote_log_metadata", _metadata_types(remote_log))
CONSUMER_OFFSETS = CoordinatorRecordTypes(
    "__consumer_offsets", _pairs(consumer_offsets, consumer_groups, share_groups, streams_groups)
)
TRANSACTION_STATE = CoordinatorRecordTypes("__transaction_state", _pairs(transaction_state))
SHARE_GROUP_STATE = CoordinatorRecordTypes("__share_group_state", _pairs(share_group_state))
