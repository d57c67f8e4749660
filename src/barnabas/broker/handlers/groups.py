"""The APIs for group membership and group administration.

Classic groups: JoinGroup (v0-9), SyncGroup (v0-5), Heartbeat (v0-4) and LeaveGroup (v0-5) need Read on the group. The
responses to JoinGroup and SyncGroup are sent when the group is ready, which may be minutes later. JoinGroup v0 has one
timeout for session and rebalance. LeaveGroup has one member before v3, whose error is the top-level error.

Consumer groups (KIP-848): ConsumerGroupHeartbeat (v0-1) needs Read on the group, and Describe on the topics it names.
Topics that match a pattern but that the client may not describe are left out without an error.

DescribeGroups (v0-6) and ConsumerGroupDescribe (v0-1) need Describe on each group. A consumer group is shown without
its members if the client may not describe all its topics. Before v6 of DescribeGroups, an unknown group is shown as
dead. ListGroups (v0-5) shows all groups of this broker to clients that may describe the cluster, and to others the
groups that they may describe. DeleteGroups (v0-3) needs Delete on each group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from barnabas.common.errors import (
    Errors,
    GroupAuthorizationError,
    InconsistentGroupProtocolError,
    TopicAuthorizationError,
)
from barnabas.coordinator.group.group_coordinator_service import GroupCoordinatorService
from barnabas.coordinator.group.member_context import MemberContext
from barnabas.protocol.message import Response
from barnabas.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from barnabas.protocol.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from barnabas.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from barnabas.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas.protocol.messages.sync_group import SyncGroupRequest
from barnabas.security.acl import CLUSTER_NAME, AclOperation, Resource, ResourceType
from barnabas.security.auth_helper import AuthHelper
from barnabas.server.request import Request
from barnabas.server.request_handler_helper import RequestHandlerHelper
from barnabas.server.request_local import RequestLocal

T = TypeVar("T")

_NULLABLE_PROTOCOL_SINCE: Final = 7
"""The first version of JoinGroup with a null protocol; before, a missing protocol is an empty string."""
_PROTOCOL_NAMED_SINCE: Final = 5
"""The first version of SyncGroup that contains the expected protocol of the group (KIP-559)."""
_SEVERAL_LEAVE_SINCE: Final = 3
_NOT_FOUND_SINCE: Final = 6


class GroupsHandler:
    """Passes requests to the group coordinator."""

    def __init__(self, helper: RequestHandlerHelper, auth: AuthHelper, groups: GroupCoordinatorService) -> None:
        self._helper = helper
        self._auth = auth
        self._groups = groups

    # -- classic groups

    def join_group(self, request: Request, _local: RequestLocal) -> Future[Any]:
        body = request.body
        assert isinstance(body, JoinGroupRequest)
        self._authorize(request, AclOperation.READ, body.group_id)
        if body.rebalance_timeout_ms < 0:
            body.rebalance_timeout_ms = body.session_timeout_ms

        def make(response: JoinGroupResponse) -> JoinGroupResponse:
            if request.api_version >= _NULLABLE_PROTOCOL_SINCE:
                # An empty name becomes null, too, as in Kafka.
                response.protocol_name = response.protocol_name or None
            elif response.protocol_name is None:
                response.protocol_name = ""
            return response

        return self._respond(request, self._groups.join_group(member_context(request), body), make)

    def sync_group(self, request: Request, _local: RequestLocal) -> Future[Any]:
        body = request.body
        assert isinstance(body, SyncGroupRequest)
        if request.api_version >= _PROTOCOL_NAMED_SINCE and None in (body.protocol_type, body.protocol_name):
            raise InconsistentGroupProtocolError
        self._authorize(request, AclOperation.READ, body.group_id)
        return self._respond(request, self._groups.sync_group(body))

    def heartbeat(self, request: Request, _local: RequestLocal) -> Future[Any]:
        body = request.body
        assert isinstance(body, HeartbeatRequest)
        self._authorize(request, AclOperation.READ, body.group_id)
        return self._respond(request, self._groups.heartbeat(body))

    def leave_group(self, request: Request, _local: RequestLocal) -> Future[Any]:
        body = request.body
        assert isinstance(body, LeaveGroupRequest)
        self._authorize(request, AclOperation.READ, body.group_id)
        if request.api_version < _SEVERAL_LEAVE_SINCE:
            body.members = [MemberIdentity(member_id=body.member_id)]

        def make(response: LeaveGroupResponse) -> LeaveGroupResponse:
            if request.api_version < _SEVERAL_LEAVE_SINCE and response.members:
                response.error_code = response.error_code or response.members[0].error_code
                response.members = []
            return response

        return self._respond(request, self._groups.leave_group(body), make)

    # -- consumer groups

    def consumer_group_heartbeat(self, request: Request, _local: RequestLocal) -> Future[Any]:
        body = request.body
        assert isinstance(body, ConsumerGroupHeartbeatRequest)
        self._authorize(request, AclOperation.READ, body.group_id)
        names = body.subscribed_topic_names
        if self._auth.authorizer is not None and names:
            allowed = self._auth.filter_by_authorized(
                request.request_context, AclOperation.DESCRIBE, ResourceType.TOPIC, set(names), _itself
            )
            if len(set(allowed)) < len(set(names)):
                raise TopicAuthorizationError
        return self._respond(request, self._groups.consumer_group_heartbeat(member_context(request), body))

    # -- administration

    def describe_groups(self, request: Request, _local: RequestLocal) -> Future[Any]:
        body = request.body
        assert isinstance(body, DescribeGroupsRequest)
        allowed, denied = self._by_permission(request, AclOperation.DESCRIBE, body.groups)
        refused = [
            DescribedGroup(group_id=group_id, error_code=Errors.GROUP_AUTHORIZATION_FAILED) for group_id in denied
        ]

        def make(described: list[DescribedGroup]) -> DescribeGroupsResponse:
            for group in described:
                if group.error_code == Errors.GROUP_ID_NOT_FOUND and request.api_version < _NOT_FOUND_SINCE:
                    group.error_code, group.error_message = Errors.NONE, None
                if body.include_authorized_operations and not group.error_code:
                    group.authorized_operations = self._operations(request, group.group_id)
            return DescribeGroupsResponse(groups=[*refused, *described])

        return self._respond(request, self._groups.describe_groups(allowed), make)

    def consumer_group_describe(self, request: Request, _local: RequestLocal) -> Future[Any]:
        body = request.body
        assert isinstance(body, ConsumerGroupDescribeRequest)
        if not self._groups.serves_consumer_protocol:
            return self._respond(
                request,
                _done(
                    ConsumerGroupDescribeResponse(
                        groups=[
                            DescribedConsumerGroup(group_id=group_id, error_code=Errors.UNSUPPORTED_VERSION)
                            for group_id in body.group_ids
                        ]
                    )
                ),
            )
        allowed, denied = self._by_permission(request, AclOperation.DESCRIBE, body.group_ids)
        refused = [
            DescribedConsumerGroup(group_id=group_id, error_code=Errors.GROUP_AUTHORIZATION_FAILED)
            for group_id in denied
        ]

        def make(described: list[DescribedConsumerGroup]) -> ConsumerGroupDescribeResponse:
            for group in described:
                if body.include_authorized_operations and not group.error_code:
                    group.authorized_operations = self._operations(request, group.group_id)
            shown = described if self._auth.authorizer is None else [self._hide(request, group) for group in described]
            return ConsumerGroupDescribeResponse(groups=[*refused, *shown])

        return self._respond(request, self._groups.consumer_group_describe(allowed), make)

    def _hide(self, request: Request, group: DescribedConsumerGroup) -> DescribedConsumerGroup:
        """Hides the members if the client may not describe all their topics: members reveal topic names."""
        names = {
            topic.topic_name
            for member in group.members
            for assignment in (member.assignment, member.target_assignment)
            for topic in assignment.topic_partitions
        }
        names.update(name for member in group.members for name in member.subscribed_topic_names)
        allowed = self._auth.filter_by_authorized(
            request.request_context, AclOperation.DESCRIBE, ResourceType.TOPIC, names, _itself
        )
        if len(set(allowed)) == len(names):
            return group
        return DescribedConsumerGroup(
            group_id=group.group_id,
            error_code=Errors.TOPIC_AUTHORIZATION_FAILED,
            error_message="The group has described topic(s) that the client is not authorized to describe.",
        )

    def list_groups(self, request: Request, _local: RequestLocal) -> Future[Any]:
        body = request.body
        assert isinstance(body, ListGroupsRequest)
        sees_all = self._auth.authorizer is None or self._auth.authorize(
            request.request_context, AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME, log_if_denied=False
        )

        def make(response: ListGroupsResponse) -> ListGroupsResponse:
            if not sees_all:
                response.groups = [
                    group
                    for group in response.groups
                    if self._auth.authorize(
                        request.request_context,
                        AclOperation.DESCRIBE,
                        ResourceType.GROUP,
                        group.group_id,
                        log_if_denied=False,
                    )
                ]
            return response

        return self._respond(request, self._groups.list_groups(body), make)

    def delete_groups(self, request: Request, _local: RequestLocal) -> Future[Any]:
        body = request.body
        assert isinstance(body, DeleteGroupsRequest)
        # A group that is listed twice is deleted once and has one result.
        names = list(dict.fromkeys(body.groups_names))
        allowed, denied = self._by_permission(request, AclOperation.DELETE, names)
        refused = [
            DeletableGroupResult(group_id=group_id, error_code=Errors.GROUP_AUTHORIZATION_FAILED) for group_id in denied
        ]
        return self._respond(
            request,
            self._groups.delete_groups(allowed),
            lambda results: DeleteGroupsResponse(results=[*refused, *results]),
        )

    # -- the rest

    def _authorize(self, request: Request, operation: AclOperation, group_id: str) -> None:
        if self._auth.authorizer is not None and not self._auth.authorize(
            request.request_context, operation, ResourceType.GROUP, group_id
        ):
            raise GroupAuthorizationError

    def _by_permission(
        self, request: Request, operation: AclOperation, group_ids: Iterable[str]
    ) -> tuple[list[str], list[str]]:
        ids = list(group_ids)
        if self._auth.authorizer is None:
            return ids, []
        return self._auth.partition_by_authorized(request.request_context, operation, ResourceType.GROUP, ids, _itself)

    def _operations(self, request: Request, group_id: str) -> int:
        return self._auth.authorized_operations(request.request_context, Resource(ResourceType.GROUP, group_id))

    def _respond(self, request: Request, future: Future[T], make: Callable[[T], Response] | None = None) -> Future[Any]:
        return respond_when_done(self._helper, request, future, make)


def respond_when_done(
    helper: RequestHandlerHelper,
    request: Request,
    future: Future[T],
    make: Callable[[T], Response] | None = None,
) -> Future[Any]:
    """Sends a future's result as the response. The returned future fails if that fails."""
    done: Future[None] = Future()

    def on_done(finished: Future[T]) -> None:
        try:
            result: Any = finished.result()
            response: Any = result if make is None else make(result)

            def create(throttle_ms: int) -> Response:
                response.throttle_time_ms = throttle_ms
                made: Response = response
                return made

            helper.send_response_maybe_throttle(request, create)
        except BaseException as error:  # noqa: BLE001 - it goes to the dispatcher
            done.set_exception(error)
        else:
            done.set_result(None)

    future.add_done_callback(on_done)
    return done


def member_context(request: Request) -> MemberContext:
    """Returns the sender of a request in the form that groups need."""
    context = request.request_context
    return MemberContext(request.client_id or "", f"/{context.client_address}", request.api_version, context)


def _itself(name: str) -> str:
    return name


def _done(value: T) -> Future[T]:
    future: Future[T] = Future()
    future.set_result(value)
    return future
