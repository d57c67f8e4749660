"""Assembles the transaction coordinator of a broker and its parts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from barnabas.broker.handlers.transactional_produce import TransactionalAppends
from barnabas.broker.node.coordinators import CoordinatorContext
from barnabas.common.dataclass import dataclass
from barnabas.common.topic_names import TRANSACTION_STATE_TOPIC
from barnabas.coordinator.runtime.coordinator_loader import LogCoordinatorLoader
from barnabas.coordinator.runtime.coordinator_runtime import CoordinatorRuntime, RuntimeParts
from barnabas.coordinator.runtime.coordinator_shard import ShardContext
from barnabas.coordinator.runtime.event_processor import MultiThreadedEventProcessor
from barnabas.coordinator.runtime.partition_writer import ReplicaPartitionWriter
from barnabas.coordinator.runtime.runtime_metrics import CoordinatorRuntimeMetrics
from barnabas.coordinator.runtime.timer_reaper import SystemTimerReaper
from barnabas.coordinator.transaction.add_partitions_to_txn_manager import AddPartitionsToTxnManager
from barnabas.coordinator.transaction.transaction_config import TransactionConfig
from barnabas.coordinator.transaction.transaction_coordinator import CoordinatorEpochs, TransactionCoordinator
from barnabas.coordinator.transaction.transaction_coordinator_shard import TransactionCoordinatorShard
from barnabas.coordinator.transaction.transaction_marker_channel_manager import TransactionMarkerChannelManager
from barnabas.coordinator.transaction.transaction_records import SERDE
from barnabas.coordinator.transaction.txn_marker_writer import TxnMarkerWriter
from barnabas.server.data_plane import HandOff
from barnabas.server.timer.system_timer import SystemTimer

NAME = "transaction-coordinator"


@dataclass(frozen=True, slots=True)
class TransactionParts:
    """The transaction parts of a broker, for handlers and other coordinators."""

    coordinator: TransactionCoordinator
    markers: TxnMarkerWriter
    """`make_group_parts` sets its `groups`."""
    verifier: AddPartitionsToTxnManager
    appends: TransactionalAppends
    reaper: SystemTimerReaper
    pool: ThreadPoolExecutor

    def shutdown(self) -> None:
        self.coordinator.shutdown()
        self.reaper.close()
        self.pool.shutdown(cancel_futures=True)


def make_transaction_parts(context: CoordinatorContext, settings: TransactionConfig) -> TransactionParts:
    """Makes the coordinator and starts its threads; it is idle before its `startup` and the first election."""
    config, cache, replicas = context.config, context.cache, context.replicas
    scheduler, shared = context.scheduler, context.shared
    clock, exit_procedure = shared.clock, shared.exit_procedure
    node_id, listener_name = config.node_id, config.inter_broker_listener_name
    markers = TxnMarkerWriter(replicas, clock, settings.request_timeout_ms)
    channels = TransactionMarkerChannelManager(
        node_id,
        listener_name,
        cache,
        markers,
        scheduler,
        shared.registry,
        retry_backoff_ms=settings.retry_backoff_ms,
        after_local_write=replicas.action_queue.try_complete_actions,
    )
    epochs = CoordinatorEpochs()

    def make_shard(context: ShardContext) -> TransactionCoordinatorShard:
        partition = context.partition.partition
        return TransactionCoordinatorShard(context, channels, lambda: epochs.get(partition))

    timer = SystemTimer(NAME, clock, exit_procedure=exit_procedure)
    reaper = SystemTimerReaper(f"{NAME}-reaper", timer, exit_procedure)
    reaper.start()
    pool = ThreadPoolExecutor(1, thread_name_prefix=f"{NAME}-background")
    processor = MultiThreadedEventProcessor(
        NAME,
        1,
        inline=config.hand_off is HandOff.DIRECT,
        clock=clock,
        exit_procedure=exit_procedure,
        paces=replicas.log_manager.paces,
        lane_of=replicas.coordinator_lane,
    )
    runtime_metrics = CoordinatorRuntimeMetrics(shared.metrics, f"{NAME}-metrics")
    runtime: CoordinatorRuntime[TransactionCoordinatorShard] = CoordinatorRuntime(
        RuntimeParts(
            processor,
            LogCoordinatorLoader(replicas, SERDE, scheduler, clock, settings.state_log_load_buffer_size),
            ReplicaPartitionWriter(replicas),
            SERDE,
            timer,
            pool,
            clock,
        ),
        make_shard,
        name=NAME,
        metrics=runtime_metrics,
    )
    runtime_metrics.watch(runtime.states, lambda: len(processor))
    coordinator = TransactionCoordinator(
        settings,
        runtime,
        channels,
        context.producer_ids,
        lambda: cache.num_partitions(TRANSACTION_STATE_TOPIC),
        scheduler,
        clock,
        epochs,
    )
    verifier = AddPartitionsToTxnManager(node_id, listener_name, cache, coordinator)
    appends = TransactionalAppends(
        replicas,
        verifier,
        scheduler,
        clock,
        producer_state=context.producer_state,
        retry_backoff_ms=settings.add_partitions_retry_backoff_ms,
        retry_backoff_max_ms=min(settings.add_partitions_retry_backoff_max_ms, settings.request_timeout_ms),
    )
    return TransactionParts(coordinator, markers, verifier, appends, reaper, pool)
