"""Who votes does not change here, and each request for it hears why.

The codes are what Apache Kafka 4.3.1 answers to the same requests, with one voter that is in the log (kraft.version 1)
or in the configuration (kraft.version 0).
"""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.wire_client import WireClient

from barnabas.common.errors import Errors, NotLeaderOrFollowerError
from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.controller.controller_apis import ControllerApisPlugins
from barnabas.embedded import EmbeddedBroker
from barnabas.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from barnabas.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from barnabas.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from barnabas.raft.quorum_info import QuorumInfo, QuorumNode, QuorumReplica
from barnabas.raft.voter_set import VoterEndpoint
from unit.controller.apis_bench import ApisBench
from unit.controller.harness import CLUSTER_ID, NODE

OURS, OTHER = Uuid(b"d" * 16), Uuid(b"x" * 16)
HERE = [Listener(name="controller", host="localhost", port=9093)]
NEWCOMER: dict[str, Any] = {"cluster_id": CLUSTER_ID, "voter_id": 7, "voter_directory_id": OTHER}
OURSELVES: dict[str, Any] = {"cluster_id": CLUSTER_ID, "voter_id": NODE, "voter_directory_id": OURS}


def bench(kraft_version: int = 1, high_watermark: int = 19) -> ApisBench:
    voter = QuorumReplica(NODE, OURS if kraft_version else ZERO_UUID, 20, 100, 90)
    nodes = (QuorumNode(NODE, (VoterEndpoint("CONTROLLER", "localhost", 9093),)),)
    info = QuorumInfo(NODE, 3, high_watermark, (voter,), (), nodes, kraft_version)
    return ApisBench(plugins=ControllerApisPlugins(describe_quorum=lambda: info))


@pytest.mark.parametrize(
    ("fields", "dynamic", "static"),
    [
        (NEWCOMER, Errors.VOTER_NOT_FOUND, Errors.UNSUPPORTED_VERSION),
        (NEWCOMER | {"cluster_id": None}, Errors.VOTER_NOT_FOUND, Errors.UNSUPPORTED_VERSION),
        (NEWCOMER | {"cluster_id": "other"}, Errors.INCONSISTENT_CLUSTER_ID, Errors.INCONSISTENT_CLUSTER_ID),
        (NEWCOMER | {"voter_id": -1}, Errors.INVALID_REQUEST, Errors.INVALID_REQUEST),
        (NEWCOMER | {"voter_directory_id": ZERO_UUID}, Errors.INVALID_REQUEST, Errors.INVALID_REQUEST),
        (OURSELVES | {"voter_directory_id": OTHER}, Errors.VOTER_NOT_FOUND, Errors.UNSUPPORTED_VERSION),
        (OURSELVES, Errors.VOTER_NOT_FOUND, Errors.UNSUPPORTED_VERSION),
    ],
)
def test_removing(fields: dict[str, Any], dynamic: Errors, static: Errors) -> None:
    for kraft_version, error in ((1, dynamic), (0, static)):
        answer = bench(kraft_version).ask(RemoveRaftVoterRequest(**fields), 0)
        assert answer.error_code == error
        assert answer.error_message


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    ("fields", "dynamic", "static"),
    [
        # Kafka asks the newcomer what it can do, and answers REQUEST_TIMED_OUT if it does not catch up.
        (NEWCOMER, Errors.UNSUPPORTED_VERSION, Errors.UNSUPPORTED_VERSION),
        (NEWCOMER | {"cluster_id": "other"}, Errors.INCONSISTENT_CLUSTER_ID, Errors.INCONSISTENT_CLUSTER_ID),
        (NEWCOMER | {"voter_id": -1}, Errors.INVALID_REQUEST, Errors.INVALID_REQUEST),
        (NEWCOMER | {"voter_directory_id": ZERO_UUID}, Errors.INVALID_REQUEST, Errors.INVALID_REQUEST),
        (NEWCOMER | {"listeners": []}, Errors.INVALID_REQUEST, Errors.INVALID_REQUEST),
        (OURSELVES, Errors.DUPLICATE_VOTER, Errors.UNSUPPORTED_VERSION),
        (OURSELVES | {"voter_directory_id": OTHER}, Errors.DUPLICATE_VOTER, Errors.UNSUPPORTED_VERSION),
    ],
)
def test_adding(fields: dict[str, Any], dynamic: Errors, static: Errors, version: int) -> None:
    for kraft_version, error in ((1, dynamic), (0, static)):
        body = AddRaftVoterRequest(**{"listeners": HERE, **fields})
        answer = bench(kraft_version).ask(body, version)
        assert answer.error_code == error
        assert answer.error_message


def test_before_the_quorum_is_settled() -> None:
    for body in (RemoveRaftVoterRequest(**NEWCOMER), AddRaftVoterRequest(**NEWCOMER, listeners=HERE)):
        assert bench(high_watermark=-1).ask(body, 0).error_code == Errors.REQUEST_TIMED_OUT


def test_only_the_leader_can_tell() -> None:
    def not_here() -> QuorumInfo:
        raise NotLeaderOrFollowerError

    apis = ApisBench(plugins=ControllerApisPlugins(describe_quorum=not_here))
    for body in (RemoveRaftVoterRequest(**NEWCOMER), AddRaftVoterRequest(**NEWCOMER, listeners=HERE)):
        assert apis.ask(body, 0).error_code == Errors.NOT_LEADER_OR_FOLLOWER


def test_a_broker_passes_it_on() -> None:
    fields = NEWCOMER | {"cluster_id": None}
    remove, twice = RemoveRaftVoterRequest(**fields), AddRaftVoterRequest(**fields | {"voter_id": 1}, listeners=HERE)
    with EmbeddedBroker() as broker, WireClient(broker.bootstrap_servers) as client:
        refused = client.ask(remove, 0, RemoveRaftVoterResponse)
        assert refused.error_code == Errors.UNSUPPORTED_VERSION
        assert "kraft.version is 0" in refused.error_message
        update = FeatureUpdateKey(feature="kraft.version", max_version_level=1, upgrade_type=1)
        upgraded = client.ask(UpdateFeaturesRequest(feature_updates=[update]), 2, UpdateFeaturesResponse)
        assert upgraded.error_code == Errors.NONE
        assert client.ask(remove, 0, RemoveRaftVoterResponse).error_code == Errors.VOTER_NOT_FOUND
        assert client.ask(twice, 1, AddRaftVoterResponse).error_code == Errors.DUPLICATE_VOTER
