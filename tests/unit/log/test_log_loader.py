"""Opening a log: leftovers, indexes, damage, and what is remembered."""

from __future__ import annotations

import logging
import shutil
import struct
import zlib
from pathlib import Path

import pytest

from barnabas.common.errors import UnsupportedForMessageFormatError
from barnabas.log.segment.file_records import FileRecords
from barnabas.log.segment.log_file_names import CLEANED_FILE_SUFFIX, SWAP_FILE_SUFFIX
from barnabas.log.segment.log_segment import LogSegment
from barnabas.log.segment.segment_damage import CorruptLogError, DamagePolicy, find_damage
from barnabas.log.unified_log import UnifiedLog
from barnabas.records.batch import RecordBatch, TimestampType
from barnabas.records.builder import RecordBatchBuilder
from log_fixtures import NOW, LogBox, all_records, append, client_batch, offsets, values
from segment_fixtures import linux_only, open_files, write_at

SIZE = len(client_batch([b"0"]))
LOG = "00000000000000000000.log"


@pytest.fixture
def box(tmp_path: Path) -> LogBox:
    return LogBox(tmp_path)


def fill(log: UnifiedLog, count: int = 10, start: int = 0) -> UnifiedLog:
    for number in range(start, start + count):
        append(log, b"%d" % number)
    return log


def path(box: LogBox, name: str = LOG) -> Path:
    return box.directory / "topic-0" / name


class TestNewAndOld:
    def test_a_new_log(self, box: LogBox) -> None:
        log = box.open()
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset, log.recovery_point) == (0, 0, 0, 0)
        assert box.files() == [LOG]

    def test_a_log_that_was_empty(self, box: LogBox) -> None:
        box.open().close()
        log = box.open()
        append(log, b"a")
        assert log.log_end_offset == 1

    def test_a_log_that_starts_later(self, box: LogBox) -> None:
        log = box.open(log_start_offset=30)
        assert log.log_end_offset == 30
        assert log.segments.base_offsets == (30,)

    def test_a_clean_start_reads_no_records(self, box: LogBox) -> None:
        fill(box.open()).close()
        data = path(box).read_bytes()
        write_at(path(box), SIZE * 5 + 70, b"\xff\xff")  # inside the records of a batch
        log = box.open()
        assert log.log_end_offset == 10
        assert path(box).stat().st_size == len(data)

    def test_a_clean_start_leaves_the_indexes_alone(self, box: LogBox) -> None:
        fill(box.open()).close()
        log = box.open()
        assert path(box, "00000000000000000000.index").stat().st_size == 0
        append(log, b"10")
        assert log.active_segment.offset_index.capacity == 480
        assert len(log.segments) == 1, "an index without room is no reason to roll"

    def test_the_recovery_point_after_a_crash_does_not_move(self, box: LogBox) -> None:
        fill(box.open())
        assert box.open(had_clean_shutdown=False, recovery_point=4).recovery_point == 4
        assert box.open(had_clean_shutdown=False, recovery_point=99).recovery_point == 10

    @linux_only
    def test_nothing_is_left_open_when_it_fails(self, box: LogBox) -> None:
        fill(box.open()).close()
        write_at(path(box), 20, b"\xff")
        with pytest.raises(CorruptLogError):
            box.open(had_clean_shutdown=False)
        assert open_files(box.directory) == []


