"""One table says what every reading client does about an error."""

from __future__ import annotations

import pytest

from barnabas.clients.admin.internals.admin_api_driver import Outcome
from barnabas.clients.common.partition_errors import LEADER_MOVED, RECOVERIES, Recovery, recovery_of
from barnabas.common.errors import Errors, InvalidMetadataError
from barnabas.protocol.api_keys import ApiKey

_OF_LEADERS = {
    Errors.UNKNOWN_SERVER_ERROR,
    Errors.UNKNOWN_TOPIC_OR_PARTITION,
    Errors.LEADER_NOT_AVAILABLE,
    Errors.NOT_LEADER_OR_FOLLOWER,
    Errors.REPLICA_NOT_AVAILABLE,
    Errors.REQUEST_TIMED_OUT,
    Errors.KAFKA_STORAGE_ERROR,
    Errors.FENCED_LEADER_EPOCH,
    Errors.UNKNOWN_LEADER_EPOCH,
    Errors.OFFSET_NOT_AVAILABLE,
    Errors.TOPIC_AUTHORIZATION_FAILED,
    Errors.INVALID_REQUEST,
    Errors.UNSUPPORTED_VERSION,
}
CARRIED = {
    ApiKey.FETCH: _OF_LEADERS
    | {
        Errors.OFFSET_OUT_OF_RANGE,
        Errors.CORRUPT_MESSAGE,
        Errors.UNSUPPORTED_COMPRESSION_TYPE,
        Errors.UNKNOWN_TOPIC_ID,
        Errors.INCONSISTENT_TOPIC_ID,
        Errors.FETCH_SESSION_ID_NOT_FOUND,
        Errors.INVALID_FETCH_SESSION_EPOCH,
        Errors.FETCH_SESSION_TOPIC_ID_ERROR,
        Errors.OFFSET_MOVED_TO_TIERED_STORAGE,
        Errors.CLUSTER_AUTHORIZATION_FAILED,
    },
    ApiKey.LIST_OFFSETS: _OF_LEADERS | {Errors.UNSUPPORTED_FOR_MESSAGE_FORMAT, Errors.THROTTLING_QUOTA_EXCEEDED},
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _OF_LEADERS | {Errors.CLUSTER_AUTHORIZATION_FAILED},
    ApiKey.METADATA: {
        Errors.UNKNOWN_SERVER_ERROR,
        Errors.UNKNOWN_TOPIC_OR_PARTITION,
        Errors.UNKNOWN_TOPIC_ID,
        Errors.LEADER_NOT_AVAILABLE,
        Errors.REPLICA_NOT_AVAILABLE,
        Errors.LISTENER_NOT_FOUND,
        Errors.INVALID_TOPIC_EXCEPTION,
        Errors.TOPIC_AUTHORIZATION_FAILED,
        Errors.CLUSTER_AUTHORIZATION_FAILED,
        Errors.UNSUPPORTED_VERSION,
    },
}


@pytest.mark.parametrize("api_key", CARRIED)
def test_what_a_response_can_carry_is_in_the_table(api_key: ApiKey) -> None:
    assert not [error.name for error in CARRIED[api_key] if error not in RECOVERIES]


@pytest.mark.parametrize("error", list(Errors))
def test_every_error_code(error: Errors) -> None:
    found = recovery_of(error)
    assert found is RECOVERIES.get(error, Recovery.FAIL), "what no such response carries is reported"
    if found in {Recovery.REFRESH_METADATA, Recovery.RETRY}:
        assert error.retriable or error is Errors.UNKNOWN_SERVER_ERROR
    carried = any(error in errors for errors in CARRIED.values())
    if carried and error.exception is not None and issubclass(error.exception, InvalidMetadataError):
        assert found is Recovery.REFRESH_METADATA, "Kafka's own name for it is InvalidMetadataException"
    assert (error in LEADER_MOVED) is (found is Recovery.REFRESH_METADATA)


def test_a_code_of_a_later_kafka_is_retried() -> None:
    """As UNKNOWN_SERVER_ERROR: each client gives up in its own time."""
    assert recovery_of(30_000) is recovery_of(Errors.UNKNOWN_SERVER_ERROR) is Recovery.RETRY


@pytest.mark.parametrize("error", [error for error in RECOVERIES if error])
def test_the_admin_client_looks_the_leader_up_again(error: Errors) -> None:
    outcome: Outcome[str, int] = Outcome()
    assert not outcome.settle("key", error, moved=LEADER_MOVED)
    assert ("key" in outcome.unmapped) is (RECOVERIES[error] is Recovery.REFRESH_METADATA)
    assert ("key" in outcome.failed) is (not error.retriable)
