"""Registration of brokers and controllers."""

from __future__ import annotations

import pytest

from barnabas.common.errors import (
    BrokerIdNotRegisteredError,
    DuplicateBrokerRegistrationError,
    InconsistentClusterIdError,
    InvalidRegistrationError,
    StaleBrokerEpochError,
    UnsupportedVersionError,
)
from barnabas.controller.bootstrap import BootstrapMetadata
from barnabas.metadata.directory_id import MIGRATING, UNASSIGNED
from barnabas.metadata.metadata_version import MetadataVersion
from barnabas.protocol.internal.metadata import (
    BrokerEndpoint,
    BrokerFeature,
    ControllerEndpoint,
    ControllerFeature,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
)
from barnabas.protocol.messages import broker_registration, controller_registration
from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest
from barnabas.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from unit.controller.harness import CONTEXT, Harness, directory, incarnation, supported_features


@pytest.fixture
def harness() -> Harness:
    return Harness()


def test_a_broker_registers_fenced_and_its_epoch_is_the_offset_of_the_record(harness: Harness) -> None:
    offset = harness.raft.log_end_offset
    response = harness.result(harness.register(1, rack="r"))
    assert response.broker_epoch == offset
    ((record, version),) = harness.written_with_versions()
    assert version == 4
    assert record == RegisterBrokerRecord(
        broker_id=1,
        incarnation_id=incarnation(1),
        broker_epoch=offset,
        rack="r",
        fenced=True,
        end_points=[BrokerEndpoint(name="PLAINTEXT", host="host1", port=9092, security_protocol=0)],
        features=[
            BrokerFeature(
                name=feature.name,
                min_supported_version=feature.min_supported_version,
                max_supported_version=feature.max_supported_version,
            )
            for feature in supported_features()
        ],
        log_dirs=[directory(1)],
    )


@pytest.mark.parametrize(
    ("release", "version"), [("3.3-IV3", 1), ("3.4", 2), ("3.6", 2), ("3.7-IV2", 3), ("4.2", 3), ("4.3", 4)]
)
def test_the_record_is_written_in_the_version_of_the_cluster(release: str, version: int) -> None:
    bootstrap = BootstrapMetadata.for_version(MetadataVersion.for_release(release), "a test")
    harness = Harness(bootstrap=bootstrap)
    harness.result(harness.register(1))
    ((record, written),) = harness.written_with_versions()
    assert written == version
    assert isinstance(record, RegisterBrokerRecord)
    assert record.log_dirs == ([directory(1)] if version >= 3 else [])


def test_a_broker_of_another_cluster_is_refused(harness: Harness) -> None:
    error = harness.error(harness.register(1, cluster_id="another"))
    assert isinstance(error, InconsistentClusterIdError)
    assert harness.written() == []


def test_a_second_broker_with_the_id_of_a_living_one_is_refused(harness: Harness) -> None:
    harness.add_brokers(2)
    assert isinstance(harness.error(harness.register(2, life=1)), DuplicateBrokerRegistrationError)
    harness.advance(9_001)
    assert harness.result(harness.register(2, life=1)).broker_epoch > 0


def test_a_fenced_broker_that_sends_heartbeats_is_alive_too(harness: Harness) -> None:
    harness.result(harness.register(2))
    harness.result(harness.heartbeat(2, want_fence=True))
    assert isinstance(harness.error(harness.register(2, life=1)), DuplicateBrokerRegistrationError)


def test_a_broker_that_was_let_go_can_come_back_at_once(harness: Harness) -> None:
    harness.add_brokers(2)
    assert harness.result(harness.heartbeat(2, want_shut_down=True)).should_shut_down
    assert harness.result(harness.register(2, life=1)).broker_epoch > 0


def test_the_same_incarnation_amends_its_registration_and_keeps_its_epoch(harness: Harness) -> None:
    harness.add_brokers(2)
    epoch = harness.epoch(2)
    features = supported_features(group_version=None)
    harness.result(harness.controller.update_features(CONTEXT, downgrade("group.version")))
    harness.mark()
    assert harness.result(harness.register(2, features=features)).broker_epoch == epoch
    (record,) = harness.written()
    assert isinstance(record, RegisterBrokerRecord)
    assert (record.broker_epoch, record.fenced) == (epoch, False)
    assert "group.version" not in harness.broker(2).supported_features
    assert harness.managers.cluster.is_active(2)


