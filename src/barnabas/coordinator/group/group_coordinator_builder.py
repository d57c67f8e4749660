"""Builds a group coordinator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from barnabas.common.clock import Clock
from barnabas.common.dataclass import dataclass
from barnabas.common.scheduler import Scheduler
from barnabas.common.shutdownable_thread import ExitProcedure
from barnabas.coordinator.group.assignor.partition_assignor import PartitionAssignor
from barnabas.coordinator.group.assignor.range_assignor import RangeAssignor
from barnabas.coordinator.group.assignor.uniform_assignor import UniformAssignor
from barnabas.coordinator.group.consumer.regex_resolution import TopicFilter
from barnabas.coordinator.group.group_coordinator_config import GroupCoordinatorConfig, assignor_name
from barnabas.coordinator.group.group_coordinator_service import GroupCoordinatorService
from barnabas.coordinator.group.group_coordinator_shard import GroupCoordinatorShard
from barnabas.coordinator.group.group_metrics import GROUP, GroupMetrics
from barnabas.coordinator.group.group_settings import GroupOverrides, GroupSettings
from barnabas.coordinator.runtime.coordinator_loader import LogCoordinatorLoader
from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecordSerde
from barnabas.coordinator.runtime.coordinator_runtime import CoordinatorRuntime, RuntimeParts
from barnabas.coordinator.runtime.event_processor import MultiThreadedEventProcessor
from barnabas.coordinator.runtime.partition_writer import ReplicaPartitionWriter
from barnabas.coordinator.runtime.runtime_metrics import CoordinatorRuntimeMetrics
from barnabas.coordinator.runtime.timer_reaper import SystemTimerReaper
from barnabas.metrics.registry import Metrics
from barnabas.metrics.yammer.registry import MetricsRegistry
from barnabas.protocol.internal.topics import CONSUMER_OFFSETS
from barnabas.replica.replica_manager import ReplicaManager
from barnabas.server.timer.system_timer import SystemTimer

_ASSIGNORS: Mapping[str, Callable[[], PartitionAssignor]] = {
    UniformAssignor.name: UniformAssignor,
    RangeAssignor.name: RangeAssignor,
}


def make_assignors(names: tuple[str, ...]) -> list[PartitionAssignor]:
    """Creates the assignors; raises `ConfigError` for an unknown one."""
    return [_ASSIGNORS[assignor_name(name)]() for name in names]


@dataclass(frozen=True, slots=True)
class GroupPlugins:
    """Functions of other components that a group coordinator calls."""

    overrides: GroupOverrides
    topic_filter: TopicFilter
    is_consumer_protocol_enabled: Callable[[], bool]


def make_group_coordinator(
    config: GroupCoordinatorConfig,
    replicas: ReplicaManager,
    scheduler: Scheduler,
    clock: Clock,
    metrics: Metrics,
    registry: MetricsRegistry,
    plugins: GroupPlugins,
    *,
    inline: bool,
    exit_procedure: ExitProcedure,
) -> tuple[GroupCoordinatorService, ReplicaPartitionWriter]:
    """Returns the coordinator, not started, and its writer, which still needs a transaction verifier.

    `inline`: see `MultiThreadedEventProcessor`. Then one thread is enough, because the GIL lets only one run at a time.
    """
    name = "group-coordinator"
    serde = CoordinatorRecordSerde(CONSUMER_OFFSETS)
    writer = ReplicaPartitionWriter(replicas)
    timer = SystemTimer(name, clock, exit_procedure=exit_procedure)
    pool = ThreadPoolExecutor(config.num_background_threads, thread_name_prefix=f"{name}-background")
    processor = MultiThreadedEventProcessor(
        name,
        1 if inline else config.num_threads,
        inline=inline,
        clock=clock,
        exit_procedure=exit_procedure,
        paces=replicas.log_manager.paces,
        lane_of=replicas.coordinator_lane,
    )
    group_metrics = GroupMetrics(metrics, registry)
    runtime_metrics = CoordinatorRuntimeMetrics(metrics, GROUP)
    settings = GroupSettings(config, plugins.overrides)
    assignors = make_assignors(config.consumer_assignors)
    by_name = {assignor.name: assignor for assignor in assignors}
    runtime: CoordinatorRuntime[GroupCoordinatorShard] = CoordinatorRuntime(
        RuntimeParts(
            processor,
            LogCoordinatorLoader(replicas, serde, scheduler, clock, config.offsets_load_buffer_size),
            writer,
            serde,
            timer,
            pool,
            clock,
        ),
        lambda context: GroupCoordinatorShard(context, config, settings, group_metrics, by_name, plugins.topic_filter),
        name=name,
        default_write_timeout_ms=config.offset_commit_timeout_ms,
        compression=config.offsets_topic_compression,
        append_linger_ms=config.append_linger_ms,
        metrics=runtime_metrics,
    )
    runtime_metrics.watch(runtime.states, lambda: len(processor))
    service = GroupCoordinatorService(
        config,
        runtime,
        group_metrics,
        assignors,
        reaper=SystemTimerReaper(f"{name}-reaper", timer, exit_procedure),
        pool=pool,
        is_consumer_protocol_enabled=plugins.is_consumer_protocol_enabled,
    )
    return service, writer
