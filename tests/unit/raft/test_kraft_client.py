"""A quorum of one: elections, appends, commits, listeners, snapshots, failures, restarts."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from barnabas.common.errors import (
    BarnabasError,
    InvalidUpdateVersionError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    RecordBatchTooLargeError,
)
from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.common.shutdownable_thread import FatalExitError
from barnabas.protocol.internal.raft import LeaderChangeMessage, VotersRecord
from barnabas.raft.bootstrap_file import write_initial_voters
from barnabas.raft.client import LeaderAndEpoch, NotLeaderError, OffsetAndEpoch
from barnabas.raft.config import VoterAddress
from barnabas.raft.core import UnsupportedQuorumError
from barnabas.raft.kraft_client import CLEANING_INTERVAL_MS, KRaftClient
from barnabas.raft.kraft_log import Isolation, KafkaMetadataLog
from barnabas.raft.quorum_info import QuorumNode, QuorumReplica
from barnabas.raft.records_iterator import ControlRecord, control_records, raw_batches
from barnabas.raft.voter_set import ReplicaKey, VoterEndpoint, VoterNode, VoterSet
from unit.raft.raft_box import (
    DIRECTORY,
    ENDPOINTS,
    NODE,
    NOW,
    VOTERS,
    Listener,
    RaftBox,
    append,
    no_op,
    snapshot,
    topic_record,
)


@pytest.fixture
def box(tmp_path: Path) -> RaftBox:
    return RaftBox(tmp_path)


def listen(client: KRaftClient, *, slow: bool = False) -> Listener:
    listener = Listener(slow=slow)
    client.register(listener)
    client.poll_once()
    return listener


def quorum_state(box: RaftBox) -> dict[str, Any]:
    state: dict[str, Any] = json.loads((box.log_dir / "quorum-state").read_text())
    return state


def control(client: KRaftClient) -> list[ControlRecord]:
    found: list[ControlRecord] = []
    offset = client.log.start_offset
    while offset < client.log_end_offset:
        for batch in raw_batches(client.log.read(offset, Isolation.UNCOMMITTED).records):
            if batch.is_control_batch:
                found += control_records(batch)
            offset = batch.next_offset
    return found


# -- elections


def test_it_elects_itself_and_announces_that_first(box: RaftBox) -> None:
    client = box.client()
    assert client.leader_and_epoch == LeaderAndEpoch(NODE, 1)
    assert (client.high_watermark, client.log_end_offset) == (1, 1)
    ((offset, _, message),) = control(client)
    assert offset == 0
    assert isinstance(message, LeaderChangeMessage)
    assert (message.leader_id, [one.voter_id for one in message.voters]) == (NODE, [NODE])
    assert [one.voter_id for one in message.granting_voters] == [NODE]
    assert quorum_state(box) == {
        "clusterId": "",
        "leaderId": NODE,
        "leaderEpoch": 1,
        "votedId": -1,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": NODE}],
        "data_version": 0,
    }


def test_the_epoch_is_on_the_disk_before_anything_is_written_in_it(
    box: RaftBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    replace, append_as_leader, flush = os.replace, KafkaMetadataLog.append_as_leader, KafkaMetadataLog.flush

    def note_replace(source: Any, target: Any) -> None:
        replace(source, target)
        if Path(target).name == "quorum-state":
            state = quorum_state(box)
            steps.append(f"epoch {state['leaderEpoch']}, voted {state['votedId']}, leader {state['leaderId']}")

    def note_append(self: KafkaMetadataLog, *args: Any) -> Any:
        steps.append("append")
        return append_as_leader(self, *args)

    def note_flush(self: KafkaMetadataLog, **options: Any) -> None:
        steps.append("flush")
        flush(self, **options)

    monkeypatch.setattr(os, "replace", note_replace)
    monkeypatch.setattr(KafkaMetadataLog, "append_as_leader", note_append)
    monkeypatch.setattr(KafkaMetadataLog, "flush", note_flush)
    box.client()
    assert steps == ["epoch 1, voted 1, leader -1", "epoch 1, voted -1, leader 1", "append", "flush"]


def test_every_start_is_an_epoch(box: RaftBox) -> None:
    for epoch in range(1, 5):
        client = box.client()
        assert client.leader_and_epoch == LeaderAndEpoch(NODE, epoch)
        box.kill(client)
    assert [line.split() for line in (box.log_dir / "leader-epoch-checkpoint").read_text().splitlines()[2:]] == [
        ["1", "0"], ["2", "1"], ["3", "2"], ["4", "3"],
    ]  # fmt: skip


def test_an_epoch_is_not_used_twice_although_nothing_was_written_in_it(box: RaftBox) -> None:
    client = box.client(start=False)
    client.initialize()
    box.kill(client)
    assert box.client().leader_and_epoch == LeaderAndEpoch(NODE, 2)


def test_without_its_file_the_epoch_is_that_of_the_log(box: RaftBox, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        box.kill(box.client())
    (box.log_dir / "quorum-state").unlink()
    assert box.client().leader_and_epoch == LeaderAndEpoch(NODE, 4)
    assert "has epoch 0, but the log has records of epoch 3" in caplog.text


def test_to_resign_is_to_be_elected_anew(box: RaftBox) -> None:
    client = box.client()
    listener = listen(client)
    append(client, "kept")
    client.prepare_append(1, [topic_record("dropped")])
    client.schedule_prepared_append()
    late = client._leading()
    client.resign(1)
    client.poll_once()
    with pytest.raises(NotLeaderError, match="epoch 1 is over"):
        late.append(1, [topic_record("too late")])
    assert client.leader_and_epoch == LeaderAndEpoch(NODE, 2)
    assert listener.leaders == [(NODE, 1), (None, 2), (NODE, 2)]
    with pytest.raises(NotLeaderError):
        client.prepare_append(1, [topic_record("late")])
    append(client, "next")
    assert listener.names == ["kept", "next"]
    client.resign(1)  # over already
    assert client.poll_once() > 0
    assert client.leader_and_epoch == LeaderAndEpoch(NODE, 2)
    for epoch in (-1, 3):
        with pytest.raises(ValueError, match="cannot resign from epoch"):
            client.resign(epoch)


@pytest.mark.parametrize(
    ("voters", "reason"),
    [
        ((), "nor the metadata log has voters"),
        ((VoterAddress(2, "127.0.0.1", 9093),), "node 1 .* is not the only voter; the voters are \\[2\\]"),
        ((*VOTERS, VoterAddress(2, "127.0.0.1", 9094)), "is not the only voter; the voters are \\[1, 2\\]"),
    ],
)
def test_a_quorum_that_needs_others_is_refused(box: RaftBox, voters: tuple[VoterAddress, ...], reason: str) -> None:
    client = box.client(box.config(voters=voters), start=False)
    with pytest.raises(UnsupportedQuorumError, match=reason):
        client.initialize()


def test_a_damaged_quorum_state_keeps_the_node_from_starting(box: RaftBox) -> None:
    box.kill(box.client())
    (box.log_dir / "quorum-state").write_text("{")
    client = box.client(start=False)
    with pytest.raises(KafkaStorageError, match="quorum-state is damaged"):
        client.initialize()


# -- appends


def test_records_are_committed_in_order_and_handed_back(box: RaftBox) -> None:
    client = box.client()
    listener = listen(client)
    record = topic_record("a")
    assert client.prepare_append(1, [record, no_op()]) == 2
    client.poll_once()
    assert client.log_end_offset == 1, "prepared is not written"
    client.schedule_prepared_append()
    client.poll_once()
    assert (client.log_end_offset, client.high_watermark) == (3, 3)
    batch = listener.batches[-1]
    assert (batch.base_offset, batch.last_offset, batch.epoch, batch.append_timestamp) == (1, 2, 1, NOW)
    assert batch.records[0] is record, "the leader gets back what it appended, and need not decode it"
    assert append(client, "b") == 3
    assert listener.names == ["a", "b"]


def test_appends_share_one_wait_for_the_disk(box: RaftBox, monkeypatch: pytest.MonkeyPatch) -> None:
    client = box.client(box.config(append_linger_ms=25))
    append(client, "first")
    flushes: list[int] = []
    flush = KafkaMetadataLog.flush

    def note(self: KafkaMetadataLog, **options: bool) -> None:
        flushes.append(self.end_offset.message_offset)
        flush(self, **options)

    monkeypatch.setattr(KafkaMetadataLog, "flush", note)
    for number in range(50):
        append(client, f"topic-{number}", poll=False)
        assert client.poll_once() > 0
    assert flushes == []
    box.clock.advance(25)
    client.poll_once()
    assert flushes == [52]
    assert client.high_watermark == 52


def test_what_is_not_on_the_disk_is_not_committed(box: RaftBox, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order that everything rests on: without the flush before the commit, a power cut loses what was promised."""
    client = box.client()
    listener = listen(client)
    seen: list[tuple[int | None, list[str]]] = []
    sync = os.fdatasync

    def look(fd: int) -> None:
        seen.append((client.high_watermark, listener.names))
        sync(fd)

    monkeypatch.setattr(os, "fdatasync", look)
    append(client, "a")
    assert seen == [(1, [])]
    assert (client.high_watermark, listener.names) == (2, ["a"])


