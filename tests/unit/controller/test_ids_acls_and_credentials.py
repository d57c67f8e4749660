"""Producer ids, access control entries, SCRAM credentials."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import pytest

from barnabas.common.errors import Errors, StaleBrokerEpochError, UnknownServerError
from barnabas.controller.bootstrap import BootstrapMetadata
from barnabas.metadata.errors import MetadataReplayError
from barnabas.metadata.metadata_version import MetadataVersion
from barnabas.protocol.internal.metadata import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    ProducerIdsRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from barnabas.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from barnabas.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from unit.controller.harness import CONTEXT, Harness, UuidSource


@pytest.fixture
def harness() -> Harness:
    made = Harness()
    made.add_brokers(1)
    return made


# -- producer ids


def test_blocks_of_producer_ids_do_not_overlap(harness: Harness) -> None:
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=harness.epoch(1))
    blocks = [harness.result(harness.controller.allocate_producer_ids(CONTEXT, request)) for _ in range(3)]
    assert [(each.producer_id_start, each.producer_id_len) for each in blocks] == [
        (0, 1000),
        (1000, 1000),
        (2000, 1000),
    ]
    assert harness.written()[0] == ProducerIdsRecord(broker_id=1, broker_epoch=harness.epoch(1), next_producer_id=1000)


def test_producer_ids_are_for_registered_brokers(harness: Harness) -> None:
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=harness.epoch(1) - 1)
    future = harness.controller.allocate_producer_ids(CONTEXT, request)
    assert isinstance(harness.error(future), StaleBrokerEpochError)


def test_producer_ids_end_some_day(harness: Harness) -> None:
    harness.managers.replay(ProducerIdsRecord(next_producer_id=2**63 - 1000), 0)
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=harness.epoch(1))
    with pytest.raises(UnknownServerError):
        harness.managers.producer_ids.allocate(request)
    with pytest.raises(MetadataReplayError):
        harness.managers.replay(ProducerIdsRecord(next_producer_id=5), 0)


# -- access control entries


def creation(**fields: Any) -> AclCreation:
    defaults: dict[str, Any] = {
        "resource_type": 2,
        "resource_name": "orders",
        "resource_pattern_type": 3,
        "principal": "User:alice",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    return AclCreation(**{**defaults, **fields})


def create(harness: Harness, *creations: AclCreation) -> list[Errors]:
    request = CreateAclsRequest(creations=list(creations))
    response = harness.result(harness.controller.create_acls(CONTEXT, request))
    return [Errors(each.error_code) for each in response.results]


def wanted(**fields: Any) -> DeleteAclsFilter:
    defaults: dict[str, Any] = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    return DeleteAclsFilter(**{**defaults, **fields})


def delete(harness: Harness, *filters: DeleteAclsFilter) -> list[list[str] | Errors]:
    response = harness.result(harness.controller.delete_acls(CONTEXT, DeleteAclsRequest(filters=list(filters))))
    return [
        Errors(each.error_code) if each.error_code else [entry.resource_name for entry in each.matching_acls]
        for each in response.filter_results
    ]


def test_entries_are_created_once(harness: Harness) -> None:
    found = create(harness, creation(), creation(principal="User:bob"), creation())
    assert found == [Errors.NONE] * 3
    assert [type(record) for record in harness.written()] == [AccessControlEntryRecord] * 2
    assert create(harness, creation()) == [Errors.NONE]
    assert len(harness.managers.acls.entries) == 2


@pytest.mark.parametrize(
    "fields",
    [
        {"resource_type": 1},
        {"resource_type": 9},
        {"resource_pattern_type": 2},
        {"operation": 1},
        {"operation": 99},
        {"permission_type": 1},
        {"resource_name": ""},
        {"resource_type": 4, "resource_name": "orders"},
        {"principal": "alice"},
        {"principal": ":alice"},
    ],
)
def test_entries_that_make_no_sense_are_refused(harness: Harness, fields: dict[str, Any]) -> None:
    assert create(harness, creation(**fields), creation()) == [Errors.INVALID_REQUEST, Errors.NONE]


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({}, ["orders", "ord", "*", "kafka-cluster"]),
        ({"resource_type_filter": 4}, ["kafka-cluster"]),
        ({"resource_name_filter": "orders"}, ["orders"]),
        ({"resource_name_filter": "orders", "pattern_type_filter": 3}, ["orders"]),
        ({"resource_name_filter": "orders", "pattern_type_filter": 4}, []),
        ({"resource_name_filter": "ord", "pattern_type_filter": 4}, ["ord"]),
        ({"resource_name_filter": "orders", "pattern_type_filter": 2}, ["orders", "ord", "*"]),
        ({"resource_name_filter": "other", "pattern_type_filter": 2}, ["*"]),
        ({"pattern_type_filter": 4}, ["ord"]),
        ({"principal_filter": "User:bob"}, ["ord"]),
        ({"host_filter": "10.0.0.1"}, ["*"]),
        ({"operation": 4}, ["orders"]),
        ({"permission_type": 2}, ["kafka-cluster"]),
    ],
)
def test_filters_find_what_they_describe(harness: Harness, fields: dict[str, Any], names: list[str]) -> None:
    create(
        harness,
        creation(operation=4),
        creation(resource_name="ord", resource_pattern_type=4, principal="User:bob"),
        creation(resource_name="*", host="10.0.0.1"),
        creation(resource_type=4, resource_name="kafka-cluster", permission_type=2),
    )
    harness.mark()
    assert delete(harness, wanted(**fields)) == [names]
    assert [type(record) for record in harness.written()] == [RemoveAccessControlEntryRecord] * len(names)
    assert len(harness.managers.acls.entries) == 4 - len(names)


def test_an_entry_that_two_filters_match_is_removed_once(harness: Harness) -> None:
    create(harness, creation())
    harness.mark()
    assert delete(harness, wanted(), wanted(operation=3), wanted(operation=0)) == [
        ["orders"],
        ["orders"],
        Errors.INVALID_REQUEST,
    ]
    assert len(harness.written()) == 1
    for bad in ({"resource_type_filter": 0}, {"pattern_type_filter": 0}, {"permission_type": 0}):
        assert delete(harness, wanted(**bad)) == [Errors.INVALID_REQUEST]
    assert create(harness, creation()) == [Errors.NONE]


def test_two_ids_for_the_same_entry_are_two_entries(harness: Harness) -> None:
    """A log may have them, although this controller writes none."""
    create(harness, creation())
    ((first, entry),) = harness.managers.acls.entries.items()
    second = UuidSource(50)()
    harness.managers.replay(entry.to_record(second), 0)
    harness.managers.replay(entry.to_record(second), 0)
    harness.managers.replay(RemoveAccessControlEntryRecord(id=first), 0)
    assert create(harness, creation()) == [Errors.NONE]
    assert list(harness.managers.acls.entries) == [second]
    with pytest.raises(MetadataReplayError):
        harness.managers.replay(RemoveAccessControlEntryRecord(id=first), 0)


# -- SCRAM


def upsertion(
    name: str = "alice", mechanism: int = 1, iterations: int = 4096, salted_password: bytes = b"salted"
) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=salted_password
    )


def scram(harness: Harness, *changes: ScramCredentialUpsertion | ScramCredentialDeletion) -> dict[str, Errors]:
    request = AlterUserScramCredentialsRequest(
        deletions=[change for change in changes if isinstance(change, ScramCredentialDeletion)],
        upsertions=[change for change in changes if isinstance(change, ScramCredentialUpsertion)],
    )
    response = harness.result(harness.controller.alter_user_scram_credentials(CONTEXT, request))
    return {each.user: Errors(each.error_code) for each in response.results}


@pytest.mark.parametrize(("mechanism", "algorithm"), [(1, "sha256"), (2, "sha512")])
def test_a_credential_is_stored_as_the_server_needs_it(harness: Harness, mechanism: int, algorithm: str) -> None:
    assert scram(harness, upsertion(mechanism=mechanism)) == {"alice": Errors.NONE}
    client_key = hmac.new(b"salted", b"Client Key", algorithm).digest()
    assert harness.written() == [
        UserScramCredentialRecord(
            name="alice",
            mechanism=mechanism,
            salt=b"salt",
            stored_key=hashlib.new(algorithm, client_key).digest(),
            server_key=hmac.new(b"salted", b"Server Key", algorithm).digest(),
            iterations=4096,
        )
    ]


def test_credentials_come_and_go(harness: Harness) -> None:
    scram(harness, upsertion())
    harness.mark()
    assert scram(harness, ScramCredentialDeletion(name="alice", mechanism=1)) == {"alice": Errors.NONE}
    assert harness.written() == [RemoveUserScramCredentialRecord(name="alice", mechanism=1)]
    assert scram(harness, ScramCredentialDeletion(name="alice", mechanism=1)) == {"alice": Errors.RESOURCE_NOT_FOUND}
    with pytest.raises(MetadataReplayError):
        harness.managers.replay(RemoveUserScramCredentialRecord(name="alice", mechanism=1), 0)


def test_each_user_succeeds_or_fails_alone(harness: Harness) -> None:
    found = scram(
        harness,
        upsertion("twice"),
        upsertion("twice", mechanism=2),
        upsertion(""),
        upsertion("few", iterations=4095),
        upsertion("many", iterations=16_385),
        upsertion("odd", mechanism=3),
        upsertion("open", salted_password=b""),
        upsertion("fine", iterations=16_384),
    )
    assert found == {
        "twice": Errors.DUPLICATE_RESOURCE,
        "": Errors.UNACCEPTABLE_CREDENTIAL,
        "few": Errors.UNACCEPTABLE_CREDENTIAL,
        "many": Errors.UNACCEPTABLE_CREDENTIAL,
        "odd": Errors.UNSUPPORTED_SASL_MECHANISM,
        "open": Errors.UNACCEPTABLE_CREDENTIAL,
        "fine": Errors.NONE,
    }
    assert len(harness.written()) == 1


def test_the_first_mistake_of_a_user_counts_for_more_than_being_named_twice(harness: Harness) -> None:
    """As Kafka checks: change by change, deletions first. The first that is refused gives the error."""
    scram(harness, upsertion("known"))
    harness.mark()
    found = scram(
        harness,
        ScramCredentialDeletion(name="known", mechanism=1),
        upsertion("known"),
        ScramCredentialDeletion(name="unknown", mechanism=1),
        upsertion("unknown"),
        upsertion("few", iterations=1),
        upsertion("few"),
        upsertion("many"),
        upsertion("many", iterations=1),
        upsertion("odd", mechanism=3),
        upsertion("odd"),
        upsertion("open", salted_password=b""),
        upsertion("open"),
        upsertion(""),
        upsertion(""),
    )
    assert found == {
        "known": Errors.DUPLICATE_RESOURCE,
        "unknown": Errors.RESOURCE_NOT_FOUND,
        "few": Errors.UNACCEPTABLE_CREDENTIAL,
        "many": Errors.DUPLICATE_RESOURCE,
        "odd": Errors.UNSUPPORTED_SASL_MECHANISM,
        "open": Errors.DUPLICATE_RESOURCE,
        "": Errors.UNACCEPTABLE_CREDENTIAL,
    }
    assert harness.written() == []


def test_old_clusters_have_no_credentials() -> None:
    harness = Harness(bootstrap=BootstrapMetadata.for_version(MetadataVersion.IBP_3_5_IV1, "a test"))
    assert scram(harness, upsertion()) == {"alice": Errors.UNSUPPORTED_VERSION}


# -- delegation tokens


def test_tokens_of_others_are_followed(harness: Harness) -> None:
    harness.managers.replay(DelegationTokenRecord(token_id="t", owner="User:alice"), 0)
    assert harness.managers.delegation_tokens.tokens["t"].owner == "User:alice"
    harness.managers.replay(RemoveDelegationTokenRecord(token_id="t"), 0)
    assert harness.managers.delegation_tokens.tokens == {}
