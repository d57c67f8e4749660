"""The controller's dispatcher: who may ask for what, and what becomes of it."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest

from barnabas.common.clock import MockClock
from barnabas.common.errors import (
    ClusterAuthorizationError,
    Errors,
    InvalidConfigurationError,
    NotLeaderOrFollowerError,
)
from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.controller.controller_acl_mutator import ControllerAclMutator
from barnabas.controller.controller_apis import ControllerApisConfig, ControllerApisPlugins
from barnabas.metadata.configs import ConfigResource
from barnabas.protocol.api_keys import ApiKey, Scope
from barnabas.protocol.message import Request as RequestBody
from barnabas.protocol.messages import (
    alter_client_quotas,
    alter_configs,
    alter_user_scram_credentials,
    create_acls,
    delete_acls,
    describe_acls,
    describe_quorum,
    incremental_alter_configs,
)
from barnabas.protocol.messages.add_raft_voter import AddRaftVoterRequest
from barnabas.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from barnabas.protocol.messages.alter_partition import AlterPartitionRequest, RequestTopicData
from barnabas.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.messages.broker_registration import BrokerRegistrationRequest, Listener
from barnabas.protocol.messages.controller_registration import ControllerRegistrationRequest
from barnabas.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResult
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from barnabas.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from barnabas.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest
from barnabas.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas.raft.quorum_info import QuorumInfo, QuorumNode, QuorumReplica
from barnabas.raft.voter_set import VoterEndpoint
from barnabas.security.acl import (
    CLUSTER_NAME,
    AclBindingFilter,
    AclOperation,
    ResourceType,
    acl,
    from_bit_field,
)
from barnabas.server.throttling import UNLIMITED_BANDWIDTH
from handler_fixtures import FakeQuota, decode_response
from network_fixtures import LISTENER
from unit.controller.apis_bench import ADMIN, ALICE, BROKER, ApisBench, authorizer, envelope_of
from unit.controller.harness import CLUSTER_ID, NODE, topic

OK = Errors.NONE
TOPIC = 2
BROKER_CONFIG = 4
LOGGER = 8
GROUP = 32
METADATA_LOG = describe_quorum.RequestTopicData(
    topic_name="__cluster_metadata", partitions=[describe_quorum.RequestPartitionData(partition_index=0)]
)


class Quotas:
    """Quota managers that remember."""

    def __init__(self) -> None:
        self.request = FakeQuota()
        self.controller_mutation = FakeQuota()
        self.produce = self.fetch = UNLIMITED_BANDWIDTH


def quorum_info() -> QuorumInfo:
    voter = QuorumReplica(NODE, Uuid(b"d" * 16), 20, 100, 90)
    observer = QuorumReplica(7, Uuid(b"e" * 16), 18, 80, 70)
    nodes = (QuorumNode(NODE, (VoterEndpoint("CONTROLLER", "localhost", 9093),)),)
    return QuorumInfo(NODE, 3, 19, (voter,), (observer,), nodes, kraft_version=1)


FULL = ControllerApisPlugins(describe_quorum=quorum_info, describe_configs=lambda _request: [])


# -- what is served


@pytest.mark.mechanism("R10")
def test_only_what_has_a_handler_is_advertised() -> None:
    bench = ApisBench(plugins=FULL)
    served = set(bench.apis.versions.enabled_apis)
    assert served == bench.apis.apis
    assert all(Scope.CONTROLLER & key.scope for key in served)
    assert {key.title for key in ApiKey if Scope.CONTROLLER & key.scope and key not in served} == {
        "Fetch",
        "FetchSnapshot",
        "Vote",
        "BeginQuorumEpoch",
        "EndQuorumEpoch",
        "UpdateRaftVoter",
        "UnregisterController",
        "DescribeUserScramCredentials",
        "DescribeDelegationToken",
    }
    assert bench.apis.inline_apis < served
    without = ApisBench().apis.apis
    assert served - without == {
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
        ApiKey.DESCRIBE_CONFIGS,
    }


@pytest.mark.mechanism("R10")
def test_broker_and_controller_have_disjoint_scopes() -> None:
    """What both serve is what is forwarded, or what each says about itself."""
    served = ApisBench(plugins=FULL).apis.apis
    assert ApiKey.PRODUCE not in served
    assert ApiKey.METADATA not in served
    for key in (ApiKey.BROKER_HEARTBEAT, ApiKey.ALTER_PARTITION, ApiKey.ENVELOPE):
        assert key in served
        assert not Scope.BROKER & key.scope


# -- ApiVersions


def test_api_versions_lists_apis_and_features() -> None:
    bench = ApisBench()
    bench.publish()
    request = ApiVersionsRequest(client_software_name="barnabas", client_software_version="1.0")
    newest = bench.ask(request, 5)
    assert newest.error_code == OK
    listed = {row.api_key: (row.min_version, row.max_version) for row in newest.api_keys}
    assert listed.keys() == bench.apis.apis
    assert listed[ApiKey.CREATE_TOPICS] == (2, 7)
    assert listed[ApiKey.API_VERSIONS] == (0, 5)
    finalized = {row.name: row.max_version_level for row in newest.finalized_features}
    assert finalized["metadata.version"] == 30
    assert finalized["group.version"] == 1
    assert newest.finalized_features_epoch == bench.cache.image.offset > 0
    assert "group.version" in {row.name for row in newest.supported_features}
    older = bench.ask(request, 3)
    assert {row.name for row in older.supported_features} == {"metadata.version"}, "older clients know no level 0"
    assert bench.ask(ApiVersionsRequest(), 0).api_keys == newest.api_keys


@pytest.mark.mechanism("R12")
def test_a_version_of_the_future_gets_a_response_in_version_0() -> None:
    bench = ApisBench()
    request = bench.bench.request(ApiVersionsRequest(), 3)
    request.api_version = 42
    bench.apis.handle(request, bench.bench.local)
    (sent,) = bench.bench.responses(request)
    answer = decode_response(sent, ApiVersionsResponse, 0)
    assert answer.error_code == Errors.UNSUPPORTED_VERSION
    (row,) = answer.api_keys
    assert (row.api_key, row.min_version, row.max_version) == (18, 0, 5)


@pytest.mark.parametrize(
    ("request_", "version", "error"),
    [
        (ApiVersionsRequest(client_software_name="", client_software_version="1"), 3, Errors.INVALID_REQUEST),
        (ApiVersionsRequest(client_software_name="a b", client_software_version="1"), 3, Errors.INVALID_REQUEST),
        (ApiVersionsRequest(client_software_name="a", client_software_version="-1"), 4, Errors.INVALID_REQUEST),
        (ApiVersionsRequest(client_software_name="a-b.c", client_software_version="1"), 4, OK),
        (ApiVersionsRequest(), 2, OK),
        (
            ApiVersionsRequest(
                client_software_name="a", client_software_version="1", cluster_id=CLUSTER_ID, node_id=NODE
            ),
            5,
            OK,
        ),
        (
            ApiVersionsRequest(client_software_name="a", client_software_version="1", cluster_id=CLUSTER_ID, node_id=9),
            5,
            Errors.REBOOTSTRAP_REQUIRED,
        ),
        (
            ApiVersionsRequest(client_software_name="a", client_software_version="1", cluster_id="other", node_id=NODE),
            5,
            Errors.REBOOTSTRAP_REQUIRED,
        ),
        (
            ApiVersionsRequest(client_software_name="a", client_software_version="1", cluster_id=CLUSTER_ID),
            5,
            Errors.INVALID_REQUEST,
        ),
    ],
)
def test_who_is_turned_away(request_: ApiVersionsRequest, version: int, error: Errors) -> None:
    assert ApisBench().ask(request_, version).error_code == error


# -- rights on the cluster


CLUSTER_ACTION, ALTER, DESCRIBE = AclOperation.CLUSTER_ACTION, AclOperation.ALTER, AclOperation.DESCRIBE
NEEDS: list[tuple[RequestBody, AclOperation]] = [
    (AlterPartitionRequest(broker_id=1), CLUSTER_ACTION),
    (AssignReplicasToDirsRequest(broker_id=1), CLUSTER_ACTION),
    (BrokerRegistrationRequest(broker_id=1), CLUSTER_ACTION),
    (BrokerHeartbeatRequest(broker_id=1), CLUSTER_ACTION),
    (ControllerRegistrationRequest(controller_id=1), CLUSTER_ACTION),
    (AllocateProducerIdsRequest(broker_id=1), CLUSTER_ACTION),
    (ElectLeadersRequest(topic_partitions=[]), ALTER),
    (AlterPartitionReassignmentsRequest(), ALTER),
    (ListPartitionReassignmentsRequest(), DESCRIBE),
    (UnregisterBrokerRequest(broker_id=9), ALTER),
    (UpdateFeaturesRequest(), ALTER),
    (DescribeClusterRequest(endpoint_type=2), ALTER),
    (describe_quorum.DescribeQuorumRequest(topics=[METADATA_LOG]), DESCRIBE),
    (AddRaftVoterRequest(cluster_id=None), ALTER),
    (RemoveRaftVoterRequest(cluster_id=None), ALTER),
    (
        alter_client_quotas.AlterClientQuotasRequest(
            entries=[alter_client_quotas.RequestEntryData(entity=[alter_client_quotas.EntityData(entity_type="user")])]
        ),
        AclOperation.ALTER_CONFIGS,
    ),
    (
        alter_user_scram_credentials.AlterUserScramCredentialsRequest(
            deletions=[alter_user_scram_credentials.ScramCredentialDeletion(name="bob", mechanism=1)]
        ),
        ALTER,
    ),
    (describe_acls.DescribeAclsRequest(resource_type_filter=1), DESCRIBE),
    (create_acls.CreateAclsRequest(creations=[create_acls.AclCreation()]), ALTER),
    (delete_acls.DeleteAclsRequest(filters=[delete_acls.DeleteAclsFilter()]), ALTER),
]


def all_codes(response: Any) -> set[int]:
    found = {response.error_code} if hasattr(response, "error_code") else set()
    for name in ("entries", "results", "filter_results"):
        found |= {row.error_code for row in getattr(response, name, ())}
    return found


@pytest.mark.mechanism("R04")
@pytest.mark.mechanism("R12")
@pytest.mark.parametrize(("body", "operation"), NEEDS, ids=lambda value: getattr(value, "api_key", value).name)
def test_what_needs_a_right_on_the_cluster_fails_as_a_whole(body: RequestBody, operation: AclOperation) -> None:
    others = [other for other in AclOperation if other > AclOperation.ALL and other is not operation]
    if operation is DESCRIBE:  # which follows from some of the others
        others = [CLUSTER_ACTION]
    denying = authorizer(*(acl("User:alice", other, ResourceType.CLUSTER, CLUSTER_NAME) for other in others))
    version = body.versions.highest
    bench = ApisBench(authorizer=denying, plugins=FULL)
    bench.publish()
    assert Errors.CLUSTER_AUTHORIZATION_FAILED in all_codes(bench.ask(body, version, ALICE))
    bench = ApisBench(
        authorizer=authorizer(acl("User:alice", operation, ResourceType.CLUSTER, CLUSTER_NAME)), plugins=FULL
    )
    bench.publish()
    assert Errors.CLUSTER_AUTHORIZATION_FAILED not in all_codes(bench.ask(body, version, ALICE))


# -- nodes


def test_a_broker_registers_and_lives() -> None:
    bench = ApisBench(brokers=())
    harness = bench.harness
    registration = BrokerRegistrationRequest(
        broker_id=3,
        cluster_id=CLUSTER_ID,
        incarnation_id=Uuid(b"i" * 16),
        log_dirs=[Uuid(b"l" * 16)],
        features=[],
    )
    refused = bench.ask(registration, 4)
    assert (refused.error_code, refused.broker_epoch) == (Errors.INVALID_REGISTRATION, -1)
    harness.add_brokers(3)
    beat = BrokerHeartbeatRequest(
        broker_id=3, broker_epoch=harness.epoch(3), current_metadata_offset=harness.raft.log_end_offset
    )
    answer = bench.ask(beat, 1)
    assert (answer.error_code, answer.is_fenced, answer.is_caught_up) == (OK, False, True)
    block = bench.ask(AllocateProducerIdsRequest(broker_id=3, broker_epoch=harness.epoch(3)), 0)
    assert (block.error_code, block.producer_id_start, block.producer_id_len) == (OK, 0, 1000)
    assert bench.ask(UnregisterBrokerRequest(broker_id=3), 0).error_code == OK
    assert bench.ask(UnregisterBrokerRequest(broker_id=3), 0).error_code == Errors.BROKER_ID_NOT_REGISTERED
    assert bench.ask(beat, 1).error_code == Errors.STALE_BROKER_EPOCH


def test_a_heartbeat_that_comes_too_late_is_given_up() -> None:
    clock = MockClock()
    bench = ApisBench(clock=clock, config=ControllerApisConfig(broker_heartbeat_interval_ms=2000))
    beat = BrokerHeartbeatRequest(broker_id=1, broker_epoch=bench.harness.epoch(1), current_metadata_offset=1)
    for waited, error in ((999, OK), (1001, Errors.REQUEST_TIMED_OUT)):
        request = bench.send(beat, 1)
        clock.advance(waited)
        bench.harness.step()
        assert bench.bench.answer(request).error_code == error


@pytest.mark.mechanism("R11")
def test_a_change_of_in_sync_replicas_is_never_throttled() -> None:
    quotas = Quotas()
    quotas.request.throttle_time_ms = 500
    bench = ApisBench(quotas=quotas)
    request = bench.send(AlterPartitionRequest(broker_id=1, broker_epoch=bench.harness.epoch(1)), 3)
    bench.harness.step()
    answer = bench.bench.answer(request)
    assert (answer.error_code, answer.throttle_time_ms) == (OK, 0)
    assert quotas.request.exempt == [request]
    topics = [RequestTopicData(topic_id=Uuid(b"t" * 16))]
    stale = bench.send(AlterPartitionRequest(broker_id=1, broker_epoch=99, topics=topics), 3)
    bench.harness.step()
    assert bench.bench.answer(stale).error_code == Errors.STALE_BROKER_EPOCH
    assert not quotas.request.throttled


# -- partitions


def test_leaders_are_elected_and_reassignments_listed() -> None:
    bench = ApisBench()
    bench.harness.create("orders", 2, 1)
    wanted = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="orders", partitions=[0, 7])])
    (result,) = bench.ask(wanted, 2).replica_election_results
    assert [(row.partition_id, row.error_code) for row in result.partition_result] == [
        (0, Errors.ELECTION_NOT_NEEDED),
        (7, Errors.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert (
        bench.ask(ElectLeadersRequest(election_type=9, topic_partitions=None), 2).error_code == Errors.INVALID_REQUEST
    )
    listed = bench.ask(ListPartitionReassignmentsRequest(topics=None), 0)
    assert (listed.error_code, listed.topics) == (OK, [])


def test_the_timeout_of_some_requests_is_no_deadline() -> None:
    clock = MockClock()
    bench = ApisBench(clock=clock)
    key = FeatureUpdateKey(feature="group.version", max_version_level=0, upgrade_type=2)
    bodies: list[tuple[RequestBody, int]] = [
        (ListPartitionReassignmentsRequest(timeout_ms=0, topics=None), 0),
        (UpdateFeaturesRequest(timeout_ms=0, feature_updates=[key]), 1),
    ]
    for body, version in bodies:
        request = bench.send(body, version)
        clock.advance(1)
        bench.harness.step()
        assert bench.bench.answer(request).error_code == OK


# -- configs


def set_value(
    resource_type: int, resource_name: str, name: str = "retention.ms", value: str = "1000"
) -> incremental_alter_configs.AlterConfigsResource:
    config = incremental_alter_configs.AlterableConfig(name=name, config_operation=0, value=value)
    return incremental_alter_configs.AlterConfigsResource(
        resource_type=resource_type, resource_name=resource_name, configs=[config]
    )


def replace_value(resource_type: int, resource_name: str) -> alter_configs.AlterConfigsResource:
    config = alter_configs.AlterableConfig(name="retention.ms", value="1000")
    return alter_configs.AlterConfigsResource(
        resource_type=resource_type, resource_name=resource_name, configs=[config]
    )


def config_rows(response: Any) -> list[tuple[int, str, int]]:
    return [(row.resource_type, row.resource_name, row.error_code) for row in response.responses]


@pytest.mark.mechanism("R04")
@pytest.mark.parametrize("kind", ["replace", "change"])
def test_each_resource_stands_for_itself(kind: str) -> None:
    may = acl("User:alice", AclOperation.ALTER_CONFIGS, ResourceType.TOPIC, "orders")
    bench = ApisBench(authorizer=authorizer(may))
    for name in ("orders", "bills", "twice"):
        bench.harness.create(name, 1, 1)
    given = [
        (TOPIC, "orders"),
        (TOPIC, "bills"),
        (TOPIC, "twice"),
        (TOPIC, "twice"),
        (BROKER_CONFIG, "1"),
        (GROUP, "readers"),
        (LOGGER, "1"),
        (99, "x"),
    ]
    body: RequestBody
    if kind == "replace":
        body = alter_configs.AlterConfigsRequest(resources=[replace_value(*resource) for resource in given])
    else:
        body = incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[set_value(*resource) for resource in given]
        )
    assert config_rows(bench.ask(body, body.versions.highest, ALICE)) == [
        (TOPIC, "orders", OK),
        (TOPIC, "bills", Errors.TOPIC_AUTHORIZATION_FAILED),
        (TOPIC, "twice", Errors.INVALID_REQUEST),
        (BROKER_CONFIG, "1", Errors.CLUSTER_AUTHORIZATION_FAILED),
        (GROUP, "readers", Errors.GROUP_AUTHORIZATION_FAILED),
        (LOGGER, "1", Errors.INVALID_REQUEST),
        (99, "x", Errors.UNSUPPORTED_VERSION),
    ]
    configs = bench.harness.managers.configs
    assert dict(configs.settings(ConfigResource.topic("orders"))) == {"retention.ms": "1000"}
    assert not configs.settings(ConfigResource.topic("bills"))
    assert not configs.settings(ConfigResource.topic("twice"))


@pytest.mark.parametrize("validate_only", [True, False])
def test_settings_may_be_checked_only(validate_only: bool) -> None:
    bench = ApisBench()
    bench.harness.create("orders", 1, 1)
    body = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[set_value(TOPIC, "orders")], validate_only=validate_only
    )
    assert config_rows(bench.ask(body, 1)) == [(TOPIC, "orders", OK)]
    replace = alter_configs.AlterConfigsRequest(resources=[replace_value(TOPIC, "orders")], validate_only=validate_only)
    assert config_rows(bench.ask(replace, 2)) == [(TOPIC, "orders", OK)]
    settings = bench.harness.managers.configs.settings(ConfigResource.topic("orders"))
    assert dict(settings) == ({} if validate_only else {"retention.ms": "1000"})


@pytest.mark.mechanism("R04")
def test_log_levels_are_changed_here() -> None:
    changed: list[tuple[str, bool]] = []

    def alter(
        resource: incremental_alter_configs.AlterConfigsResource, *, authorized: bool, validate_only: bool
    ) -> None:
        if not authorized:
            raise ClusterAuthorizationError
        if resource.resource_name != "1":
            raise InvalidConfigurationError("another node")
        changed.append((resource.configs[0].name, validate_only))

    plugins = ControllerApisPlugins(alter_loggers=alter)
    body = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[set_value(LOGGER, "1", "barnabas.log", "DEBUG"), set_value(LOGGER, "2", "barnabas.log", "DEBUG")]
    )
    bench = ApisBench(plugins=plugins, authorizer=authorizer())
    denied = Errors.CLUSTER_AUTHORIZATION_FAILED
    assert config_rows(bench.ask(body, 1, ALICE)) == [(LOGGER, "1", denied), (LOGGER, "2", denied)]
    assert config_rows(bench.ask(body, 1, ADMIN)) == [(LOGGER, "1", OK), (LOGGER, "2", Errors.INVALID_CONFIG)]
    assert changed == [("barnabas.log", False)]


def test_settings_of_this_node_are_described_by_who_knows_them() -> None:
    result = DescribeConfigsResult(error_message=None, resource_type=BROKER_CONFIG, resource_name="1")
    bench = ApisBench(plugins=ControllerApisPlugins(describe_configs=lambda _request: [result]))
    assert bench.ask(DescribeConfigsRequest(), 4).results == [result]


def test_authentication_has_no_place_on_a_plaintext_listener() -> None:
    bench = ApisBench()
    assert bench.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == Errors.ILLEGAL_SASL_STATE
    answer = bench.ask(SaslAuthenticateRequest(auth_bytes=b"\0me\0secret"), 2)
    assert answer.error_code == Errors.ILLEGAL_SASL_STATE
    assert "secret" not in answer.error_message


def test_credentials_are_stored() -> None:
    bench = ApisBench()
    upsertion = alter_user_scram_credentials.ScramCredentialUpsertion(
        name="bob", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"salted"
    )
    body = alter_user_scram_credentials.AlterUserScramCredentialsRequest(
        deletions=[alter_user_scram_credentials.ScramCredentialDeletion(name="carol", mechanism=2)],
        upsertions=[upsertion],
    )
    results = {row.user: row.error_code for row in bench.ask(body, 0).results}
    assert results == {"bob": OK, "carol": Errors.RESOURCE_NOT_FOUND}
    bench.publish()
    assert bench.cache.image.scram.credential(1, "bob") is not None


def test_client_quotas_are_stored() -> None:
    bench = ApisBench()
    entity = [alter_client_quotas.EntityData(entity_type="user", entity_name="alice")]
    ops = [alter_client_quotas.OpData(key="producer_byte_rate", value=1024.0)]
    body = alter_client_quotas.AlterClientQuotasRequest(
        entries=[alter_client_quotas.RequestEntryData(entity=entity, ops=ops)]
    )
    (entry,) = bench.ask(body, 1).entries
    assert (entry.error_code, entry.entity) == (OK, entity)
    assert len(bench.harness.state()["quotas"]) == 1


# -- the cluster


def test_features_are_updated_all_or_none() -> None:
    bench = ApisBench()
    good = FeatureUpdateKey(feature="group.version", max_version_level=0, upgrade_type=2)
    bad = FeatureUpdateKey(feature="no.such.version", max_version_level=1)
    answer = bench.ask(UpdateFeaturesRequest(feature_updates=[good, bad]), 2)
    assert answer.error_code != OK
    assert bench.harness.state()["features"]["group.version"] == 1
    answer = bench.ask(UpdateFeaturesRequest(feature_updates=[good]), 1)
    assert (answer.error_code, [row.feature for row in answer.results]) == (OK, ["group.version"])
    assert "group.version" not in bench.harness.state()["features"]


def registered(bench: ApisBench, node_id: int = NODE) -> None:
    request = ControllerRegistrationRequest(
        controller_id=node_id,
        incarnation_id=Uuid(b"c" * 16),
        listeners=[Listener(name=LISTENER, host="controller", port=9093)],
    )
    assert bench.ask(request, 0).error_code == OK
    bench.publish()


def test_the_controllers_of_the_cluster() -> None:
    bench = ApisBench()
    bench.publish()
    unknown = bench.ask(DescribeClusterRequest(endpoint_type=2), 1)
    assert (unknown.cluster_id, unknown.controller_id, unknown.brokers) == (CLUSTER_ID, -1, [])
    registered(bench)
    answer = bench.ask(DescribeClusterRequest(endpoint_type=2), 2)
    assert (answer.error_code, answer.endpoint_type, answer.controller_id) == (OK, 2, NODE)
    assert [(node.broker_id, node.host, node.port) for node in answer.brokers] == [(NODE, "controller", 9093)]
    assert answer.cluster_authorized_operations == -2147483648


@pytest.mark.parametrize(
    ("endpoint_type", "version", "error"),
    [
        (1, 1, Errors.MISMATCHED_ENDPOINT_TYPE),
        (1, 0, Errors.INVALID_REQUEST),
        (7, 2, Errors.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
def test_a_request_for_brokers_got_here_by_mistake(endpoint_type: int, version: int, error: Errors) -> None:
    bench = ApisBench()
    bench.publish()
    answer = bench.ask(DescribeClusterRequest(endpoint_type=endpoint_type), version)
    assert (answer.error_code, answer.brokers) == (error, [])


def test_before_the_first_record_nobody_knows_whether_controllers_register() -> None:
    answer = ApisBench().ask(DescribeClusterRequest(endpoint_type=2), 1)
    assert answer.error_code == Errors.UNSUPPORTED_VERSION


def test_operations_on_the_cluster_are_told_who_may_describe_it() -> None:
    bench = ApisBench(authorizer=authorizer(acl("User:alice", ALTER, ResourceType.CLUSTER, CLUSTER_NAME)))
    bench.publish()
    body = DescribeClusterRequest(endpoint_type=2, include_cluster_authorized_operations=True)
    answer = bench.ask(body, 1, ALICE)
    assert from_bit_field(answer.cluster_authorized_operations) == {ALTER, DESCRIBE}


# -- the quorum


def ask_quorum(bench: ApisBench, *topics: describe_quorum.RequestTopicData, version: int = 2) -> Any:
    return bench.ask(describe_quorum.DescribeQuorumRequest(topics=list(topics)), version)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_quorum_is_described(version: int) -> None:
    bench = ApisBench(plugins=FULL)
    answer = ask_quorum(bench, METADATA_LOG, version=version)
    (partition,) = answer.topics[0].partitions
    assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (OK, NODE, 3)
    assert partition.high_watermark == 19
    assert (answer.error_message, partition.error_message) == ("", "")
    (voter,), (observer,) = partition.current_voters, partition.observers
    assert (voter.replica_id, voter.log_end_offset) == (NODE, 20)
    assert (observer.replica_id, observer.log_end_offset) == (7, 18)
    assert voter.last_fetch_timestamp == (100 if version else -1)
    assert voter.replica_directory_id == (Uuid(b"d" * 16) if version == 2 else ZERO_UUID)
    assert [node.listeners[0].port for node in answer.nodes] == ([9093] if version == 2 else [])


def test_there_is_only_one_partition_to_ask_about() -> None:
    bench = ApisBench(plugins=FULL)
    other = describe_quorum.RequestTopicData(
        topic_name="orders", partitions=[describe_quorum.RequestPartitionData(partition_index=1)]
    )
    for topics in ((other,), (METADATA_LOG, other), (METADATA_LOG, METADATA_LOG)):
        answer = ask_quorum(bench, *topics)
        codes = {row.error_code for topic in answer.topics for row in topic.partitions}
        assert codes == {Errors.UNKNOWN_TOPIC_OR_PARTITION}
        assert len(answer.topics) == len(topics)


@pytest.mark.mechanism("R10")
def test_only_the_leader_can_describe_the_quorum() -> None:
    def not_here() -> QuorumInfo:
        raise NotLeaderOrFollowerError

    bench = ApisBench(plugins=ControllerApisPlugins(describe_quorum=not_here))
    answer = ask_quorum(bench, METADATA_LOG)
    assert answer.topics[0].partitions[0].error_code == Errors.NOT_LEADER_OR_FOLLOWER
    forwarded = bench.forward(describe_quorum.DescribeQuorumRequest(topics=[METADATA_LOG]), 2)
    assert (forwarded.error_code, forwarded.response_data) == (Errors.NOT_CONTROLLER, None)


# -- ACLs


def creation(name: str, *, principal: str = "User:alice", operation: int = 3) -> create_acls.AclCreation:
    return create_acls.AclCreation(
        resource_type=2,
        resource_name=name,
        resource_pattern_type=3,
        principal=principal,
        host="*",
        operation=operation,
        permission_type=3,
    )


ANY_ACL: dict[str, Any] = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


def test_without_an_authorizer_there_are_no_acls() -> None:
    bench = ApisBench()
    assert bench.ask(describe_acls.DescribeAclsRequest(**ANY_ACL), 3).error_code == Errors.SECURITY_DISABLED
    made = bench.ask(create_acls.CreateAclsRequest(creations=[creation("a"), creation("b")]), 3)
    assert [row.error_code for row in made.results] == [Errors.SECURITY_DISABLED] * 2
    gone = bench.ask(delete_acls.DeleteAclsRequest(filters=[delete_acls.DeleteAclsFilter(**ANY_ACL)]), 3)
    assert [row.error_code for row in gone.filter_results] == [Errors.SECURITY_DISABLED]


def test_acls_come_and_go() -> None:
    rules = authorizer()
    bench = ApisBench(authorizer=rules)
    body = create_acls.CreateAclsRequest(
        creations=[creation("orders"), creation(""), creation("bills"), creation("x", principal="alice")]
    )
    made = bench.ask(body, 3, ADMIN)
    bad = Errors.INVALID_REQUEST
    assert [row.error_code for row in made.results] == [OK, bad, OK, bad]
    assert made.results[0].error_message == ""
    assert "empty" in made.results[1].error_message
    assert len(list(rules.acls(AclBindingFilter()))) == 2
    found = bench.ask(describe_acls.DescribeAclsRequest(**ANY_ACL), 3, ADMIN)
    assert (found.error_code, found.error_message) == (OK, "")
    assert {(row.resource_name, row.acls[0].principal) for row in found.resources} == {
        ("orders", "User:alice"),
        ("bills", "User:alice"),
    }
    filters = [
        delete_acls.DeleteAclsFilter(**ANY_ACL | {"resource_name_filter": "orders"}),
        delete_acls.DeleteAclsFilter(**ANY_ACL | {"operation": 0}),
    ]
    gone = bench.ask(delete_acls.DeleteAclsRequest(filters=filters), 3, ADMIN)
    assert [row.error_code for row in gone.filter_results] == [OK, bad]
    assert [row.resource_name for row in gone.filter_results[0].matching_acls] == ["orders"]
    assert [binding.pattern.name for binding in rules.acls(AclBindingFilter())] == ["bills"]


def test_an_authorizer_is_not_bothered_with_nonsense() -> None:
    rules = authorizer()
    bench = ApisBench(authorizer=rules)
    with patch.object(rules, "create_acls", wraps=rules.create_acls) as create:
        bench.ask(create_acls.CreateAclsRequest(creations=[creation(""), creation("bills")]), 3, ADMIN)
    (call,) = create.call_args_list
    assert [binding.pattern.name for binding in call.args[1]] == ["bills"]


def test_acls_get_into_the_metadata_log() -> None:
    """The whole circle but the last part, which is a publisher's: from the log back to the authorizer."""
    rules = authorizer()
    bench = ApisBench(authorizer=rules)
    rules.set_acl_mutator(ControllerAclMutator(bench.harness.controller))
    made = bench.ask(create_acls.CreateAclsRequest(creations=[creation("orders"), creation("bills")]), 3, ADMIN)
    assert [row.error_code for row in made.results] == [OK, OK]
    entries = set(bench.harness.managers.acls.entries.values())
    assert {entry.resource_name for entry in entries} == {"orders", "bills"}
    filters = [delete_acls.DeleteAclsFilter(**ANY_ACL | {"resource_name_filter": "orders"})]
    (gone,) = bench.ask(delete_acls.DeleteAclsRequest(filters=filters), 3, ADMIN).filter_results
    assert (gone.error_code, [row.resource_name for row in gone.matching_acls]) == (OK, ["orders"])
    assert [entry.resource_name for entry in bench.harness.managers.acls.entries.values()] == ["bills"]
    bench.harness.raft.elect(2)
    lost = bench.ask(create_acls.CreateAclsRequest(creations=[creation("orders")]), 3, ADMIN)
    assert [row.error_code for row in lost.results] == [Errors.NOT_CONTROLLER]


