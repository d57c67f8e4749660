"""The quorum controller: takes requests, writes metadata records, responds once they are committed."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.errors import (
    KafkaTimeoutError,
    NotControllerError,
    RetriableError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from barnabas.common.events.event_queue import EventQueueClosedError, KafkaEventQueue
from barnabas.common.identifiers import Uuid
from barnabas.common.shutdownable_thread import ExitProcedure, exit_process
from barnabas.controller.bootstrap import activation_records
from barnabas.controller.config import ControllerConfig, ControllerPlugins
from barnabas.controller.event_executor import ControllerEventExecutor, new_future
from barnabas.controller.feature_control_manager import FinalizedControllerFeatures
from barnabas.controller.leadership import ControllerLeadership
from barnabas.controller.managers import ControllerManagers
from barnabas.controller.meta_log_listener import QuorumMetaLogListener
from barnabas.controller.metrics import QuorumControllerMetrics
from barnabas.controller.periodic_tasks import PeriodicTaskControlManager, controller_tasks
from barnabas.controller.request_context import ControllerRequestContext
from barnabas.controller.result import ControllerResult, error_fields
from barnabas.controller.snapshot_trigger import SnapshotTrigger
from barnabas.metadata.configs import ConfigResource
from barnabas.metrics.yammer.registry import MetricsRegistry
from barnabas.protocol.messages import broker_heartbeat, broker_registration, controller_registration
from barnabas.raft.client import ApiMessageAndVersion, RaftClient

if TYPE_CHECKING:
    from barnabas.protocol.messages import (
        allocate_producer_ids,
        alter_client_quotas,
        alter_configs,
        alter_partition,
        alter_partition_reassignments,
        alter_user_scram_credentials,
        assign_replicas_to_dirs,
        create_acls,
        create_delegation_token,
        create_partitions,
        create_topics,
        delete_acls,
        delete_topics,
        elect_leaders,
        expire_delegation_token,
        incremental_alter_configs,
        list_partition_reassignments,
        renew_delegation_token,
        unregister_broker,
        update_features,
    )

T = TypeVar("T")
log = logging.getLogger(__name__)


class QuorumController:
    """A deterministic state machine over the metadata log, run by one thread.

    The node that leads the log is the *active controller*: only it writes. The others are standbys: they replay its
    records, have the same state, and are ready to take over. One event queue orders all operations:

        caller's thread     create_topics(...) -> Future                               ... future.result()
                               | append                                                        ^
        event thread           v                                                               | complete
                            generate records -> prepare_append -> replay each -> schedule -> wait in purgatory
                                                                                     |         ^
        Raft                                                                         v         | handle_commit
                                                                               write, replicate, commit

    - *Generate* reads the newest state, committed or not, and changes nothing.
    - *Replay* changes the state. A standby replays a record when Raft reports its commit.
    - The response waits until the records are committed. If leadership is lost before that, the state returns to the
      committed one and pending requests fail with NOT_CONTROLLER: the next leader decides whether the records survive.

    The work is split between collaborators: :class:`ControllerManagers` holds the state, `ControllerEventExecutor` runs
    operations, `QuorumMetaLogListener` follows the log, `ControllerLeadership` knows whether this controller is active.

    Any thread may call the public methods. They return a future at once; its callbacks run on the event thread and must
    not block it. A future's exception is an ApiError with the error code of the response.

    Without :meth:`start` there is no thread: a test runs the queue itself, with its own clock.
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
        self._raft = raft
        self.node_id = config.node_id
        self.cluster_id = config.cluster_id
        plugins = ControllerPlugins() if plugins is None else plugins
        managers = self.managers = ControllerManagers(config, plugins, clock, raft)
        self._metrics = QuorumControllerMetrics(MetricsRegistry(clock) if metrics is None else metrics, clock)
        self._metrics.watch(managers.offsets, managers.replication)
        self.queue = KafkaEventQueue(f"quorum-controller-{config.node_id}-event-handler", clock, exit_procedure)
        self._leadership = ControllerLeadership(
            config.node_id, raft, self._metrics, on_claim=self._activate, on_renounce=self._deactivate
        )
        self._executor = ControllerEventExecutor(
            self.queue,
            managers,
            self._leadership,
            raft,
            self._metrics,
            clock=clock,
            max_records_per_batch=config.max_records_per_batch,
        )
        self._periodic = PeriodicTaskControlManager(clock, self._executor)
        for task in controller_tasks(config, managers):
            self._periodic.register(task)
        snapshots = None
        if plugins.on_snapshot_due is not None:
            snapshots = SnapshotTrigger(
                clock,
                plugins.on_snapshot_due,
                max_bytes=config.max_bytes_between_snapshots,
                max_interval_ms=config.max_snapshot_interval_ms,
            )
        self._listener = QuorumMetaLogListener(self.queue, self._executor, self._leadership, managers, snapshots)
        raft.register(self._listener)

    # -- start and stop

    def start(self) -> None:
        """Starts the event thread."""
        self.queue.start()

    def close(self) -> None:
        """Ends the event thread and fails pending requests."""
        self._raft.unregister(self._listener)
        self.queue.close()
        # The event thread has ended, so this thread may access its state.
        self._executor.deferred.fail_all(EventQueueClosedError("the controller is shutting down"))
        self.managers.cluster.fail_ready_brokers_futures(KafkaTimeoutError("The controller is shutting down."))

    @property
    def claim_epoch(self) -> int:
        """Returns the epoch in which this controller is active, -1 on a standby."""
        return self._leadership.epoch

    @property
    def is_active(self) -> bool:
        return self._leadership.is_active

    def _activate(self, next_write_offset: int) -> None:
        managers = self.managers
        managers.offsets.activate(next_write_offset)
        managers.cluster.activate()
        # Prepended, so that requests already in the queue find the bootstrap records written.
        self._executor.write_next(
            f"complete_activation[{self.claim_epoch}]",
            lambda: activation_records(
                self._config.bootstrap,
                managers.features.metadata_version_at(managers.offsets.last_stable_offset),
                managers.offsets.transaction_start_offset,
                managers.configs.static_min_insync_replicas(),
            ),
            lambda _: self._periodic.activate(),
        )

    def _deactivate(self, error: NotControllerError) -> None:
        self._executor.deferred.fail_all(error)
        self.managers.offsets.deactivate()
        self.managers.cluster.deactivate()
        self._periodic.deactivate()

    # -- topics

    def create_topics(
        self,
        context: ControllerRequestContext,
        request: create_topics.CreateTopicsRequest,
        describable: Container[str] | None = None,
    ) -> Future[create_topics.CreateTopicsResponse]:
        if not request.topics:
            from barnabas.protocol.messages import create_topics

            return _nothing_to_do(create_topics.CreateTopicsResponse())
        return self._executor.write(
            "create_topics",
            context,
            lambda: self.managers.topic_creation.create_topics(context, request, describable),
        )

    def delete_topics(
        self, context: ControllerRequestContext, request: delete_topics.DeleteTopicsRequest
    ) -> Future[delete_topics.DeleteTopicsResponse]:
        if not request.topics and not request.topic_names:
            from barnabas.protocol.messages import delete_topics

            return _nothing_to_do(delete_topics.DeleteTopicsResponse())
        return self._executor.write(
            "delete_topics", context, lambda: self.managers.topic_deletion.delete_topics(context, request)
        )

    def create_partitions(
        self, context: ControllerRequestContext, request: create_partitions.CreatePartitionsRequest
    ) -> Future[create_partitions.CreatePartitionsResponse]:
        if not request.topics:
            from barnabas.protocol.messages import create_partitions

            return _nothing_to_do(create_partitions.CreatePartitionsResponse())
        return self._executor.write(
            "create_partitions", context, lambda: self.managers.topic_creation.create_partitions(context, request)
        )

    def find_topic_ids(
        self, context: ControllerRequestContext, names: Iterable[str]
    ) -> Future[dict[str, Uuid | UnknownTopicOrPartitionError]]:
        wanted = list(names)
        if not wanted:
            return _nothing_to_do({})
        return self._executor.read(
            "find_topic_ids", context, lambda epoch: self.managers.replication.find_topic_ids(wanted, epoch)
        )

    def find_topic_names(
        self, context: ControllerRequestContext, ids: Iterable[Uuid]
    ) -> Future[dict[Uuid, str | UnknownTopicIdError]]:
        wanted = list(ids)
        if not wanted:
            return _nothing_to_do({})
        return self._executor.read(
            "find_topic_names", context, lambda epoch: self.managers.replication.find_topic_names(wanted, epoch)
        )

    def find_all_topic_ids(self, context: ControllerRequestContext) -> Future[dict[str, Uuid]]:
        return self._executor.read("find_all_topic_ids", context, self.managers.replication.find_all_topic_ids)

    # -- partitions

    def alter_partition(
        self, context: ControllerRequestContext, request: alter_partition.AlterPartitionRequest
    ) -> Future[alter_partition.AlterPartitionResponse]:
        if not request.topics:
            from barnabas.protocol.messages import alter_partition

            return _nothing_to_do(alter_partition.AlterPartitionResponse())
        return self._executor.write(
            "alter_partition", context, lambda: self.managers.isr_changes.alter_partition(context, request)
        )

    def elect_leaders(
        self, context: ControllerRequestContext, request: elect_leaders.ElectLeadersRequest
    ) -> Future[elect_leaders.ElectLeadersResponse]:
        if request.topic_partitions is not None and not request.topic_partitions:  # null means all partitions
            from barnabas.protocol.messages import elect_leaders

            return _nothing_to_do(elect_leaders.ElectLeadersResponse())
        return self._executor.write("elect_leaders", context, lambda: self.managers.elections.elect_leaders(request))

    def alter_partition_reassignments(
        self,
        context: ControllerRequestContext,
        request: alter_partition_reassignments.AlterPartitionReassignmentsRequest,
    ) -> Future[alter_partition_reassignments.AlterPartitionReassignmentsResponse]:
        if not request.topics:
            from barnabas.protocol.messages import alter_partition_reassignments

            return _nothing_to_do(alter_partition_reassignments.AlterPartitionReassignmentsResponse(error_message=None))
        return self._executor.write(
            "alter_partition_reassignments", context, lambda: self.managers.reassignments.alter(request)
        )

    def list_partition_reassignments(
        self,
        context: ControllerRequestContext,
        request: list_partition_reassignments.ListPartitionReassignmentsRequest,
    ) -> Future[list_partition_reassignments.ListPartitionReassignmentsResponse]:
        if request.topics is not None and not request.topics:  # null means all topics
            from barnabas.protocol.messages import list_partition_reassignments

            return _nothing_to_do(list_partition_reassignments.ListPartitionReassignmentsResponse(error_message=None))
        return self._executor.read(
            "list_partition_reassignments",
            context,
            lambda epoch: self.managers.reassignments.list_ongoing(request, epoch),
        )

    def assign_replicas_to_dirs(
        self, context: ControllerRequestContext, request: assign_replicas_to_dirs.AssignReplicasToDirsRequest
    ) -> Future[assign_replicas_to_dirs.AssignReplicasToDirsResponse]:
        return self._executor.write(
            "assign_replicas_to_dirs", context, lambda: self.managers.replica_directories.assign(request)
        )

    # -- nodes

    def register_broker(
        self, context: ControllerRequestContext, request: broker_registration.BrokerRegistrationRequest
    ) -> Future[broker_registration.BrokerRegistrationResponse]:
        future = self._executor.write(
            "register_broker",
            context,
            lambda: self.managers.cluster.register_broker(
                request,
                new_epoch=self.managers.offsets.next_write_offset,
                request_version=context.request_version,
                kraft_version=self._raft.kraft_version,
            ),
        )
        future.add_done_callback(partial(_log_refused_registration, request.broker_id))
        return future

    def process_broker_heartbeat(
        self, context: ControllerRequestContext, request: broker_heartbeat.BrokerHeartbeatRequest
    ) -> Future[broker_heartbeat.BrokerHeartbeatResponse]:
        """Records the heartbeat on the caller's thread, then processes the request on the event thread."""
        if not self.managers.cluster.track_heartbeat(request.broker_id, request.broker_epoch):
            refused: Future[broker_heartbeat.BrokerHeartbeatResponse] = new_future()
            refused.set_exception(self._leadership.not_controller())
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

        future = self._executor.write("process_broker_heartbeat", context, operation, appended)
        future.add_done_callback(self._count_timed_out_heartbeat)
        return future

    def _count_timed_out_heartbeat(self, future: Future[Any]) -> None:
        if isinstance(future.exception(), KafkaTimeoutError):
            self._metrics.count("TimedOutBrokerHeartbeatCount")

    def unregister_broker(
        self, context: ControllerRequestContext, request: unregister_broker.UnregisterBrokerRequest
    ) -> Future[unregister_broker.UnregisterBrokerResponse]:
        return self._executor.write(
            "unregister_broker",
            context,
            lambda: self.managers.broker_lifecycle.unregister_broker(request.broker_id),
        )

    def register_controller(
        self, context: ControllerRequestContext, request: controller_registration.ControllerRegistrationRequest
    ) -> Future[controller_registration.ControllerRegistrationResponse]:
        return self._executor.write(
            "register_controller", context, lambda: self.managers.cluster.register_controller(request)
        )

    def wait_for_ready_brokers(self, least: int) -> Future[None]:
        """Returns a future that completes when at least this many brokers are registered and unfenced."""
        future: Future[None] = new_future()
        self._executor.run(
            "wait_for_ready_brokers",
            lambda: self.managers.cluster.add_ready_brokers_future(future, least),
            future.set_exception,
        )
        return future

    # -- configuration, quotas, features, ids

    def incremental_alter_configs(
        self, context: ControllerRequestContext, request: incremental_alter_configs.IncrementalAlterConfigsRequest
    ) -> Future[incremental_alter_configs.IncrementalAlterConfigsResponse]:
        return self._executor.write(
            "incremental_alter_configs", context, lambda: self.managers.configs.incremental_alter_configs(request)
        )

    def legacy_alter_configs(
        self, context: ControllerRequestContext, request: alter_configs.AlterConfigsRequest
    ) -> Future[alter_configs.AlterConfigsResponse]:
        return self._executor.write(
            "legacy_alter_configs", context, lambda: self.managers.configs.legacy_alter_configs(request)
        )

    def describe_configs(self, context: ControllerRequestContext, resource: ConfigResource) -> Future[dict[str, str]]:
        """Returns the dynamic configs set on the resource itself."""
        return self._executor.read(
            "describe_configs", context, lambda epoch: self.managers.configs.describe(resource, epoch)
        )

    def list_config_resources(self, context: ControllerRequestContext) -> Future[list[ConfigResource]]:
        """Returns the resources that have dynamic configs."""
        return self._executor.read("list_config_resources", context, self.managers.configs.resources)

    def alter_client_quotas(
        self, context: ControllerRequestContext, request: alter_client_quotas.AlterClientQuotasRequest
    ) -> Future[alter_client_quotas.AlterClientQuotasResponse]:
        return self._executor.write(
            "alter_client_quotas", context, lambda: self.managers.client_quotas.alter_client_quotas(request)
        )

    def update_features(
        self, context: ControllerRequestContext, request: update_features.UpdateFeaturesRequest
    ) -> Future[update_features.UpdateFeaturesResponse]:
        from barnabas.protocol.messages import update_features

        def operation() -> ControllerResult[update_features.UpdateFeaturesResponse]:
            result = self.managers.configs.update_features(
                request.feature_updates,
                request_version=context.request_version,
                validate_only=request.validate_only,
                claimed_epoch=self._leadership.epoch,
            )
            code, message = error_fields(result.response)
            response = update_features.UpdateFeaturesResponse(error_code=code, error_message=message)
            if context.request_version <= 1 and result.response is None:
                response.results = [
                    update_features.UpdatableFeatureResult(feature=name, error_code=0, error_message=None)
                    for name in (update.feature for update in request.feature_updates)
                ]
            return ControllerResult(result.records, response, result.is_atomic)

        return self._executor.write("update_features", context, operation)

    def finalized_features(self, context: ControllerRequestContext) -> Future[FinalizedControllerFeatures]:
        """Returns the finalized feature levels; a standby responds, too."""
        return self._executor.read(
            "finalized_features", context, self.managers.features.finalized_features, only_when_active=False
        )

    def allocate_producer_ids(
        self, context: ControllerRequestContext, request: allocate_producer_ids.AllocateProducerIdsRequest
    ) -> Future[allocate_producer_ids.AllocateProducerIdsResponse]:
        return self._executor.write(
            "allocate_producer_ids", context, lambda: self.managers.producer_ids.allocate(request)
        )

    # -- security

    def create_acls(
        self, context: ControllerRequestContext, request: create_acls.CreateAclsRequest
    ) -> Future[create_acls.CreateAclsResponse]:
        return self._executor.write("create_acls", context, lambda: self.managers.acls.create_acls(request))

    def delete_acls(
        self, context: ControllerRequestContext, request: delete_acls.DeleteAclsRequest
    ) -> Future[delete_acls.DeleteAclsResponse]:
        return self._executor.write("delete_acls", context, lambda: self.managers.acls.delete_acls(request))

    def alter_user_scram_credentials(
        self,
        context: ControllerRequestContext,
        request: alter_user_scram_credentials.AlterUserScramCredentialsRequest,
    ) -> Future[alter_user_scram_credentials.AlterUserScramCredentialsResponse]:
        return self._executor.write(
            "alter_user_scram_credentials", context, lambda: self.managers.scram.alter_credentials(request)
        )

    def create_delegation_token(
        self, context: ControllerRequestContext, request: create_delegation_token.CreateDelegationTokenRequest
    ) -> Future[create_delegation_token.CreateDelegationTokenResponse]:
        return self._executor.write(
            "create_delegation_token", context, lambda: self.managers.delegation_tokens.create(context, request)
        )

    def renew_delegation_token(
        self, context: ControllerRequestContext, request: renew_delegation_token.RenewDelegationTokenRequest
    ) -> Future[renew_delegation_token.RenewDelegationTokenResponse]:
        return self._executor.write(
            "renew_delegation_token", context, lambda: self.managers.delegation_tokens.renew(context, request)
        )

    def expire_delegation_token(
        self, context: ControllerRequestContext, request: expire_delegation_token.ExpireDelegationTokenRequest
    ) -> Future[expire_delegation_token.ExpireDelegationTokenResponse]:
        return self._executor.write(
            "expire_delegation_token", context, lambda: self.managers.delegation_tokens.expire(context, request)
        )


def _nothing_to_do(response: T) -> Future[T]:
    """Responds to a request without entries. The request bypasses the queue, so it cannot time out there."""
    future: Future[T] = new_future()
    future.set_result(response)
    return future


def _log_refused_registration(broker_id: int, future: Future[broker_registration.BrokerRegistrationResponse]) -> None:
    """Logs why a registration was refused. The response has only a code: not the wrong log directory or feature."""
    error = future.exception()
    if error is not None and not isinstance(error, RetriableError):
        log.warning("Cannot register broker %d: %s", broker_id, error)
