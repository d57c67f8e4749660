"""Takes batches out of their queues to send them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from barnabas.clients.common.metadata_snapshot import MetadataSnapshot
from barnabas.clients.producer.internals.partition_queue import PartitionQueue, PartitionQueues
from barnabas.network.client.node import Node

if TYPE_CHECKING:
    from barnabas.clients.producer.internals.producer_batch import ProducerBatch

_DrainRow: TypeAlias = "tuple[PartitionQueue, int | None] | None"
"""A partition's queue, if it has one, and its leader epoch."""


@dataclass(slots=True)
class _NodeState:
    drain_index: int = 0
    snapshot: MetadataSnapshot | None = None
    """The metadata and (``layout``) the set of queues from which ``rows`` was built."""
    layout: int = -1
    rows: list[_DrainRow] = field(default_factory=list)
    """All partitions that the node leads."""


class BatchDrain:
    """Takes at most one batch of each partition. Owned by the I/O thread.

    It starts at another partition each time, so that the first partitions do not starve the others. ``prepare`` assigns
    the sequence number of an idempotent batch, because only now is the batch certain to be the next one; if it returns
    false, the batch stays.
    """

    def __init__(self, queues: PartitionQueues, prepare: Callable[[ProducerBatch], bool]) -> None:
        self._queues = queues
        self._prepare = prepare
        self._nodes: dict[int, _NodeState] = {}

    def drain(
        self, snapshot: MetadataSnapshot, nodes: Collection[Node], max_size: int, now: int
    ) -> dict[int, list[ProducerBatch]]:
        """Takes the batches that can be sent to these nodes, at most ``max_size`` bytes each; returns them by node
        id."""
        return {node.id: self._drain_node(snapshot, node, max_size, now) for node in nodes}

    def _drain_node(self, snapshot: MetadataSnapshot, node: Node, max_size: int, now: int) -> list[ProducerBatch]:
        state = self._nodes.get(node.id)
        if state is None:
            state = self._nodes[node.id] = _NodeState()
        if state.snapshot is not snapshot or state.layout != self._queues.layout:
            self._plan(state, snapshot, node)
        rows = state.rows
        if not rows:
            return []
        ready: list[ProducerBatch] = []
        size = 0
        count = len(rows)
        index = state.drain_index % count
        for step in range(count):
            if step:
                index = index + 1 if index + 1 < count else 0
            row = rows[index]
            if row is None:
                continue
            queue, epoch = row
            batches = queue.batches
            if not batches or queue.muted:
                continue
            with queue.lock:
                if not batches:
                    continue
                batch = batches[0]
                if batch.current_leader_epoch != epoch:
                    batch.maybe_update_leader_epoch(epoch)
                if batch.attempts and batch.backs_off(now):
                    continue
                if ready and size + batch.estimated_size_in_bytes > max_size:
                    break  # it begins the next request
                if not self._prepare(batch):
                    continue
                batches.popleft()
                self._queues.forget_open_batch(queue, batch)
            # Outside the lock: compression and checksum are slow, and no other thread has the batch.
            size += len(batch.close())
            ready.append(batch)
            batch.drained(now)
        state.drain_index = index
        return ready

    def _plan(self, state: _NodeState, snapshot: MetadataSnapshot, node: Node) -> None:
        """Finds the queues of a node's partitions. Valid until the metadata changes or a queue is added."""
        layout = self._queues.layout  # read before the queues: a queue added later is found the next time
        rows: list[_DrainRow] = []
        for where in snapshot.partitions_for_node(node.id):
            queue = self._queues.find(where)
            rows.append(None if queue is None else (queue, snapshot.leader_epoch_for(where)))
        state.snapshot, state.layout, state.rows = snapshot, layout, rows
