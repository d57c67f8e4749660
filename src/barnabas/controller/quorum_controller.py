"""The quorum controller: requests in, metadata records out, answers once they are committed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable
from concurrent.futures import Future
from typing import Any, TypeVar

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.errors import (
    ApiError,
    KafkaTimeoutError,
    NotControllerError,
    UnknownServerError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from barnabas.common.identifiers import Uuid
from barnabas.common.shutdownable_thread import ExitProcedure, FatalExitError, exit_process
from barnabas.controller.bootstrap import activation_records
from barnabas.controller.config import ControllerConfig, ControllerPlugins
from barnabas.controller.deferred_event_queue import DeferredEventQueue
from barnabas.controller.event_queue import EventQueueClosedError, KafkaEventQueue
from barnabas.controller.events import ControllerEvent, ControllerReadEvent, ControllerWriteEvent, new_future
from barnabas.controller.feature_control_manager import FinalizedControllerFeatures
from barnabas.controller.managers import ControllerManagers
from barnabas.controller.metrics import QuorumControllerMetrics
from barnabas.controller.periodic_tasks import PeriodicTask, PeriodicTaskControlManager, PeriodicTaskError
from barnabas.controller.request_context import ControllerRequestContext
from barnabas.controller.result import ControllerResult, error_fields
from barnabas.controller.snapshot_trigger import SnapshotTrigger
from barnabas.metadata.configs import ConfigResource
from barnabas.metrics.yammer.registry import MetricsRegistry
from barnabas.protocol.internal.framing import MetadataRecord
from barnabas.protocol.internal.metadata import NoOpRecord
from barnabas.protocol.messages import (
    allocate_producer_ids,
    alter_client_quotas,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    assign_replicas_to_dirs,
    broker_heartbeat,
    broker_registration,
    controller_registration,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_topics,
    elect_leaders,
    incremental_alter_configs,
    list_partition_reassignments,
    unregister_broker,
    update_features,
)
from barnabas.raft.client import (
    ApiMessageAndVersion,
    BatchReader,
    LeaderAndEpoch,
    NotLeaderError,
    RaftClient,
    SnapshotReader,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

INACTIVE = -1
STALE_BROKER_CHECKS_PER_SESSION = 8
"""A broker that dies is noticed within 112.5 % of its session timeout."""


class QuorumController:
    """A deterministic state machine over the metadata log, run by one thread.

    The node that leads the log is the *active controller*: it alone writes. The others are standbys; they read what it
    writes and so have the same state, ready to take over. Everything happens in the order of one event queue:

        caller's thread     create_topics(...) -> Future                               ... future.result()
                               | append                                                        ^
        event thread           v                                                               | complete
                            generate records -> prepare_append -> replay each -> schedule -> wait in purgatory
                                                                                     |         ^
        Raft                                                                         v         | handle_commit
                                                                               write, replicate, commit

    - *Generate* looks at the newest state, committed or not, and changes nothing.
    - *Replay* is what changes state. A standby does the same when it hears of the commit.
    - The answer waits until the records are committed. If leadership is lost before, state goes back to what is
      committed, and everybody who waits is told NOT_CONTROLLER: whether the records survive is the next leader's
      business.

    Any thread may call the public methods. They return at once, with a future; its callbacks run on the event thread
    and must not block it. A future's exception is an ApiError with the code to answer with.

    Without :meth:`start` there is no thread: a test runs the queue by hand, with a clock of its own.
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

    # -- topics

    def create_topics(
        self,
        context: ControllerRequestContext,
        request: create_topics.CreateTopicsRequest,
        describable: Container[str] | None = None,
    ) -> Future[create_topics.CreateTopicsResponse]:
        return self._write(
            "create_topics",
            context,
            lambda: self.managers.topic_creation.create_topics(context, request, describable),
        )

    def delete_topics(
        self, context: ControllerRequestContext, request: delete_topics.DeleteTopicsRequest
    ) -> Future[delete_topics.DeleteTopicsResponse]:
        return self._write(
            "delete_topics", context, lambda: self.managers.topic_deletion.delete_topics(context, request)
        )

    def create_partitions(
        self, context: ControllerRequestContext, request: create_partitions.CreatePartitionsRequest
    ) -> Future[create_partitions.CreatePartitionsResponse]:
        return self._write(
            "create_partitions", context, lambda: self.managers.topic_creation.create_partitions(context, request)
        )

    def find_topic_ids(
        self, context: ControllerRequestContext, names: Iterable[str]
    ) -> Future[dict[str, Uuid | UnknownTopicOrPartitionError]]:
        wanted = list(names)
        return self._read(
            "find_topic_ids", context, lambda epoch: self.managers.replication.find_topic_ids(wanted, epoch)
        )

    def find_topic_names(
        self, context: ControllerRequestContext, ids: Iterable[Uuid]
    ) -> Future[dict[Uuid, str | UnknownTopicIdError]]:
        wanted = list(ids)
        return self._read(
            "find_topic_names", context, lambda epoch: self.managers.replication.find_topic_names(wanted, epoch)
        )

    def find_all_topic_ids(self, context: ControllerRequestContext) -> Future[dict[str, Uuid]]:
        return self._read("find_all_topic_ids", context, self.managers.replication.find_all_topic_ids)

    # -- partitions

    def alter_partition(
        self, context: ControllerRequestContext, request: alter_partition.AlterPartitionRequest
    ) -> Future[alter_partition.AlterPartitionResponse]:
        return self._write(
            "alter_partition", context, lambda: self.managers.isr_changes.alter_partition(context, request)
        )

    def elect_leaders(
        self, context: ControllerRequestContext, request: elect_leaders.ElectLeadersRequest
    ) -> Future[elect_leaders.ElectLeadersResponse]:
        return self._write("elect_leaders", context, lambda: self.managers.elections.elect_leaders(request))

    def alter_partition_reassignments(
        self,
        context: ControllerRequestContext,
        request: alter_partition_reassignments.AlterPartitionReassignmentsRequest,
    ) -> Future[alter_partition_reassignments.AlterPartitionReassignmentsResponse]:
        return self._write("alter_partition_reassignments", context, lambda: self.managers.reassignments.alter(request))

    def list_partition_reassignments(
        self,
        context: ControllerRequestContext,
        request: list_partition_reassignments.ListPartitionReassignmentsRequest,
    ) -> Future[list_partition_reassignments.ListPartitionReassignmentsResponse]:
        return self._read(
            "list_partition_reassignments",
            context,
            lambda epoch: self.managers.reassignments.list_ongoing(request, epoch),
        )

    def assign_replicas_to_dirs(
        self, context: ControllerRequestContext, request: assign_replicas_to_dirs.AssignReplicasToDirsRequest
    ) -> Future[assign_replicas_to_dirs.AssignReplicasToDirsResponse]:
        return self._write(
            "assign_replicas_to_dirs", context, lambda: self.managers.replica_directories.assign(request)
        )

    # -- nodes

    def register_broker(
        self, context: ControllerRequestContext, request: broker_registration.BrokerRegistrationRequest
    ) -> Future[broker_registration.BrokerRegistrationResponse]:
        return self._write(
            "register_broker",
            context,
            lambda: self.managers.cluster.register_broker(
                request,
                new_epoch=self._offsets.next_write_offset,
                request_version=context.request_version,
                kraft_version=self._raft.kraft_version,
            ),
        )

    def process_broker_heartbeat(
        self, context: ControllerRequestContext, request: broker_heartbeat.BrokerHeartbeatRequest
    ) -> Future[broker_heartbeat.BrokerHeartbeatResponse]:
        """Notes on the caller's thread that the broker lives, and decides on the event thread what becomes of it."""
        if not self.managers.cluster.track_heartbeat(request.broker_id, request.broker_epoch):
            refused: Future[broker_heartbeat.BrokerHeartbeatResponse] = new_future()
            refused.set_exception(self._not_controller())
            return refused
        shutting_down = False

        def operation() -> ControllerResult[broker_heartbeat.BrokerHeartbeatResponse]:
            nonlocal shutting_down
            result, state = self.managers.broker_lifecycle.process_heartbeat(request)
            shutting_down = state.in_controlled_shutdown
            return result

        def appended(offset: int) -> None:
            if shutting_down:
                self.managers.broker_lifecycle.leaderships_moved(request.broker_id, offset)

        future = self._write("process_broker_heartbeat", context, operation, appended)
        future.add_done_callback(self._count_timed_out_heartbeat)
        return future

    def _count_timed_out_heartbeat(self, future: Future[Any]) -> None:
        if isinstance(future.exception(), KafkaTimeoutError):
            self._metrics.count("TimedOutBrokerHeartbeatCount")

    def unregister_broker(
        self, context: ControllerRequestContext, request: unregister_broker.UnregisterBrokerRequest
    ) -> Future[unregister_broker.UnregisterBrokerResponse]:
        return self._write(
            "unregister_broker",
            context,
            lambda: self.managers.broker_lifecycle.unregister_broker(request.broker_id),
        )

    def register_controller(
        self, context: ControllerRequestContext, request: controller_registration.ControllerRegistrationRequest
    ) -> Future[controller_registration.ControllerRegistrationResponse]:
        return self._write("register_controller", context, lambda: self.managers.cluster.register_controller(request))

    def wait_for_ready_brokers(self, least: int) -> Future[None]:
        """Completed when so many brokers are registered and not fenced."""
        future: Future[None] = new_future()
        self.queue.append(
            ControllerEvent(
                self,
                "wait_for_ready_brokers",
                lambda: self.managers.cluster.add_ready_brokers_future(future, least),
                future.set_exception,
            )
        )
        return future

    # -- configuration, quotas, features, ids

    def incremental_alter_configs(
        self, context: ControllerRequestContext, request: incremental_alter_configs.IncrementalAlterConfigsRequest
    ) -> Future[incremental_alter_configs.IncrementalAlterConfigsResponse]:
        return self._write(
            "incremental_alter_configs", context, lambda: self.managers.configs.incremental_alter_configs(request)
        )

    def legacy_alter_configs(
        self, context: ControllerRequestContext, request: alter_configs.AlterConfigsRequest
    ) -> Future[alter_configs.AlterConfigsResponse]:
        return self._write("legacy_alter_configs", context, lambda: self.managers.configs.legacy_alter_configs(request))

    def describe_configs(self, context: ControllerRequestContext, resource: ConfigResource) -> Future[dict[str, str]]:
        """What is set dynamically for a resource itself."""
        return self._read("describe_configs", context, lambda epoch: self.managers.configs.describe(resource, epoch))

    def list_config_resources(self, context: ControllerRequestContext) -> Future[list[ConfigResource]]:
        """The resources that have any dynamic settings."""
        return self._read("list_config_resources", context, self.managers.configs.resources)

    def alter_client_quotas(
        self, context: ControllerRequestContext, request: alter_client_quotas.AlterClientQuotasRequest
    ) -> Future[alter_client_quotas.AlterClientQuotasResponse]:
        return self._write(
            "alter_client_quotas", context, lambda: self.managers.client_quotas.alter_client_quotas(request)
        )

    def update_features(
        self, context: ControllerRequestContext, request: update_features.UpdateFeaturesRequest
    ) -> Future[update_features.UpdateFeaturesResponse]:
        def operation() -> ControllerResult[update_features.UpdateFeaturesResponse]:
            result = self.managers.configs.update_features(
                request.feature_updates,
                request_version=context.request_version,
                validate_only=request.validate_only,
                claimed_epoch=self._claim_epoch,
            )
            code, message = error_fields(result.response)
            response = update_features.UpdateFeaturesResponse(error_code=code, error_message=message)
            if context.request_version <= 1 and result.response is None:
                response.results = [
                    update_features.UpdatableFeatureResult(feature=name, error_code=0, error_message=None)
                    for name in dict.fromkeys(update.feature for update in request.feature_updates)
                ]
            return ControllerResult(result.records, response, result.is_atomic)

        return self._write("update_features", context, operation)

    def finalized_features(self, context: ControllerRequestContext) -> Future[FinalizedControllerFeatures]:
        """The levels in force; any controller may be asked."""
        return self._read(
            "finalized_features", context, self.managers.features.finalized_features, only_when_active=False
        )

    def allocate_producer_ids(
        self, context: ControllerRequestContext, request: allocate_producer_ids.AllocateProducerIdsRequest
    ) -> Future[allocate_producer_ids.AllocateProducerIdsResponse]:
        return self._write("allocate_producer_ids", context, lambda: self.managers.producer_ids.allocate(request))

    # -- security

    def create_acls(
        self, context: ControllerRequestContext, request: create_acls.CreateAclsRequest
    ) -> Future[create_acls.CreateAclsResponse]:
        return self._write("create_acls", context, lambda: self.managers.acls.create_acls(request))

    def delete_acls(
        self, context: ControllerRequestContext, request: delete_acls.DeleteAclsRequest
    ) -> Future[delete_acls.DeleteAclsResponse]:
        return self._write("delete_acls", context, lambda: self.managers.acls.delete_acls(request))

    def alter_user_scram_credentials(
        self,
        context: ControllerRequestContext,
        request: alter_user_scram_credentials.AlterUserScramCredentialsRequest,
    ) -> Future[alter_user_scram_credentials.AlterUserScramCredentialsResponse]:
        return self._write(
            "alter_user_scram_credentials", context, lambda: self.managers.scram.alter_credentials(request)
        )

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

    def append_raft_event(self, name: str, handler: Callable[[], None]) -> None:
        self.queue.append(ControllerEvent(self, name, handler))

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
    """Passes on what Raft says, from its thread to the controller's."""

    def __init__(self, controller: QuorumController) -> None:
        self._controller = controller

    def handle_commit(self, reader: BatchReader[ApiMessageAndVersion]) -> None:
        self._controller.append_raft_event(
            f"handle_commit[{reader.base_offset}]", lambda: self._controller.handle_commit(reader)
        )

    def handle_load_snapshot(self, reader: SnapshotReader[ApiMessageAndVersion]) -> None:
        self._controller.append_raft_event(
            f"handle_load_snapshot[{reader.snapshot_id}]", lambda: self._controller.handle_load_snapshot(reader)
        )

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        self._controller.append_raft_event(
            f"handle_leader_change[{leader.epoch}]", lambda: self._controller.handle_leader_change(leader)
        )

    def begin_shutdown(self) -> None:
        self._controller.queue.begin_shutdown("the Raft client")
