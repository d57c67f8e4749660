"""FindCoordinator (v0-6): which broker is responsible for a group, a transactional id or a piece of a share group.

Who leads the partition of an internal topic that the hash of the key picks, is. The topic is made when first asked for;
until it is there, and while the partition has no leader, the answer is COORDINATOR_NOT_AVAILABLE, and the client asks
again. So it is while this broker leads the partition and has not read it yet: a client that is sent to a coordinator
may rely on it.

It takes Describe on the group or the transactional id. From v4 on several keys are asked for at once, each with its own
answer; before, there is one key, and an error is the whole answer's. Key types are 0 for groups, 1 for transactions
(v1) and 2 for share groups (v6); one that nobody coordinates on this broker is INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from barnabas.broker.auto_topic_creation_manager import AutoTopicCreationManager
from barnabas.common.errors import Errors, InvalidRequestError
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.endpoint import NO_NODE, Node
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.security.acl import CLUSTER_NAME, AclOperation, ResourceType
from barnabas.security.auth_helper import AuthHelper
from barnabas.server.dispatch import handles
from barnabas.server.request import Request
from barnabas.server.request_handler_helper import RequestHandlerHelper
from barnabas.server.request_local import RequestLocal

GROUP: Final = 0
TRANSACTION: Final = 1
SHARE: Final = 2

_BATCHED: Final = 4
_SHARE_KNOWN: Final = 6


class CoordinatorType(NamedTuple):
    """A kind of coordinator: the topic that has its state, where in it a key is, and whether this broker, if it leads
    a partition, is about to know what is in it."""

    topic: str
    partition_for: Callable[[str], int]
    is_loading: Callable[[int], bool]


class FindCoordinatorHandler:
    """Shows clients the way to their coordinator."""

    def __init__(
        self,
        helper: RequestHandlerHelper,
        auth: AuthHelper,
        cache: MetadataCache,
        topic_creation: AutoTopicCreationManager,
        coordinators: Mapping[int, CoordinatorType],
        *,
        broker_id: int,
    ) -> None:
        """`coordinators` are those that this cluster has, by key type."""
        self._helper = helper
        self._auth = auth
        self._cache = cache
        self._topic_creation = topic_creation
        self._coordinators = coordinators
        self._broker_id = broker_id

    @handles(ApiKey.FIND_COORDINATOR)
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
        kind = self._coordinators.get(key_type)
        if kind is None or (key_type == SHARE and request.api_version < _SHARE_KNOWN):
            if key_type != SHARE:
                # That is wrong with the whole request. A key of a share group is one that may be wrong by itself.
                raise InvalidRequestError
            return Errors.INVALID_REQUEST, NO_NODE
        denied = self._denied(request, key_type, key)
        if denied:
            return denied, NO_NODE
        if self._cache.num_partitions(kind.topic) is None:
            self._topic_creation.create_topics([kind.topic])
            return Errors.COORDINATOR_NOT_AVAILABLE, NO_NODE
        number = kind.partition_for(key)
        partition = self._cache.partition(kind.topic, number)
        node = None
        if partition is not None and not (partition.leader == self._broker_id and kind.is_loading(number)):
            node = self._cache.alive_broker_node(partition.leader, request.context.listener_name)
        return (Errors.COORDINATOR_NOT_AVAILABLE, NO_NODE) if node is None else (Errors.NONE, node)

    def _denied(self, request: Request, key_type: int, key: str) -> Errors:
        if self._auth.authorizer is None:
            return Errors.NONE
        context = request.request_context
        if key_type == GROUP:
            allowed = self._auth.authorize(context, AclOperation.DESCRIBE, ResourceType.GROUP, key)
            return Errors.NONE if allowed else Errors.GROUP_AUTHORIZATION_FAILED
        if key_type == TRANSACTION:
            allowed = self._auth.authorize(context, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key)
            return Errors.NONE if allowed else Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        allowed = self._auth.authorize(context, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
        return Errors.NONE if allowed else Errors.CLUSTER_AUTHORIZATION_FAILED
