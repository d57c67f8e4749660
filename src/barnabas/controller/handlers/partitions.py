"""AlterPartition (v2-3), AssignReplicasToDirs (v0), ElectLeaders (v0-2), AlterPartitionReassignments (v0-1) and
ListPartitionReassignments (v0).

The first two come from brokers (ClusterAction): a leader reports a change of its in-sync replicas, a broker says in
which directory a replica is. AlterPartition is not throttled, since it is what makes a partition available again.

The others are the operator's: Alter on the cluster to elect and reassign, Describe to list. Elections and reassignments
have a timeout; a request that is still in the controller's queue by then is answered with REQUEST_TIMED_OUT and has
done nothing.
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
    """Who leads, who is in sync, where the replicas are."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._controller = backend.controller

    def alter_partition(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, AlterPartitionRequest)
        self._backend.authorize_cluster(request, AclOperation.CLUSTER_ACTION)
        future = self._controller.alter_partition(self._backend.context(request), body)
        self._backend.answer_exempt(request, future)

    def assign_replicas_to_dirs(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, AssignReplicasToDirsRequest)
        self._backend.authorize_cluster(request, AclOperation.CLUSTER_ACTION)
        future = self._controller.assign_replicas_to_dirs(self._backend.context(request), body)
        self._backend.answer(request, future)

    def elect_leaders(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, ElectLeadersRequest)
        self._backend.authorize_cluster(request, AclOperation.ALTER)
        future = self._controller.elect_leaders(self._backend.context(request, body.timeout_ms), body)
        self._backend.answer(request, future)

    def alter_partition_reassignments(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, AlterPartitionReassignmentsRequest)
        self._backend.authorize_cluster(request, AclOperation.ALTER)
        future = self._controller.alter_partition_reassignments(self._backend.context(request, body.timeout_ms), body)
        self._backend.answer(request, future)

    def list_partition_reassignments(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, ListPartitionReassignmentsRequest)
        self._backend.authorize_cluster(request, AclOperation.DESCRIBE)
        # Its timeout makes no deadline: it changes nothing, and there are clients that leave the timeout at 0.
        future = self._controller.list_partition_reassignments(self._backend.context(request), body)
        self._backend.answer(request, future)