class TestTornEnd:
    @pytest.mark.parametrize("cut", range(1, SIZE + 1))
    def test_every_byte_of_the_last_batch(self, box: LogBox, cut: int, caplog: pytest.LogCaptureFixture) -> None:
        fill(box.open(), 4)
        data = path(box).read_bytes()
        path(box).write_bytes(data[:-cut])
        with caplog.at_level(logging.WARNING):
            log = box.open(had_clean_shutdown=False)
        assert values(all_records(log)) == [b"0", b"1", b"2"]
        assert path(box).stat().st_size == 3 * SIZE
        fill(log, 2, start=3)
        assert offsets(all_records(log)) == [0, 1, 2, 3, 4]
        said = "unfinished write" in caplog.text
        assert said == (cut < SIZE)
        if said:
            assert f"the {SIZE - cut} bytes from position {3 * SIZE} on, where offset 3 should be" in caplog.text
            assert str(path(box)) in caplog.text

    @pytest.mark.parametrize("garbage", [b"x", b"\x00" * 10, b"\x00" * 500, b"\xff" * 300, bytes(range(256))])
    def test_garbage_at_the_end(self, box: LogBox, garbage: bytes) -> None:
        fill(box.open(), 3)
        with path(box).open("ab") as file:
            file.write(garbage)
        assert offsets(all_records(box.open(had_clean_shutdown=False))) == [0, 1, 2]

    def test_a_preallocated_file(self, box: LogBox) -> None:
        config = box.config(preallocate=True, segment_bytes=1 << 16)
        fill(box.open(config), 3)
        assert path(box).stat().st_size == 1 << 16
        log = box.open(config, had_clean_shutdown=False)
        assert offsets(all_records(log)) == [0, 1, 2]
        fill(log, 2, start=3)
        assert offsets(all_records(log)) == [0, 1, 2, 3, 4]

    def test_damage_in_the_last_batch_is_its_end(self, box: LogBox) -> None:
        fill(box.open(), 4)
        write_at(path(box), 4 * SIZE - 2, b"\xff")
        assert offsets(all_records(box.open(had_clean_shutdown=False))) == [0, 1, 2]

    def test_a_batch_inside_a_torn_record_is_not_taken_for_one_of_the_log(self, box: LogBox) -> None:
        """Somebody keeps what they fetched from another topic."""
        log = fill(box.open(), 3)
        inside = bytes(client_batch([b"inside"], base_offset=5, leader_epoch=0))
        append(log, b"before" + inside + b"behind" * 50)
        path(box).write_bytes(path(box).read_bytes()[:-20])
        assert offsets(all_records(box.open(had_clean_shutdown=False))) == [0, 1, 2]

    def test_an_empty_segment_behind_the_cut_goes(self, box: LogBox) -> None:
        log = fill(box.open(), 4)
        log.roll()
        path(box).write_bytes(path(box).read_bytes()[:-3])
        reopened = box.open(had_clean_shutdown=False)
        assert reopened.segments.base_offsets == (0,)
        assert reopened.log_end_offset == 3


