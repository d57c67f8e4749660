"""The shapes in which handlers ask for permission."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future

import pytest

from barnabas.common.errors import ClusterAuthorizationError, Errors
from barnabas.security.acl import (
    AUTHORIZATION_ERRORS,
    CLUSTER,
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    Resource,
    ResourcePattern,
    ResourceType,
    acl,
    from_bit_field,
)
from barnabas.security.auth_helper import AuthHelper
from barnabas.security.authorizer import (
    ALLOWED,
    DENIED,
    AclCreateResult,
    AclDeleteResult,
    Action,
    AllowAllAuthorizer,
    AuthorizationResult,
    Authorizer,
    AuthorizerServerInfo,
)
from barnabas.security.request_context import AuthorizableRequestContext
from barnabas.security.standard_authorizer import StandardAuthorizer
from unit.security.contexts import context_of

pytestmark = pytest.mark.mechanism("R04")

READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP


class Asked(Authorizer):
    """Allows some names, and remembers what it was asked."""

    def __init__(self, *allowed: str) -> None:
        self.allowed = allowed
        self.calls: list[list[Action]] = []
        self.contexts: list[AuthorizableRequestContext] = []
        self.types: list[tuple[AclOperation, ResourceType]] = []

    def start(self, server_info: AuthorizerServerInfo) -> Mapping[str, Future[None]]:
        return {}

    def authorize(self, context: AuthorizableRequestContext, actions: Sequence[Action]) -> list[AuthorizationResult]:
        self.contexts.append(context)
        self.calls.append(list(actions))
        return [ALLOWED if action.resource_pattern.name in self.allowed else DENIED for action in actions]

    def authorize_by_resource_type(
        self, context: AuthorizableRequestContext, operation: AclOperation, resource_type: ResourceType
    ) -> AuthorizationResult:
        self.types.append((operation, resource_type))
        return ALLOWED if operation is WRITE else DENIED

    def acls(self, acl_filter: AclBindingFilter) -> list[AclBinding]:
        return []

    def create_acls(
        self, context: AuthorizableRequestContext, bindings: Sequence[AclBinding]
    ) -> list[Future[AclCreateResult]]:
        return []

    def delete_acls(
        self, context: AuthorizableRequestContext, filters: Sequence[AclBindingFilter]
    ) -> list[Future[AclDeleteResult]]:
        return []


class TestSingleCheck:
    def test_one_resource(self) -> None:
        authorizer = Asked("foo")
        helper = AuthHelper(authorizer)
        context = context_of()
        assert helper.authorize(context, READ, TOPIC, "foo")
        assert not helper.authorize(context, READ, TOPIC, "bar")
        assert authorizer.calls == [
            [Action(READ, ResourcePattern(TOPIC, "foo"), 1, True, True)],
            [Action(READ, ResourcePattern(TOPIC, "bar"), 1, True, True)],
        ]
        assert authorizer.contexts == [context, context]

    def test_flags_and_count_are_passed_on(self) -> None:
        authorizer = Asked()
        AuthHelper(authorizer).authorize(
            context_of(), READ, TOPIC, "foo", log_if_allowed=False, log_if_denied=False, ref_count=7
        )
        assert authorizer.calls == [[Action(READ, ResourcePattern(TOPIC, "foo"), 7, False, False)]]


class TestBatchedFilter:
    def test_all_partitions_are_one_call_and_each_topic_one_question(self) -> None:
        authorizer = Asked("foo", "zar")
        partitions = [("foo", 0), ("bar", 0), ("foo", 1), ("zar", 0), ("foo", 2), ("bar", 1)]
        allowed = AuthHelper(authorizer).filter_by_authorized(
            context_of(), READ, TOPIC, partitions, lambda partition: partition[0]
        )
        assert allowed == {"foo", "zar"}
        assert authorizer.calls == [
            [
                Action(READ, ResourcePattern(TOPIC, "foo"), 3),
                Action(READ, ResourcePattern(TOPIC, "bar"), 2),
                Action(READ, ResourcePattern(TOPIC, "zar"), 1),
            ]
        ]

    def test_no_resources_no_call(self) -> None:
        authorizer = Asked()
        assert AuthHelper(authorizer).filter_by_authorized(context_of(), READ, TOPIC, [], str) == set()
        assert authorizer.calls == []

    def test_resources_may_come_once_only(self) -> None:
        authorizer = Asked("a")
        names = iter(["a", "b", "a"])
        assert AuthHelper(authorizer).filter_by_authorized(context_of(), READ, TOPIC, names, str) == {"a"}

    def test_a_listing_leaves_denials_out_of_the_log(self) -> None:
        authorizer = Asked()
        AuthHelper(authorizer).filter_by_authorized(context_of(), DESCRIBE, GROUP, ["g"], str, log_if_denied=False)
        assert authorizer.calls == [[Action(DESCRIBE, ResourcePattern(GROUP, "g"), 1, True, False)]]

    def test_an_authorizer_that_does_not_decide_everything_allows_nothing(self) -> None:
        class Silent(Asked):
            def authorize(
                self, context: AuthorizableRequestContext, actions: Sequence[Action]
            ) -> list[AuthorizationResult]:
                return [ALLOWED]

        with pytest.raises(ValueError, match="shorter"):
            AuthHelper(Silent()).filter_by_authorized(context_of(), READ, TOPIC, ["a", "b"], str)

    def test_into_two_parts(self) -> None:
        authorizer = Asked("foo")
        partitions = [("foo", 0), ("bar", 0), ("foo", 1)]
        helper = AuthHelper(authorizer)
        assert helper.partition_by_authorized(context_of(), READ, TOPIC, iter(partitions), lambda it: it[0]) == (
            [("foo", 0), ("foo", 1)],
            [("bar", 0)],
        )
        assert len(authorizer.calls) == 1

    def test_a_denial_is_an_error_of_the_resource_and_the_rest_goes_ahead(self) -> None:
        helper = AuthHelper(StandardAuthorizer([acl("User:alice", READ, TOPIC, "foo")]))
        asked = ["foo", "bar"]
        allowed = helper.filter_by_authorized(context_of(), READ, TOPIC, asked, str)
        answer = {name: Errors.NONE if name in allowed else AUTHORIZATION_ERRORS[TOPIC] for name in asked}
        assert answer == {"foo": Errors.NONE, "bar": Errors.TOPIC_AUTHORIZATION_FAILED}


class TestByType:
    def test_any_resource_of_a_type(self) -> None:
        authorizer = Asked()
        helper = AuthHelper(authorizer)
        assert helper.authorize_by_resource_type(context_of(), WRITE, TOPIC)
        assert not helper.authorize_by_resource_type(context_of(), READ, TOPIC)
        assert authorizer.types == [(WRITE, TOPIC), (READ, TOPIC)]

    def test_an_idempotent_producer_needs_some_topic_to_write_to(self) -> None:
        helper = AuthHelper(StandardAuthorizer([acl("User:alice", WRITE, TOPIC, "foo")]))
        assert helper.authorize_by_resource_type(context_of(), WRITE, TOPIC)
        assert not helper.authorize_by_resource_type(context_of("User:bob"), WRITE, TOPIC)


class TestClusterLevel:
    def test_a_denial_ends_the_request(self) -> None:
        authorizer = Asked()
        with pytest.raises(ClusterAuthorizationError, match=r"Fetch.*requires Alter on the cluster") as no:
            AuthHelper(authorizer).authorize_cluster_operation(context_of(), AclOperation.ALTER)
        assert Errors.for_exception(no.value) is Errors.CLUSTER_AUTHORIZATION_FAILED
        assert authorizer.calls == [
            [Action(AclOperation.ALTER, ResourcePattern(ResourceType.CLUSTER, "kafka-cluster"), 1, True, True)]
        ]

    def test_permission_says_nothing(self) -> None:
        AuthHelper(Asked(CLUSTER_NAME)).authorize_cluster_operation(context_of(), AclOperation.ALTER)


class TestAuthorizedOperations:
    def test_what_is_allowed_of_what_there_is(self) -> None:
        deny = AclPermissionType.DENY
        authorizer = StandardAuthorizer(
            [
                acl("User:alice", AclOperation.ALL, TOPIC, "foo"),
                acl("User:alice", AclOperation.DELETE, TOPIC, "foo", permission_type=deny),
                acl("User:alice", AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME),
            ]
        )
        helper = AuthHelper(authorizer)
        field = helper.authorized_operations(context_of(), Resource(TOPIC, "foo"))
        assert from_bit_field(field) == set(SUPPORTED_OPERATIONS[TOPIC]) - {AclOperation.DELETE}
        assert helper.authorized_operations(context_of(), CLUSTER) == 1 << AclOperation.CREATE
        assert helper.authorized_operations(context_of("User:bob"), Resource(TOPIC, "foo")) == 0

    def test_one_call_that_leaves_no_trace(self) -> None:
        authorizer = Asked()
        AuthHelper(authorizer).authorized_operations(context_of(), Resource(GROUP, "g"))
        (actions,) = authorizer.calls
        assert {action.operation for action in actions} == set(SUPPORTED_OPERATIONS[GROUP])
        assert not any(action.log_if_allowed or action.log_if_denied for action in actions)


@pytest.mark.parametrize("authorizer", [None, AllowAllAuthorizer()])
class TestWithoutRules:
    def test_everything_is_allowed(self, authorizer: Authorizer | None) -> None:
        helper = AuthHelper(authorizer)
        context = context_of("User:whoever")
        assert helper.authorize(context, WRITE, TOPIC, "foo")
        assert helper.filter_by_authorized(context, READ, TOPIC, ["a", "b", "a"], str) == {"a", "b"}
        assert helper.partition_by_authorized(context, READ, TOPIC, ["a", "b"], str) == (["a", "b"], [])
        assert helper.authorize_by_resource_type(context, WRITE, TOPIC)
        helper.authorize_cluster_operation(context, AclOperation.CLUSTER_ACTION)
        field = helper.authorized_operations(context, Resource(TOPIC, "foo"))
        # As Kafka shows it: 0x0df8
        assert field == 0b1101_1111_1000
