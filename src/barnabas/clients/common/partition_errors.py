"""How a client reacts to an error of a partition or topic: one table for all reading clients.

It covers the errors of Fetch, ListOffsets, OffsetForLeaderEpoch and Metadata, and those of the other requests that go
to the leader of a partition.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from barnabas.common.errors import Errors


class Recovery(Enum):
    """The reaction to an error."""

    NONE = "no error"
    REFRESH_METADATA = "look up the leader again, then retry"
    """Another broker leads the partition, there is no leader at the moment, or the topic was recreated."""
    RETRY = "retry the same broker after a backoff"
    """The broker is behind, busy, or has forgotten the fetch session. The next request starts another session."""
    RESET_OFFSET = "go to another offset"
    """The offset does not exist yet, or was deleted."""
    FAIL = "report the error"


RECOVERIES: Final[dict[Errors, Recovery]] = {
    Errors.NONE: Recovery.NONE,
    Errors.NOT_LEADER_OR_FOLLOWER: Recovery.REFRESH_METADATA,
    Errors.LEADER_NOT_AVAILABLE: Recovery.REFRESH_METADATA,
    Errors.REPLICA_NOT_AVAILABLE: Recovery.REFRESH_METADATA,
    Errors.LISTENER_NOT_FOUND: Recovery.REFRESH_METADATA,
    Errors.FENCED_LEADER_EPOCH: Recovery.REFRESH_METADATA,
    Errors.KAFKA_STORAGE_ERROR: Recovery.REFRESH_METADATA,  # the log directory failed: another replica takes over
    Errors.OFFSET_NOT_AVAILABLE: Recovery.REFRESH_METADATA,  # a new leader does not know its high watermark yet
    Errors.UNKNOWN_TOPIC_OR_PARTITION: Recovery.REFRESH_METADATA,
    Errors.UNKNOWN_TOPIC_ID: Recovery.REFRESH_METADATA,
    Errors.INCONSISTENT_TOPIC_ID: Recovery.REFRESH_METADATA,
    Errors.FETCH_SESSION_TOPIC_ID_ERROR: Recovery.REFRESH_METADATA,
    Errors.NETWORK_EXCEPTION: Recovery.REFRESH_METADATA,
    Errors.UNKNOWN_LEADER_EPOCH: Recovery.RETRY,  # the metadata of the broker is older than that of the client
    Errors.REQUEST_TIMED_OUT: Recovery.RETRY,
    Errors.THROTTLING_QUOTA_EXCEEDED: Recovery.RETRY,
    Errors.FETCH_SESSION_ID_NOT_FOUND: Recovery.RETRY,
    Errors.INVALID_FETCH_SESSION_EPOCH: Recovery.RETRY,
    Errors.UNKNOWN_SERVER_ERROR: Recovery.RETRY,
    Errors.OFFSET_OUT_OF_RANGE: Recovery.RESET_OFFSET,
    Errors.TOPIC_AUTHORIZATION_FAILED: Recovery.FAIL,
    Errors.CLUSTER_AUTHORIZATION_FAILED: Recovery.FAIL,
    Errors.INVALID_TOPIC_EXCEPTION: Recovery.FAIL,
    Errors.CORRUPT_MESSAGE: Recovery.FAIL,  # retriable, but the batch is corrupt on the broker's disk, and stays so
    Errors.UNSUPPORTED_COMPRESSION_TYPE: Recovery.FAIL,
    Errors.UNSUPPORTED_FOR_MESSAGE_FORMAT: Recovery.FAIL,
    Errors.UNSUPPORTED_VERSION: Recovery.FAIL,
    Errors.INVALID_REQUEST: Recovery.FAIL,
    Errors.OFFSET_MOVED_TO_TIERED_STORAGE: Recovery.FAIL,  # for followers only
}

LEADER_MOVED: Final = frozenset(error for error, found in RECOVERIES.items() if found is Recovery.REFRESH_METADATA)
"""The errors after which to look up the leader again."""
TOPIC_MISSING: Final = frozenset({Errors.UNKNOWN_TOPIC_OR_PARTITION, Errors.UNKNOWN_TOPIC_ID})


def recovery_of(code: int) -> Recovery:
    """Returns what to do about an error code of a response. Codes that no such response carries are reported."""
    return RECOVERIES.get(Errors.for_code(code), Recovery.FAIL)
