"""Every record type, replayed: what it changes in the image, and what the delta tells of it."""

from __future__ import annotations

import pytest

from barnabas.common.identifiers import Uuid
from barnabas.metadata.acls import AccessControlEntry
from barnabas.metadata.client_quotas import ClientQuotaEntity
from barnabas.metadata.configs import ConfigResource, ConfigResourceType
from barnabas.metadata.delegation_tokens import DelegationToken
from barnabas.metadata.delta import _REPLAY, _WITHOUT_EFFECT, MetadataDelta
from barnabas.metadata.endpoint import Endpoint, Node
from barnabas.metadata.errors import MetadataReplayError
from barnabas.metadata.image import EMPTY_IMAGE, PARTS
from barnabas.metadata.metadata_version import MetadataVersion
from barnabas.metadata.scram import ScramCredential, ScramUser
from barnabas.protocol.internal import metadata as records
from barnabas.protocol.internal.framing import MetadataRecord
from barnabas.protocol.internal.topics import CLUSTER_METADATA
from barnabas.protocol.versions import VersionRange
from unit.metadata.samples import broker, delta_of, image_of, metadata_version, partition, provenance, topic, uid

ORDERS = uid(1)
ORDERS_CONFIG = ConfigResource.topic("orders")


def test_no_record_type_is_forgotten() -> None:
    transactions = {
        records.BeginTransactionRecord,
        records.EndTransactionRecord,
        records.AbortTransactionRecord,
    }
    assert set(CLUSTER_METADATA) == _REPLAY.keys() | _WITHOUT_EFFECT | transactions
    assert not _REPLAY.keys() & (_WITHOUT_EFFECT | transactions)
    for kind in transactions:
        with pytest.raises(MetadataReplayError, match=f"{kind.__name__} is not part of a metadata image"):
            MetadataDelta().replay(kind())


@pytest.mark.parametrize("record", [records.NoOpRecord(), records.ZkMigrationStateRecord(zk_migration_state=3)])
def test_records_without_effect(record: MetadataRecord) -> None:
    delta = delta_of([record])
    assert delta.is_empty
    image = delta.apply(provenance(7))
    assert image.is_empty
    assert image.offset == 7


def test_an_empty_delta_moves_the_provenance_only() -> None:
    base = image_of([metadata_version(), broker(1), *topic("orders", ORDERS)])
    image = MetadataDelta(base).apply(provenance(50))
    assert image.offset == 50
    assert all(getattr(image, part) is getattr(base, part) for part in PARTS)


# -- features


def test_feature_levels() -> None:
    base = image_of([metadata_version(), records.FeatureLevelRecord(name="group.version", feature_level=1)])
    assert base.features.metadata_version is MetadataVersion.IBP_4_3_IV0
    assert base.features.level("metadata.version") == 30
    assert base.features.level("group.version") == 1
    assert base.features.level("share.version") == 0
    delta = delta_of(
        [
            records.FeatureLevelRecord(name="group.version", feature_level=0),
            records.FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1),
            metadata_version(MetadataVersion.IBP_4_2_IV1),
        ],
        base,
    )
    assert delta.features is not None
    assert delta.features.changes == {"group.version": None, "eligible.leader.replicas.version": 1}
    assert delta.metadata_version_change is MetadataVersion.IBP_4_2_IV1
    image = delta.apply(provenance(9))
    assert dict(image.features.finalized) == {"eligible.leader.replicas.version": 1}
    assert image.features.is_elr_enabled
    assert not base.features.is_elr_enabled
    assert image.features.metadata_version is MetadataVersion.IBP_4_2_IV1


def test_kraft_version_is_none_of_the_images_business() -> None:
    """Some logs of Kafka have such a record, although the level is kept by raft (KAFKA-18979)."""
    image = image_of([metadata_version(), records.FeatureLevelRecord(name="kraft.version", feature_level=1)])
    assert not image.features.finalized


def test_an_unknown_metadata_version_is_refused() -> None:
    delta = delta_of([metadata_version()])
    with pytest.raises(MetadataReplayError, match=r"metadata\.version 99 is unknown"):
        delta.replay(records.FeatureLevelRecord(name="metadata.version", feature_level=99))
    assert delta.metadata_version_change is MetadataVersion.IBP_4_3_IV0


