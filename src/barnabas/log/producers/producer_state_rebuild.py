"""Rebuilds the producer state of a log after a start or a truncation.

It loads the latest snapshot up to the log end offset and replays the headers of the later batches.

Unlike Kafka, it also restores earlier batches. A snapshot has only the *last* batch of each producer, while a running
log keeps the last five, as many as a producer may have in flight. Suppose that a broker appends five batches, rolls a
segment, and is killed before it responds. The producer sends all five again. With one known batch, the first four look
out of order; the producer takes a new epoch and sends them under that, so the log has them twice. Therefore
`restore_recent_batches` reads the four batches before each producer's last one from the log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from barnabas.common.clock import Clock
from barnabas.common.errors import CorruptRecordError, InvalidRecordError
from barnabas.log.append_origin import AppendOrigin
from barnabas.log.index.offset_index import OffsetPosition
from barnabas.log.producers.producer_append_info import ProducerAppendInfo
from barnabas.log.producers.producer_state_entry import NUM_BATCHES_TO_RETAIN, BatchMetadata, ProducerStateEntry
from barnabas.log.producers.producer_state_manager import ProducerStateManager
from barnabas.log.producers.txn_metadata import CompletedTxn
from barnabas.log.segment.log_segment import LogSegment
from barnabas.log.segment.log_segments import LogSegments
from barnabas.protocol.internal.storage import AbortedTxn
from barnabas.records.batch import RecordBatch

logger = logging.getLogger(__name__)

_LOOK_BACK: Final = (1 << 16, 1 << 19, 1 << 22, 1 << 24)
"""How many bytes of the log to search for earlier batches: the next size only if the previous one did not find all. The
last one is the limit."""


def rebuild_producer_state(
    state: ProducerStateManager,
    segments: LogSegments,
    log_start_offset: int,
    last_offset: int,
    clock: Clock,
    *,
    from_clean_shutdown: bool,
) -> None:
    """Rebuilds `state` as of `last_offset`; changes nothing else."""
    snapshot_offsets = {segment.base_offset for segment in segments.values()[-2:]} | {last_offset}
    if state.latest_snapshot_offset is None and from_clean_shutdown:
        # A clean shutdown writes a snapshot if there are producers. So the log has none, and empty snapshots save the
        # next start or truncation from reading the whole log.
        for offset in sorted(snapshot_offsets):
            state.update_map_end_offset(offset)
            take_snapshot_at_end(state, segments, sync=False)
        return
    was_empty = state.is_empty and state.map_end_offset >= last_offset
    is_reload = state.map_end_offset != last_offset
    state.truncate_and_reload(log_start_offset, last_offset, clock.milliseconds())
    if is_reload:
        restore_recent_batches(state, segments)
    if last_offset > state.map_end_offset and not was_empty:
        for segment in segments.between(state.map_end_offset, last_offset):
            start_offset = max(segment.base_offset, state.map_end_offset, log_start_offset)
            state.update_map_end_offset(start_offset)
            if segment.base_offset in snapshot_offsets:
                state.take_snapshot(sync=False)
            _load_producers(state, _batches(segment, start_offset, last_offset))
    state.update_map_end_offset(last_offset)
    # Not forced to disk: the snapshot only saves work at the next start, and its checksum detects damage.
    take_snapshot_at_end(state, segments, sync=False)


def take_snapshot_at_end(state: ProducerStateManager, segments: LogSegments, *, sync: bool) -> None:
    """Takes a snapshot at the end of the log, unless a missing one means the same.

    A log of one segment that has never had producers needs no snapshot. After a clean shutdown, no snapshot means no
    producers; after a crash, that segment is read in any case. This saves a file for most small logs.
    """
    if len(segments) > 1 or not state.is_empty or state.latest_snapshot_offset is not None:
        # A snapshot without producers is not forced to disk: if it is lost, a little more of the log is read.
        state.take_snapshot(sync=sync and not state.is_empty)


def _batches(segment: LogSegment, start_offset: int, end_offset: int) -> Iterator[RecordBatch]:
    start = segment.translate_offset(start_offset)
    if start is None:
        return
    end = segment.translate_offset(end_offset)
    yield from segment.records.batches(start.position, None if end is None else end.position)


def _load_producers(state: ProducerStateManager, batches: Iterable[RecordBatch]) -> None:
    infos: dict[int, ProducerAppendInfo] = {}
    completed: list[CompletedTxn] = []
    for batch in batches:
        if batch.has_producer_id:
            done = state.update_producers(batch, infos, AppendOrigin.REPLICATION)
            if done is not None:
                completed.append(done)
    for info in infos.values():
        state.update(info)
    for transaction in completed:
        state.complete_txn(transaction)


def take_in_recovered_batch(state: ProducerStateManager, batch: RecordBatch) -> AbortedTxn | None:
    """Applies a batch that recovery found intact; returns the entry for the transaction index, if there is one."""
    aborted = None
    if batch.has_producer_id:
        infos: dict[int, ProducerAppendInfo] = {}
        completed = state.update_producers(batch, infos, AppendOrigin.REPLICATION)
        state.update(infos[batch.producer_id])
        if completed is not None:
            if completed.is_aborted:
                aborted = aborted_txn(completed, state.last_stable_offset(completed))
            state.complete_txn(completed)
    state.update_map_end_offset(batch.next_offset)
    return aborted


def aborted_txn(completed: CompletedTxn, last_stable_offset: int) -> AbortedTxn:
    """Creates the transaction index entry for an aborted transaction."""
    return AbortedTxn(
        producer_id=completed.producer_id,
        first_offset=completed.first_offset,
        last_offset=completed.last_offset,
        last_stable_offset=last_stable_offset,
    )


# The batches before the last one


def restore_recent_batches(state: ProducerStateManager, segments: LogSegments) -> None:
    """Reads from the log the batches that the snapshot just loaded does not have."""
    wanted = {
        producer_id: entry
        for producer_id, entry in state.active_producers.items()
        if len(entry.batches) == 1 and entry.batches[0].first_seq > 0
    }
    if not wanted:
        return
    end_offset = state.map_end_offset
    found: dict[int, list[BatchMetadata]] = {}
    for size in _LOOK_BACK:
        try:
            regions, is_everything = _last_bytes(segments, end_offset, size)
            found = _find_batches(regions, wanted)
        except (CorruptRecordError, InvalidRecordError) as error:
            # For example, an index with a wrong position. The earlier batches are optional, so continue without them.
            logger.warning("%s: earlier batches of producers cannot be found out: %s", state.partition, error)
            return
        if is_everything or all(_is_complete(found.get(producer_id, ())) for producer_id in wanted):
            break
    for producer_id, earlier in found.items():
        state.load_producer_entry(_with_earlier_batches(wanted[producer_id], earlier))


_Region = tuple[LogSegment, int, int]
"""A segment and a start and end position in it, each at the start of a batch (or the end of the file)."""


def _last_bytes(segments: LogSegments, end_offset: int, size: int) -> tuple[list[_Region], bool]:
    """Returns about the last `size` bytes before an offset, in log order, and whether they are the whole log."""
    regions: list[_Region] = []
    for segment in reversed(segments.between(0, max(end_offset, 1))):
        found = segment.translate_offset(end_offset)
        end = segment.size if found is None else found.position
        start = 0
        if end > size:
            index = segment.offset_index
            entry = index.fetch_upper_bound_offset(OffsetPosition(segment.base_offset, 0), end - size)
            start = min((entry or index.last_entry).position, end)
        regions.append((segment, start, end))
        size -= end - start
        if start > 0 or size <= 0:
            return regions[::-1], False
    return regions[::-1], True


def _find_batches(regions: Iterable[_Region], wanted: dict[int, ProducerStateEntry]) -> dict[int, list[BatchMetadata]]:
    """Finds the last few batches of each producer's current epoch before the known one."""
    found: dict[int, list[BatchMetadata]] = {}
    for segment, start, end in regions:
        for batch in segment.records.batches(start, end):
            entry = wanted.get(batch.producer_id)
            if (
                entry is not None
                and batch.producer_epoch == entry.producer_epoch
                and not batch.is_control_batch
                and batch.last_offset < entry.last_data_offset
            ):
                earlier = found.setdefault(batch.producer_id, [])
                earlier.append(
                    BatchMetadata(
                        batch.last_sequence,
                        batch.last_offset,
                        batch.last_offset - batch.base_offset,
                        batch.max_timestamp,
                    )
                )
                del earlier[: 1 - NUM_BATCHES_TO_RETAIN]
    return found


def _is_complete(earlier: Sequence[BatchMetadata]) -> bool:
    return len(earlier) == NUM_BATCHES_TO_RETAIN - 1 or bool(earlier and earlier[0].first_seq == 0)


def _with_earlier_batches(entry: ProducerStateEntry, earlier: Iterable[BatchMetadata]) -> ProducerStateEntry:
    restored = entry.without_batches()
    for batch in (*earlier, *entry.batches):
        restored.add_batch(entry.producer_epoch, batch)
    restored.last_timestamp = entry.last_timestamp  # a marker may have come after the last batch
    return restored
