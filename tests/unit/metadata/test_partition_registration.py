"""A partition: from its record, through changes, and back."""

from __future__ import annotations

import pytest

from barnabas.metadata.directory_id import LOST, MIGRATING, UNASSIGNED, is_online, is_reserved, random_directory_id
from barnabas.metadata.errors import MetadataReplayError, UnwritableMetadataError
from barnabas.metadata.metadata_version import LATEST_VERSION, MetadataVersion
from barnabas.metadata.partition_registration import LeaderRecoveryState, PartitionRegistration
from barnabas.metadata.writer import ImageWriterOptions
from barnabas.protocol.internal.metadata import PartitionChangeRecord, PartitionRecord
from unit.metadata.samples import uid

TOPIC = uid(1)
LATEST = ImageWriterOptions(LATEST_VERSION)


def full_record() -> PartitionRecord:
    return PartitionRecord(
        partition_id=4,
        topic_id=TOPIC,
        replicas=[1, 2, 3],
        isr=[1, 3],
        removing_replicas=[2],
        adding_replicas=[3],
        leader=1,
        leader_recovery_state=1,
        leader_epoch=7,
        partition_epoch=20,
        directories=[uid(101), uid(102), uid(103)],
        eligible_leader_replicas=[2],
        last_known_elr=[1],
    )


def change(**fields: object) -> PartitionChangeRecord:
    record = PartitionChangeRecord(partition_id=4, topic_id=TOPIC)
    for name, value in fields.items():
        setattr(record, name, value)
    return record


def test_from_a_record_and_back() -> None:
    partition = PartitionRegistration.from_record(full_record())
    assert partition == PartitionRegistration(
        replicas=(1, 2, 3),
        directories=(uid(101), uid(102), uid(103)),
        isr=(1, 3),
        removing_replicas=(2,),
        adding_replicas=(3,),
        elr=(2,),
        last_known_elr=(1,),
        leader=1,
        leader_recovery_state=LeaderRecoveryState.RECOVERING,
        leader_epoch=7,
        partition_epoch=20,
    )
    assert partition.to_record(TOPIC, 4, LATEST) == full_record()


def test_an_old_record_has_neither_directories_nor_eligible_leaders() -> None:
    record = full_record()
    record.directories = []
    record.eligible_leader_replicas = record.last_known_elr = None
    partition = PartitionRegistration.from_record(record)
    assert partition.directories == (MIGRATING, MIGRATING, MIGRATING)
    assert partition.elr == partition.last_known_elr == ()
    assert partition.to_record(TOPIC, 4, LATEST).eligible_leader_replicas is None


def test_an_empty_change_raises_the_partition_epoch_and_nothing_else() -> None:
    before = PartitionRegistration.from_record(full_record())
    assert before.merge(change()) == before._replace(partition_epoch=21)


@pytest.mark.parametrize(
    ("field", "value", "attribute", "expected"),
    [
        ("isr", [1], "isr", (1,)),
        ("isr", [], "isr", ()),
        ("replicas", [3, 2, 1], "replicas", (3, 2, 1)),
        ("removing_replicas", [], "removing_replicas", ()),
        ("removing_replicas", [1], "removing_replicas", (1,)),
        ("adding_replicas", [], "adding_replicas", ()),
        ("adding_replicas", [2], "adding_replicas", (2,)),
        ("directories", [uid(3), uid(2), uid(1)], "directories", (uid(3), uid(2), uid(1))),
        ("directories", [], "directories", (MIGRATING, MIGRATING, MIGRATING)),
        ("eligible_leader_replicas", [], "elr", ()),
        ("eligible_leader_replicas", [3], "elr", (3,)),
        ("last_known_elr", [], "last_known_elr", ()),
        ("last_known_elr", [2], "last_known_elr", (2,)),
        ("leader_recovery_state", 0, "leader_recovery_state", LeaderRecoveryState.RECOVERED),
    ],
)
def test_one_field_changes(field: str, value: object, attribute: str, expected: object) -> None:
    before = PartitionRegistration.from_record(full_record())
    after = before.merge(change(**{field: value}))
    assert after == before._replace(partition_epoch=21, **{attribute: expected})  # type: ignore[arg-type]


