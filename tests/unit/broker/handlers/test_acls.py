"""DescribeAcls on a broker: its own authorizer's ACLs, for those who may see them."""

from __future__ import annotations

import pytest

from barnabas.broker.handlers.acls import AclsHandler
from barnabas.common.errors import ClusterAuthorizationError, InvalidRequestError, SecurityDisabledError
from barnabas.protocol.messages.describe_acls import AclDescription, DescribeAclsRequest, DescribeAclsResource
from barnabas.security.acl import AclOperation, AclPermissionType, PatternType, ResourceType
from barnabas.security.auth_helper import AuthHelper
from handler_fixtures import HandlerBench
from unit.broker.handlers.data_bench import ALICE, acls

DESCRIBE_CLUSTER = (AclOperation.DESCRIBE, ResourceType.CLUSTER, "kafka-cluster")
READ_T = (AclOperation.READ, ResourceType.TOPIC, "t")


def everything_of(resource_type: ResourceType) -> DescribeAclsRequest:
    return DescribeAclsRequest(
        resource_type_filter=resource_type,
        resource_name_filter=None,
        pattern_type_filter=PatternType.ANY,
        principal_filter=None,
        host_filter=None,
        operation=AclOperation.ANY,
        permission_type=AclPermissionType.ANY,
    )


def test_what_the_filter_matches() -> None:
    bench = HandlerBench()
    handler = AclsHandler(bench.helper, acls(DESCRIBE_CLUSTER, READ_T))
    answer = bench.ask(handler, everything_of(ResourceType.TOPIC), 3, principal=ALICE)
    assert answer.error_code == 0
    assert answer.resources == [
        DescribeAclsResource(
            resource_type=ResourceType.TOPIC,
            resource_name="t",
            pattern_type=PatternType.LITERAL,
            acls=[
                AclDescription(
                    principal=str(ALICE),
                    host="*",
                    operation=AclOperation.READ,
                    permission_type=AclPermissionType.ALLOW,
                )
            ],
        )
    ]
    both = bench.ask(handler, everything_of(ResourceType.ANY), 3, principal=ALICE)
    assert [resource.resource_name for resource in both.resources] == ["kafka-cluster", "t"]


def test_describe_on_the_cluster_is_needed() -> None:
    bench = HandlerBench()
    with pytest.raises(ClusterAuthorizationError):
        bench.ask(AclsHandler(bench.helper, acls(READ_T)), everything_of(ResourceType.ANY), 3, principal=ALICE)


def test_without_an_authorizer_there_are_no_acls() -> None:
    bench = HandlerBench()
    with pytest.raises(SecurityDisabledError):
        bench.ask(AclsHandler(bench.helper, AuthHelper(None)), everything_of(ResourceType.ANY), 3)


def test_a_filter_that_means_nothing_is_refused() -> None:
    bench = HandlerBench()
    body = everything_of(ResourceType.UNKNOWN)
    with pytest.raises(InvalidRequestError):
        bench.ask(AclsHandler(bench.helper, acls(DESCRIBE_CLUSTER)), body, 3, principal=ALICE)