def test_a_node_that_was_killed_does_not_wait_for_its_own_session() -> None:
    """A broker and controller in one process: when the process is restarted, nobody else can be that broker."""
    killed = Harness()
    killed.add_brokers(1, 2)
    again = Harness(log=killed.raft.log, clock=killed.clock)
    assert isinstance(again.error(again.register(2, life=1)), DuplicateBrokerRegistrationError)
    assert again.result(again.register(1, life=1)).broker_epoch > killed.epoch(1)


def test_a_node_that_is_heard_of_keeps_its_session_even_as_the_controllers_own() -> None:
    killed = Harness()
    killed.add_brokers(1)
    again = Harness(log=killed.raft.log, clock=killed.clock)
    again.unfence(1)
    assert isinstance(again.error(again.register(1, life=1)), DuplicateBrokerRegistrationError)


@pytest.mark.parametrize(
    ("directories", "text"),
    [
        ([], "no log directories"),
        ([directory(1), directory(1)], "more than once"),
        ([directory(1), UNASSIGNED], "reserved"),
        ([MIGRATING], "reserved"),
        ([directory(2)], "registered by broker 2"),
    ],
)
def test_log_directories_must_be_the_brokers_own(harness: Harness, directories: list[bytes], text: str) -> None:
    harness.result(harness.register(2))
    error = harness.error(harness.register(1, directories=directories))  # type: ignore[arg-type]
    assert isinstance(error, InvalidRegistrationError)
    assert text in str(error)


@pytest.mark.parametrize(
    "features",
    [
        supported_features(metadata_version=(7, 29)),
        supported_features(group_version=None),
        supported_features(transaction_version=(0, 1)),
        supported_features(kraft_version=(1, 1)),
        [*supported_features(), *supported_features(other_version=(1, 2))[-1:]],
    ],
)
def test_a_broker_must_support_every_level_in_force(harness: Harness, features: list[object]) -> None:
    assert isinstance(harness.error(harness.register(1, features=features)), UnsupportedVersionError)


def test_a_broker_must_tell_its_metadata_versions(harness: Harness) -> None:
    error = harness.error(harness.register(1, features=supported_features(metadata_version=None)))
    assert isinstance(error, InvalidRegistrationError)


def test_zookeeper_is_gone(harness: Harness) -> None:
    error = harness.error(harness.register(1, is_migrating_zk_broker=True))
    assert isinstance(error, BrokerIdNotRegisteredError)


def test_requests_of_an_earlier_life_are_refused(harness: Harness) -> None:
    harness.add_brokers(1)
    cluster = harness.managers.cluster
    cluster.check_broker_epoch(1, harness.epoch(1))
    with pytest.raises(StaleBrokerEpochError):
        cluster.check_broker_epoch(1, harness.epoch(1) - 1)
    with pytest.raises(StaleBrokerEpochError):
        cluster.check_broker_epoch(2, 1)


# -- what a restart does to partitions


def test_after_a_crash_a_broker_is_not_eligible_any_more(harness: Harness) -> None:
    harness.add_brokers(2, 3)
    harness.create("a", assignments=[[2, 3]])
    harness.advance(9_001)  # both are silent; they are fenced one after the other
    harness.advance(1_125)
    assert (harness.partition("a").isr, harness.partition("a").elr) == ((), (3,))
    harness.mark()
    harness.result(harness.register(3, life=1, previous_epoch=-1))
    change, registration = harness.written()
    assert change == PartitionChangeRecord(topic_id=harness.topic_id("a"), partition_id=0, eligible_leader_replicas=[])
    assert isinstance(registration, RegisterBrokerRecord)
    assert registration.broker_epoch == harness.raft.log_end_offset - 1
    assert harness.partition("a").last_known_elr == (3,)
    harness.unfence(3)
    assert harness.partition("a").leader == 3
    assert harness.partition("a").leader_recovery_state == 1