# -- the cluster


def test_a_broker_registers() -> None:
    record = broker(3, fenced=True, listeners=["PLAINTEXT", "SSL"], log_dirs=[uid(202), uid(201)], rack="r1")
    record.in_controlled_shutdown = True
    record.cordoned_log_dirs = [uid(202)]
    image = image_of([record])
    registration = image.cluster.broker(3)
    assert registration is not None
    assert registration.epoch == 103
    assert registration.incarnation_id == uid(1003)
    assert dict(registration.listeners) == {
        "PLAINTEXT": Endpoint("PLAINTEXT", "plaintext-3", 9092, 0),
        "SSL": Endpoint("SSL", "ssl-3", 9093, 0),
    }
    assert registration.node("SSL") == Node(3, "ssl-3", 9093, "r1", is_fenced=True)
    assert registration.node("OTHER") is None
    assert registration.supported_features == {"metadata.version": VersionRange(7, 30)}
    assert registration.fenced
    assert registration.in_controlled_shutdown
    assert registration.directories == (uid(201), uid(202))  # in order
    assert registration.cordoned_directories == (uid(202),)
    assert registration.has_uncordoned_directories
    assert registration.has_online_directory(uid(201))
    assert not registration.has_online_directory(uid(203))
    assert image.cluster.broker_epoch(3) == 103
    assert image.cluster.broker_epoch(4) == -1


def test_a_broker_registers_again_and_is_another_one() -> None:
    base = image_of([broker(1, log_dirs=[uid(201)])])
    again = broker(1)
    again.broker_epoch = 900
    image = image_of([again], base)
    registration = image.cluster.broker(1)
    assert registration is not None
    assert (registration.epoch, registration.directories) == (900, ())


@pytest.mark.parametrize(
    ("dirs", "cordoned", "expected"),
    [
        ([], None, True),
        ([], [201], True),
        ([201], None, True),
        ([201], [], True),
        ([201], [201], False),
        ([201, 202], [201], True),
        ([201, 202], [202, 201, 203], False),
    ],
)
def test_where_new_replicas_can_go(dirs: list[int], cordoned: list[int] | None, expected: bool) -> None:
    record = broker(1, log_dirs=map(uid, dirs))
    record.cordoned_log_dirs = None if cordoned is None else list(map(uid, cordoned))
    registration = image_of([record]).cluster.broker(1)
    assert registration is not None
    assert registration.has_uncordoned_directories is expected


def test_a_broker_goes() -> None:
    base = image_of([broker(1), broker(2)])
    delta = delta_of([records.UnregisterBrokerRecord(broker_id=1, broker_epoch=101)], base)
    assert delta.cluster is not None
    assert delta.cluster.changed_brokers == {1: None}
    assert set(delta.apply(provenance(2)).cluster.brokers) == {2}


def test_fencing_by_the_old_records() -> None:
    base = image_of([broker(1, fenced=True)])
    delta = delta_of([records.UnfenceBrokerRecord(id=1, epoch=101)], base)
    unfenced = delta.apply(provenance(2))
    assert unfenced.cluster.brokers[1].fenced is False
    fenced = image_of([records.FenceBrokerRecord(id=1, epoch=101)], unfenced)
    assert fenced.cluster.brokers[1].fenced is True
    assert base.cluster.brokers[1].fenced is True


@pytest.mark.parametrize("fenced_before", [False, True])
@pytest.mark.parametrize(("change", "expected"), [(1, True), (-1, False), (0, None)])
def test_fencing_by_a_change(fenced_before: bool, change: int, expected: bool | None) -> None:
    base = image_of([broker(1, fenced=fenced_before)])
    delta = delta_of([records.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=101, fenced=change)], base)
    assert delta.cluster is not None
    after = delta.apply(provenance(2)).cluster.brokers[1].fenced
    assert after is (fenced_before if expected is None else expected)
    assert bool(delta.cluster.changed_brokers) is (after is not fenced_before)  # no news, no change