def test_only_the_leader_of_the_epoch_appends(box: RaftBox) -> None:
    client = box.client(start=False)
    with pytest.raises(NotLeaderError):
        client.prepare_append(0, [topic_record("a")])
    with pytest.raises(NotLeaderError):
        client.schedule_prepared_append()
    with pytest.raises(BarnabasError, match="not initialized"):
        client.poll_once()
    client.initialize()
    client.poll_once()
    with pytest.raises(NotLeaderError):
        client.prepare_append(0, [topic_record("a")])
    with pytest.raises(ValueError, match="has not come yet"):
        client.prepare_append(2, [topic_record("a")])
    with pytest.raises(BarnabasError, match="already initialized"):
        client.initialize()


@pytest.mark.parametrize("setting", ["max_batch_size_bytes", "log_segment_bytes"])
def test_an_append_that_is_too_large_is_refused(box: RaftBox, setting: str) -> None:
    client = box.client(box.config(**{setting: 300}))
    with pytest.raises(RecordBatchTooLargeError):
        append(client, *map(str, range(20)))
    assert append(client, "a") == 1


# -- failures


@pytest.mark.parametrize("call", ["pwrite", "fdatasync"])
def test_a_failed_write_is_the_end(box: RaftBox, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    faults: list[str] = []
    client = box.client(fault_handler=lambda what, error: faults.append(f"{what}: {error}"))
    listener = listen(client)
    append(client, "before")

    def fail(*_: Any) -> int:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(FatalExitError, match="cannot continue with the metadata log"):
            append(client, "lost")
    assert len(faults) == 1
    assert "Input/output error" in faults[0]
    # The disk works again, and that changes nothing: what the failed call has lost, the next would not notice.
    assert client.high_watermark == 2
    with pytest.raises(BarnabasError, match="has failed: "):
        client.poll_once()
    with pytest.raises(NotLeaderError):
        append(client, "more")
    with pytest.raises(NotLeaderOrFollowerError):
        client.describe_quorum()
    assert listener.names == ["before"]
    client.close()
    assert listener.shut_down
    again = box.client()
    assert "before" in listen(again).names
    assert again.leader_and_epoch.epoch == 2


def test_a_failed_vote_is_the_end(box: RaftBox, monkeypatch: pytest.MonkeyPatch) -> None:
    client = box.client()

    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    client.resign(1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail)
        with pytest.raises(FatalExitError, match="No space left"):
            client.poll_once()
    with pytest.raises(NotLeaderError):
        append(client, "a")


def test_a_listener_that_raises_is_the_end(box: RaftBox) -> None:
    class Broken(Listener):
        def handle_commit(self, reader: Any) -> None:
            raise RuntimeError("broken")

    client = box.client()
    client.register(Broken())
    with pytest.raises(FatalExitError, match="broken"):
        client.poll_once()


# -- listeners


def test_a_listener_hears_of_leadership_after_everything_before_it(box: RaftBox) -> None:
    client = box.client()
    append(client, "a")
    box.kill(client)
    client = box.client()
    listener = listen(client, slow=True)
    assert listener.leaders == []
    assert len(listener.readers) == 1
    client.poll_once()
    assert len(listener.readers) == 1, "one at a time"
    listener.finish()
    assert listener.names == ["a"]
    client.poll_once()
    assert listener.leaders == [(NODE, 2)]


def test_a_slow_listener_goes_its_own_pace_and_misses_nothing(box: RaftBox) -> None:
    client = box.client()
    fast, slow = listen(client), listen(client, slow=True)
    for number in range(5):
        append(client, f"topic-{number}")
    assert len(slow.readers) == 1
    assert len(fast.names) == 5
    while slow.readers:
        slow.finish()
        client.poll_once()
    assert slow.names == fast.names
    assert [(one.base_offset, one.last_offset) for one in slow.batches] == [(n, n) for n in range(6)]
    assert all(len(one.records) == 1 for one in slow.batches[1:])


def test_closing_a_reader_asks_for_more_only_if_there_is(box: RaftBox) -> None:
    client = box.client()
    listener = listen(client, slow=True)
    client._woken = False
    listener.finish()
    assert client._woken, "the leadership is news"
    client.poll_once()
    append(client, "a")
    client._woken = False
    listener.finish()
    assert not client._woken
    append(client, "b")
    append(client, "c")
    client._woken = False
    listener.finish()
    assert client._woken


def test_a_long_log_is_not_read_at_once(box: RaftBox, monkeypatch: pytest.MonkeyPatch) -> None:
    client = box.client()
    for number in range(20):
        append(client, f"topic-{number}")
    read = KafkaMetadataLog.read
    monkeypatch.setattr(KafkaMetadataLog, "read", lambda self, start, within: read(self, start, within, 300))
    listener = listen(client, slow=True)
    readers = 0
    while listener.readers:
        readers += 1
        before = len(listener.batches)
        listener.finish()
        assert len(listener.batches) - before <= 4
        client.poll_once()
    assert readers > 5
    assert listener.names == [f"topic-{number}" for number in range(20)]


def test_a_listener_that_left_hears_nothing(box: RaftBox) -> None:
    client = box.client()
    listener = listen(client)
    client.register(listener)  # twice is once
    append(client, "a")
    client.unregister(listener)
    append(client, "b")
    assert listener.names == ["a"]


def test_a_reader_that_is_given_up_can_be_had_again(box: RaftBox) -> None:
    client = box.client()
    append(client, "a")
    listener = listen(client, slow=True)
    listener.readers.pop().close()
    client.poll_once()
    listener.finish()
    assert listener.names == ["a"]


def test_a_listener_that_gives_everything_up_does_not_keep_the_client_busy(box: RaftBox) -> None:
    """As the controller does when its queue is closed. The client must get to see that it is to end, too."""

    class Closing(Listener):
        given = 0

        def handle_commit(self, reader: Any) -> None:
            self.given += 1
            reader.close()

    client = box.client()
    append(client, "a")
    listener = Closing()
    client.register(listener)
    for _ in range(3):
        client.poll_once()
    assert 1 <= listener.given <= 6


# -- snapshots and restarts


def test_a_restart_begins_with_the_snapshot(box: RaftBox) -> None:
    client = box.client()
    append(client, "a", "b")
    snapshot_id = snapshot(client, 3, "A", "B")
    assert client.latest_snapshot_id == snapshot_id
    assert client.create_snapshot(snapshot_id, NOW) is None
    append(client, "c")
    client.close()
    client = box.client()
    listener = listen(client)
    assert listener.snapshots == [snapshot_id]
    assert listener.names == ["A", "B", "c"]
    assert client.leader_and_epoch == LeaderAndEpoch(NODE, 2)
    assert listener.leaders == [(NODE, 2)]


def test_a_listener_that_is_left_behind_gets_the_snapshot(box: RaftBox) -> None:
    client = box.client(box.config(log_segment_bytes=100))
    slow = listen(client, slow=True)
    for name in "abcd":
        append(client, name)
    snapshot_id = snapshot(client, 4, "A", "B", "C")
    client.log.delete_before_snapshot(snapshot_id)
    slow.finish()
    client.poll_once()
    assert slow.snapshots == [snapshot_id]
    while slow.readers:
        slow.finish()
        client.poll_once()
    assert slow.names == ["A", "B", "C", "d"]


def test_old_snapshots_are_deleted_every_minute(box: RaftBox) -> None:
    client = box.client(box.config(log_segment_bytes=100, max_retention_bytes=0))
    for name in "abcd":
        append(client, name)
    earlier = snapshot(client, 2, "a")
    latest = snapshot(client, 4, "a", "b", "c")
    assert client.poll_once() == CLEANING_INTERVAL_MS
    assert earlier in client.log.snapshot_ids
    box.clock.advance(CLEANING_INTERVAL_MS)
    client.poll_once()
    assert list(client.log.snapshot_ids) == [latest]
    assert client.log.start_offset == 4
    box.kill(client)
    listener = listen(box.client())
    assert (listener.snapshots, listener.names) == ([latest], ["a", "b", "c", "d"])


def test_snapshots_have_bounds(box: RaftBox) -> None:
    client = box.client()
    append(client, "a")
    with pytest.raises(ValueError, match="beyond the high watermark"):
        client.create_snapshot(OffsetAndEpoch(3, 1), NOW)
    writer = client.create_snapshot(OffsetAndEpoch(2, 1), NOW)
    assert writer is not None
    writer.append([topic_record("a")])
    writer.close()
    assert client.latest_snapshot_id is None


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.99])
def test_a_torn_tail_costs_nothing_that_was_committed(box: RaftBox, keep: float) -> None:
    client = box.client()
    append(client, "a")
    append(client, "b")
    size = (box.log_dir / "00000000000000000000.log").stat().st_size
    append(client, "torn")
    box.kill(client)
    path = box.log_dir / "00000000000000000000.log"
    data = path.read_bytes()
    path.write_bytes(data[: size + int((len(data) - size) * keep)])
    client = box.client()
    assert listen(client).names == ["a", "b"]
    append(client, "c")
    box.kill(client)
    assert listen(box.client()).names == ["a", "b", "c"]