@pytest.mark.parametrize(("leader", "expected"), [(-2, (1, 7)), (-1, (-1, 8)), (1, (1, 8)), (3, (3, 8))])
def test_the_leader_and_its_epoch(leader: int, expected: tuple[int, int]) -> None:
    """-2 leaves the leader alone; anything else is an election, even of the same leader, or of none."""
    after = PartitionRegistration.from_record(full_record()).merge(change(leader=leader))
    assert (after.leader, after.leader_epoch, after.partition_epoch) == (*expected, 21)


def test_directories_must_be_as_many_as_replicas() -> None:
    record = full_record()
    record.directories = [uid(101)]
    with pytest.raises(MetadataReplayError, match="3 replicas but 1 log directories"):
        PartitionRegistration.from_record(record)
    before = PartitionRegistration.from_record(full_record())
    with pytest.raises(MetadataReplayError, match="2 replicas but 3 log directories"):
        before.merge(change(replicas=[1, 2]))
    with pytest.raises(MetadataReplayError, match="3 replicas but 2 log directories"):
        before.merge(change(directories=[uid(1), uid(2)]))
    assert before.merge(change(replicas=[1, 2], directories=[uid(1), uid(2)])).directories == (uid(1), uid(2))


def test_unknown_directories_follow_the_number_of_replicas() -> None:
    record = full_record()
    record.directories = []
    after = PartitionRegistration.from_record(record).merge(change(replicas=[1, 2, 3, 4]))
    assert after.directories == (MIGRATING,) * 4


@pytest.mark.parametrize("state", [2, -1, 127])
def test_an_unknown_recovery_state(state: int) -> None:
    record = full_record()
    record.leader_recovery_state = state
    with pytest.raises(MetadataReplayError, match=f"leader recovery state must be 0 or 1: {state}"):
        PartitionRegistration.from_record(record)
    if state != -1:
        with pytest.raises(MetadataReplayError, match=f"leader recovery state must be 0 or 1: {state}"):
            PartitionRegistration.from_record(full_record()).merge(change(leader_recovery_state=state))


def test_clearing_eligible_leaders_is_a_change_only_where_there_are_some() -> None:
    before = PartitionRegistration.from_record(full_record())
    after = before.without_elr()
    assert after == before._replace(elr=(), last_known_elr=(), partition_epoch=21)
    assert after.without_elr() is after


def test_what_an_older_version_cannot_say_is_a_loss() -> None:
    partition = PartitionRegistration.from_record(full_record())
    with pytest.raises(UnwritableMetadataError, match=r"4\.0-IV0 has no records for the eligible leader"):
        partition.to_record(TOPIC, 4, ImageWriterOptions(MetadataVersion.IBP_4_0_IV0))
    losses: list[str] = []
    record = partition.to_record(
        TOPIC, 4, ImageWriterOptions(MetadataVersion.IBP_3_6_IV0, lambda error: losses.append(str(error)))
    )
    assert len(losses) == 2
    record.encode(MetadataVersion.IBP_3_6_IV0.partition_record_version)


def test_questions() -> None:
    partition = PartitionRegistration.from_record(full_record())
    assert partition.has_leader
    assert partition.has_preferred_leader
    assert partition.preferred_replica == 1
    assert partition.is_reassigning
    assert partition.directory(2) == uid(102)
    assert partition.directory(9) is None
    empty = partition._replace(replicas=(), directories=(), leader=-1, adding_replicas=(), removing_replicas=())
    assert not empty.has_leader
    assert empty.preferred_replica == -1
    assert not empty.is_reassigning


def test_a_change_in_words() -> None:
    before = PartitionRegistration.from_record(full_record())
    after = before.merge(change(leader=3, leader_recovery_state=0))
    assert after.describe_change(before) == (
        "leader: 1 -> 3, leader_recovery_state: RECOVERING -> RECOVERED, "
        "leader_epoch: 7 -> 8, partition_epoch: 20 -> 21"
    )


def test_equal_lists_are_kept_once() -> None:
    one, other = (PartitionRegistration.from_record(full_record()) for _ in range(2))
    assert one.replicas is other.replicas
    assert one.directories is other.directories
    assert one.isr is other.isr


def test_directory_ids() -> None:
    online = (uid(101), uid(102))
    assert is_online(uid(101), online)
    assert not is_online(uid(103), online)
    assert is_online(uid(103), ())  # a broker that never told
    assert is_online(MIGRATING, online)
    assert is_online(UNASSIGNED, online)
    assert not is_online(LOST, online)
    assert not is_online(LOST, ())
    assert is_reserved(uid(99))
    assert not is_reserved(uid(100))
    assert not is_reserved(random_directory_id())
