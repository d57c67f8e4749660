"""The log of one voter in memory: what listeners are told, and in which order."""

from __future__ import annotations

import pytest

from barnabas.common.clock import MockClock
from barnabas.common.errors import InvalidUpdateVersionError, ProtocolError
from barnabas.protocol.internal.metadata import NoOpRecord, TopicRecord
from barnabas.raft.client import (
    ApiMessageAndVersion,
    BatchReader,
    LeaderAndEpoch,
    NotLeaderError,
    OffsetAndEpoch,
    SnapshotReader,
)
from local_raft_client import LocalRaftClient


def record(name: str) -> ApiMessageAndVersion:
    return ApiMessageAndVersion(TopicRecord(name=name), 0)


class Listener:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.heard: list[object] = []

    def handle_commit(self, reader: BatchReader[ApiMessageAndVersion]) -> None:
        for batch in reader:
            names = [getattr(message, "name", "-") for message, _ in batch.records]
            self.heard.append((batch.base_offset, batch.last_offset, batch.epoch, names))
        reader.close()

    def handle_load_snapshot(self, reader: SnapshotReader[ApiMessageAndVersion]) -> None:
        names = [getattr(message, "name", "-") for batch in reader for message, _ in batch.records]
        self.heard.append((reader.snapshot_id, reader.last_contained_log_offset, names))
        reader.close()

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.heard.append(leader)

    def begin_shutdown(self) -> None:
        self.heard.append("shutdown")


@pytest.fixture
def client() -> LocalRaftClient:
    return LocalRaftClient(1, clock=MockClock(), auto_commit=False)


def append(client: LocalRaftClient, *names: str) -> int:
    offset = client.prepare_append(client.leader_and_epoch.epoch, [record(name) for name in names])
    client.schedule_prepared_append()
    return offset


def test_the_leader_is_announced_after_everything_before_its_epoch(client: LocalRaftClient) -> None:
    listener = Listener()
    client.register(listener)
    client.register(listener)
    client.start()
    assert listener.heard == [(0, 0, 1, []), LeaderAndEpoch(1, 1)]
    assert client.high_watermark == 1


def test_appended_records_are_heard_of_when_they_are_committed(client: LocalRaftClient) -> None:
    listener = Listener()
    client.register(listener)
    client.start()
    listener.heard.clear()
    assert append(client, "a", "b") == 2
    assert append(client, "c") == 3
    assert listener.heard == []
    assert client.log_end_offset == 4
    assert client.commit(up_to=1) == 3
    assert listener.heard == [(1, 2, 1, ["a", "b"])]
    client.commit()
    assert listener.heard[1:] == [(3, 3, 1, ["c"])]
    assert client.commit() == 4


def test_a_listener_that_comes_late_gets_all_from_the_bytes(client: LocalRaftClient) -> None:
    client.start()
    append(client, "a", "b")
    client.commit()
    listener = Listener()
    client.register(listener)
    assert listener.heard == [(0, 0, 1, []), (1, 2, 1, ["a", "b"]), LeaderAndEpoch(1, 1)]
    client.unregister(listener)
    append(client, "c")
    client.commit()
    assert len(listener.heard) == 3


def test_nothing_is_written_between_prepare_and_schedule(client: LocalRaftClient) -> None:
    client.start()
    assert client.prepare_append(1, [record("a")]) == 1
    assert client.prepare_append(1, [record("b")]) == 2
    assert client.log_end_offset == 1
    client.schedule_prepared_append()
    assert client.log_end_offset == 3


def test_only_the_leader_of_the_epoch_appends(client: LocalRaftClient) -> None:
    with pytest.raises(NotLeaderError):
        client.prepare_append(0, [record("a")])
    client.start()
    with pytest.raises(NotLeaderError):
        client.prepare_append(2, [record("a")])
    client.elect(2)
    with pytest.raises(NotLeaderError):
        client.prepare_append(1, [record("a")])
    with pytest.raises(ValueError, match="at least one record"):
        client.prepare_append(2, [])


def test_a_record_that_cannot_be_encoded_is_found_out_before_anything_is_written(client: LocalRaftClient) -> None:
    client.start()
    with pytest.raises(ProtocolError):
        client.prepare_append(1, [ApiMessageAndVersion(TopicRecord(name=None), 0)])  # type: ignore[arg-type]
    client.schedule_prepared_append()
    assert client.log_end_offset == 1


