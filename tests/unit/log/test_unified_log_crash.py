"""Killing the process anywhere: what was acknowledged is there, and nothing is there twice.

A log is worked with, and after every single call that changes something on disk, and in the middle of the writes, its
directory is copied as a process killed at that moment would have left it. Each copy is then opened again, and compared
with what had been acknowledged. Producers go on as they would: they send again all that they have no response for, and
some that they have.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from barnabas.common.errors import KafkaStorageError
from barnabas.log.append_origin import AppendOrigin
from barnabas.log.config.log_config import LogConfig
from barnabas.log.segment import file_handle
from barnabas.log.unified_log import UnifiedLog
from barnabas.records.control import ControlRecordType
from log_fixtures import LogBox, all_batches, all_records, append, client_batch, marker

PRODUCERS = (1, 2)
IN_FLIGHT = 5


@dataclass(frozen=True)
class Sent:
    """A batch of a producer, or a marker."""

    producer_id: int
    sequence: int
    values: tuple[bytes, ...]
    kind: ControlRecordType | None = None
    offset: int = -1

    def append_to(self, log: UnifiedLog) -> Any:
        if self.kind is not None:
            return log.append_as_leader(
                marker(self.kind, self.producer_id, 0), 0, AppendOrigin.COORDINATOR, transaction_version=1
            )
        transactional = self.producer_id == PRODUCERS[-1]
        batch = client_batch(
            self.values, producer_id=self.producer_id, epoch=0, sequence=self.sequence, transactional=transactional
        )
        if not transactional or self.offset >= 0:  # nobody verifies what has been acknowledged
            return log.append_as_leader(batch, 0)
        guard = log.producers.maybe_start_transaction_verification(
            self.producer_id, self.sequence, 0, supports_epoch_bump=False
        )
        return log.append_as_leader(batch, 0, verification_guard=guard)


@dataclass
class Moment:
    """What a kill would have left, and what producers knew at that time."""

    directory: Path
    acknowledged: list[Sent]
    in_flight: Sent | None
    recovery_point: int
    log_start_offset: int
    what: str


@dataclass
class Recorder:
    """Copies the directory after every change."""

    source: Path
    target: Path
    monkeypatch: pytest.MonkeyPatch
    acknowledged: list[Sent] = field(default_factory=list)
    in_flight: Sent | None = None
    log: UnifiedLog | None = None
    checkpoint: tuple[int, int] = (0, 0)
    moments: list[Moment] = field(default_factory=list)
    busy: bool = False

    def install(self) -> None:
        for name in ("ftruncate", "truncate", "replace", "rename", "unlink"):
            self.monkeypatch.setattr(os, name, self._after(getattr(os, name), name))
        self.monkeypatch.setattr(os, "open", self._after(os.open, "open"))
        self.monkeypatch.setattr(os, "pwrite", self._in_pieces(os.pwrite))
        self.monkeypatch.setattr(
            file_handle,
            "_pwritev",
            lambda fd, buffers, position: os.pwrite(fd, b"".join(bytes(one) for one in buffers), position),
        )

    def _after(self, call: Callable[..., Any], what: str) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            result = call(*arguments, **options)
            if what != "open" or arguments[1] & os.O_CREAT:
                self.take(what)
            return result

        return wrapped

    def _in_pieces(self, pwrite: Callable[[int, Any, int], int]) -> Callable[[int, Any, int], int]:
        def wrapped(fd: int, data: Any, position: int) -> int:
            size = len(data)
            for part in sorted({1, size // 2, size - 1}):
                if 0 < part < size and not self.busy:
                    pwrite(fd, memoryview(data)[:part], position)
                    self.take(f"{part} of {size} bytes")
            written = pwrite(fd, data, position)
            self.take("write")
            return written

        return wrapped

    def take(self, what: str) -> None:
        if self.busy or not self.source.exists():
            return
        self.busy = True
        try:
            directory = self.target / str(len(self.moments))
            shutil.copytree(self.source, directory)
            self.moments.append(Moment(directory, list(self.acknowledged), self.in_flight, *self.checkpoint, what))
        finally:
            self.busy = False

    def send(self, log: UnifiedLog, sent: Sent) -> None:
        self.in_flight = sent
        info = sent.append_to(log)
        self.in_flight = None
        self.acknowledged.append(Sent(sent.producer_id, sent.sequence, sent.values, sent.kind, info.first_offset))
        self.take("acknowledged")


def work(recorder: Recorder, box: LogBox, config: LogConfig, seed: int, steps: int = 24) -> None:
    """Some life: two producers, one of them with transactions, rolls by themselves, flushes, deletions."""
    chance = random.Random(seed)
    log = box.open(config)
    sequences = dict.fromkeys(PRODUCERS, 0)
    in_transaction = False
    for step in range(steps):
        box.clock.advance(10)
        producer_id = chance.choice(PRODUCERS)
        count = chance.randint(1, 3)
        contents = tuple(b"p%d-%d" % (producer_id, sequences[producer_id] + one) for one in range(count))
        recorder.send(log, Sent(producer_id, sequences[producer_id], contents))
        sequences[producer_id] += count
        in_transaction |= producer_id == PRODUCERS[-1]
        if in_transaction and chance.random() < 0.3:
            kind = chance.choice((ControlRecordType.COMMIT, ControlRecordType.ABORT))
            recorder.send(log, Sent(PRODUCERS[-1], 0, (), kind))
            in_transaction = False
        if chance.random() < 0.2:
            log.flush()
            recorder.checkpoint = (log.recovery_point, log.log_start_offset)
        if step % 7 == 6:
            box.scheduler.tick()
    log.close_handlers()


def check(moment: Moment, config: LogConfig) -> None:
    box = LogBox(moment.directory.parent)
    log = box.open(
        config,
        name=moment.directory.name,
        had_clean_shutdown=False,
        recovery_point=moment.recovery_point,
        log_start_offset=moment.log_start_offset,
    )
    where = f"killed after {moment.what} ({moment.directory.name}), with {moment.in_flight} under way"
    found = {batch.base_offset: batch for batch in all_batches(log)}
    for sent in moment.acknowledged:
        assert sent.offset in found, f"{where}: offset {sent.offset} was acknowledged"
    known = {sent.offset for sent in moment.acknowledged}
    others = sorted(set(found) - known)
    assert len(others) <= 1, f"{where}: at most the batch under way may be there besides: {others}"
    assert not others or others[0] > max(known, default=-1)
    # Producers send again what has no response, and the last four before it, as if their responses had been lost.
    for producer_id in PRODUCERS:
        mine = [sent for sent in moment.acknowledged if sent.producer_id == producer_id and sent.kind is None]
        resend = mine[1 - IN_FLIGHT :]
        if moment.in_flight is not None and moment.in_flight.producer_id == producer_id and not moment.in_flight.kind:
            resend.append(moment.in_flight)
        else:
            resend = mine[-IN_FLIGHT:]
        for sent in resend:
            info = sent.append_to(log)
            assert info.is_duplicate or sent is moment.in_flight, f"{where}: {sent} was appended twice"
            if sent.offset >= 0:
                assert info.first_offset == sent.offset, f"{where}: {sent} has another offset now"
    expected = sorted(
        value
        for sent in (*moment.acknowledged, *([moment.in_flight] if moment.in_flight else []))
        for value in sent.values
    )
    records = [
        (record.offset, bytes(record.value))
        for record in all_records(log)
        if record.value is not None and bytes(record.value).startswith(b"p")
    ]
    assert sorted(value for _, value in records) == expected, where
    assert [offset for offset, _ in records] == sorted(offset for offset, _ in records)
    for producer_id in PRODUCERS:
        numbers = [int(value[3:]) for _, value in records if value.startswith(b"p%d-" % producer_id)]
        assert numbers == list(range(len(numbers))), f"{where}: out of order"
    # And it goes on, and closes, and opens.
    append(log, b"next")
    end = log.log_end_offset
    log.close()
    box.restart_process()
    again = box.open(config, name=moment.directory.name)
    assert again.log_end_offset == end
    again.close_handlers()


@pytest.mark.parametrize("seed", range(4))
def test_killed_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    box = LogBox(tmp_path / "live")
    config = box.config(segment_bytes=600 + 100 * seed, index_interval_bytes=100, segment_index_bytes=120)
    target = tmp_path / "moments"
    target.mkdir()
    with monkeypatch.context() as patch:
        recorder = Recorder(tmp_path / "live" / "topic-0", target, patch)
        recorder.install()
        work(recorder, box, config, seed)
    assert len(recorder.moments) > 100
    assert any(moment.recovery_point > 0 for moment in recorder.moments)
    for moment in recorder.moments:
        renamed = moment.directory.parent / f"topic-{moment.directory.name}"
        moment.directory.rename(renamed)
        moment.directory = renamed
        check(moment, config)


def test_the_same_when_the_index_of_aborts_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The marker is in the log, and the process ends before the index knows."""
    box = LogBox(tmp_path)
    log = box.open()
    Sent(2, 0, (b"p2-0",)).append_to(log)

    def fail(*_: Any) -> None:
        raise OSError(5, "broken")

    with monkeypatch.context() as patch:
        patch.setattr("barnabas.log.index.transaction_index.write_fully", fail)
        with pytest.raises(KafkaStorageError):
            Sent(2, 0, (), ControlRecordType.ABORT).append_to(log)
    box.restart_process()
    reopened = box.open(had_clean_shutdown=False)
    assert [txn.first_offset for txn in reopened.collect_aborted_transactions(0, 9)] == [0]
    reopened.watermarks.update_high_watermark(reopened.log_end_offset)
    assert reopened.last_stable_offset == 2
