"""Builds images from committed batches."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from barnabas.common.clock import Clock
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.errors import MetadataReplayError
from barnabas.metadata.image import EMPTY_IMAGE, MetadataImage
from barnabas.metadata.provenance import MetadataProvenance
from barnabas.metadata.publisher import LogDeltaManifest
from barnabas.protocol.internal.framing import MetadataRecord
from barnabas.protocol.internal.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)
from barnabas.raft.client import LeaderAndEpoch

log = logging.getLogger(__name__)

FaultHandler = Callable[[str, BaseException], None]
"""Called with an error. If it returns, loading continues; a node for which the fault is fatal raises or exits."""

Publish = Callable[[MetadataDelta, MetadataImage, LogDeltaManifest], None]


class MetadataBatch(NamedTuple):
    """A committed and decoded batch of the metadata log.

    A control batch has no records here, but occupies offsets.
    """

    base_offset: int
    last_offset: int
    epoch: int
    append_time_ms: int
    records: Sequence[MetadataRecord]
    size_in_bytes: int = 0

    @classmethod
    def of(
        cls, base_offset: int, epoch: int, records: Sequence[MetadataRecord], append_time_ms: int = 0
    ) -> MetadataBatch:
        """Creates a batch of these records, without gaps."""
        return cls(base_offset, base_offset + len(records) - 1, epoch, append_time_ms, records)


class MetadataBatchLoader:
    """Collects batches in a delta until `maybe_flush`, or until a transaction begins or ends.

    Many batches are often committed at once; publishers get all of them in one update.

    *Transactions* (KIP-868) are changes that do not fit in one batch, such as a topic with 20,000 partitions. Between
    BeginTransactionRecord and EndTransactionRecord nothing is published, whatever is flushed. Records before the
    beginning are published right there, even in the middle of a batch, so that the delta then contains only records of
    the transaction, and can be discarded as a whole if it is aborted::

        batch   [ topic A ][ begin  topic B ][ partitions of B ][ end  topic C ]
        images           1                                                     2        (1 has A; 2 has A, B and C)

    Not thread-safe.
    """

    def __init__(self, publish: Publish, on_fault: FaultHandler, clock: Clock) -> None:
        self._publish = publish
        self._on_fault = on_fault
        self._clock = clock
        self.has_seen_record = False
        """Whether there was anything but control batches so far."""
        self._in_transaction = False
        self._reset(EMPTY_IMAGE)

    @property
    def image(self) -> MetadataImage:
        return self._image

    @property
    def in_transaction(self) -> bool:
        return self._in_transaction

    @property
    def next_offset(self) -> int:
        """The expected base offset of the next batch."""
        return self._last_offset + 1

    def reset_to_image(self, image: MetadataImage) -> None:
        """Continues from a snapshot. Unflushed batches and an open transaction are discarded: it covers them."""
        self.has_seen_record = True
        self._reset(image)

    def load_batch(self, batch: MetadataBatch, leader_and_epoch: LeaderAndEpoch) -> None:
        started = self._clock.nanoseconds()
        for index, record in enumerate(batch.records):
            if type(record) is BeginTransactionRecord and not self._in_transaction and (index or self._num_batches):
                if index:
                    self._note_position(batch, batch.base_offset + index - 1)
                self._flush(leader_and_epoch, is_batch_aligned=index == 0)
            try:
                self._replay(record)
            except Exception as error:  # noqa: BLE001 - the fault handler decides whether a bad record is fatal
                self._on_fault(f"cannot replay the metadata record at offset {batch.base_offset + index}", error)
        self._note_position(batch, batch.last_offset)
        self._num_batches += 1
        self._num_bytes += batch.size_in_bytes
        self._elapsed_ns += self._clock.nanoseconds() - started

    def maybe_flush(self, leader_and_epoch: LeaderAndEpoch) -> None:
        """Publishes the collected batches, unless a transaction is open."""
        if self._in_transaction:
            log.debug(
                "The transaction that began after offset %d is open: %d batches wait",
                self._image.offset,
                self._num_batches,
            )
        elif self._num_batches:
            self._flush(leader_and_epoch, is_batch_aligned=True)

    def _replay(self, record: MetadataRecord) -> None:
        kind = type(record)
        if kind is BeginTransactionRecord:
            if self._in_transaction:
                raise MetadataReplayError("a transaction begins inside another one")
            self._in_transaction = True
        elif kind is EndTransactionRecord or kind is AbortTransactionRecord:
            if not self._in_transaction:
                raise MetadataReplayError(f"{kind.__name__} without a BeginTransactionRecord before it")
            self._in_transaction = False
            if kind is AbortTransactionRecord:
                self._delta = MetadataDelta(self._image)
        else:
            self.has_seen_record = True
            self._delta.replay(record)

    def _note_position(self, batch: MetadataBatch, offset: int) -> None:
        self._last_offset = offset
        self._last_epoch = batch.epoch
        self._last_time_ms = batch.append_time_ms

    def _flush(self, leader_and_epoch: LeaderAndEpoch, is_batch_aligned: bool) -> None:
        provenance = MetadataProvenance(self._last_offset, self._last_epoch, self._last_time_ms, is_batch_aligned)
        delta, before = self._delta, self._image
        manifest = LogDeltaManifest(provenance, leader_and_epoch, self._num_batches, self._num_bytes, self._elapsed_ns)
        try:
            image = delta.apply(provenance)
        except Exception as error:  # noqa: BLE001 - as above
            self._reset(before)
            last = provenance.last_contained_offset
            self._on_fault(f"cannot apply the metadata records of offsets {before.offset + 1} to {last}", error)
            return
        self._reset(image)
        self._publish(delta, image, manifest)

    def _reset(self, image: MetadataImage) -> None:
        self._image = image
        self._delta = MetadataDelta(image)
        self._in_transaction = False
        self._last_offset, self._last_epoch, self._last_time_ms, _ = image.provenance
        self._num_batches = 0
        self._num_bytes = 0
        self._elapsed_ns = 0
