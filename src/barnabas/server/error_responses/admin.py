"""Error responses of the APIs for topics, configs, quotas, permissions and the cluster."""

from __future__ import annotations

from barnabas.common.errors import Errors
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages import (
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    api_versions,
    create_acls,
    create_delegation_token,
    create_partitions,
    create_topics,
    delete_acls,
    delete_topics,
    describe_client_quotas,
    describe_configs,
    describe_user_scram_credentials,
    elect_leaders,
    incremental_alter_configs,
    list_partition_reassignments,
)
from barnabas.security.principal import ANONYMOUS
from barnabas.server.error_responses.failure import Failure, ResponseTo, failed_resources, failed_topics

UNKNOWN = -1


def _api_versions(_: api_versions.ApiVersionsRequest, failure: Failure) -> api_versions.ApiVersionsResponse:
    """Tells a client with a too new version which versions it can use (KIP-511)."""
    response = api_versions.ApiVersionsResponse(error_code=failure.error, throttle_time_ms=failure.throttle_time_ms)
    if failure.error is Errors.UNSUPPORTED_VERSION:
        versions = ApiKey.API_VERSIONS.versions
        response.api_keys = [
            api_versions.ApiVersion(
                api_key=ApiKey.API_VERSIONS, min_version=versions.lowest, max_version=versions.highest
            )
        ]
    return response


def _create_topics(body: create_topics.CreateTopicsRequest, failure: Failure) -> create_topics.CreateTopicsResponse:
    return create_topics.CreateTopicsResponse(
        throttle_time_ms=failure.throttle_time_ms,
        topics=[
            create_topics.CreatableTopicResult(name=topic.name, error_code=failure.error, error_message=failure.message)
            for topic in body.topics
        ],
    )


def _delete_topics(body: delete_topics.DeleteTopicsRequest, failure: Failure) -> delete_topics.DeleteTopicsResponse:
    """From v6 on, each topic has a name or an id; before, the request has a list of names."""
    return delete_topics.DeleteTopicsResponse(
        throttle_time_ms=failure.throttle_time_ms,
        responses=[
            *(delete_topics.DeletableTopicResult(name=name, error_code=failure.error) for name in body.topic_names),
            *(
                delete_topics.DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=failure.error)
                for topic in body.topics
            ),
        ],
    )


def _create_partitions(
    body: create_partitions.CreatePartitionsRequest, failure: Failure
) -> create_partitions.CreatePartitionsResponse:
    return create_partitions.CreatePartitionsResponse(
        throttle_time_ms=failure.throttle_time_ms,
        results=[
            create_partitions.CreatePartitionsTopicResult(
                name=topic.name, error_code=failure.error, error_message=failure.message
            )
            for topic in body.topics
        ],
    )


