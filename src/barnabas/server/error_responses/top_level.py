"""Error responses of the APIs with a top-level error code: only that code is set.

If the response has a message field, the table says which message goes into it: see `Failure`.
"""

from __future__ import annotations

from typing import Any, Final

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.message import Request, Response
from barnabas.server.error_responses.failure import Failure

NO_MESSAGE: Final = frozenset(
    {
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.ALTER_PARTITION,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.END_TXN,
        ApiKey.ENVELOPE,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.LIST_CONFIG_RESOURCES,
        ApiKey.LIST_GROUPS,
        ApiKey.LIST_TRANSACTIONS,
        ApiKey.OFFSET_DELETE,
        ApiKey.PUSH_TELEMETRY,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SHARE_ACKNOWLEDGE,
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        ApiKey.SYNC_GROUP,
        ApiKey.UPDATE_RAFT_VOTER,
        ApiKey.VOTE,
    }
)
USUAL_MESSAGE: Final = frozenset(
    {
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.REMOVE_RAFT_VOTER,
    }
)
MESSAGE: Final = frozenset(
    {
        ApiKey.DESCRIBE_ACLS,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE,
        ApiKey.UPDATE_FEATURES,
    }
)
FULL_MESSAGE: Final = frozenset({ApiKey.UNREGISTER_BROKER, ApiKey.UNREGISTER_CONTROLLER})
APIS: Final = NO_MESSAGE | USUAL_MESSAGE | MESSAGE | FULL_MESSAGE


def response(body: Request, failure: Failure) -> Response:
    api_key = body.api_key
    response: Any = api_key.response()
    response.error_code = failure.error
    if api_key in USUAL_MESSAGE:
        response.error_message = failure.usual_message
    elif api_key in MESSAGE:
        response.error_message = failure.message
    elif api_key in FULL_MESSAGE:
        response.error_message = failure.full_message
    if hasattr(response, "throttle_time_ms"):
        response.throttle_time_ms = failure.throttle_time_ms
    made: Response = response
    return made
