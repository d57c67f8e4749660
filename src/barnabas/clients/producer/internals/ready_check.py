"""Finds the nodes that have batches ready to be sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from barnabas.clients.common.metadata_snapshot import MetadataSnapshot
from barnabas.clients.producer.internals.partition_queue import PartitionQueue, PartitionQueues, TopicQueues
from barnabas.network.client.inflight import FOREVER
from barnabas.network.client.node import Node

if TYPE_CHECKING:
    from barnabas.clients.producer.internals.accumulator_config import AccumulatorConfig
    from barnabas.clients.producer.internals.producer_batch import ProducerBatch


class ReadyCheckResult(NamedTuple):
    """The nodes that have batches ready to be sent."""

    ready_nodes: list[Node]
    next_ready_check_delay_ms: int
    unknown_leader_topics: set[str]


_PlanRow: TypeAlias = "tuple[PartitionQueue, Node | None, int, int | None]"
"""A queue, its partition's leader, the leader's id, and the leader epoch."""


class _ReadyPlan(NamedTuple):
    """The queues of a topic that `ReadyCheck.ready` scans. Valid until the metadata changes or a queue is added."""

    snapshot: MetadataSnapshot
    queues: dict[int, PartitionQueue]
    rows: list[_PlanRow]
    adaptive: bool
    """Whether the load of the partitions is compared. That requires a queue for each of them."""
    weigh_by: int
    """The batch size that counts as one batch when queues are weighed; 0: each batch counts as one."""
    partitions: list[int]
    """The partitions with a leader, in the order of the rows; `leaders` and `racks` are parallel to it."""
    leaders: list[Node]
    racks: list[str | None]


@dataclass(slots=True)
class NodeLatencyStats:
    """When a node last had batches ready, and when it last could take them."""

    ready_time_ms: int
    drain_time_ms: int


class ReadyCheck:
    """Decides which nodes can be sent batches. Owned by the I/O thread.

    A node is ready if it leads a partition whose first batch is ready, has lingered for ``linger.ms`` (or, after a
    failure, has waited for its backoff), or if everything has to be sent. Partitions that are muted or backing off do
    not count. The lengths of the queues, which the check sees, go to the topic's partitioner.
    """

    def __init__(self, config: AccumulatorConfig, queues: PartitionQueues) -> None:
        self._config = config
        self._queues = queues
        self._may_expand = (config.batch_max_size or 0) > config.batch_size
        self._plans: dict[str, _ReadyPlan] = {}
        """By topic."""
        self._latencies: dict[int, NodeLatencyStats] = {}
        """By node id, with ``partitioner.availability.timeout.ms``."""
        self.not_expanded: set[str] = set()
        """Topics for which a broker rejected a batch as too large: their batches are not expanded any more."""
        self.next_expiry_time_ms = FOREVER
        """When the first waiting batch expires, as of the last check."""

    def ready(self, snapshot: MetadataSnapshot, now: int, send_all: bool) -> ReadyCheckResult:
        """Returns the nodes that have batches ready, and when to check again if there are none.

        With ``send_all``, batches do not linger."""
        ready_nodes: dict[int, Node] = {}
        unknown_leader_topics: set[str] = set()
        config = self._config
        delay_ms = FOREVER
        earliest_ms = FOREVER
        for entry in list(self._queues.topics.values()):
            topic = entry.topic
            plan = self._plans.get(topic)
            if plan is None or plan.snapshot is not snapshot or plan.queues is not entry.queues:
                plan = self._plans[topic] = self._make_plan(entry, snapshot)
            sizes: list[int] = []
            oldest_ms, wait_ms, leaderless = self._scan_queues(plan, ready_nodes, sizes, send_all, now)
            earliest_ms = min(earliest_ms, oldest_ms)
            delay_ms = min(delay_ms, wait_ms)
            if leaderless:
                unknown_leader_topics.add(topic)
            if not plan.adaptive:
                entry.partitioner.update_partition_load_stats(None)
            elif self._latencies:
                kept = [index for index, leader in enumerate(plan.leaders) if not self._is_stuck(leader)]
                entry.partitioner.update_partition_load_stats(
                    [sizes[index] for index in kept],
                    [plan.partitions[index] for index in kept],
                    [plan.racks[index] for index in kept],
                    excluded=len(sizes) - len(kept),
                )
            else:
                entry.partitioner.update_partition_load_stats(sizes, plan.partitions, plan.racks)
        self.next_expiry_time_ms = FOREVER if earliest_ms == FOREVER else earliest_ms + config.delivery_timeout_ms
        return ReadyCheckResult(list(ready_nodes.values()), delay_ms, unknown_leader_topics)

    def _scan_queues(
        self, plan: _ReadyPlan, ready_nodes: dict[int, Node], sizes: list[int], send_all: bool, now: int
    ) -> tuple[int, int, bool]:
        """Adds the nodes that lead a partition with a ready batch to ``ready_nodes``, and the number of batches of each
        partition that has a leader to ``sizes``.

        Returns the time at which the oldest batch was created, the delay until the next check, and whether a partition
        with batches has no leader.
        """
        oldest_ms = delay_ms = FOREVER
        leaderless = False
        for queue, leader, node_id, leader_epoch in plan.rows:
            batches = queue.batches
            if not batches:
                if leader is not None:
                    sizes.append(0)
                continue
            with queue.lock:
                if not batches:
                    if leader is not None:
                        sizes.append(0)
                    continue
                batch = batches[0]
                size = len(batches)
                full = size > 1 or batch.is_ready
                if plan.weigh_by:
                    # An expanded batch counts as the number of normal batches that it replaces.
                    size = max(size, sum([waiting.reserved_bytes for waiting in batches]) // plan.weigh_by)
                if batch.current_leader_epoch != leader_epoch:
                    batch.maybe_update_leader_epoch(leader_epoch)
            oldest_ms = min(oldest_ms, batch.created_ms)
            if leader is None:
                leaderless = True
                continue
            sizes.append(size)
            if node_id in ready_nodes or queue.muted:
                continue
            if not batch.attempts and (full or send_all):
                ready_nodes[node_id] = leader
                continue
            wait_ms = self._postponed(batch, full or send_all, now)
            if wait_ms < 0:
                ready_nodes[node_id] = leader
            elif wait_ms < delay_ms:
                delay_ms = wait_ms
        return oldest_ms, delay_ms, leaderless

    def _make_plan(self, entry: TopicQueues, snapshot: MetadataSnapshot) -> _ReadyPlan:
        queues = entry.queues
        rows: list[_PlanRow] = []
        for queue in queues.values():
            info = snapshot.partition(queue.topic_partition)
            leader, epoch = (None, None) if info is None else (info.leader, info.leader_epoch)
            rows.append((queue, leader, -1 if leader is None else leader.id, epoch))
        led = [(queue.topic_partition.partition, leader) for queue, leader, _, _ in rows if leader is not None]
        adaptive = self._config.adaptive_partitioning and len(queues) >= (snapshot.partition_count(entry.topic) or 0)
        weighs = adaptive and self._may_expand and entry.topic not in self.not_expanded
        return _ReadyPlan(
            snapshot,
            queues,
            rows,
            adaptive,
            self._config.batch_size if weighs else 0,
            [partition for partition, _ in led],
            [leader for _, leader in led],
            [leader.rack for _, leader in led],
        )

    def _postponed(self, batch: ProducerBatch, due: bool, now: int) -> int:
        """Returns how long the first batch of a queue must still wait; -1: not at all. ``due``: it does not linger."""
        waited_ms = batch.waited_time_ms(now)
        backing_off = batch.backs_off(now)
        wait_ms = batch.retry_backoff_ms if backing_off else self._config.linger_ms
        if not backing_off and (due or waited_ms >= wait_ms):
            return -1
        return max(wait_ms - waited_ms, 0)

    def do_not_expand(self, topic: str) -> None:
        """Records that the topic's limit, which clients cannot see, is lower than usual."""
        self.not_expanded.add(topic)
        self._plans.pop(topic, None)

    def _is_stuck(self, leader: Node) -> bool:
        """Whether a node has had ready batches for too long without taking them."""
        stats = self._latencies.get(leader.id)
        limit_ms = self._config.partition_availability_timeout_ms
        return stats is not None and stats.ready_time_ms - stats.drain_time_ms > limit_ms

    def update_node_latency_stats(self, node_id: int, now: int, can_drain: bool) -> None:
        """Records that a node had batches ready, and whether it could take them (``can_drain``)."""
        if self._config.partition_availability_timeout_ms <= 0:
            return
        stats = self._latencies.setdefault(node_id, NodeLatencyStats(now, now))
        if can_drain:
            stats.drain_time_ms = now
        stats.ready_time_ms = now
