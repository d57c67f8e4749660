"""Metrics of partitions, topics and groups, computed when they are exported.

A gauge for each metric of each partition, as a JVM broker registers them, would be a hundred thousand objects on a
broker with ten thousand partitions, made at startup and read every fifteen seconds or never. The logs, the replica
manager and the group coordinator know the values already:

================================ ====================================================================================
``kafka_log_log_*``              size, offsets and number of segments of each log
``kafka_cluster_partition_*``    replicas and ISR of each partition that this broker leads
``kafka_topic_partition_*``      offsets, leader and replicas of these partitions, under the names of kafka_exporter
``kafka_consumergroup_*``        members, committed offsets and lag of the groups that this broker coordinates
================================ ====================================================================================

kafka_exporter is a program beside the broker that asks for the same by requests. Its dashboards work without it.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING, Final

from barnabas.common.topic_partition import TopicPartition
from barnabas.metrics.families import GAUGE, LabelSet, MetricFamily, MetricSelection

if TYPE_CHECKING:
    from barnabas.coordinator.group.group import GroupProgress
    from barnabas.coordinator.group.group_coordinator_service import GroupCoordinatorService
    from barnabas.log.manager.log_manager import LogManager
    from barnabas.replica.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)

GROUPS_TIMEOUT_S: Final = 5.0
"""How long an export waits for the group coordinator, whose threads may be busy."""


_Row = tuple[LabelSet, tuple[int, ...]]
"""The labels of a log or partition, and its values. The tables of families say which value is which."""

_LOG_FAMILIES: Final = (
    ("kafka_log_log_size", "kafka.log:type=Log,name=Size", 0),
    ("kafka_log_log_logstartoffset", "kafka.log:type=Log,name=LogStartOffset", 1),
    ("kafka_log_log_logendoffset", "kafka.log:type=Log,name=LogEndOffset", 2),
    ("kafka_log_log_numlogsegments", "kafka.log:type=Log,name=NumLogSegments", 3),
)


_PARTITION_FAMILIES: Final = (
    ("kafka_cluster_partition_replicascount", "kafka.cluster:type=Partition,name=ReplicasCount", 0),
    ("kafka_cluster_partition_insyncreplicascount", "kafka.cluster:type=Partition,name=InSyncReplicasCount", 1),
    ("kafka_cluster_partition_underreplicated", "kafka.cluster:type=Partition,name=UnderReplicated", 2),
    ("kafka_cluster_partition_underminisr", "kafka.cluster:type=Partition,name=UnderMinIsr", 3),
    ("kafka_cluster_partition_atminisr", "kafka.cluster:type=Partition,name=AtMinIsr", 4),
    ("kafka_topic_partition_replicas", "The number of replicas.", 0),
    ("kafka_topic_partition_in_sync_replica", "The number of in-sync replicas.", 1),
    ("kafka_topic_partition_under_replicated_partition", "1 if a replica is not in sync.", 2),
    ("kafka_topic_partition_current_offset", "The high watermark: the end of what consumers can read.", 5),
    ("kafka_topic_partition_oldest_offset", "The log start offset.", 6),
    ("kafka_topic_partition_leader", "The id of the leader.", 7),
    ("kafka_topic_partition_leader_is_preferred", "1 if the leader is the first replica.", 8),
)


class PartitionMetrics:
    """The families of logs, partitions and groups of a broker."""

    def __init__(
        self,
        node_id: int,
        logs: LogManager,
        replicas: ReplicaManager,
        groups: Callable[[], GroupCoordinatorService | None],
    ) -> None:
        self._node_id = node_id
        self._logs = logs
        self._replicas = replicas
        self._groups = groups

    def families(self, selection: MetricSelection) -> Iterator[MetricFamily]:
        labels = _PartitionLabels(selection)
        yield from self._of_logs(selection, labels)
        yield from self._of_partitions(selection, labels)
        yield from self._of_groups(selection)

    # -- logs and partitions

    def _of_logs(self, selection: MetricSelection, labels: _PartitionLabels) -> Iterator[MetricFamily]:
        wanted = [family for family in _LOG_FAMILIES if selection.names(family[0])]
        if not wanted:
            return
        rows: list[_Row] = [
            (its_labels, (log.size, log.log_start_offset, log.log_end_offset, len(log.segments)))
            for log in self._logs.all_logs()
            if (its_labels := labels.of(log.topic_partition, is_future=log.is_future)) is not None
        ]
        for name, text, column in wanted:
            yield MetricFamily(name, GAUGE, text, [("", its, values[column]) for its, values in rows])

    def _of_partitions(self, selection: MetricSelection, labels: _PartitionLabels) -> Iterator[MetricFamily]:
        wanted = [family for family in _PARTITION_FAMILIES if selection.names(family[0])]
        if not wanted:
            return
        rows: list[_Row] = []
        node_id = self._node_id
        for partition in self._replicas.partitions.leader_partitions():
            its_labels = labels.of(partition.topic_partition)
            log = partition.leader_log_if_local
            if its_labels is None or log is None:
                continue
            assigned, in_sync = partition.assignment.replicas, len(partition.isr.state.isr)
            min_isr = partition.isr.effective_min_isr(log)
            values = (
                len(assigned),
                in_sync,
                int(partition.is_under_replicated),
                int(in_sync < min_isr),
                int(in_sync == min_isr),
                log.high_watermark,
                log.log_start_offset,
                node_id,
                int(assigned[:1] == (node_id,)),
            )
            rows.append((its_labels, values))
        for name, text, column in wanted:
            yield MetricFamily(name, GAUGE, text, [("", its, values[column]) for its, values in rows])

    # -- groups

    def _of_groups(self, selection: MetricSelection) -> Iterator[MetricFamily]:
        coordinator = self._groups()
        if coordinator is None or not any(map(selection.names, _GROUP_FAMILIES)):
            return
        future = coordinator.progress(selection.groups)
        try:
            groups = future.result(GROUPS_TIMEOUT_S)
        except FutureTimeoutError:
            logger.warning("The group coordinator did not report its groups within %g s", GROUPS_TIMEOUT_S)
            return
        yield from _group_families(groups, self._high_watermark, selection)

    def _high_watermark(self, partition: TopicPartition) -> int | None:
        log = self._logs.get_log(partition)
        return None if log is None else log.high_watermark


class _PartitionLabels:
    """Makes the labels of each partition once per export; None for topics that are not selected."""

    def __init__(self, selection: MetricSelection) -> None:
        self._topics = selection.topics
        self._selected: dict[str, bool] = {}
        self._labels: dict[TopicPartition, LabelSet] = {}

    def of(self, partition: TopicPartition, *, is_future: bool = False) -> LabelSet | None:
        topic, number = partition
        selected = self._selected.get(topic)
        if selected is None:
            selected = self._selected[topic] = self._topics(topic)
        if not selected:
            return None
        if is_future:
            return LabelSet({"topic": topic, "partition": str(number), "is_future": "true"})
        labels = self._labels.get(partition)
        if labels is None:
            labels = self._labels[partition] = LabelSet({"topic": topic, "partition": str(number)})
        return labels


_GROUP_FAMILIES: Final = {
    "kafka_consumergroup_members": "The number of members.",
    "kafka_consumergroup_current_offset": "The committed offset of a group.",
    "kafka_consumergroup_current_offset_sum": "The sum of the committed offsets of all partitions of a topic.",
    "kafka_consumergroup_lag": "The number of records between the committed offset and the high watermark.",
    "kafka_consumergroup_lag_sum": "The lag of all partitions of a topic.",
}


def _group_families(
    groups: list[GroupProgress], high_watermark: Callable[[TopicPartition], int | None], selection: MetricSelection
) -> Iterator[MetricFamily]:
    """Returns the families of groups; partitions that this broker does not have are left out."""
    values: dict[str, list[tuple[LabelSet, float]]] = {name: [] for name in _GROUP_FAMILIES}
    for group in groups:
        values["kafka_consumergroup_members"].append((LabelSet({"consumergroup": group.group_id}), group.num_members))
        sums: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
        for partition, offset in group.offsets.items():
            end = high_watermark(partition) if selection.topics(partition.topic) else None
            if end is None:
                continue
            lag = max(0, end - offset)
            labels = LabelSet(
                {
                    "consumergroup": group.group_id,
                    "topic": partition.topic,
                    "partition": str(partition.partition),
                }
            )
            values["kafka_consumergroup_current_offset"].append((labels, offset))
            values["kafka_consumergroup_lag"].append((labels, lag))
            total = sums[partition.topic]
            total[0] += offset
            total[1] += lag
        for topic, (offset_sum, lag_sum) in sums.items():
            labels = LabelSet({"consumergroup": group.group_id, "topic": topic})
            values["kafka_consumergroup_current_offset_sum"].append((labels, offset_sum))
            values["kafka_consumergroup_lag_sum"].append((labels, lag_sum))
    for name, found in values.items():
        yield MetricFamily.of(name, GAUGE, _GROUP_FAMILIES[name], found)
