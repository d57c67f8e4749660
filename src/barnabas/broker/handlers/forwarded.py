"""Requests that a broker forwards to the controller unchanged (R10).

CreateTopics (v2-7), DeleteTopics (v1-6), CreatePartitions (v0-3), ElectLeaders (v0-2), AlterPartitionReassignments
(v0-1), ListPartitionReassignments (v0), CreateAcls and DeleteAcls (v1-3), AlterClientQuotas (v0-1),
AlterUserScramCredentials (v0), UpdateFeatures (v0-2), UnregisterBroker (v0), DescribeQuorum (v0-2),
AddRaftVoter (v0-1), RemoveRaftVoter (v0).

All of them change the cluster's metadata or read state that only the controller has. The broker decodes them, to reject
malformed requests, but authorizes nothing: the Envelope contains the client's principal, and the controller decides.
The served versions are those that both nodes support (see :mod:`barnabas.broker.handlers.broker_api_versions`).

Throttling happens once, here: the controller returns the throttle time for the client's mutations, and this broker
mutes the client for that time, or longer if the client's request quota requires it.

AlterConfigs and IncrementalAlterConfigs are also forwarded, but not unchanged: the parts that concern this broker are
checked or applied here. Requests for delegation tokens are forwarded after a check of the client's connection (see
:mod:`barnabas.broker.handlers.delegation_tokens`).
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.to_controller.forwarding_manager import ForwardingManager
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.message import Response
from barnabas.server.dispatch import handles
from barnabas.server.request import Request
from barnabas.server.request_handler_helper import RequestHandlerHelper
from barnabas.server.request_local import RequestLocal

BARE_FORWARDED: Final = (
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ELECT_LEADERS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.UPDATE_FEATURES,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
)


class ForwardedHandler:
    """Forwards requests to the controller and returns its responses."""

    def __init__(self, helper: RequestHandlerHelper, forwarding: ForwardingManager) -> None:
        self._helper = helper
        self._forwarding = forwarding

    @handles(*BARE_FORWARDED)
    def forward(self, request: Request, _local: RequestLocal) -> None:
        self._forwarding.forward_request(request, lambda response: self.respond(request, response))

    def respond(self, request: Request, response: Response | None) -> None:
        """Ends a forwarded request; also for handlers that forward a part of a request."""
        if response is None:
            # The controller does not support the version that this broker has advertised: the client must reconnect.
            self._helper.channel.close_connection(request)
        else:
            self._helper.send_forwarded_response(request, response)