def test_a_graceful_end_writes_what_was_scheduled(box: RaftBox) -> None:
    client = box.client(box.config(append_linger_ms=1000))
    listener = listen(client)
    append(client, "a")
    append(client, "b", poll=False)
    client.close()
    client.close()
    assert listener.shut_down
    assert listener.names == ["a", "b"]
    with pytest.raises(NotLeaderError):
        client.prepare_append(1, [topic_record("c")])
    with pytest.raises(ValueError, match="is closed"):
        client.register(listener)
    assert listen(box.client()).names == ["a", "b"]


# -- voters in the log


def standalone(box: RaftBox, directory_id: Uuid = DIRECTORY) -> None:
    voters = VoterSet.of([VoterNode(ReplicaKey(NODE, directory_id), ENDPOINTS)])
    write_initial_voters(box.directory, voters, box.clock)


def test_the_first_leader_writes_the_voters_into_the_log(box: RaftBox) -> None:
    standalone(box)
    client = box.client(box.config(voters=()))
    assert client.kraft_version == 1
    assert client.high_watermark == 3
    assert [record.type.name for record in control(client)] == ["LEADER_CHANGE", "KRAFT_VERSION", "KRAFT_VOTERS"]
    assert quorum_state(box) == {
        "leaderId": NODE, "leaderEpoch": 1, "votedId": -1, "votedDirectoryId": "A" * 22, "data_version": 1,
    }  # fmt: skip
    listener = listen(client)
    assert listener.snapshots == [OffsetAndEpoch(0, 0)]
    box.kill(client)
    client = box.client(box.config(voters=()))
    assert [record.type.name for record in control(client)][3:] == ["LEADER_CHANGE"], "they are there already"