def test_after_a_clean_shutdown_a_broker_stays_eligible(harness: Harness) -> None:
    harness.add_brokers(2)
    harness.create("a", assignments=[[2]])
    assert not harness.result(harness.heartbeat(2, want_shut_down=True)).should_shut_down
    assert harness.partition("a").elr == (2,)
    assert harness.result(harness.heartbeat(2, want_shut_down=True)).should_shut_down
    epoch = harness.epoch(2)
    harness.result(harness.register(2, life=1, previous_epoch=epoch))
    harness.unfence(2)
    assert harness.partition("a").leader == 2
    assert harness.partition("a").leader_recovery_state == 0


def test_older_brokers_cannot_tell_and_are_taken_to_have_crashed(harness: Harness) -> None:
    harness.add_brokers(2)
    harness.create("a", assignments=[[2]])
    harness.fence(2)
    harness.advance(9_001)
    harness.result(harness.register(2, life=1, previous_epoch=harness.epoch(2), version=2))
    assert harness.partition("a").elr == ()


def test_without_elr_a_restarted_broker_leaves_the_isr_that_has_another_member() -> None:
    levels = {"eligible.leader.replicas.version": 0}
    harness = Harness(bootstrap=BootstrapMetadata.for_version(levels=levels))
    harness.add_brokers(2, 3)
    harness.create("shared", assignments=[[2, 3]])
    harness.create("alone", assignments=[[2]])
    again = Harness(log=harness.raft.log, clock=harness.clock, node_id=2)
    again.result(again.register(2, life=1))
    assert (again.partition("shared").isr, again.partition("shared").leader) == ((3,), 3)
    assert (again.partition("alone").isr, again.partition("alone").leader) == ((2,), -1)


# -- the end of a broker


def test_unregistering_takes_a_broker_out_of_everything(harness: Harness) -> None:
    harness.add_brokers(1, 2)
    harness.create("a", assignments=[[1, 2]])
    epoch = harness.epoch(1)
    harness.mark()
    request = UnregisterBrokerRequest(broker_id=1)
    assert harness.result(harness.controller.unregister_broker(CONTEXT, request)).error_code == 0
    assert harness.written() == [
        PartitionChangeRecord(topic_id=harness.topic_id("a"), partition_id=0, leader=2, isr=[2]),
        UnregisterBrokerRecord(broker_id=1, broker_epoch=epoch),
    ]
    assert 1 not in harness.managers.cluster.brokers
    error = harness.error(harness.controller.unregister_broker(CONTEXT, request))
    assert isinstance(error, BrokerIdNotRegisteredError)
    assert isinstance(harness.error(harness.heartbeat(1, epoch=epoch)), StaleBrokerEpochError)


def test_ready_brokers_can_be_waited_for(harness: Harness) -> None:
    none = harness.controller.wait_for_ready_brokers(0)
    two = harness.controller.wait_for_ready_brokers(2)
    harness.step()
    assert none.done()
    harness.add_brokers(1)
    assert not two.done()
    harness.add_brokers(2)
    assert two.done()


# -- controllers


def test_a_controller_registers(harness: Harness) -> None:
    request = controller_registration.ControllerRegistrationRequest(
        controller_id=7,
        incarnation_id=incarnation(7),
        listeners=[broker_registration.Listener(name="CONTROLLER", host="h", port=9093)],
        features=[
            broker_registration.Feature(name="metadata.version", min_supported_version=7, max_supported_version=30)
        ],
    )
    assert harness.result(harness.controller.register_controller(CONTEXT, request)).error_code == 0
    assert harness.written() == [
        RegisterControllerRecord(
            controller_id=7,
            incarnation_id=incarnation(7),
            end_points=[ControllerEndpoint(name="CONTROLLER", host="h", port=9093)],
            features=[ControllerFeature(name="metadata.version", min_supported_version=7, max_supported_version=30)],
        )
    ]
    assert harness.managers.cluster.controllers[7].listeners["CONTROLLER"].port == 9093


def test_old_clusters_have_no_controller_registrations() -> None:
    harness = Harness(bootstrap=BootstrapMetadata.for_version(MetadataVersion.IBP_3_6_IV2, "a test"))
    request = controller_registration.ControllerRegistrationRequest(controller_id=7)
    error = harness.error(harness.controller.register_controller(CONTEXT, request))
    assert isinstance(error, UnsupportedVersionError)


def downgrade(feature: str) -> UpdateFeaturesRequest:
    return UpdateFeaturesRequest(
        feature_updates=[FeatureUpdateKey(feature=feature, max_version_level=0, upgrade_type=2)]
    )