def test_another_leader_cuts_off_what_is_not_committed(client: LocalRaftClient) -> None:
    listener = Listener()
    client.register(listener)
    client.start()
    append(client, "kept")
    client.commit()
    append(client, "lost")
    listener.heard.clear()
    client.elect(2)
    assert client.log_end_offset == 2
    assert client.append_as_leader(2, [record("theirs")]) == 2
    client.commit()
    assert listener.heard == [LeaderAndEpoch(2, 2), (2, 2, 2, ["theirs"])]


def test_resigning_leaves_the_epoch_without_leader(client: LocalRaftClient) -> None:
    listener = Listener()
    client.register(listener)
    client.start()
    listener.heard.clear()
    client.resign(0)
    assert listener.heard == []
    client.resign(1)
    assert listener.heard == [LeaderAndEpoch(None, 2)]
    with pytest.raises(ValueError, match="the current one is 2"):
        client.resign(7)
    with pytest.raises(ValueError, match="leads in epoch 2"):
        client.resign(2)
    client.elect(1, 2)
    assert client.leader_and_epoch == LeaderAndEpoch(1, 2)
    with pytest.raises(ValueError, match="has a leader already"):
        client.elect(3, 2)


def test_a_single_voter_that_resigns_leads_again() -> None:
    client = LocalRaftClient(1, clock=MockClock())
    client.start()
    client.resign(1)
    assert client.leader_and_epoch == LeaderAndEpoch(1, 3)


def test_a_restart_keeps_the_log_and_begins_a_new_epoch(client: LocalRaftClient) -> None:
    client.start()
    append(client, "a")
    again = LocalRaftClient(1, clock=MockClock(), log=client.log)
    listener = Listener()
    again.register(listener)
    assert listener.heard == [LeaderAndEpoch(None, 1)]
    again.start()
    assert listener.heard[1:] == [(0, 0, 1, []), (1, 1, 1, ["a"]), (2, 2, 2, []), LeaderAndEpoch(1, 2)]


def test_snapshots_replace_the_log_before_them(client: LocalRaftClient) -> None:
    client.start()
    append(client, "a")
    append(client, "b")
    client.commit()
    writer = client.create_snapshot(OffsetAndEpoch(2, 1), 0)
    assert writer is not None
    writer.append([record("snap a")])
    before = client.latest_snapshot_id
    assert before is None
    writer.freeze()
    assert client.latest_snapshot_id == OffsetAndEpoch(2, 1)
    assert client.create_snapshot(OffsetAndEpoch(2, 1), 0) is None
    listener = Listener()
    client.register(listener)
    assert listener.heard == [
        (OffsetAndEpoch(2, 1), 1, ["snap a"]),
        (2, 2, 1, ["b"]),
        LeaderAndEpoch(1, 1),
    ]
    with pytest.raises(ValueError, match="frozen or closed"):
        writer.append([record("more")])
    with pytest.raises(ValueError, match="beyond the high watermark"):
        client.create_snapshot(OffsetAndEpoch(9, 1), 0)


def test_a_snapshot_that_is_given_up_leaves_nothing(client: LocalRaftClient) -> None:
    client.start()
    writer = client.create_snapshot(OffsetAndEpoch(1, 1), 0)
    assert writer is not None
    writer.close()
    with pytest.raises(ValueError, match="frozen or closed"):
        writer.freeze()
    assert client.latest_snapshot_id is None


def test_closing_tells_the_listeners(client: LocalRaftClient) -> None:
    listener = Listener()
    client.register(listener)
    client.close()
    client.close()
    assert listener.heard == ["shutdown"]
    with pytest.raises(ValueError, match="closed"):
        client.register(Listener())


def test_the_voter_cannot_change(client: LocalRaftClient) -> None:
    client.upgrade_kraft_version(1, 0, False)
    with pytest.raises(InvalidUpdateVersionError):
        client.upgrade_kraft_version(1, 1, True)


def test_versions_are_kept_with_the_records(client: LocalRaftClient) -> None:
    client.start()
    client.prepare_append(1, [ApiMessageAndVersion(NoOpRecord(), 0)])
    client.schedule_prepared_append()
    batch = client.log.batches[-1]
    assert batch.values == (b"\x01\x14\x00\x00",)
