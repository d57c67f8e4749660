"""Registration and heartbeats of nodes, and blocks of producer ids.

BrokerRegistration (v0-4), BrokerHeartbeat (v0-2), UnregisterBroker (v0), ControllerRegistration (v0) and
AllocateProducerIds (v0).

A broker registers when it starts, then sends a heartbeat every ``broker.heartbeat.interval.ms``. A heartbeat that the
controller cannot process within half of that is useless and times out. Producer ids are allocated in blocks, so that a
broker rarely requests them. All of these need ClusterAction. Unregistering a broker is the operator's decision, and
needs Alter on the cluster.
"""

from __future__ import annotations

from barnabas.controller.handlers.backend import Backend
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.messages.broker_registration import BrokerRegistrationRequest
from barnabas.protocol.messages.controller_registration import ControllerRegistrationRequest
from barnabas.security.acl import AclOperation
from barnabas.server.request import Request
from barnabas.server.request_local import RequestLocal


class NodesHandler:
    """Serves registration, heartbeats and producer id blocks."""

    def __init__(self, backend: Backend, *, broker_heartbeat_interval_ms: int) -> None:
        self._backend = backend
        self._controller = backend.controller
        self._heartbeat_timeout_ms = broker_heartbeat_interval_ms // 2

    def broker_registration(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, BrokerRegistrationRequest)
        self._backend.authorize_cluster(request, AclOperation.CLUSTER_ACTION)
        self._backend.respond(request, self._controller.register_broker(self._backend.context(request), body))

    def broker_heartbeat(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, BrokerHeartbeatRequest)
        self._backend.authorize_cluster(request, AclOperation.CLUSTER_ACTION)
        context = self._backend.context(request, self._heartbeat_timeout_ms)
        self._backend.respond(request, self._controller.process_broker_heartbeat(context, body))

    def unregister_broker(self, request: Request, _local: RequestLocal) -> None:
        from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest

        body = request.body
        assert isinstance(body, UnregisterBrokerRequest)
        self._backend.authorize_cluster(request, AclOperation.ALTER)
        self._backend.respond(request, self._controller.unregister_broker(self._backend.context(request), body))

    def controller_registration(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, ControllerRegistrationRequest)
        self._backend.authorize_cluster(request, AclOperation.CLUSTER_ACTION)
        self._backend.respond(request, self._controller.register_controller(self._backend.context(request), body))

    def allocate_producer_ids(self, request: Request, _local: RequestLocal) -> None:
        from barnabas.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest

        body = request.body
        assert isinstance(body, AllocateProducerIdsRequest)
        self._backend.authorize_cluster(request, AclOperation.CLUSTER_ACTION)
        self._backend.respond(request, self._controller.allocate_producer_ids(self._backend.context(request), body))