class TestDamagedMiddle:
    @pytest.mark.parametrize("position", [7, 8, 11, 12, 16, 17, 30, 60, 65])
    def test_any_field_of_a_batch_with_others_behind_it(self, box: LogBox, position: int) -> None:
        fill(box.open())
        data = bytearray(path(box).read_bytes())
        data[4 * SIZE + position] ^= 0x01 if position == 7 else 0x55
        path(box).write_bytes(data)
        if position == 12:  # the leader epoch is outside the checksum, and may be any
            assert box.open(had_clean_shutdown=False).log_end_offset == 10
            return
        number = 4
        with pytest.raises(CorruptLogError) as caught:
            box.open(had_clean_shutdown=False)
        if position == 7:  # offset 5 instead of 4: that only the next batch shows to be wrong
            number = 5
        assert f"position {number * SIZE}" in str(caught.value)
        assert str(path(box)) in str(caught.value)
        assert path(box).read_bytes() == data, "the files are as they were"

    def test_an_offset_that_leaps(self, box: LogBox) -> None:
        fill(box.open())
        write_at(path(box), 4 * SIZE, b"\x55")
        with pytest.raises(CorruptLogError, match="has offsets 5 to 5"):
            box.open(had_clean_shutdown=False)

    def test_a_hole(self, box: LogBox) -> None:
        fill(box.open())
        write_at(path(box), 4 * SIZE, bytes(2 * SIZE))
        with pytest.raises(CorruptLogError, match=f"from position {6 * SIZE} on"):
            box.open(had_clean_shutdown=False)

    def test_two_holes(self, box: LogBox) -> None:
        fill(box.open())
        for number in (4, 7):
            write_at(path(box), number * SIZE, bytes(SIZE))
        with pytest.raises(CorruptLogError):
            box.open(had_clean_shutdown=False)

    def test_damage_at_the_end_of_a_segment_with_others_behind_it(self, box: LogBox) -> None:
        log = fill(box.open(), 4)
        log.roll()
        fill(log, 2, start=4)
        write_at(path(box), 4 * SIZE - 2, b"\xff")
        with pytest.raises(CorruptLogError, match="later segments"):
            box.open(had_clean_shutdown=False)

    def test_damage_in_what_was_forced_to_disk(self, box: LogBox) -> None:
        fill(box.open(), 4)
        write_at(path(box), 4 * SIZE - 2, b"\xff")
        with pytest.raises(CorruptLogError, match="forced to disk"):
            box.open(had_clean_shutdown=False, recovery_point=4)

    def test_damage_found_while_an_index_is_rebuilt_after_a_clean_shutdown(self, box: LogBox) -> None:
        fill(box.open(), 4).close()
        write_at(path(box), 4 * SIZE - 2, b"\xff")
        path(box, "00000000000000000000.index").unlink()
        with pytest.raises(CorruptLogError, match="forced to disk"):
            box.open()

    def test_it_can_be_cut_off_where_that_is_wanted(self, box: LogBox, caplog: pytest.LogCaptureFixture) -> None:
        log = fill(box.open())
        log.roll()
        fill(log, 3, start=10)
        write_at(path(box), 4 * SIZE + 30, b"\xff")
        with caplog.at_level(logging.ERROR):
            reopened = box.open(had_clean_shutdown=False, damage_policy=DamagePolicy.TRUNCATE)
        assert offsets(all_records(reopened)) == [0, 1, 2, 3]
        assert reopened.segments.base_offsets == (0,)
        assert "intact batches" in caplog.text

    def test_offsets_that_do_not_grow(self, box: LogBox) -> None:
        fill(box.open())
        write_at(path(box), 4 * SIZE, (2).to_bytes(8))
        with pytest.raises(CorruptLogError, match="has offsets 2 to 2"):
            box.open(had_clean_shutdown=False)

    def test_messages_of_an_old_format_are_left_alone(self, box: LogBox) -> None:
        box.open().close()
        body = struct.pack(">bb", 0, 0) + struct.pack(">i", -1) + struct.pack(">i", 3) + b"old"
        message = struct.pack(">qi", 0, 4 + len(body)) + struct.pack(">I", zlib.crc32(body)) + body
        path(box).write_bytes(message)
        with pytest.raises(UnsupportedForMessageFormatError, match="from before Kafka"):
            box.open(had_clean_shutdown=False)
        assert path(box).read_bytes() == message

    def test_where_damage_is(self, tmp_path: Path) -> None:
        records = FileRecords(tmp_path / "x.log")
        assert find_damage(records, 0) is None
        for offset in range(3):
            records.append(client_batch([b"0"], base_offset=offset))
        assert find_damage(records, 0) is None
        records.append(b"torn")
        damage = find_damage(records, 0)
        assert damage is not None
        assert damage[:3] == (3 * SIZE, 3, 4)
        assert damage.intact_behind is None

    def test_the_search_goes_over_the_borders_of_what_is_read_at_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("barnabas.log.segment.segment_damage._CHUNK", 100)
        for padding in range(0, 220, 7):
            records = FileRecords(tmp_path / f"{padding}.log")
            records.append(b"\xee" * (50 + padding))
            records.append(client_batch([b"0"], base_offset=4))
            damage = find_damage(records, 0)
            assert damage is not None
            assert damage.intact_behind == 50 + padding


class TestIndexes:
    @pytest.mark.parametrize("suffix", [".index", ".timeindex"])
    @pytest.mark.parametrize("clean", [True, False])
    def test_missing_ones_are_rebuilt(self, box: LogBox, suffix: str, clean: bool) -> None:
        config = box.config(index_interval_bytes=1)
        log = fill(box.open(config), 6)
        log.roll()
        fill(log, 2, start=6)
        log.close()
        index = path(box, f"{0:020d}{suffix}")
        before = index.read_bytes()
        index.unlink()
        reopened = box.open(config, had_clean_shutdown=clean, recovery_point=8)
        assert index.read_bytes() == before
        assert offsets(all_records(reopened)) == list(range(8))

    def test_a_broken_index_of_transactions_is_rebuilt(self, box: LogBox) -> None:
        fill(box.open(), 3).close()
        path(box, f"{0:020d}.txnindex").write_bytes(b"x" * 33)
        assert box.open().collect_aborted_transactions(0, 9) == []
        assert path(box, f"{0:020d}.txnindex").stat().st_size == 0

    def test_orphans_are_removed(self, box: LogBox) -> None:
        fill(box.open(), 3).close()
        for suffix in (".index", ".timeindex", ".txnindex"):
            path(box, f"{7:020d}{suffix}").write_bytes(b"")
        box.open()
        assert not [name for name in box.files() if name.startswith(f"{7:020d}")]

    def test_those_of_unflushed_segments_are_rebuilt_after_a_crash(self, box: LogBox) -> None:
        config = box.config(index_interval_bytes=1)
        log = fill(box.open(config), 6)
        path(box, f"{0:020d}.index").write_bytes(b"\x7f" * 480)
        log.close_handlers()
        reopened = box.open(config, had_clean_shutdown=False)
        for offset in range(6):
            assert reopened.active_segment.translate_offset(offset) == (offset, offset * SIZE, SIZE)


