"""The node's quorum with its threads; and what is left of it after kill -9."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from barnabas.common.clock import SYSTEM_CLOCK
from barnabas.log.dirs.log_dir_lock import LogDirLockedError
from barnabas.raft.client import ApiMessageAndVersion, BatchReader, LeaderAndEpoch, NotLeaderError, OffsetAndEpoch
from barnabas.raft.kraft_log import KafkaMetadataLog
from barnabas.raft.raft_manager import KafkaRaftManager
from unit.raft.raft_box import DIRECTORY, ENDPOINTS, NODE, Listener, RaftBox, topic_record

SECONDS = 60


class WaitingListener(Listener):
    """A listener whose owner can wait for what it hears."""

    def __init__(self) -> None:
        super().__init__()
        self.changed = threading.Condition()

    def handle_commit(self, reader: BatchReader[ApiMessageAndVersion]) -> None:
        with self.changed:
            super().handle_commit(reader)
            self.changed.notify_all()

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        with self.changed:
            super().handle_leader_change(leader)
            self.changed.notify_all()

    def wait_for(self, condition: Any) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, SECONDS)


def manager(directory: Path, *, linger_ms: int = 0, **options: Any) -> KafkaRaftManager:
    config = RaftBox(directory).config(append_linger_ms=linger_ms)
    return KafkaRaftManager(NODE, DIRECTORY, directory, config, local_endpoints=ENDPOINTS, **options)


def test_threads_under_kafkas_names_from_start_to_stop(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    subject = manager(tmp_path, linger_ms=1)
    listener = WaitingListener()
    subject.client.register(listener)
    subject.startup()
    assert "kafka-1-raft-io-thread" in {thread.name for thread in threading.enumerate()}
    listener.wait_for(lambda: listener.leaders)

    def work(number: int) -> None:
        for count in range(50):
            subject.client.prepare_append(1, [topic_record(f"{number}-{count}")])
            subject.client.schedule_prepared_append()

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    listener.wait_for(lambda: len(listener.names) == 200)
    for number in range(4):
        mine = [name for name in listener.names if name.startswith(f"{number}-")]
        assert mine == [f"{number}-{count}" for count in range(50)]
    subject.client.resign(1)
    listener.wait_for(lambda: listener.leaders[-1] == LeaderAndEpoch(NODE, 2))
    subject.shutdown()
    subject.shutdown()
    assert listener.shut_down
    assert set(threading.enumerate()) <= before


def test_a_failing_disk_ends_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    status: list[int] = []

    def exit_procedure(code: int) -> None:
        status.append(code)
        ended.set()

    subject = manager(tmp_path, exit_procedure=exit_procedure)
    listener = WaitingListener()
    subject.client.register(listener)
    subject.startup()
    listener.wait_for(lambda: listener.leaders)

    def fail(self: KafkaMetadataLog, **_: Any) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(KafkaMetadataLog, "flush", fail)
    subject.client.prepare_append(1, [topic_record("lost")])
    subject.client.schedule_prepared_append()
    assert ended.wait(SECONDS)
    assert status == [1]
    with pytest.raises(NotLeaderError):
        subject.client.prepare_append(1, [topic_record("more")])
    assert listener.names == []
    subject.shutdown()


def test_two_nodes_do_not_share_a_directory(tmp_path: Path) -> None:
    subject = manager(tmp_path / "data", lock_directory=True)
    with pytest.raises(LogDirLockedError):
        manager(tmp_path / "data", lock_directory=True)
    subject.shutdown()
    manager(tmp_path / "data", lock_directory=True).shutdown()


def test_a_log_that_cannot_be_opened_leaves_nothing_behind(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    (tmp_path / "__cluster_metadata-0").write_text("in the way")
    with pytest.raises(Exception, match="__cluster_metadata-0"):
        manager(tmp_path, lock_directory=True)
    (tmp_path / "__cluster_metadata-0").unlink()
    manager(tmp_path, lock_directory=True).shutdown()
    assert set(threading.enumerate()) <= before


def test_a_small_log_is_open_in_no_time(tmp_path: Path) -> None:
    box = RaftBox(tmp_path, SYSTEM_CLOCK)  # type: ignore[arg-type]
    client = box.client()
    for number in range(200):
        client.prepare_append(1, [topic_record(f"topic-{number}")])
        client.schedule_prepared_append()
    client.poll_once()
    box.kill(client)
    best = 1.0
    for _ in range(5):
        # The time of the processor, as a busy machine must not fail this; with an idle one's disk it is hardly more.
        started = time.process_time()
        client = box.client()
        best = min(best, time.process_time() - started)
        box.kill(client)
    assert best < 0.03


CHILD = """
import sys
from pathlib import Path
sys.path[:0] = {path!r}
from barnabas.common.clock import SYSTEM_CLOCK
from barnabas.raft.client import OffsetAndEpoch
from unit.raft.raft_box import Listener, RaftBox, topic_record

box = RaftBox(Path(sys.argv[1]), SYSTEM_CLOCK)
config = box.config(log_segment_bytes=4096, max_retention_bytes=20_000)
client = box.client(config)
listener = Listener()
client.register(listener)
client.poll_once()
epoch = client.leader_and_epoch.epoch
print("start", epoch, len(listener.names), flush=True)
seen = len(listener.names)
count = 0
while True:
    for _ in range(count % 4 + 1):
        client.prepare_append(epoch, [topic_record(f"{{epoch}}-{{count}}")])
        client.schedule_prepared_append()
        count += 1
    client.poll_once()
    for name in listener.names[seen:]:
        print(name)
    seen = len(listener.names)
    sys.stdout.flush()
    if count % 50 < 4:
        writer = client.create_snapshot(OffsetAndEpoch(client.high_watermark, epoch), 0)
        if writer is not None:
            writer.append(listener.records)
            writer.freeze()
        client.log.maybe_clean()
"""


def test_kill_9_loses_nothing_that_was_committed(tmp_path: Path) -> None:
    """A process that is killed at any moment, eight times; what it has printed was committed."""
    source = CHILD.format(path=[str(Path(__file__).resolve().parents[2])])
    committed: list[str] = []
    for turn in range(8):
        process = subprocess.Popen(
            [sys.executable, "-c", source, str(tmp_path)], stdout=subprocess.PIPE, text=True, bufsize=1
        )
        assert process.stdout is not None
        head = process.stdout.readline().split()
        assert head[:2] == ["start", str(turn + 1)]
        assert int(head[2]) >= len(committed)
        for printed, line in enumerate(process.stdout, 1):
            committed.append(line.strip())
            if printed == 60 + 37 * turn:
                os.kill(process.pid, signal.SIGKILL)
                # What is in the pipe was printed, and so was committed.
                committed += [left.strip() for left in process.stdout if left.endswith("\n")]
                break
        process.wait()
        process.stdout.close()
    client = RaftBox(tmp_path).client()
    listener = Listener()
    client.register(listener)
    client.poll_once()
    found = listener.names
    assert len(set(found)) == len(found), "and nothing twice"
    places = {name: index for index, name in enumerate(found)}
    missing = [name for name in committed if name not in places]
    assert missing == []
    order = [places[name] for name in committed]
    assert order == sorted(order)
    assert client.log.start_offset > 0, "snapshots have taken the place of the beginning"
    assert client.leader_and_epoch == LeaderAndEpoch(NODE, 9)
    assert OffsetAndEpoch(0, 0) not in client.log.snapshot_ids
    client.close()
