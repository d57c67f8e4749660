"""FindCoordinator (v0-6): finds the broker that coordinates a group, a transactional id or a share group partition.

The coordinator is the leader of the internal topic's partition that the hash of the key selects. The topic is created
on first use. Until it exists, and while the partition has no leader, the response is COORDINATOR_NOT_AVAILABLE and the
client retries. The same holds while this broker leads the partition but has not loaded it yet, so a coordinator in a
response is always usable.

Needs Describe on the group or the transactional id. From v4 on, a request has several keys, each with its own result;
before, it has one key and a top-level error. Key types are 0 for groups, 1 for transactions (v1) and 2 for share groups
(v6). A key type without a coordinator on this broker is INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from barnabas.broker.node.coordinators import CoordinatorService, CoordinatorType
from barnabas.broker.to_controller.auto_topic_creation_manager import AutoTopicCreationManager
from barnabas.common.errors import Errors, InvalidRequestError
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.endpoint import NO_NODE, Node
from barnabas.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.security.acl import CLUSTER_NAME, ResourceType
from barnabas.security.auth_helper import AuthHelper
from barnabas.server.request import Request
from barnabas.server.request_handler_helper import RequestHandlerHelper
from barnabas.server.request_local import RequestLocal

SHARE: Final = 2
"""The share key type: its errors are set per key. Any other unknown key type fails the whole request."""

_BATCHED: Final = 4


class FindCoordinatorHandler:
    """Handles FindCoordinator requests."""

    def __init__(
        self,
        helper: RequestHandlerHelper,
        auth: AuthHelper,
        cache: MetadataCache,
        topic_creation: AutoTopicCreationManager,
        coordinators: Mapping[CoordinatorType[Any], CoordinatorService],
        *,
        broker_id: int,
    ) -> None:
        self._helper = helper
        self._auth = auth
        self._cache = cache
        self._topic_creation = topic_creation
        self._coordinators = {kind.key_type: (kind, service) for kind, service in coordinators.items()}
        self._broker_id = broker_id

    def find_coordinator(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, FindCoordinatorRequest)
        if request.api_version >= _BATCHED:
            keys = dict.fromkeys(body.coordinator_keys)
            found = [(key, *self._find(request, body.key_type, key)) for key in keys]
            self._helper.send_response_maybe_throttle(
                request,
                lambda throttle_ms: FindCoordinatorResponse(
                    throttle_time_ms=throttle_ms,
                    coordinators=[
                        Coordinator(key=key, error_code=error, node_id=node.id, host=node.host, port=node.port)
                        for key, error, node in found
                    ],
                ),
            )
            return
        error, node = self._find(request, body.key_type, body.key)
        failure = error.to_exception()
        if failure is not None:
            raise failure
        self._helper.send_response_maybe_throttle(
            request,
            lambda throttle_ms: FindCoordinatorResponse(
                throttle_time_ms=throttle_ms,
                error_message=Errors.NONE.name,
                node_id=node.id,
                host=node.host,
                port=node.port,
            ),
        )

    def _find(self, request: Request, key_type: int, key: str) -> tuple[Errors, Node]:
        found = self._coordinators.get(key_type)
        if found is None or request.api_version < found[0].since_version:
            if key_type != SHARE:
                raise InvalidRequestError
            return Errors.INVALID_REQUEST, NO_NODE
        kind, service = found
        if self._is_denied(request, kind, key):
            return kind.denied, NO_NODE
        if self._cache.num_partitions(kind.topic) is None:
            self._topic_creation.create_topics([kind.topic])
            return Errors.COORDINATOR_NOT_AVAILABLE, NO_NODE
        number = service.partition_for(key)
        partition = self._cache.partition(kind.topic, number)
        node = None
        if partition is not None and not (partition.leader == self._broker_id and service.is_loading(number)):
            node = self._cache.alive_broker_node(partition.leader, request.context.listener_name)
        return (Errors.COORDINATOR_NOT_AVAILABLE, NO_NODE) if node is None else (Errors.NONE, node)

    def _is_denied(self, request: Request, kind: CoordinatorType[Any], key: str) -> bool:
        if self._auth.authorizer is None:
            return False
        name = CLUSTER_NAME if kind.resource_type == ResourceType.CLUSTER else key
        return not self._auth.authorize(request.request_context, kind.operation, kind.resource_type, name)
