"""The engine of the controller: events, leadership, the log. What the events are about is the quorum controller's."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.deferred_event_queue import DeferredEventQueue
from barnabas.common.errors import ApiError, KafkaTimeoutError, NotControllerError, UnknownServerError
from barnabas.common.log_safety import LimitedLogger
from barnabas.common.shutdownable_thread import ExitProcedure, FatalExitError, exit_process
from barnabas.controller.bootstrap import activation_records
from barnabas.controller.config import ControllerConfig, ControllerPlugins
from barnabas.controller.event_queue import EventQueueClosedError, KafkaEventQueue
from barnabas.controller.events import ControllerEvent, ControllerReadEvent, ControllerWriteEvent
from barnabas.controller.managers import ControllerManagers
from barnabas.controller.metrics import QuorumControllerMetrics
from barnabas.controller.periodic_tasks import PeriodicTask, PeriodicTaskControlManager, PeriodicTaskError
from barnabas.controller.request_context import ControllerRequestContext
from barnabas.controller.result import ControllerResult
from barnabas.controller.snapshot_trigger import SnapshotTrigger
from barnabas.metrics.yammer.registry import MetricsRegistry
from barnabas.protocol.internal.framing import MetadataRecord
from barnabas.protocol.internal.metadata import NoOpRecord
from barnabas.raft.client import (
    ApiMessageAndVersion,
    BatchReader,
    LeaderAndEpoch,
    NotLeaderError,
    RaftClient,
    SnapshotReader,
)

log = LimitedLogger(logging.getLogger(__name__))

T = TypeVar("T")

INACTIVE = -1
STALE_BROKER_CHECKS_PER_SESSION = 8
"""A broker that dies is noticed within 112.5 % of its session timeout."""


class ControllerEngine:
    """Runs operations of the managers as events of one thread, and keeps their records and the log together.

    See :class:`~barnabas.controller.quorum_controller.QuorumController`, which is this with the operations.
    """

    def __init__(
        self,
        config: ControllerConfig,
        raft: RaftClient[ApiMessageAndVersion],
        plugins: ControllerPlugins | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        metrics: MetricsRegistry | None = None,
        exit_procedure: ExitProcedure = exit_process,
    ) -> None:
        self._config = config
        self._clock = clock
        self._raft = raft
        plugins = ControllerPlugins() if plugins is None else plugins
        self.managers = ControllerManagers(config, plugins, clock, raft)
        self._offsets = self.managers.offsets
        self._metrics = QuorumControllerMetrics(MetricsRegistry(clock) if metrics is None else metrics, clock)
        self._metrics.watch(self._offsets)
        self.queue = KafkaEventQueue(f"quorum-controller-{config.node_id}-event-handler", clock, exit_procedure)
        self._deferred = DeferredEventQueue()
        self._claim_epoch = INACTIVE
        """The epoch in which this controller is active. Written by the event thread; anybody may look."""
        self._periodic = PeriodicTaskControlManager(clock, self)
        self._register_periodic_tasks()
        self._snapshots = (
            None
            if plugins.on_snapshot_due is None
            else SnapshotTrigger(
                clock,
                plugins.on_snapshot_due,
                max_bytes=config.max_bytes_between_snapshots,
                max_interval_ms=config.max_snapshot_interval_ms,
            )
        )
        self._listener = _MetaLogListener(self)
        raft.register(self._listener)

    # -- life

    def start(self) -> None:
        """Starts the event thread."""
        self.queue.start()

    def close(self) -> None:
        """Ends the event thread; whoever still waits for an answer is told that the controller shuts down."""
        self._raft.unregister(self._listener)
        self.queue.close()
        # The event thread has ended, so its state can be touched from here.
        self._deferred.fail_all(EventQueueClosedError("the controller is shutting down"))
        self.managers.cluster.fail_ready_brokers_futures(KafkaTimeoutError("The controller is shutting down."))

    @property
    def node_id(self) -> int:
        return self._config.node_id

    @property
    def cluster_id(self) -> str:
        return self._config.cluster_id

    @property
    def claim_epoch(self) -> int:
        """The epoch in which this controller is active, -1 if it is not."""
        return self._claim_epoch

    @property
    def is_active(self) -> bool:
        return self._claim_epoch != INACTIVE

    # -- putting events in the queue

    def _write(
        self,
        name: str,
        context: ControllerRequestContext,
        operation: Callable[[], ControllerResult[T]],
        on_appended: Callable[[int], None] | None = None,
    ) -> Future[T]:
        event = ControllerWriteEvent(self, name, operation, on_appended)
        self.queue.append(event, context.deadline_ns)
        return event.future

    def _read(
        self,
        name: str,
        context: ControllerRequestContext,
        reader: Callable[[int], T],
        *,
        only_when_active: bool = True,
    ) -> Future[T]:
        def read() -> T:
            if only_when_active and not self.is_active:
                raise self._not_controller()
            return reader(self._offsets.last_stable_offset)

        event = ControllerReadEvent(self, name, read)
        self.queue.append(event, context.deadline_ns)
        return event.future

    def schedule_task(self, tag: str, time_ns: int, operation: Callable[[], ControllerResult[None]]) -> None:
        event = ControllerWriteEvent(self, tag, operation, deferred=True)
        self.queue.schedule_deferred(tag, time_ns, event)

    def cancel_task(self, tag: str) -> None:
        self.queue.cancel_deferred(tag)

    # -- what events do; on the event thread from here on

    def now_ns(self) -> int:
        return self._clock.nanoseconds()

    def event_started(self, created_ns: int | None) -> int:
        now_ns = self._clock.nanoseconds()
        self._metrics.count("EventQueueOperationsStartedCount")
        if created_ns is not None:
            self._metrics.event_waited(now_ns - created_ns)
        return now_ns

    def event_ended(self, name: str, started_ns: int) -> None:
        elapsed_ns = self._clock.nanoseconds() - started_ns
        self._metrics.event_processed(elapsed_ns)
        log.debug("%s took %d us", name, elapsed_ns // 1000)

    def event_failed(self, name: str, started_ns: int | None, error: Exception) -> Exception:
        """An ApiError is an answer like another. Losing the log ends the leadership, and so does whatever nobody has
        foreseen: another controller may not have the problem, and this one starts afresh from what is committed.
        """
        if isinstance(error, EventQueueClosedError):
            return KafkaTimeoutError("The controller is shutting down.")
        if isinstance(error, ApiError):
            if isinstance(error, KafkaTimeoutError) and started_ns is None:
                self._metrics.count("EventQueueOperationsTimedOutCount")
            log.debug("%s: %s", name, error)
            return error
        if isinstance(error, PeriodicTaskError):
            self._metrics.count("MetadataErrorCount")
            log.error("%s", error, exc_info=error)
            return UnknownServerError(str(error))
        if isinstance(error, NotLeaderError):
            log.info("%s: %s", name, error)
        else:
            self._metrics.count("MetadataErrorCount")
            log.error("%s failed unexpectedly; going back to what is committed", name, exc_info=error)
        if self.is_active:
            self._renounce()
        return self._not_controller() if isinstance(error, NotLeaderError) else UnknownServerError(str(error))

    def perform_write(self, event: ControllerWriteEvent[T], operation: Callable[[], ControllerResult[T]]) -> None:
        epoch = self._claim_epoch
        if epoch == INACTIVE:
            raise self._not_controller()
        result = operation()
        event.response = result.response
        if result.records:
            offset: int | None = self._append(result, epoch)
            last_offset = offset
        else:
            # Nothing to wait for, except what the response may be based upon.
            offset = self._deferred.highest_pending_offset
            last_offset = self._offsets.next_write_offset - 1
        if event.on_appended is not None:
            assert last_offset is not None
            event.on_appended(last_offset)
        if offset is None:
            event.complete(None)
        else:
            self._deferred.add(offset, event)

    def _append(self, result: ControllerResult[Any], epoch: int) -> int:
        """Writes the records of an operation and applies them; returns the offset of the last."""
        records = result.records
        limit = self._config.max_records_per_batch
        if result.is_atomic and len(records) > limit:
            raise RuntimeError(f"{len(records)} records are to be written together, but a batch holds {limit}")
        last_offset = -1
        for start in range(0, len(records), limit):
            batch = records[start : start + limit]
            last_offset = self._raft.prepare_append(epoch, batch)
            offset = last_offset - len(batch) + 1
            for message, _ in batch:
                self._replay(message, offset)
                offset += 1
            self._raft.schedule_prepared_append()
            self._offsets.handle_schedule_append(last_offset)
        return last_offset

    def _replay(self, record: MetadataRecord, offset: int) -> None:
        try:
            self.managers.replay(record, offset)
        except Exception as error:
            raise FatalExitError(
                1, f"the {type(record).__name__} at offset {offset} cannot be applied: {error}"
            ) from error

    def _not_controller(self) -> NotControllerError:
        leader = self._raft.leader_and_epoch.leader_id
        if leader is None or leader == self.node_id:
            return NotControllerError("No controller is active at the moment.")
        return NotControllerError(f"The active controller is node {leader}.")

    # -- what Raft says

    def append_raft_event(
        self, name: str, handler: Callable[[], None], on_error: Callable[[Exception], None] | None = None
    ) -> None:
        self.queue.append(ControllerEvent(self, name, handler, on_error))

    def handle_commit(self, reader: BatchReader[ApiMessageAndVersion]) -> None:
        try:
            for batch in reader:
                if not batch.records:
                    continue  # Raft's own records: there is no state at their offsets that differs from the one before
                if not self.is_active:
                    for index, (message, _) in enumerate(batch.records):
                        self._replay(message, batch.base_offset + index)
                self._offsets.handle_commit_batch(batch)
                if self.is_active:
                    self._deferred.complete_up_to(self._offsets.last_stable_offset)
                if self._snapshots is not None:
                    self._snapshots.committed(batch, self._offsets.last_stable_offset)
        except Exception as error:
            if self.is_active:
                raise  # what is committed is in the state already: stepping down is enough
            raise FatalExitError(
                1, f"the controller cannot load the metadata log from offset {reader.base_offset}: {error}"
            ) from error
        finally:
            reader.close()

    def handle_load_snapshot(self, reader: SnapshotReader[ApiMessageAndVersion]) -> None:
        try:
            if self.is_active:
                raise FatalExitError(1, f"told to load snapshot {reader.snapshot_id} as the active controller")
            self._offsets.begin_load_snapshot(reader.snapshot_id)
            for batch in reader:
                for message, _ in batch.records:
                    self._replay(message, reader.last_contained_log_offset)
            self._offsets.end_load_snapshot(reader.last_contained_log_timestamp)
            if self._snapshots is not None:
                self._snapshots.loaded_snapshot()
        except Exception as error:
            # A part of the state is no state to go on with: the next record would be applied on top of it.
            raise FatalExitError(
                1, f"the controller cannot load metadata snapshot {reader.snapshot_id}: {error}"
            ) from error
        finally:
            reader.close()

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        if leader.leader_id is not None:
            self._metrics.count("NewActiveControllersCount")
        if leader.is_leader(self.node_id):
            if self.is_active:
                self._claim_epoch = leader.epoch
            else:
                self._claim(leader.epoch)
        elif self.is_active:
            log.warning("Node %s leads in epoch %d: this controller steps down", leader.leader_id, leader.epoch)
            self._renounce()
        else:
            log.info("Node %s leads in epoch %d", leader.leader_id, leader.epoch)

    # -- leadership

    def _claim(self, epoch: int) -> None:
        next_write_offset = self._raft.log_end_offset
        log.info("Becoming the active controller in epoch %d, writing from offset %d", epoch, next_write_offset)
        self._claim_epoch = epoch
        self._offsets.activate(next_write_offset)
        self.managers.cluster.activate()
        # At the front of the queue: requests that wait there must find the bootstrap records written.
        self.queue.prepend(
            ControllerWriteEvent(
                self,
                f"complete_activation[{epoch}]",
                self._activation,
                lambda _: self._periodic.activate(),
                deferred=True,
            )
        )

    def _activation(self) -> ControllerResult[None]:
        managers = self.managers
        return activation_records(
            self._config.bootstrap,
            managers.features.metadata_version_at(self._offsets.last_stable_offset),
            self._offsets.transaction_start_offset,
            managers.configs.static_min_insync_replicas(),
        )

    def _renounce(self) -> None:
        """Becomes a standby: what is not committed is undone, and nobody's answer comes any more."""
        epoch, self._claim_epoch = self._claim_epoch, INACTIVE
        try:
            if self._raft.leader_and_epoch == (self.node_id, epoch):
                self._raft.resign(epoch)
            self._deferred.fail_all(self._not_controller())
            self._offsets.deactivate()
            self.managers.cluster.deactivate()
            self._periodic.deactivate()
        except Exception as error:
            raise FatalExitError(1, f"cannot step down as controller: {error}") from error

    # -- by the clock

    def _register_periodic_tasks(self) -> None:
        config, managers = self._config, self.managers
        tasks = (
            (
                "maybe_fence_stale_broker",
                managers.broker_lifecycle.fence_one_stale_broker,
                config.session_timeout_ms / STALE_BROKER_CHECKS_PER_SESSION,
            ),
            (
                "elect_preferred",
                managers.elections.balance_partition_leaders,
                config.leader_imbalance_check_interval_ms,
            ),
            (
                "elect_unclean",
                managers.elections.elect_unclean_leaders,
                config.unclean_leader_election_check_interval_ms,
            ),
            ("write_no_op_record", self._no_op_record, config.max_idle_interval_ms),
        )
        for name, operation, period_ms in tasks:
            if period_ms > 0:
                self._periodic.register(PeriodicTask(name, operation, int(period_ms * 1_000_000)))

    def _no_op_record(self) -> ControllerResult[bool]:
        return ControllerResult.of([ApiMessageAndVersion(NoOpRecord(), 0)], False)


class _MetaLogListener:
    """Passes on what Raft says, from its thread to the controller's.

    A reader may hold a file open, so it is closed whatever happens: by the event, or by the queue that refuses it.
    """

    def __init__(self, controller: ControllerEngine) -> None:
        self._controller = controller

    def handle_commit(self, reader: BatchReader[ApiMessageAndVersion]) -> None:
        self._controller.append_raft_event(
            f"handle_commit[{reader.base_offset}]",
            lambda: self._controller.handle_commit(reader),
            lambda _: reader.close(),
        )

    def handle_load_snapshot(self, reader: SnapshotReader[ApiMessageAndVersion]) -> None:
        self._controller.append_raft_event(
            f"handle_load_snapshot[{reader.snapshot_id}]",
            lambda: self._controller.handle_load_snapshot(reader),
            lambda _: reader.close(),
        )

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        self._controller.append_raft_event(
            f"handle_leader_change[{leader.epoch}]", lambda: self._controller.handle_leader_change(leader)
        )

    def begin_shutdown(self) -> None:
        self._controller.queue.begin_shutdown("the Raft client")
