"""The internal topics and the record types each of them holds."""

from __future__ import annotations

from types import ModuleType

from barnabas.protocol.internal import (
    consumer_groups,
    consumer_offsets,
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
    MetadataRecordTypes,
    is_own,
    metadata_types,
)
from barnabas.protocol.internal.metadata_topic import CLUSTER_METADATA

__all__ = ["CLUSTER_METADATA", "CONSUMER_OFFSETS", "REMOTE_LOG_METADATA", "SHARE_GROUP_STATE", "TRANSACTION_STATE"]


def _pairs(*modules: ModuleType) -> list[tuple[type[CoordinatorKey], type[CoordinatorValue]]]:
    """Pairs keys and values by name: ``OffsetCommitKey`` and ``OffsetCommitValue``."""
    return [
        (found, vars(module)[name.removesuffix("Key") + "Value"])
        for module in modules
        for name, found in vars(module).items()
        if isinstance(found, type) and is_own(found, CoordinatorKey)
    ]


REMOTE_LOG_METADATA = MetadataRecordTypes("__remote_log_metadata", metadata_types(remote_log))
CONSUMER_OFFSETS = CoordinatorRecordTypes(
    "__consumer_offsets", _pairs(consumer_offsets, consumer_groups, share_groups, streams_groups)
)
TRANSACTION_STATE = CoordinatorRecordTypes("__transaction_state", _pairs(transaction_state))
SHARE_GROUP_STATE = CoordinatorRecordTypes("__share_group_state", _pairs(share_group_state))