def _elect_leaders(body: elect_leaders.ElectLeadersRequest, failure: Failure) -> elect_leaders.ElectLeadersResponse:
    response = elect_leaders.ElectLeadersResponse(
        throttle_time_ms=failure.throttle_time_ms,
        replica_election_results=[
            elect_leaders.ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    elect_leaders.PartitionResult(
                        partition_id=partition, error_code=failure.error, error_message=failure.message
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in body.topic_partitions or ()
        ],
    )
    if failure.version >= 1:
        response.error_code = failure.error
    return response


def _alter_partition_reassignments(
    body: alter_partition_reassignments.AlterPartitionReassignmentsRequest, failure: Failure
) -> alter_partition_reassignments.AlterPartitionReassignmentsResponse:
    return alter_partition_reassignments.AlterPartitionReassignmentsResponse(
        throttle_time_ms=failure.throttle_time_ms,
        error_code=failure.error,
        error_message=failure.message,
        responses=failed_topics(
            body.topics,
            lambda topic, partitions: alter_partition_reassignments.ReassignableTopicResponse(
                name=topic.name, partitions=partitions
            ),
            lambda index: alter_partition_reassignments.ReassignablePartitionResponse(
                partition_index=index, error_code=failure.error, error_message=failure.message
            ),
        ),
    )


def _list_partition_reassignments(
    body: list_partition_reassignments.ListPartitionReassignmentsRequest, failure: Failure
) -> list_partition_reassignments.ListPartitionReassignmentsResponse:
    return list_partition_reassignments.ListPartitionReassignmentsResponse(
        throttle_time_ms=failure.throttle_time_ms,
        error_code=failure.error,
        error_message=failure.message,
        topics=[
            list_partition_reassignments.OngoingTopicReassignment(
                name=topic.name,
                partitions=[
                    list_partition_reassignments.OngoingPartitionReassignment(partition_index=partition)
                    for partition in topic.partition_indexes
                ],
            )
            for topic in body.topics or ()
        ],
    )


def _describe_configs(
    body: describe_configs.DescribeConfigsRequest, failure: Failure
) -> describe_configs.DescribeConfigsResponse:
    return describe_configs.DescribeConfigsResponse(
        throttle_time_ms=failure.throttle_time_ms,
        results=failed_resources(
            body.resources, describe_configs.DescribeConfigsResult, failure.error, failure.usual_message
        ),
    )


def _alter_configs(body: alter_configs.AlterConfigsRequest, failure: Failure) -> alter_configs.AlterConfigsResponse:
    return alter_configs.AlterConfigsResponse(
        throttle_time_ms=failure.throttle_time_ms,
        responses=failed_resources(
            body.resources, alter_configs.AlterConfigsResourceResponse, failure.error, failure.message
        ),
    )


def _incremental_alter_configs(
    body: incremental_alter_configs.IncrementalAlterConfigsRequest, failure: Failure
) -> incremental_alter_configs.IncrementalAlterConfigsResponse:
    return incremental_alter_configs.IncrementalAlterConfigsResponse(
        throttle_time_ms=failure.throttle_time_ms,
        responses=failed_resources(
            body.resources, alter_configs.AlterConfigsResourceResponse, failure.error, failure.message
        ),
    )


def _describe_client_quotas(
    _: describe_client_quotas.DescribeClientQuotasRequest, failure: Failure
) -> describe_client_quotas.DescribeClientQuotasResponse:
    """Returns null entries instead of an empty list: the quotas are unknown, not absent."""
    return describe_client_quotas.DescribeClientQuotasResponse(
        throttle_time_ms=failure.throttle_time_ms,
        error_code=failure.error,
        error_message=failure.message,
        entries=None,
    )


def _alter_client_quotas(
    body: alter_client_quotas.AlterClientQuotasRequest, failure: Failure
) -> alter_client_quotas.AlterClientQuotasResponse:
    return alter_client_quotas.AlterClientQuotasResponse(
        throttle_time_ms=failure.throttle_time_ms,
        entries=[
            alter_client_quotas.ResponseEntryData(
                error_code=failure.error, error_message=failure.usual_message, entity=entry.entity
            )
            for entry in body.entries
        ],
    )


def _describe_user_scram_credentials(
    body: describe_user_scram_credentials.DescribeUserScramCredentialsRequest, failure: Failure
) -> describe_user_scram_credentials.DescribeUserScramCredentialsResponse:
    """Returns one result per requested user, without the user's name, as in Kafka."""
    return describe_user_scram_credentials.DescribeUserScramCredentialsResponse(
        throttle_time_ms=failure.throttle_time_ms,
        error_code=failure.error,
        error_message=failure.message,
        results=[
            describe_user_scram_credentials.DescribeUserScramCredentialsResult(
                error_code=failure.error, error_message=failure.message
            )
            for _ in body.users or ()
        ],
    )


def _alter_user_scram_credentials(
    body: alter_user_scram_credentials.AlterUserScramCredentialsRequest, failure: Failure
) -> alter_user_scram_credentials.AlterUserScramCredentialsResponse:
    """Returns one result per user, even if several changes concern that user."""
    users = {deletion.name for deletion in body.deletions} | {upsertion.name for upsertion in body.upsertions}
    return alter_user_scram_credentials.AlterUserScramCredentialsResponse(
        throttle_time_ms=failure.throttle_time_ms,
        results=[
            alter_user_scram_credentials.AlterUserScramCredentialsResult(
                user=user, error_code=failure.error, error_message=failure.message
            )
            for user in sorted(users)
        ],
    )


def _create_acls(body: create_acls.CreateAclsRequest, failure: Failure) -> create_acls.CreateAclsResponse:
    result = create_acls.AclCreationResult(error_code=failure.error, error_message=failure.message)
    return create_acls.CreateAclsResponse(
        throttle_time_ms=failure.throttle_time_ms, results=[result] * len(body.creations)
    )


def _delete_acls(body: delete_acls.DeleteAclsRequest, failure: Failure) -> delete_acls.DeleteAclsResponse:
    result = delete_acls.DeleteAclsFilterResult(error_code=failure.error, error_message=failure.message)
    return delete_acls.DeleteAclsResponse(
        throttle_time_ms=failure.throttle_time_ms, filter_results=[result] * len(body.filters)
    )


def _create_delegation_token(
    _: create_delegation_token.CreateDelegationTokenRequest, failure: Failure
) -> create_delegation_token.CreateDelegationTokenResponse:
    """Returns no token: its owner is anonymous and its timestamps are -1."""
    response = create_delegation_token.CreateDelegationTokenResponse(
        error_code=failure.error,
        principal_type=ANONYMOUS.type,
        principal_name=ANONYMOUS.name,
        issue_timestamp_ms=UNKNOWN,
        expiry_timestamp_ms=UNKNOWN,
        max_timestamp_ms=UNKNOWN,
        throttle_time_ms=failure.throttle_time_ms,
    )
    if failure.version >= 3:
        response.token_requester_principal_type = ANONYMOUS.type
        response.token_requester_principal_name = ANONYMOUS.name
    return response


RESPONSES: dict[ApiKey, ResponseTo] = {
    ApiKey.API_VERSIONS: _api_versions,
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.ELECT_LEADERS: _elect_leaders,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _alter_partition_reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _list_partition_reassignments,
    ApiKey.DESCRIBE_CONFIGS: _describe_configs,
    ApiKey.ALTER_CONFIGS: _alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _incremental_alter_configs,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _describe_client_quotas,
    ApiKey.ALTER_CLIENT_QUOTAS: _alter_client_quotas,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _describe_user_scram_credentials,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _alter_user_scram_credentials,
    ApiKey.CREATE_ACLS: _create_acls,
    ApiKey.DELETE_ACLS: _delete_acls,
    ApiKey.CREATE_DELEGATION_TOKEN: _create_delegation_token,
}