def test_other_changes_of_a_registration() -> None:
    base = image_of([broker(1, log_dirs=[uid(201), uid(202)])])
    change = records.BrokerRegistrationChangeRecord(
        broker_id=1,
        broker_epoch=101,
        in_controlled_shutdown=1,
        log_dirs=[uid(203), uid(201)],
        cordoned_log_dirs=[uid(203)],
    )
    after = image_of([change], base).cluster.brokers[1]
    assert after.in_controlled_shutdown
    assert after.directories == (uid(201), uid(203))
    assert after.cordoned_directories == (uid(203),)
    nothing = records.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=101, cordoned_log_dirs=None)
    delta = delta_of([nothing], base)
    assert delta.cluster is not None
    assert not delta.cluster.changed_brokers
    assert delta.apply(provenance(3)).cluster is base.cluster
    uncordoned = records.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=101, cordoned_log_dirs=[])
    assert image_of([uncordoned], base).cluster.brokers[1].cordoned_directories == ()


@pytest.mark.parametrize(("field", "value"), [("fenced", 2), ("fenced", -2), ("in_controlled_shutdown", -1)])
def test_a_change_with_an_unknown_value(field: str, value: int) -> None:
    change = records.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=101)
    setattr(change, field, value)
    with pytest.raises(MetadataReplayError, match=f"invalid value {value} of {field}"):
        delta_of([change], image_of([broker(1)]))


@pytest.mark.parametrize(
    "record",
    [
        records.FenceBrokerRecord(id=1, epoch=5),
        records.UnfenceBrokerRecord(id=1, epoch=5),
        records.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=1),
        records.FenceBrokerRecord(id=9, epoch=5),
    ],
)
def test_changes_must_be_for_the_registration_that_is_there(record: MetadataRecord) -> None:
    base = image_of([broker(1)])
    with pytest.raises(MetadataReplayError, match=r"not registered|has epoch 5, the registration 101"):
        delta_of([record], base)


def test_a_controller_registers() -> None:
    record = records.RegisterControllerRecord(
        controller_id=3000,
        incarnation_id=uid(77),
        zk_migration_ready=True,
        end_points=[records.ControllerEndpoint(name="CONTROLLER", host="c", port=9093, security_protocol=1)],
        features=[records.ControllerFeature(name="f", min_supported_version=1, max_supported_version=4)],
    )
    delta = delta_of([record])
    assert delta.cluster is not None
    assert set(delta.cluster.changed_controllers) == {3000}
    controller = delta.apply(provenance(1)).cluster.controllers[3000]
    assert controller.node("CONTROLLER") == Node(3000, "c", 9093)
    assert controller.node("PLAINTEXT") is None
    assert controller.supported_features == {"f": VersionRange(1, 4)}
    assert controller.to_record() == record


# -- configurations


def test_configurations() -> None:
    def setting(name: str, value: str | None, resource: str = "orders") -> records.ConfigRecord:
        return records.ConfigRecord(resource_type=2, resource_name=resource, name=name, value=value)

    base = image_of([setting("retention.ms", "1"), setting("cleanup.policy", "compact"), setting("x", "y", "other")])
    assert base.configs.of(ORDERS_CONFIG) == {"retention.ms": "1", "cleanup.policy": "compact"}
    assert base.configs.of(ConfigResource(ConfigResourceType.BROKER, "orders")) == {}
    delta = delta_of([setting("retention.ms", None), setting("segment.ms", ""), setting("x", None, "other")], base)
    assert delta.configs is not None
    assert delta.configs.changes == {
        ORDERS_CONFIG: {"retention.ms": None, "segment.ms": ""},
        ConfigResource.topic("other"): {"x": None},
    }
    image = delta.apply(provenance(2))
    assert dict(image.configs.resources) == {ORDERS_CONFIG: {"cleanup.policy": "compact", "segment.ms": ""}}
    assert "compact" not in repr(image.configs)
    assert "compact" not in repr(delta_of([setting("cleanup.policy", "compact")]))


def test_config_resources() -> None:
    assert ConfigResource.broker() == (4, "")
    assert ConfigResource.broker(3) == (4, "3")
    unknown = records.ConfigRecord(resource_type=64, resource_name="r", name="k", value="v")
    assert image_of([unknown]).configs.of(ConfigResource(64, "r")) == {"k": "v"}