def test_a_leader_with_other_listeners_writes_them_down(box: RaftBox) -> None:
    standalone(box)
    box.kill(box.client(box.config(voters=())))
    elsewhere = (VoterEndpoint("CONTROLLER", "10.0.0.1", 9093),)
    client = box.client(box.config(voters=()), local_endpoints=elsewhere)
    last = control(client)[-1].message
    assert isinstance(last, VotersRecord)
    assert VoterSet.from_record(last).voters[NODE].endpoints == elsewhere
    assert client.voters.voters[NODE].endpoints == elsewhere


def test_another_directory_is_not_the_voter(box: RaftBox) -> None:
    standalone(box, Uuid(bytes(reversed(range(16)))))
    client = box.client(box.config(voters=()), start=False)
    with pytest.raises(UnsupportedQuorumError, match="is not the only voter"):
        client.initialize()
    with pytest.raises(ValueError, match="needs an id"):
        KRaftClient(NODE, ZERO_UUID, client.log, box.config())


def test_kraft_version_is_raised_once(box: RaftBox) -> None:
    client = box.client()
    client.upgrade_kraft_version(1, 0, False)
    client.upgrade_kraft_version(1, 1, True)
    client.poll_once()
    assert client.kraft_version == 0
    for _ in range(2):
        client.upgrade_kraft_version(1, 1, False)
    client.poll_once()
    client.upgrade_kraft_version(1, 1, False)
    client.poll_once()
    assert client.kraft_version == 1
    assert client.high_watermark == 3
    assert client.voters == VoterSet.of([VoterNode(ReplicaKey(NODE, DIRECTORY), ENDPOINTS)])
    with pytest.raises(InvalidUpdateVersionError, match="from 1 to 0: it cannot be downgraded"):
        client.upgrade_kraft_version(1, 0, True)
    with pytest.raises(InvalidUpdateVersionError, match=r"voters 1 .* do not support it"):
        client.upgrade_kraft_version(1, 2, True)
    with pytest.raises(NotLeaderError):
        client.upgrade_kraft_version(0, 1, True)
    with pytest.raises(ValueError, match="has not come yet"):
        client.upgrade_kraft_version(2, 1, True)
    snapshot_id = snapshot(client, 3)
    client.log.delete_before_snapshot(snapshot_id)
    append(client, "a")
    box.kill(client)
    client = box.client(box.config(voters=()))
    assert client.kraft_version == 1, "it is in the snapshot, too"
    assert quorum_state(box)["data_version"] == 1


