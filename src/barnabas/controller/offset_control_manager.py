"""Offsets of the metadata log: written, committed, stable."""

from __future__ import annotations

import logging

from barnabas.common.clock import Clock
from barnabas.common.snapshot_registry import SnapshotRegistry
from barnabas.metadata.errors import MetadataReplayError
from barnabas.protocol.internal.metadata import AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord
from barnabas.raft.client import ApiMessageAndVersion, Batch, OffsetAndEpoch

log = logging.getLogger(__name__)

NO_OFFSET = -1


class OffsetControlManager:
    """Three offsets, and the in-memory snapshots that belong to them.

    - ``next_write_offset``: the next offset that the active controller writes; -1 on a standby.
    - ``last_committed_offset``: the last offset that a majority has.
    - ``last_stable_offset``: the last offset that readers may see. The same, except inside a metadata transaction
      (KIP-868), whose records count from its end on: then it stays at the offset before the transaction.

    On the active controller there is a snapshot (see :mod:`~barnabas.common.snapshot_registry`) at the last stable
    offset and one after every batch written since. Losing leadership reverts to the first of them,
    which is the state of a standby.

        offset         40     41     42     43     44
        committed      yes    yes    no     no
        snapshots             41     42     43
                              ^ stable             ^ next write

    Only the controller's thread changes it. Other threads read single fields for metrics.
    """

    def __init__(self, registry: SnapshotRegistry, clock: Clock) -> None:
        self._registry = registry
        self._clock = clock
        self._loading: OffsetAndEpoch | None = None
        self.last_committed_offset = NO_OFFSET
        self.last_committed_epoch = -1
        self.last_stable_offset = NO_OFFSET
        self.transaction_start_offset = NO_OFFSET
        self.next_write_offset = NO_OFFSET
        self.last_applied_offset = NO_OFFSET
        self.last_applied_timestamp = -1
        registry.idempotent_create_snapshot(NO_OFFSET)

    @property
    def active(self) -> bool:
        return self.next_write_offset != NO_OFFSET

    # -- leadership

    def activate(self, next_write_offset: int) -> None:
        if self.active:
            raise RuntimeError("the controller is already active")
        if next_write_offset < 0:
            raise ValueError(f"cannot write at offset {next_write_offset}")
        self._registry.idempotent_create_snapshot(self.last_stable_offset)
        self.next_write_offset = next_write_offset

    def deactivate(self) -> None:
        """Reverts everything that is written but not committed."""
        if not self.active:
            raise RuntimeError("the controller is already a standby")
        self.next_write_offset = NO_OFFSET
        self.last_applied_offset = self.last_stable_offset
        self._registry.revert_to_snapshot(self.last_stable_offset)
        if self.transaction_start_offset > self.last_committed_offset:
            # The record that began the transaction has just been reverted.
            self.transaction_start_offset = NO_OFFSET

    # -- progress of the log

    def handle_schedule_append(self, last_offset: int) -> None:
        self.next_write_offset = last_offset + 1
        self._registry.idempotent_create_snapshot(last_offset)
        self.last_applied_offset = last_offset
        self.last_applied_timestamp = self._clock.milliseconds()

    def handle_commit_batch(self, batch: Batch[ApiMessageAndVersion]) -> None:
        self.last_committed_offset = batch.last_offset
        self.last_committed_epoch = batch.epoch
        self._advance_last_stable_offset()
        if not self.active:
            self.last_applied_offset = batch.last_offset
            self.last_applied_timestamp = batch.append_timestamp

    def _advance_last_stable_offset(self) -> None:
        stable = self.last_committed_offset
        if self.transaction_start_offset != NO_OFFSET:
            stable = min(self.transaction_start_offset - 1, stable)
        if stable <= self.last_stable_offset:
            return
        self.last_stable_offset = stable
        self._registry.delete_snapshots_up_to(stable)
        if not self.active:
            self._registry.idempotent_create_snapshot(stable)

    # -- snapshots of the log

    def begin_load_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        if self._loading is not None:
            raise RuntimeError(f"cannot load snapshot {snapshot_id} while {self._loading} is being loaded")
        log.info("Loading snapshot %s; the last committed offset was %d", snapshot_id, self.last_committed_offset)
        self._loading = snapshot_id
        self._registry.reset()
        self.last_committed_offset = self.last_stable_offset = NO_OFFSET
        self.last_committed_epoch = -1
        self.transaction_start_offset = self.next_write_offset = NO_OFFSET

    def end_load_snapshot(self, timestamp: int) -> None:
        if self._loading is None:
            raise RuntimeError("no snapshot is being loaded")
        last_offset = self._loading.offset - 1
        self._registry.idempotent_create_snapshot(last_offset)
        self.last_committed_offset = self.last_stable_offset = self.last_applied_offset = last_offset
        self.last_committed_epoch = self._loading.epoch
        self.last_applied_timestamp = timestamp
        log.info("Loaded snapshot %s", self._loading)
        self._loading = None

    # -- transactions

    def replay_begin_transaction(self, record: BeginTransactionRecord, offset: int) -> None:
        self._check_not_loading(record)
        if self.transaction_start_offset != NO_OFFSET:
            raise MetadataReplayError(
                f"a transaction begins at {offset} while the one from {self.transaction_start_offset} is open"
            )
        self._registry.idempotent_create_snapshot(offset - 1)
        self.transaction_start_offset = offset
        log.info("Metadata transaction %s begins at offset %d", record.name, offset)

    def replay_end_transaction(self, record: EndTransactionRecord, offset: int) -> None:
        self._check_not_loading(record)
        self._check_in_transaction(offset)
        log.info("Metadata transaction from %d ends at offset %d", self.transaction_start_offset, offset)
        self.transaction_start_offset = NO_OFFSET

    def replay_abort_transaction(self, record: AbortTransactionRecord, offset: int) -> None:
        self._check_not_loading(record)
        self._check_in_transaction(offset)
        before = self.transaction_start_offset - 1
        self._registry.revert_to_snapshot(before)
        log.info("Metadata transaction aborted at %d, back to offset %d: %s", offset, before, record.reason)
        self.transaction_start_offset = NO_OFFSET

    def _check_not_loading(self, record: object) -> None:
        if self._loading is not None:
            raise MetadataReplayError(f"snapshot {self._loading} must not contain a {type(record).__name__}")

    def _check_in_transaction(self, offset: int) -> None:
        if self.transaction_start_offset == NO_OFFSET:
            raise MetadataReplayError(f"a transaction ends at {offset} while none is open")