class TestLeftovers:
    def test_what_was_being_deleted_goes(self, box: LogBox) -> None:
        fill(box.open(), 3).close()
        for name in (f"{7:020d}.log.deleted", f"{7:020d}.index.deleted", f"{7:020d}.snapshot.deleted"):
            path(box, name).write_bytes(b"x")
        path(box, f"{7:020d}-0000000001.checkpoint.deleted").write_bytes(b"x")
        box.open()
        assert [name for name in box.files() if name.endswith(".deleted")] == [
            f"{7:020d}-0000000001.checkpoint.deleted"
        ]

    def test_what_compaction_did_not_finish_goes(self, box: LogBox) -> None:
        fill(box.open(), 3).close()
        path(box, f"{0:020d}.log.cleaned").write_bytes(b"x")
        path(box, f"{0:020d}.index.cleaned").write_bytes(b"x")
        path(box, f"{2:020d}.log.swap").write_bytes(b"x")  # renamed first, as it has the higher offset
        log = box.open()
        assert offsets(all_records(log)) == [0, 1, 2]
        assert not [name for name in box.files() if name.endswith((".cleaned", ".swap"))]

    def exchange(self, box: LogBox) -> tuple[UnifiedLog, list[LogSegment]]:
        """Segments of two records each, and what compaction would make of the first three: two."""
        log = box.open(box.config(segment_bytes=2 * SIZE))
        fill(log, 8)
        assert log.segments.base_offsets == (0, 2, 4, 6)
        new = []
        for base_offset, kept in ((0, (1, 3)), (4, (5,))):
            cleaned = log.new_cleaned_segment(base_offset)
            for offset in kept:
                cleaned.append(offset, NOW, offset, client_batch([b"%d" % offset], base_offset=offset, leader_epoch=0))
            cleaned.on_become_inactive_segment()
            cleaned.flush()
            new.append(cleaned)
        return log, new

    def test_an_exchange_of_segments(self, box: LogBox) -> None:
        log, cleaned = self.exchange(box)
        log.replace_segments(cleaned, log.segments.values()[:3])
        assert log.segments.base_offsets == (0, 4, 6)
        assert offsets(all_records(log)) == [1, 3, 5, 6, 7]
        box.scheduler.advance(60_000)
        log.close()
        assert offsets(all_records(box.open())) == [1, 3, 5, 6, 7]

    def test_an_exchange_is_all_or_nothing_wherever_it_ends(
        self, box: LogBox, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        """The directory as it is after each rename, opened again."""
        log, cleaned = self.exchange(box)
        moments: list[Path] = []
        original = Path.replace

        def replace(self: Path, target: Path) -> Path:
            result = original(self, target)
            moment = tmp_path_factory.mktemp("moment")
            shutil.copytree(box.directory / "topic-0", moment / "topic-0")
            moments.append(moment)
            return result

        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", replace)
            log.replace_segments(cleaned, log.segments.values()[:3])
        outcomes = []
        for moment in moments:
            reopened = LogBox(moment).open(had_clean_shutdown=False)
            outcomes.append(offsets(all_records(reopened)))
            reopened.close()
        before, after = [0, 1, 2, 3, 4, 5, 6, 7], [1, 3, 5, 6, 7]
        switch = outcomes.index(after)
        assert outcomes == [before] * switch + [after] * (len(outcomes) - switch)
        assert switch == 5, "with the rename of the last .cleaned file to .swap; the sixth of the two times three"

    def test_segments_with_offsets_too_far_apart_are_split(self, box: LogBox) -> None:
        """Kafka before 1.1 could make them, when it compacted."""
        box.open().close()
        far = 2**31 + 100
        path(box).write_bytes(
            bytes(
                client_batch([b"a"], base_offset=3, leader_epoch=0)
                + client_batch([b"b"], base_offset=far, leader_epoch=0)
                + client_batch([b"c"], base_offset=far + 1, leader_epoch=0)
            )
        )
        log = box.open(had_clean_shutdown=False)
        assert log.segments.base_offsets == (3, far)
        assert offsets(all_records(log)) == [3, far, far + 1]
        assert log.log_end_offset == far + 2
        assert not [name for name in box.files() if name.endswith((CLEANED_FILE_SUFFIX, SWAP_FILE_SUFFIX))]


class TestLostFiles:
    def test_a_log_that_ends_before_it_starts_begins_anew(self, box: LogBox) -> None:
        fill(box.open(), 3).close()
        log = box.open(log_start_offset=50)
        assert (log.log_start_offset, log.log_end_offset) == (50, 50)
        assert all_records(log) == []
        assert log.leader_epochs.entries == ()

    def test_epochs_beyond_the_end_go(self, box: LogBox) -> None:
        log = box.open()
        for number in range(4):
            append(log, b"%d" % number, leader_epoch=number)
        path(box).write_bytes(path(box).read_bytes()[: 2 * SIZE])
        assert box.open(had_clean_shutdown=False).leader_epochs.latest_epoch == 1

    def test_epochs_before_the_start_go(self, box: LogBox) -> None:
        log = box.open()
        for number in range(4):
            append(log, b"%d" % number, leader_epoch=number)
        log.close()
        reopened = box.open(log_start_offset=2)
        assert [(entry.epoch, entry.start_offset) for entry in reopened.leader_epochs.entries] == [(2, 2), (3, 3)]

    @pytest.mark.parametrize("what", ["delete", "damage"])
    def test_snapshots_are_a_help_and_not_a_necessity(self, box: LogBox, what: str) -> None:
        log = box.open()
        for number in range(8):
            append(log, b"%d" % number, producer_id=1, epoch=0, sequence=number)
            if number in {2, 5}:
                log.roll()
        before = log.producers.active()
        for name in box.files():
            if name.endswith(".snapshot"):
                if what == "delete":
                    path(box, name).unlink()
                else:
                    write_at(path(box, name), 8, b"\xff\xff")
        reopened = box.open(had_clean_shutdown=False, recovery_point=6)
        assert reopened.producers.active() == before
        assert append(reopened, b"3", producer_id=1, epoch=0, sequence=3).is_duplicate

    def test_a_clean_log_without_snapshots_has_no_producers(self, box: LogBox) -> None:
        """It is from before there were any."""
        log = box.open()
        append(log, b"0", producer_id=1, epoch=0, sequence=0)
        log.close()
        for name in box.files():
            if name.endswith(".snapshot"):
                path(box, name).unlink()
        assert box.open().producers.count == 0

    def test_producers_are_found_if_an_index_before_them_is_rebuilt(self, box: LogBox) -> None:
        """Rebuilding the index of a segment discards later snapshots, so their absence says nothing about producers."""
        log = fill(box.open(), 3)
        log.roll()
        append(log, b"a", producer_id=7, epoch=0, sequence=0, leader_epoch=0)
        guard = log.producers.maybe_start_transaction_verification(8, 0, 0, supports_epoch_bump=False)
        batch = client_batch([b"open"], producer_id=8, epoch=0, sequence=0, transactional=True)
        log.append_as_leader(batch, 0, verification_guard=guard)
        log.close()
        path(box, LOG.replace(".log", ".index")).unlink()
        log = box.open()
        assert {producer.producer_id for producer in log.producers.active()} == {7, 8}
        log.watermarks.move_high_watermark_to_end()
        assert (log.last_stable_offset, log.high_watermark) == (4, 5)

    def test_batches_that_compaction_emptied(self, box: LogBox) -> None:
        box.open().close()
        builder = RecordBatchBuilder(base_offset=0, producer_id=3, producer_epoch=0, base_sequence=0)
        builder.override_last_offset(4)
        emptied = builder.close()
        RecordBatch(emptied).set_max_timestamp(TimestampType.CREATE_TIME, NOW)
        path(box).write_bytes(emptied + client_batch([b"5"], base_offset=5))
        log = box.open(had_clean_shutdown=False)
        assert log.log_end_offset == 6
        assert [producer.last_sequence for producer in log.producers.active()] == [4]