def test_a_snapshot_has_the_voters_of_its_own_offset(box: RaftBox) -> None:
    client = box.client()
    append(client, "a")
    client.upgrade_kraft_version(1, 1, False)
    client.poll_once()
    for offset, kinds in ((2, []), (4, ["KRAFT_VERSION", "KRAFT_VOTERS"])):
        snapshot_id = snapshot(client, offset, "a")
        raw = client.log.read_snapshot(snapshot_id)
        assert raw is not None
        first = next(raw_batches(raw.records))
        assert [record.type.name for record in control_records(first)] == ["SNAPSHOT_HEADER", *kinds]


# -- DescribeQuorum


def test_the_quorum_is_described(box: RaftBox) -> None:
    client = box.client()
    append(client, "a")
    box.clock.advance(100)
    info = client.describe_quorum()
    assert (info.leader_id, info.leader_epoch, info.high_watermark) == (NODE, 1, 2)
    assert info.current_voters == (QuorumReplica(NODE, ZERO_UUID, 2, NOW + 100, NOW + 100),)
    assert info.observers == ()
    assert info.nodes == (QuorumNode(NODE, ENDPOINTS),)
    client.upgrade_kraft_version(1, 1, False)
    client.poll_once()
    assert client.describe_quorum().current_voters[0].replica_directory_id == DIRECTORY


def test_a_static_voter_without_a_port_is_described_by_its_listener(box: RaftBox) -> None:
    client = box.client(box.config(voters=(VoterAddress(NODE, "127.0.0.1", 0),)))
    assert client.describe_quorum().nodes == (QuorumNode(NODE, ENDPOINTS),)


def test_before_the_election_there_is_nothing_to_describe(box: RaftBox) -> None:
    client = box.client(start=False)
    with pytest.raises(NotLeaderOrFollowerError):
        client.describe_quorum()


def test_listeners_can_be_made_known_once_they_are_bound(box: RaftBox) -> None:
    client = box.client(start=False, local_endpoints=())
    bound = (VoterEndpoint("CONTROLLER", "127.0.0.1", 41234),)
    client.set_local_endpoints(bound)
    client.initialize()
    client.poll_once()
    assert client.describe_quorum().nodes == (QuorumNode(NODE, bound),)
