"""What the metadata log makes of the partitions on a broker."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.common.errors import Errors, KafkaStorageError
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.dirs.log_dir_names import is_delete_dir
from barnabas.log.dirs.offset_checkpoint import HIGH_WATERMARK_CHECKPOINT_FILE, OffsetCheckpointFile
from barnabas.log.manager import log_registry
from barnabas.metadata.directory_id import LOST, UNASSIGNED
from barnabas.metrics.names import MBeanName
from barnabas.metrics.yammer.registry import Gauge
from barnabas.protocol.internal.metadata import RemoveTopicRecord
from barnabas.replica.fetch.fetch_session import TopicIdPartition
from barnabas.replica.follower.replica_fetchers import InitialFetchState
from barnabas.replica.partition.hosted_partitions import HostedPartitions
from barnabas.replica.partition.partition import Partition
from barnabas.replica.replica_changes import RETRY_MS
from log_fixtures import client_batch
from replica_fixtures import T0, T0_ID, TOPIC_ID, ReplicaBox
from unit.metadata.samples import delta_of, metadata_version, partition, provenance, topic, uid


@pytest.fixture
def box(tmp_path: Path) -> Iterator[ReplicaBox]:
    box = ReplicaBox([tmp_path / "one"])
    yield box
    box.kill()


@pytest.fixture
def two(tmp_path: Path) -> Iterator[ReplicaBox]:
    """A broker with two disks."""
    box = ReplicaBox([tmp_path / "one", tmp_path / "two"])
    yield box
    box.kill()


def gauge(box: ReplicaBox, name: str) -> int:
    found = box.registry.get(MBeanName("kafka.server", "ReplicaManager", name))
    assert isinstance(found, Gauge)
    value: int = found.value()
    return value


class TestComing:
    def test_a_new_topic_has_logs_with_its_id(self, box: ReplicaBox) -> None:
        box.create_topic(partitions=3)
        for number in range(3):
            log = box.logs.get_log(TopicPartition("topic", number))
            assert log is not None
            assert log.topic_id == TOPIC_ID
        assert (gauge(box, "LeaderCount"), gauge(box, "PartitionCount")) == (3, 3)

    def test_topics_of_others_are_not_here(self, box: ReplicaBox) -> None:
        box.learn(topic("elsewhere", uid(8), replicas=[2, 3]))
        assert box.logs.all_logs() == []
        assert box.manager.get_partition_or_error(("elsewhere", 0)) is Errors.NOT_LEADER_OR_FOLLOWER
        assert box.manager.get_partition_or_error(("nowhere", 0)) is Errors.UNKNOWN_TOPIC_OR_PARTITION

    def test_more_partitions(self, box: ReplicaBox) -> None:
        first = box.create_topic()
        box.learn([partition(TOPIC_ID, 1)])
        assert box.manager.online_partition(("topic", 0)) is first
        assert isinstance(box.manager.get_partition_or_error(("topic", 1)), Partition)

    def test_a_log_that_is_opened_late_is_told_of(self, box: ReplicaBox, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without a file descriptor there is no log when coordinators want to read it."""
        late: list[tuple[TopicPartition, int]] = []
        box.manager.listen_to_late_leaders(lambda partition, epoch: late.append((partition, epoch)))

        def no_descriptor(_: int) -> None:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        with monkeypatch.context() as patch:
            patch.setattr(log_registry, "ensure_spare_descriptors", no_descriptor)
            found = box.create_topic(leader_epoch=4)
            box.scheduler.advance(RETRY_MS)
            assert (found.is_leader, late) == (False, [])
        box.scheduler.advance(RETRY_MS)
        assert (found.is_leader, late) == (True, [(T0, 4)])
        box.scheduler.advance(RETRY_MS)
        assert len(late) == 1

    def test_the_directory_that_the_controller_has_chosen(self, two: ReplicaBox) -> None:
        for number in (0, 1):
            name, topic_id = f"topic{number}", uid(20 + number)
            two.create_topic(name, topic_id, directories=[two.directory_id(1 - number)])
            log = two.logs.get_log(TopicPartition(name, 0))
            assert log is not None
            assert log.parent_dir == two.paths[1 - number]
        assert two.directory_events.assignments == []

    @pytest.mark.parametrize("directory", [UNASSIGNED, LOST])
    def test_the_controller_is_told_of_the_directory(self, box: ReplicaBox, directory: bytes) -> None:
        box.create_topic(directories=[type(UNASSIGNED)(directory)])
        assert box.directory_events.assignments == [(T0_ID, box.directory_id(0), "Applying metadata delta")]


