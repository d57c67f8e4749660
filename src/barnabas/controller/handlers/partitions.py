"""Leaders, ISRs and replica assignments.

AlterPartition (v2-3), AssignReplicasToDirs (v0), ElectLeaders (v0-2), AlterPartitionReassignments (v0-1) and
ListPartitionReassignments (v0).

Brokers send the first two (ClusterAction): a leader reports a change of its ISR, a broker reports the directory of a
replica. AlterPartition is not throttled, because it makes a partition available again.

Operators send the others: electing and reassigning need Alter on the cluster, listing Describe. Elections and
reassignments have a timeout; a request that is still in the controller's queue then fails with REQUEST_TIMED_OUT and
has no effect.
"""

from __future__ import annotations

from barnabas.controller.handlers.backend import Backend
from barnabas.protocol.messages.alter_partition import AlterPartitionRequest
from barnabas.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from barnabas.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest
from barnabas.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from barnabas.security.acl import AclOperation
from barnabas.server.request import Request
from barnabas.server.request_local import RequestLocal


class PartitionsHandler:
    """Serves leaders, ISRs and replica assignments."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._controller = backend.controller

    def alter_partition(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, AlterPartitionRequest)
        self._backend.authorize_cluster(request, AclOperation.CLUSTER_ACTION)
        future = self._controller.alter_partition(self._backend.context(request), body)
        self._backend.respond_exempt(request, future)

    def assign_replicas_to_dirs(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, AssignReplicasToDirsRequest)
        self._backend.authorize_cluster(request, AclOperation.CLUSTER_ACTION)
        future = self._controller.assign_replicas_to_dirs(self._backend.context(request), body)
        self._backend.respond(request, future)

    def elect_leaders(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, ElectLeadersRequest)
        self._backend.authorize_cluster(request, AclOperation.ALTER)
        future = self._controller.elect_leaders(self._backend.context(request, body.timeout_ms), body)
        self._backend.respond(request, future)

    def alter_partition_reassignments(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, AlterPartitionReassignmentsRequest)
        self._backend.authorize_cluster(request, AclOperation.ALTER)
        future = self._controller.alter_partition_reassignments(self._backend.context(request, body.timeout_ms), body)
        self._backend.respond(request, future)

    def list_partition_reassignments(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, ListPartitionReassignmentsRequest)
        self._backend.authorize_cluster(request, AclOperation.DESCRIBE)
        # The timeout sets no deadline: the request changes nothing, and some clients leave the timeout at 0.
        future = self._controller.list_partition_reassignments(self._backend.context(request), body)
        self._backend.respond(request, future)
