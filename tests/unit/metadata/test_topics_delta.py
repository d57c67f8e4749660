"""Topics that come, change and go, and what that means for one broker."""

from __future__ import annotations

import pytest

from barnabas.common.topic_partition import TopicPartition
from barnabas.metadata.errors import MetadataReplayError
from barnabas.metadata.image import EMPTY_IMAGE, MetadataImage
from barnabas.metadata.local_replica_changes import LocalReplicaChanges
from barnabas.metadata.topics_delta import TopicsDelta
from barnabas.protocol.internal.framing import MetadataRecord
from barnabas.protocol.internal.metadata import (
    ClearElrRecord,
    PartitionChangeRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from unit.metadata.samples import delta_of, image_of, partition, provenance, topic, uid

ORDERS, PAYMENTS = uid(1), uid(2)


def topics_delta(records: list[MetadataRecord], image: MetadataImage = EMPTY_IMAGE) -> TopicsDelta:
    delta = delta_of(records, image).topics
    assert delta is not None
    return delta


def change(number: int = 0, **fields: object) -> PartitionChangeRecord:
    record = PartitionChangeRecord(topic_id=ORDERS, partition_id=number)
    for name, value in fields.items():
        setattr(record, name, value)
    return record


def local(records: list[MetadataRecord], image: MetadataImage, broker_id: int = 1) -> LocalReplicaChanges:
    return topics_delta(records, image).local_changes(broker_id)


def names(found: object) -> set[str]:
    assert isinstance(found, (set, dict))
    return {str(item) for item in found}


# -- coming and going


def test_created() -> None:
    delta = topics_delta(topic("orders", ORDERS, partitions=2))
    assert delta.created_topic_ids == {ORDERS}
    assert delta.deleted_topic_ids == set()
    assert set(delta.changed_topics[ORDERS].new_partitions) == {0, 1}
    image = delta.apply()
    assert image.by_name["orders"] is image.by_id[ORDERS]
    assert image.topic("orders") is image.topic_by_id(ORDERS)
    assert image.partition(ORDERS, 1) is not None
    assert image.partition(ORDERS, 2) is None
    assert image.partition(PAYMENTS, 0) is None


def test_partitions_are_in_order_whatever_order_they_came_in() -> None:
    image = image_of([TopicRecord(name="orders", topic_id=ORDERS), *(partition(ORDERS, n) for n in (2, 0, 1))])
    assert list(image.topics.by_id[ORDERS].partitions) == [0, 1, 2]
    image = image_of([partition(ORDERS, 4), partition(ORDERS, 3)], image)
    assert list(image.topics.by_id[ORDERS].partitions) == [0, 1, 2, 3, 4]


def test_added_partitions() -> None:
    base = image_of(topic("orders", ORDERS))
    delta = topics_delta([partition(ORDERS, 1)], base)
    assert delta.created_topic_ids == set()
    assert set(delta.changed_topics[ORDERS].new_partitions) == {1}
    assert delta.changed_topics[ORDERS].removed_partitions == {}


def test_deleted() -> None:
    base = image_of([*topic("orders", ORDERS), *topic("payments", PAYMENTS)])
    delta = topics_delta([RemoveTopicRecord(topic_id=ORDERS)], base)
    assert delta.deleted_topic_ids == {ORDERS}
    assert [gone.name for gone in delta.deleted_topics] == ["orders"]
    assert delta.topic_was_deleted("orders")
    assert not delta.topic_was_deleted("payments")
    assert not delta.topic_was_deleted("unknown")
    image = delta.apply()
    assert image.sorted_names == ("payments",)
    assert image.topic_by_id(ORDERS) is None


def test_changed_and_then_deleted() -> None:
    base = image_of(topic("orders", ORDERS))
    delta = topics_delta([change(leader=-1), RemoveTopicRecord(topic_id=ORDERS)], base)
    assert delta.changed_topics == {}
    assert delta.deleted_topic_ids == {ORDERS}


def test_created_and_deleted_leaves_no_trace() -> None:
    delta = topics_delta([*topic("orders", ORDERS), RemoveTopicRecord(topic_id=ORDERS)])
    assert not delta
    assert delta.created_topic_ids == set()
    assert delta.apply() is delta.image


def test_deleted_and_created_again() -> None:
    base = image_of(topic("orders", ORDERS, replicas=[1, 2]))
    delta = topics_delta([RemoveTopicRecord(topic_id=ORDERS), *topic("orders", uid(9), replicas=[1])], base)
    assert delta.deleted_topic_ids == {ORDERS}
    assert delta.created_topic_ids == {uid(9)}
    assert delta.topic_was_deleted("orders")
    image = delta.apply()
    assert image.by_name["orders"].id == uid(9)
    assert set(image.by_id) == {uid(9)}
    changes = delta.local_changes(1)
    assert names(changes.deletes) == {"orders-0"}
    assert changes.elected_leaders[TopicPartition("orders", 0)].topic_id == uid(9)


@pytest.mark.parametrize(
    "records",
    [
        [RemoveTopicRecord(topic_id=ORDERS)],
        [partition(ORDERS, 0)],
        [change()],
        [ClearElrRecord(topic_name="orders")],
        [*topic("orders", ORDERS), RemoveTopicRecord(topic_id=ORDERS), partition(ORDERS, 0)],
    ],
)
def test_what_is_not_there(records: list[MetadataRecord]) -> None:
    with pytest.raises(MetadataReplayError, match=r"no topic|does not exist"):
        delta_of(records)


def test_what_is_not_there_any_more() -> None:
    base = image_of(topic("orders", ORDERS))
    for record in (RemoveTopicRecord(topic_id=ORDERS), change(), ClearElrRecord(topic_name="orders")):
        with pytest.raises(MetadataReplayError, match=r"no topic|does not exist"):
            delta_of([RemoveTopicRecord(topic_id=ORDERS), record], base)


def test_a_partition_that_is_not_there() -> None:
    with pytest.raises(MetadataReplayError, match="cannot change partition orders-7"):
        delta_of([change(7)], image_of(topic("orders", ORDERS)))


def test_a_topic_that_is_stated_anew_starts_without_partitions() -> None:
    base = image_of([TopicRecord(name="orders", topic_id=ORDERS), with_elr(0), with_elr(1)])
    anew: list[MetadataRecord] = [TopicRecord(name="orders", topic_id=ORDERS), with_elr(1)]
    with pytest.raises(MetadataReplayError, match="cannot change partition orders-0"):
        delta_of([*anew, change(0)], base)
    delta = topics_delta([*anew, ClearElrRecord(topic_name="orders")], base)
    assert list(delta.apply().by_id[ORDERS].partitions) == [1]
    assert delta.created_topic_ids == set()


def test_a_name_is_taken() -> None:
    base = image_of(topic("orders", ORDERS))
    taken = delta_of(topic("orders", uid(9)), base)
    with pytest.raises(MetadataReplayError, match="topic orders cannot be created with the ID"):
        taken.apply(provenance(3))
    with pytest.raises(MetadataReplayError, match="topic orders already exists"):
        delta_of([*topic("orders", ORDERS), TopicRecord(name="orders", topic_id=uid(9))])


def test_an_id_is_taken() -> None:
    base = image_of(topic("orders", ORDERS))
    for records, image in (
        ([TopicRecord(name="payments", topic_id=ORDERS)], base),
        ([TopicRecord(name="orders", topic_id=ORDERS), TopicRecord(name="b", topic_id=ORDERS)], EMPTY_IMAGE),
        ([RemoveTopicRecord(topic_id=ORDERS), TopicRecord(name="orders", topic_id=ORDERS)], base),
    ):
        with pytest.raises(MetadataReplayError, match="cannot have the ID AAAAAAAAAAAAAAAAAAAAAQ"):
            delta_of(records, image)


def test_a_refused_record_changes_nothing() -> None:
    base = image_of(topic("orders", ORDERS))
    delta = delta_of([change(leader=-1)], base)
    before = delta.apply(provenance(2))
    for record in (change(7), TopicRecord(name="x", topic_id=ORDERS), change(leader_recovery_state=9)):
        with pytest.raises(MetadataReplayError):
            delta.replay(record)
    assert delta.apply(provenance(2)) == before
    assert delta.topics is not None
    assert delta.topics.changed_topics[ORDERS].unclean_elections == {}


# -- sharing


def test_other_topics_are_the_same_objects() -> None:
    records = [record for n in range(500) for record in topic(f"t{n}", uid(1000 + n), partitions=3)]
    base = image_of(records)
    image = image_of([PartitionChangeRecord(topic_id=uid(1007), partition_id=1, leader=-1)], base)
    same = [topic_id for topic_id in base.topics.by_id if base.topics.by_id[topic_id] is image.topics.by_id[topic_id]]
    assert len(same) == 499
    before, after = base.topics.by_id[uid(1007)], image.topics.by_id[uid(1007)]
    assert before.partitions[0] is after.partitions[0]
    assert before.partitions[2] is after.partitions[2]
    assert before.partitions[1] is not after.partitions[1]
    by_id, by_name = base.topics.by_id, base.topics.by_name
    assert by_id.shared_buckets(image.topics.by_id) == by_id.bucket_count - 1
    assert by_name.shared_buckets(image.topics.by_name) == by_name.bucket_count - 1
    assert image.cluster is base.cluster


def test_the_order_of_names_is_found_once() -> None:
    base = image_of([*topic("b", ORDERS), *topic("a", PAYMENTS)])
    names = base.topics.sorted_names
    assert names == ("a", "b")
    changed = image_of([change(leader=-1)], base)
    assert changed.topics.sorted_names is names
    created = image_of(topic("aa", uid(3)), changed)
    assert created.topics.sorted_names == ("a", "aa", "b")
    deleted = image_of([RemoveTopicRecord(topic_id=ORDERS)], created)
    assert deleted.topics.sorted_names == ("a", "aa")


# -- for one broker


def test_a_new_partition_to_lead() -> None:
    changes = local(topic("orders", ORDERS, replicas=[1, 2]), EMPTY_IMAGE)
    assert names(changes.elected_leaders) == names(changes.leaders) == names(changes.directory_ids) == {"orders-0"}
    assert not changes.followers
    assert not changes.deletes
    assert changes.topic_ids == {"orders": ORDERS}
    assert changes.leaders[TopicPartition("orders", 0)].partition.leader == 1


def test_a_new_partition_to_follow() -> None:
    changes = local(topic("orders", ORDERS, replicas=[1, 2]), EMPTY_IMAGE, broker_id=2)
    assert names(changes.followers) == names(changes.directory_ids) == {"orders-0"}
    assert not changes.leaders
    assert changes.topic_ids == {"orders": ORDERS}


def test_nothing_to_do_with_it() -> None:
    base = image_of(topic("orders", ORDERS, replicas=[1, 2]))
    assert not local([change(isr=[1])], base, broker_id=3)
    assert not local([RemoveTopicRecord(topic_id=ORDERS)], base, broker_id=3)


def test_a_smaller_isr_is_no_election() -> None:
    base = image_of(topic("orders", ORDERS, replicas=[1, 2]))
    changes = local([change(isr=[1])], base)
    assert names(changes.leaders) == {"orders-0"}
    assert not changes.elected_leaders
    assert not changes.directory_ids
    assert names(local([change(isr=[1])], base, broker_id=2).followers) == {"orders-0"}


def test_leadership_moves() -> None:
    base = image_of(topic("orders", ORDERS, replicas=[1, 2]))
    moved: list[MetadataRecord] = [change(leader=2)]
    assert names(local(moved, base, broker_id=1).followers) == {"orders-0"}
    assert names(local(moved, base, broker_id=2).elected_leaders) == {"orders-0"}


def test_the_same_leader_elected_again() -> None:
    base = image_of(topic("orders", ORDERS, replicas=[1, 2]))
    changes = local([change(leader=1)], base)
    assert names(changes.elected_leaders) == {"orders-0"}
    assert changes.elected_leaders[TopicPartition("orders", 0)].partition.leader_epoch == 1


def test_there_and_back_is_an_election_with_the_last_state() -> None:
    base = image_of(topic("orders", ORDERS, replicas=[1, 2]))
    changes = local([change(leader=2), change(leader=1)], base)
    info = changes.elected_leaders[TopicPartition("orders", 0)]
    assert (info.partition.leader, info.partition.leader_epoch, info.partition.partition_epoch) == (1, 2, 2)


def test_a_replica_moves_away() -> None:
    base = image_of(topic("orders", ORDERS, replicas=[1, 2]))
    moved: list[MetadataRecord] = [change(replicas=[2, 3], isr=[2], leader=2)]
    assert names(local(moved, base, broker_id=1).deletes) == {"orders-0"}
    assert not local(moved, base, broker_id=1).leaders
    assert names(local(moved, base, broker_id=3).followers) == {"orders-0"}


def test_a_topic_is_deleted() -> None:
    base = image_of([*topic("orders", ORDERS, partitions=2, replicas=[1]), *topic("payments", PAYMENTS, replicas=[2])])
    gone: list[MetadataRecord] = [RemoveTopicRecord(topic_id=ORDERS), RemoveTopicRecord(topic_id=PAYMENTS)]
    assert names(local(gone, base).deletes) == {"orders-0", "orders-1"}


def test_another_directory() -> None:
    base = image_of([TopicRecord(name="orders", topic_id=ORDERS), partition(ORDERS, 0, directories=[uid(201)])])
    changes = local([change(directories=[uid(202)])], base)
    info = changes.directory_ids[TopicPartition("orders", 0)]
    assert info.partition.directory(1) == uid(202)
    assert not local([change(directories=[uid(201)])], base).directory_ids


# -- eligible leader replicas and elections


def with_elr(number: int, topic_id: int = 1) -> MetadataRecord:
    return partition(uid(topic_id), number, replicas=[1, 2, 3], isr=[1], elr=[2], last_known_elr=[3])


def test_eligible_leaders_of_one_topic_are_forgotten() -> None:
    base = image_of(
        [
            TopicRecord(name="orders", topic_id=ORDERS),
            with_elr(0),
            partition(ORDERS, 1),
            TopicRecord(name="payments", topic_id=PAYMENTS),
            with_elr(0, 2),
        ]
    )
    delta = topics_delta([ClearElrRecord(topic_name="orders")], base)
    assert set(delta.changed_topics) == {ORDERS}
    assert set(delta.changed_topics[ORDERS].partition_changes) == {0}
    cleared = delta.apply().partition(ORDERS, 0)
    assert cleared is not None
    assert (cleared.elr, cleared.last_known_elr, cleared.partition_epoch) == ((), (), 1)


def test_eligible_leaders_of_all_topics_are_forgotten() -> None:
    base = image_of(
        [
            TopicRecord(name="orders", topic_id=ORDERS),
            with_elr(0),
            TopicRecord(name="payments", topic_id=PAYMENTS),
            partition(PAYMENTS, 0),
            TopicRecord(name="gone", topic_id=uid(3)),
            with_elr(0, 3),
        ]
    )
    new: list[MetadataRecord] = [TopicRecord(name="new", topic_id=uid(4)), with_elr(0, 4)]
    delta = topics_delta([RemoveTopicRecord(topic_id=uid(3)), *new, with_elr(1), ClearElrRecord()], base)
    assert set(delta.changed_topics) == {ORDERS, uid(4)}  # payments had none
    image = delta.apply()
    assert all(not found.elr for found in image.by_id[ORDERS].partitions.values())
    assert all(not found.last_known_elr for found in image.by_id[uid(4)].partitions.values())


def test_clearing_by_name_means_the_topic_that_has_the_name_now() -> None:
    base = image_of([TopicRecord(name="orders", topic_id=ORDERS), with_elr(0)])
    again: list[MetadataRecord] = [TopicRecord(name="orders", topic_id=uid(9)), with_elr(0, 9)]
    delta = topics_delta([RemoveTopicRecord(topic_id=ORDERS), *again, ClearElrRecord(topic_name="orders")], base)
    cleared = delta.apply().partition(uid(9), 0)
    assert cleared is not None
    assert cleared.elr == ()


def test_elections_that_are_counted() -> None:
    base = image_of([TopicRecord(name="orders", topic_id=ORDERS), with_elr(0), with_elr(1)])
    delta = topics_delta(
        [change(0, leader=2), change(1, leader=3, leader_recovery_state=1), change(1, leader_recovery_state=0)], base
    )
    assert delta.changed_topics[ORDERS].elr_elections == {0: 1}
    assert delta.changed_topics[ORDERS].unclean_elections == {1: 1}


def test_equality_and_text() -> None:
    one, other = image_of(topic("orders", ORDERS)), image_of(topic("orders", ORDERS))
    assert one.topics == other.topics
    assert one.topics.by_id[ORDERS] == other.topics.by_id[ORDERS]
    assert one.topics != image_of(topic("orders", PAYMENTS)).topics
    assert one.topics.by_id[ORDERS] != 5
    assert one.topics != 5
    assert "TopicImage('orders', AAAAAAAAAAAAAAAAAAAAAQ" in repr(one.topics)