def test_a_topic_takes_its_configuration_with_it() -> None:
    config = records.ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="1")
    same_name = records.ConfigRecord(resource_type=4, resource_name="orders", name="k", value="v")
    remove = records.RemoveTopicRecord(topic_id=ORDERS)
    base = image_of([*topic("orders", ORDERS), config, same_name])
    delta = delta_of([remove], base)
    assert delta.configs is not None
    assert delta.configs.changes == {ORDERS_CONFIG: {"retention.ms": None}}
    assert set(delta.apply(provenance(2)).configs.resources) == {ConfigResource(4, "orders")}
    # Also what was set since the last image, on a topic that comes and goes between two images.
    assert not image_of([*topic("orders", ORDERS), config, remove]).configs
    # And the next topic of that name starts without.
    again = image_of([remove, *topic("orders", uid(2))], base)
    assert again.configs.of(ORDERS_CONFIG) == {}
    # No settings, no configuration delta.
    assert delta_of([remove], image_of(topic("orders", ORDERS))).configs is None


# -- quotas, producer ids


def test_client_quotas() -> None:
    def quota(value: float, *, remove: bool = False, key: str = "producer_byte_rate") -> records.ClientQuotaRecord:
        parts = [
            records.EntityData(entity_type="user", entity_name="ann"),
            records.EntityData(entity_type="client-id", entity_name=None),
        ]
        return records.ClientQuotaRecord(entity=parts, key=key, value=value, remove=remove)

    entity = ClientQuotaEntity.of({"client-id": None, "user": "ann"})
    base = image_of([quota(5.0), quota(1.0, key="request_percentage")])
    assert base.client_quotas.of(entity) == {"producer_byte_rate": 5.0, "request_percentage": 1.0}
    delta = delta_of([quota(7.5), quota(0, remove=True, key="request_percentage")], base)
    assert delta.client_quotas is not None
    assert delta.client_quotas.changes == {entity: {"producer_byte_rate": 7.5, "request_percentage": None}}
    image = delta.apply(provenance(2))
    assert dict(image.client_quotas.entities) == {entity: {"producer_byte_rate": 7.5}}
    assert not image_of([quota(0, remove=True)], image).client_quotas


def test_producer_ids() -> None:
    assert EMPTY_IMAGE.producer_ids.next_producer_id == -1
    delta = delta_of([records.ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=2000)])
    assert delta.producer_ids is not None
    assert delta.producer_ids.next_producer_id == 2000
    image = delta.apply(provenance(1))
    assert image.producer_ids.next_producer_id == 2000
    # A snapshot from before the first block: there was none.
    delta = MetadataDelta(image)
    delta.finish_snapshot()
    assert delta.apply(provenance(1)).producer_ids.next_producer_id == -1


# -- security


def acl(acl_id: Uuid) -> records.AccessControlEntryRecord:
    return records.AccessControlEntryRecord(
        id=acl_id,
        resource_type=2,
        resource_name="orders",
        pattern_type=3,
        principal="User:ann",
        host="*",
        operation=4,
        permission_type=3,
    )


def test_access_control_entries() -> None:
    base = image_of([acl(uid(5))])
    entry = AccessControlEntry(2, "orders", 3, "User:ann", "*", 4, 3)
    assert dict(base.acls.entries) == {uid(5): entry}
    delta = delta_of([acl(uid(6)), records.RemoveAccessControlEntryRecord(id=uid(5))], base)
    assert delta.acls is not None
    assert delta.acls.changes == {uid(6): entry, uid(5): None}
    assert set(delta.apply(provenance(2)).acls.entries) == {uid(6)}


def test_an_access_control_entry_must_be_there_to_be_removed() -> None:
    base = image_of([acl(uid(5))])
    remove = records.RemoveAccessControlEntryRecord(id=uid(5))
    with pytest.raises(MetadataReplayError, match="cannot remove ACL"):
        delta_of([remove, remove], base)
    with pytest.raises(MetadataReplayError, match="cannot remove ACL"):
        delta_of([records.RemoveAccessControlEntryRecord(id=uid(6))], base)
    added = delta_of([acl(uid(6)), records.RemoveAccessControlEntryRecord(id=uid(6))], base)
    assert added.acls is not None
    assert not added.acls.changes


