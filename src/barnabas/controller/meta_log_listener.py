"""Follows the metadata log: replays committed records, and handles leader changes."""

from __future__ import annotations

from barnabas.common.events.event_queue import KafkaEventQueue
from barnabas.common.shutdownable_thread import FatalExitError
from barnabas.controller.event_executor import ControllerEventExecutor
from barnabas.controller.leadership import ControllerLeadership
from barnabas.controller.managers import ControllerManagers
from barnabas.controller.snapshot_trigger import SnapshotTrigger
from barnabas.raft.client import ApiMessageAndVersion, BatchReader, LeaderAndEpoch, SnapshotReader


class QuorumMetaLogListener:
    """The controller's `RaftListener`. The ``handle_`` methods run on Raft's thread and only add an event.

    A reader may hold a file open. The event closes it, or the queue does if it refuses the event.
    """

    def __init__(
        self,
        queue: KafkaEventQueue,
        executor: ControllerEventExecutor,
        leadership: ControllerLeadership,
        managers: ControllerManagers,
        snapshots: SnapshotTrigger | None,
    ) -> None:
        self._queue = queue
        self._executor = executor
        self._leadership = leadership
        self._managers = managers
        self._offsets = managers.offsets
        self._snapshots = snapshots

    def handle_commit(self, reader: BatchReader[ApiMessageAndVersion]) -> None:
        self._executor.run(
            f"handle_commit[{reader.base_offset}]", lambda: self._replay_commit(reader), lambda _: reader.close()
        )

    def handle_load_snapshot(self, reader: SnapshotReader[ApiMessageAndVersion]) -> None:
        self._executor.run(
            f"handle_load_snapshot[{reader.snapshot_id}]",
            lambda: self._load_snapshot(reader),
            lambda _: reader.close(),
        )

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        self._executor.run(
            f"handle_leader_change[{leader.epoch}]", lambda: self._leadership.handle_leader_change(leader)
        )

    def begin_shutdown(self) -> None:
        self._queue.begin_shutdown("the Raft client")

    # -- on the event thread

    def _replay_commit(self, reader: BatchReader[ApiMessageAndVersion]) -> None:
        """Replays committed batches on a standby; completes pending writes on the active controller."""
        offsets, is_active = self._offsets, self._leadership.is_active
        try:
            for batch in reader:
                if not batch.records:
                    continue  # Raft's control records do not change the state
                if not is_active:
                    for index, (message, _) in enumerate(batch.records):
                        self._managers.replay.or_exit(message, batch.base_offset + index)
                offsets.handle_commit_batch(batch)
                if is_active:
                    self._executor.deferred.complete_up_to(offsets.last_stable_offset)
                if self._snapshots is not None:
                    self._snapshots.committed(batch, offsets.last_stable_offset)
        except Exception as error:
            if is_active:
                raise  # the committed records are in the state already: renouncing is enough
            raise FatalExitError(
                1, f"the controller cannot load the metadata log from offset {reader.base_offset}: {error}"
            ) from error
        finally:
            reader.close()

    def _load_snapshot(self, reader: SnapshotReader[ApiMessageAndVersion]) -> None:
        try:
            if self._leadership.is_active:
                raise FatalExitError(1, f"the active controller cannot load snapshot {reader.snapshot_id}")
            self._offsets.begin_load_snapshot(reader.snapshot_id)
            for batch in reader:
                for message, _ in batch.records:
                    self._managers.replay.or_exit(message, reader.last_contained_log_offset)
            self._offsets.end_load_snapshot(reader.last_contained_log_timestamp)
            if self._snapshots is not None:
                self._snapshots.loaded_snapshot()
        except Exception as error:
            # The state is incomplete: the next record must not be replayed on top of it.
            raise FatalExitError(
                1, f"the controller cannot load metadata snapshot {reader.snapshot_id}: {error}"
            ) from error
        finally:
            reader.close()