class TestFollowing:
    def test_followers_are_fetched_for(self, box: ReplicaBox) -> None:
        box.create_topic(replicas=[2, 1], leader_epoch=3)
        assert box.fetchers.followed == {T0: InitialFetchState(TOPIC_ID, 2, 3, 0)}
        box.change(leader=1)
        assert box.fetchers.followed == {}
        box.produce(acks=1)
        box.change(leader=3, replicas=[1, 2, 3])
        assert box.fetchers.followed == {T0: InitialFetchState(TOPIC_ID, 3, 5, 1)}

    def test_without_a_leader_there_is_nothing_to_fetch(self, box: ReplicaBox) -> None:
        found = box.create_topic(replicas=[1, 2])
        box.change(leader=-1)
        assert not found.is_leader
        assert found.leader_id == -1
        assert box.fetchers.followed == {}

    def test_in_a_controlled_shutdown_replicas_out_of_sync_stop(self, box: ReplicaBox) -> None:
        box.create_topic(replicas=[2, 1])
        box.manager.begin_controlled_shutdown()
        box.change(isr=[2], leader=2)
        assert box.fetchers.followed == {}
        assert box.manager.online_partition(T0) is not None


class TestGoing:
    def test_a_deleted_topic(self, box: ReplicaBox) -> None:
        found = box.create_topic()
        box.produce()
        box.delete_topic()
        assert box.manager.get_partition_or_error(T0) is Errors.UNKNOWN_TOPIC_OR_PARTITION
        assert box.logs.get_log(T0) is None
        assert not found.is_leader
        assert [is_delete_dir(path) for path in box.paths[0].glob("topic-0*")] == [True]
        assert not [name for name in box.registry.metrics if "topic=topic" in str(name)]

    def test_a_deletion_takes_no_look_at_the_partitions_of_other_topics(
        self, box: ReplicaBox, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Otherwise the deletion of a thousand topics at once would look at all partitions a thousand times."""
        box.create_topic(partitions=2)
        box.learn(topic("other", uid(8)))
        partitions = box.manager.partitions
        monkeypatch.setattr(HostedPartitions, "online_partitions", lambda _: pytest.fail("all were looked at"))
        assert partitions.has_topic("topic")
        partitions.mark_offline(TopicPartition("topic", 1))
        assert partitions.has_topic("topic")
        box.delete_topic()
        assert not partitions.has_topic("topic")
        assert partitions.has_topic("other")

    def test_deleted_and_made_again(self, box: ReplicaBox) -> None:
        old = box.create_topic()
        box.produce()
        delta = delta_of([RemoveTopicRecord(topic_id=TOPIC_ID), *topic("topic", uid(30))], box.image)
        box.image = delta.apply(provenance(9))
        box.cache.set_image(box.image)
        assert delta.topics is not None
        box.manager.apply_delta(delta.topics, box.image)
        new = box.manager.get_partition_or_exception(T0)
        assert new is not old
        assert new.topic_id == uid(30)
        assert new.local_log_or_raise().log_end_offset == 0

    def test_a_replica_that_is_moved_away(self, box: ReplicaBox) -> None:
        box.create_topic(replicas=[1, 2])
        box.change(replicas=[2, 3], isr=[2], leader=2)
        assert box.manager.get_partition_or_error(T0) is Errors.NOT_LEADER_OR_FOLLOWER
        assert box.logs.get_log(T0) is None


class TestOffline:
    def test_a_log_that_cannot_be_had(self, two: ReplicaBox) -> None:
        """The directory is offline; another one must not get an empty log in its place."""
        two.manager.handle_log_dir_failure(two.paths[0])
        two.learn(
            [
                topic("topic", TOPIC_ID, 0)[0],
                partition(TOPIC_ID, 0, directories=[two.directory_id(0)]),
                partition(TOPIC_ID, 1, directories=[two.directory_id(1)]),
                partition(TOPIC_ID, 2, directories=[UNASSIGNED]),
            ]
        )
        assert two.manager.get_partition_or_error(("topic", 0)) is Errors.KAFKA_STORAGE_ERROR
        with pytest.raises(KafkaStorageError):
            two.manager.get_partition_or_exception(("topic", 0))
        for number in (1, 2):
            assert isinstance(two.manager.get_partition_or_error(("topic", number)), Partition)
        assert gauge(two, "OfflineReplicaCount") == 1

    def test_a_follower_that_cannot_be_had(self, two: ReplicaBox) -> None:
        two.manager.handle_log_dir_failure(two.paths[0])
        two.learn(
            [
                topic("topic", TOPIC_ID, 0)[0],
                partition(TOPIC_ID, 0, replicas=[2, 1], directories=[uid(0), two.directory_id(0)]),
            ]
        )
        assert two.manager.get_partition_or_error(T0) is Errors.KAFKA_STORAGE_ERROR
        assert two.fetchers.failed == {T0}

    def test_it_stays_so(self, two: ReplicaBox) -> None:
        found = two.create_topic(replicas=[1, 2])
        two.manager.handle_log_dir_failure(found.local_log_or_raise().parent_dir)
        two.change(leader=2)
        two.change(leader=1)
        assert two.manager.get_partition_or_error(T0) is Errors.KAFKA_STORAGE_ERROR

    def test_another_topic_of_that_name_is_not_offline(self, two: ReplicaBox) -> None:
        found = two.create_topic()
        two.manager.handle_log_dir_failure(found.local_log_or_raise().parent_dir)
        two.delete_topic()
        two.create_topic(topic_id=uid(40), directories=[UNASSIGNED])
        two.produce({TopicIdPartition(uid(40), "topic", 0): client_batch()})
        assert two.only_produced().error is Errors.NONE


class TestRestart:
    @pytest.mark.parametrize("clean", [True, False])
    def test_logs_are_taken_up_again(self, box: ReplicaBox, clean: bool) -> None:
        box.create_topic()
        box.produce()
        image = box.image
        if clean:
            box.stop()
        else:
            box.kill()
        box.start()
        box.learn([metadata_version(), *topic("topic", TOPIC_ID)])
        assert image.topics == box.image.topics
        log = box.manager.get_partition_or_exception(T0).local_log_or_raise()
        assert (log.log_end_offset, log.high_watermark) == (1, 1)

    def test_the_high_watermark_is_written_down(self, box: ReplicaBox) -> None:
        box.create_topic(replicas=[1, 2])
        for _ in range(3):
            box.produce(acks=1)
        box.follower_fetch(2, 2)
        path = box.paths[0] / HIGH_WATERMARK_CHECKPOINT_FILE
        assert not path.exists()
        assert "highwatermark-checkpoint" in box.scheduler.pending
        box.scheduler.advance(35_000)
        assert OffsetCheckpointFile(path).read() == {T0: 2}
        box.follower_fetch(2, 3)
        box.manager.shutdown()
        assert OffsetCheckpointFile(path).read() == {T0: 3}
        box.kill()
        box.start()
        box.create_topic(replicas=[2, 1])
        log = box.manager.get_partition_or_exception(T0).local_log_or_raise()
        assert (log.log_end_offset, log.high_watermark) == (3, 3)

    def test_tasks(self, box: ReplicaBox) -> None:
        box.manager.startup()
        assert {"isr-expiration", "shutdown-idle-replica-alter-log-dirs-thread"} <= set(box.scheduler.pending)
        box.manager.shutdown()
        assert not {"isr-expiration", "shutdown-idle-replica-alter-log-dirs-thread"} & set(box.scheduler.pending)