def test_scram_credentials() -> None:
    def credential(name: str, mechanism: int) -> records.UserScramCredentialRecord:
        return records.UserScramCredentialRecord(
            name=name, mechanism=mechanism, salt=b"salt", stored_key=b"sk", server_key=b"vk", iterations=4096
        )

    base = image_of([credential("ann", 1), credential("ann", 2)])
    assert base.scram.credential(1, "ann") == ScramCredential(b"salt", b"sk", b"vk", 4096)
    assert base.scram.credential(1, "bob") is None
    assert "sk" not in repr(base.scram)
    delta = delta_of([records.RemoveUserScramCredentialRecord(name="ann", mechanism=1)], base)
    assert delta.scram is not None
    assert delta.scram.changes == {ScramUser(1, "ann"): None}
    assert set(delta.apply(provenance(2)).scram.credentials) == {ScramUser(2, "ann")}


def test_credentials_do_not_keep_the_buffer_they_were_read_from() -> None:
    record = records.UserScramCredentialRecord(name="ann", mechanism=1, iterations=1)
    record.salt = record.stored_key = record.server_key = memoryview(b"x" * 1000)[:4]  # type: ignore[assignment]
    credential = image_of([record]).scram.credential(1, "ann")
    assert credential is not None
    assert credential.salt == b"xxxx"
    assert type(credential.salt) is bytes


def test_delegation_tokens() -> None:
    def token(expires: int) -> records.DelegationTokenRecord:
        return records.DelegationTokenRecord(
            owner="User:ann",
            requester="User:bob",
            renewers=["User:c"],
            issue_timestamp=1,
            max_timestamp=100,
            expiration_timestamp=expires,
            token_id="t1",
        )

    base = image_of([token(10)])
    delta = delta_of([token(20)], base)
    renewed = DelegationToken("t1", "User:ann", "User:bob", ("User:c",), 1, 100, 20)
    assert delta.delegation_tokens is not None
    assert delta.delegation_tokens.changes == {"t1": renewed}
    image = delta.apply(provenance(2))
    assert dict(image.delegation_tokens.tokens) == {"t1": renewed}
    assert not image_of([records.RemoveDelegationTokenRecord(token_id="t1")], image).delegation_tokens


# -- the whole


def test_a_snapshot_that_repeats_what_is_known_changes_nothing() -> None:
    log = [metadata_version(), broker(1), *topic("orders", ORDERS, partitions=3), acl(uid(5))]
    base = image_of(log)
    delta = delta_of(log, base)
    delta.finish_snapshot()
    assert delta.is_empty
    image = delta.apply(provenance(8))
    assert all(getattr(image, part) is getattr(base, part) for part in PARTS)


def test_an_empty_snapshot_leaves_nothing() -> None:
    base = image_of([metadata_version(), broker(1), *topic("orders", ORDERS), acl(uid(5))])
    delta = delta_of([metadata_version()], base)
    delta.finish_snapshot()
    assert delta.apply(provenance(1)).same_content(image_of([metadata_version()]))
    assert delta.topics is not None
    assert delta.topics.deleted_topic_ids == {ORDERS}


def test_a_topic_that_shrank_while_nobody_looked() -> None:
    """Partitions of a topic never go, but a snapshot is believed all the same."""
    base = image_of([metadata_version(), *topic("orders", ORDERS, partitions=3)])
    delta = delta_of([metadata_version(), *topic("orders", ORDERS, partitions=2)], base)
    delta.finish_snapshot()
    assert delta.topics is not None
    change = delta.topics.changed_topics[ORDERS]
    assert set(change.removed_partitions) == {2}
    assert {str(gone) for gone in change.local_changes(1).deletes} == {"orders-2"}
    assert not change.local_changes(1).leaders
    assert list(delta.apply(provenance(1)).topics.by_id[ORDERS].partitions) == [0, 1]


def test_a_delta_says_what_it_is_about() -> None:
    text = repr(delta_of([*topic("orders", ORDERS), partition(ORDERS, 1)]))
    assert text.startswith("MetadataDelta(topics=TopicsDelta(")
    assert "'orders'" in text
    assert repr(MetadataDelta()) == "MetadataDelta()"
