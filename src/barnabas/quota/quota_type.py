"""The nine quota types (Q02)."""

from __future__ import annotations

from enum import Enum
from typing import Final


class ClientQuotaType(Enum):
    """The types that can be set for a user or a client ID, as passed to a quota callback."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    CONTROLLER_MUTATION = "controller_mutation_rate"

    @property
    def key(self) -> str:
        """The key in AlterClientQuotas."""
        return self.value


class QuotaType(Enum):
    """What is limited. The value is part of the names of metrics, sensors and threads.

    ================================ ====================================================================
    ``FETCH``, ``PRODUCE``           bytes per second of a client
    ``REQUEST``                      time of handler and network threads, as a percentage of one thread
    ``CONTROLLER_MUTATION``          partitions created or deleted per second
    ``LEADER_REPLICATION``           bytes per second that go to followers, of marked replicas
    ``FOLLOWER_REPLICATION``         bytes per second that come from leaders, of marked replicas
    ``ALTER_LOG_DIRS_REPLICATION``   bytes per second from one log directory to another
    ``RLM_COPY``, ``RLM_FETCH``      bytes per second to and from tiered storage
    ================================ ====================================================================
    """

    FETCH = "Fetch"
    PRODUCE = "Produce"
    REQUEST = "Request"
    CONTROLLER_MUTATION = "ControllerMutation"
    LEADER_REPLICATION = "LeaderReplication"
    FOLLOWER_REPLICATION = "FollowerReplication"
    ALTER_LOG_DIRS_REPLICATION = "AlterLogDirsReplication"
    RLM_COPY = "RLMCopy"
    RLM_FETCH = "RLMFetch"

    @property
    def client_quota_type(self) -> ClientQuotaType:
        """Returns the type as a client quota; raises ValueError for another kind of limit."""
        try:
            return _CLIENT_TYPES[self]
        except KeyError:
            raise ValueError(f"{self.value} is not a client quota") from None

    def __str__(self) -> str:
        return self.value


_CLIENT_TYPES: Final = {
    QuotaType.FETCH: ClientQuotaType.FETCH,
    QuotaType.PRODUCE: ClientQuotaType.PRODUCE,
    QuotaType.REQUEST: ClientQuotaType.REQUEST,
    QuotaType.CONTROLLER_MUTATION: ClientQuotaType.CONTROLLER_MUTATION,
}
