"""Appends by a leader: whether a kernel checks a batch as a whole, or each check is made, the log is the same."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from barnabas.common.errors import ApiError, KafkaStorageError
from barnabas.log.log_append_info import LogAppendInfo
from barnabas.log.log_validator import LogValidator
from barnabas.log.producers.verification_state import SENTINEL
from barnabas.log.unified_log import UnifiedLog
from barnabas.records.batch import CompressionType
from barnabas.records.control import ControlRecordType
from log_fixtures import NOW, LogBox, append, client_batch, end_transaction
from unit.records.strategies import with_crc

STEPS = 60


class Twins:
    """Logs that get the same appends. For the second one, the kernel never finds that a batch needs no change."""

    def __init__(
        self,
        directory: Path,
        monkeypatch: pytest.MonkeyPatch,
        default_compression: CompressionType = CompressionType.NONE,
        **settings: Any,
    ) -> None:
        self.monkeypatch = monkeypatch
        self.default_compression = default_compression
        self.boxes = [LogBox(directory / name) for name in ("whole", "steps")]
        self.logs = [box.open(box.config(**settings)) for box in self.boxes]

    def append(self, leader_epoch: int, **options: Any) -> Any:
        """What both say to a batch, and what they are like afterwards."""
        options = {"compression": self.default_compression, **options}
        return self.do(lambda log: append(log, b"x" * 300, b"y" * 300, leader_epoch=leader_epoch, **options))

    def do(self, step: Any) -> Any:
        whole, steps = self.logs
        said = [self._try(step, whole)]
        with self.monkeypatch.context() as patch:
            patch.setattr(LogValidator, "_needs_no_change", lambda *_: False)
            said.append(self._try(step, steps))
        assert said[0] == said[1]
        whole.watermarks.move_high_watermark_to_end()
        steps.watermarks.maybe_increment_high_watermark(steps.watermarks.offsets.log_end_offset)
        assert self._state(whole) == self._state(steps)
        return said[0]

    def _try(self, step: Any, log: UnifiedLog) -> Any:
        try:
            return step(log)
        except (ApiError, ValueError) as error:
            return f"{type(error).__name__}: {error}"

    def _state(self, log: UnifiedLog) -> dict[str, Any]:
        state = log.producers.state
        return {
            "offsets": log.fetch_offset_snapshot(),
            "producers": dict(state.active_producers),
            "map end": state.map_end_offset,
            "unstable": state.first_unstable_offset,
            "epochs": log.leader_epochs.latest_epoch,
            "segments": [
                (
                    segment.base_offset,
                    segment.records.read_bytes(0, segment.size),
                    [segment.offset_index.entry(slot) for slot in range(segment.offset_index.entries)],
                    [segment.time_index.entry(slot) for slot in range(segment.time_index.entries)],
                    segment.max_timestamp_and_offset,
                    segment.rolling_based_timestamp,
                )
                for segment in log.segments
            ],
        }

    def close(self) -> None:
        for log in self.logs:
            log.close_handlers()


@pytest.mark.parametrize("seed", range(12))
def test_both_validations_lead_to_the_same_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    source = random.Random(seed)
    twins = Twins(tmp_path, monkeypatch, segment_bytes=source.choice([4_000, 100_000]), index_interval_bytes=1_000)
    epochs, sequences, leader_epoch, now = dict.fromkeys(range(3), 0), dict.fromkeys(range(3), 0), 0, NOW
    last: dict[str, Any] = {}
    for _ in range(STEPS):
        now += source.choice([0, 1, -5, 1000])
        producer = source.randrange(3)
        chance = source.random()
        if chance < 0.05:
            leader_epoch += 1
        elif chance < 0.1:
            epochs[producer] += 1
            sequences[producer] = 0
        options: dict[str, Any] = {
            "producer_id": producer,
            "epoch": epochs[producer],
            "sequence": sequences[producer],
            "timestamp": now,
        }
        if chance < 0.15:
            options["sequence"] += source.choice([-2, 1, 2, 5])
        elif chance < 0.2:
            options["epoch"] -= 1
        elif chance < 0.3:
            options = last or options
        elif chance < 0.45:
            options = {"timestamp": now}
        if chance > 0.4:
            options["compression"] = source.choice(list(CompressionType))
        said = twins.append(leader_epoch, **options)
        if isinstance(said, LogAppendInfo) and not said.is_duplicate and "producer_id" in options:
            sequences[options["producer_id"]] = options["sequence"] + 2
            last = options
    assert twins.logs[0].log_end_offset > STEPS // 2
    twins.close()


@pytest.mark.parametrize("compression", CompressionType)
@pytest.mark.parametrize("policy", ["producer", "lz4", "uncompressed"])
def test_batches_with_every_codec_whatever_is_wrong_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: CompressionType, policy: str
) -> None:
    source = random.Random(f"{compression.name} {policy}")
    twins = Twins(tmp_path, monkeypatch, compression_type=policy)
    refused = 0
    for number in range(60):
        values = [
            source.randbytes(source.randrange(5)) * source.randrange(1, 400) for _ in range(source.randrange(1, 9))
        ]
        timestamps = [NOW + source.choice([0, 1, -7, 2**40 if number % 20 == 3 else 5]) for _ in values]
        data = client_batch(values, compression=compression, timestamps=timestamps)
        if number % 2:
            for _ in range(source.randrange(1, 3)):
                data[source.randrange(len(data))] ^= 1 << source.randrange(8)
            if source.random() < 0.8:
                data = bytearray(with_crc(data))
        said = twins.do(lambda log, data=data: log.append_as_leader(bytearray(data), 0))
        refused += isinstance(said, str)
    assert 5 < refused < 60
    twins.close()


def test_a_batch_that_needs_no_change_is_validated_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = LogBox(tmp_path).open()
    append(log, producer_id=1, epoch=0, sequence=0)
    monkeypatch.setattr("barnabas.log.log_validator.validate_records", lambda *_, **__: pytest.fail("step by step"))
    append(log, b"x" * 300, b"y" * 70_000)
    append(log, b"x" * 300, b"y" * 70_000, producer_id=1, epoch=0, sequence=1)
    assert log.log_end_offset == 5
    log.close_handlers()


@pytest.mark.parametrize("compression", CompressionType)
def test_with_transactions_of_others_and_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: CompressionType
) -> None:
    twins = Twins(tmp_path, monkeypatch, compression)
    for log in twins.logs:
        log.producers.state.config.transaction_verification_enabled = False
    twins.append(0, producer_id=1, epoch=0, sequence=0)
    twins.append(0, producer_id=2, epoch=0, sequence=0, transactional=True)
    assert twins.logs[0].last_stable_offset == 2
    twins.append(0, producer_id=1, epoch=0, sequence=2)
    assert twins.logs[0].last_stable_offset == 2
    assert "InvalidTxnState" in str(twins.append(0, producer_id=2, epoch=0, sequence=2))
    twins.append(0, producer_id=2, epoch=0, sequence=2, transactional=True)
    twins.do(lambda log: end_transaction(log, ControlRecordType.ABORT, 2, 0))
    assert twins.logs[0].last_stable_offset == twins.logs[0].log_end_offset
    twins.append(0, producer_id=2, epoch=0, sequence=4)
    twins.append(0, producer_id=1, epoch=0, sequence=4)
    end = twins.logs[0].log_end_offset
    twins.append(0, producer_id=1, epoch=0, sequence=6, transactional=True)
    assert twins.logs[0].last_stable_offset == end  # the next number, and the beginning of a transaction all the same
    assert twins.logs[0].collect_aborted_transactions(0, 100) == twins.logs[1].collect_aborted_transactions(0, 100)
    twins.close()


def test_a_verification_that_is_under_way_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says that an earlier batch of the producer waits, which the next number alone does not."""
    twins = Twins(tmp_path, monkeypatch)
    twins.append(0, producer_id=1, epoch=0, sequence=0)
    for log in twins.logs:
        guard = log.producers.maybe_start_transaction_verification(1, 1, 0, supports_epoch_bump=True)
        assert guard is not SENTINEL
    assert "OutOfOrderSequence" in str(twins.append(0, producer_id=1, epoch=0, sequence=2))
    twins.close()