def test_a_filter_with_an_unknown_part_is_refused() -> None:
    bench = ApisBench(authorizer=authorizer())
    body = describe_acls.DescribeAclsRequest(**ANY_ACL | {"resource_type_filter": 99})
    assert bench.ask(body, 3, ADMIN).error_code == Errors.INVALID_REQUEST


def test_nothing_to_create_gets_a_response_at_once() -> None:
    bench = ApisBench(authorizer=authorizer())
    assert bench.ask(create_acls.CreateAclsRequest(), 3, ADMIN).results == []


# -- forwarded requests


ORDERS = CreateTopicsRequest(topics=[topic("orders", 1, 1)], timeout_ms=1000)


@pytest.mark.mechanism("R10")
def test_the_controller_is_told_who_asks() -> None:
    bench = ApisBench()
    controller = bench.harness.controller
    with patch.object(controller, "create_topics", wraps=controller.create_topics) as create:
        bench.forward(ORDERS, 7)
    context = create.call_args.args[0]
    assert (context.principal, context.client_id, context.request_version) == ("User:alice", "client", 7)
    assert context.deadline_ns == bench.harness.clock.nanoseconds() + 1_000_000_000


@pytest.mark.mechanism("R04")
@pytest.mark.mechanism("R10")
def test_a_forwarded_request_has_the_clients_rights_and_not_the_brokers() -> None:
    broker_may = acl("User:broker-1", CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    broker_could = acl("User:broker-1", AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
    client_may = acl("User:alice", AclOperation.CREATE, ResourceType.TOPIC, "orders")
    code = Errors.TOPIC_AUTHORIZATION_FAILED
    for acls, expected in (((broker_may, broker_could), code), ((broker_may, client_may), OK)):
        bench = ApisBench(authorizer=authorizer(*acls))
        envelope = bench.forward(ORDERS, 7)
        assert envelope.error_code == OK
        assert envelope.response_data is not None
        (row,) = ApiKey.CREATE_TOPICS.response.decode(envelope.response_data[5:], 7).topics  # type: ignore[attr-defined]
        assert (row.name, row.error_code) == ("orders", expected)
        assert bool(bench.harness.managers.replication.topics) is (expected == OK)


@pytest.mark.mechanism("R04")
@pytest.mark.mechanism("R10")
def test_not_everybody_may_forward() -> None:
    client_may = acl("User:alice", AclOperation.CREATE, ResourceType.TOPIC, "orders")
    bench = ApisBench(authorizer=authorizer(client_may))
    envelope = bench.forward(ORDERS, 7)
    assert (envelope.error_code, envelope.response_data) == (Errors.CLUSTER_AUTHORIZATION_FAILED, None)
    assert not bench.harness.managers.replication.topics


@pytest.mark.mechanism("R10")
def test_a_controller_that_has_lost_the_log_says_so_on_the_envelope() -> None:
    bench = ApisBench()
    bench.harness.raft.elect(2)
    envelope = bench.forward(ORDERS, 7)
    assert (envelope.error_code, envelope.response_data) == (Errors.NOT_CONTROLLER, None)
    direct = bench.ask(ORDERS, 7)
    assert [row.error_code for row in direct.topics] == [Errors.NOT_CONTROLLER]


@pytest.mark.mechanism("R10")
@pytest.mark.mechanism("R12")
def test_what_is_not_served_here_cannot_be_forwarded() -> None:
    bench = ApisBench()
    assert ApiKey.DESCRIBE_QUORUM not in bench.apis.apis
    envelope = bench.forward(describe_quorum.DescribeQuorumRequest(topics=[METADATA_LOG]), 2)
    assert (envelope.error_code, envelope.response_data) == (Errors.UNSUPPORTED_VERSION, None)


@pytest.mark.mechanism("R10")
@pytest.mark.mechanism("R11")
def test_the_connection_of_the_broker_is_not_muted_for_its_client() -> None:
    quotas = Quotas()
    quotas.request.throttle_time_ms = 250
    bench = ApisBench(quotas=quotas)
    envelope = bench.forward(ORDERS, 7)
    assert envelope.response_data is not None
    answer: Any = ApiKey.CREATE_TOPICS.response.decode(envelope.response_data[5:], 7)
    assert answer.throttle_time_ms == 250, "the client is told"
    assert not quotas.request.throttled


@pytest.mark.mechanism("R10")
def test_the_wait_for_the_controller_is_remote_time() -> None:
    bench = ApisBench()
    before = bench.bench.processor.responses.qsize()
    request = bench.bench.request(envelope_of(ORDERS, 7), 0, principal=BROKER)
    bench.apis.handle(request, bench.bench.local)
    bench.harness.clock.advance(30)
    bench.harness.step()
    sent = list(bench.bench.processor.responses.queue)[before:]
    inner = sent[0].request
    assert inner is not request
    assert inner.response_complete_time_ns - inner.api_local_complete_time_ns == 30_000_000


@pytest.mark.mechanism("R12")
def test_a_response_that_cannot_be_written_is_an_error_and_not_silence() -> None:
    """A future swallows what its callbacks raise, and the client would wait for ever."""
    bench = ApisBench()
    bench.harness.create("orders", 1, 1)
    listing = bench.harness.controller.list_partition_reassignments

    def broken(*arguments: Any) -> Any:
        future = listing(*arguments)
        future.add_done_callback(lambda done: setattr(done.result(), "topics", "nonsense"))
        return future

    with patch.object(bench.harness.controller, "list_partition_reassignments", broken):
        request = bench.send(ListPartitionReassignmentsRequest(topics=None), 0)
        bench.harness.step()
    assert bench.bench.answer(request).error_code == Errors.UNKNOWN_SERVER_ERROR
