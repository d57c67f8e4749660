"""KIP-219: which responses tell a client to throttle itself.

A broker that throttles a client does not delay the response. It sends it at once, with ``throttle_time_ms`` in it, and
stops reading from the connection for that long. A client that knows this sends nothing meanwhile, because its requests
would stay in the socket's buffer and look like a slow broker until they timed out.

Brokers before Kafka 2.0 delayed the response instead and reported the delay afterwards: that time is over when the
client reads it, and waiting again would double the throttling. The version of the response distinguishes the two. Every
API that had a throttle time before got a new version, identical except for this meaning. An API that came later has the
new meaning in all its versions.
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey

_SINCE: dict[ApiKey, int] = {
    ApiKey.PRODUCE: 6,
    ApiKey.FETCH: 8,
    ApiKey.LIST_OFFSETS: 3,
    ApiKey.METADATA: 6,
    ApiKey.OFFSET_COMMIT: 4,
    ApiKey.OFFSET_FETCH: 4,
    ApiKey.FIND_COORDINATOR: 2,
    ApiKey.JOIN_GROUP: 3,
    ApiKey.HEARTBEAT: 2,
    ApiKey.LEAVE_GROUP: 2,
    ApiKey.SYNC_GROUP: 2,
    ApiKey.DESCRIBE_GROUPS: 2,
    ApiKey.LIST_GROUPS: 2,
    ApiKey.API_VERSIONS: 2,
    ApiKey.CREATE_TOPICS: 3,
    ApiKey.DELETE_TOPICS: 2,
    ApiKey.DELETE_RECORDS: 1,
    ApiKey.INIT_PRODUCER_ID: 1,
    ApiKey.ADD_PARTITIONS_TO_TXN: 1,
    ApiKey.ADD_OFFSETS_TO_TXN: 1,
    ApiKey.END_TXN: 1,
    ApiKey.TXN_OFFSET_COMMIT: 1,
    ApiKey.DESCRIBE_CONFIGS: 2,
    ApiKey.ALTER_CONFIGS: 1,
    ApiKey.CREATE_PARTITIONS: 1,
    ApiKey.DELETE_GROUPS: 1,
}
"""The first version with the new meaning. For other APIs, every version with a throttle time has it."""


def should_client_throttle(api_key: ApiKey, version: int) -> bool:
    """Whether the throttle time in such a response is still to come, so that the client must wait."""
    return version >= _SINCE.get(api_key, 0)