def test_sequence_numbers_begin_again_at_0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    twins = Twins(tmp_path, monkeypatch)
    twins.append(0, producer_id=1, epoch=0, sequence=2**31 - 4)
    twins.append(0, producer_id=1, epoch=0, sequence=2**31 - 2)
    said = twins.append(0, producer_id=1, epoch=0, sequence=0)
    assert isinstance(said, LogAppendInfo)
    assert not said.is_duplicate
    twins.append(0, producer_id=1, epoch=0, sequence=2)
    twins.append(0, producer_id=1, epoch=0, sequence=2**31 - 1)
    twins.close()


def test_an_append_that_fails_leaves_the_producer_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    box = LogBox(tmp_path)
    log = box.open()
    append(log, producer_id=1, epoch=0, sequence=0)

    def fail(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.pwrite", fail)
        with pytest.raises(KafkaStorageError):
            append(log, producer_id=1, epoch=0, sequence=1)
    assert log.producers.active()[0].last_sequence == 0
    assert log.log_end_offset == 1
    with pytest.raises(KafkaStorageError, match="offline"):
        append(log, producer_id=1, epoch=0, sequence=1)
    log.close_handlers()


def test_a_batch_that_may_not_be_written_to_is_copied(tmp_path: Path) -> None:
    log = LogBox(tmp_path).open()
    batch = bytes(client_batch())
    for offset in range(3):
        assert log.append_as_leader(batch, 4).first_offset == offset
    assert batch == client_batch()
    log.close_handlers()


def test_every_message_is_flushed_if_the_topic_says_so(tmp_path: Path) -> None:
    box = LogBox(tmp_path)
    log = box.open(box.config(flush_messages=3))
    for offset in range(7):
        append(log, producer_id=1, epoch=0, sequence=offset)
    assert log.recovery_point == 6
    log.close_handlers()
