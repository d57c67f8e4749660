"""Producer ids: a counter from which brokers allocate blocks (KIP-730)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.common.errors import UnknownServerError
from barnabas.common.snapshot_registry import SnapshotRegistry, TimelineObject
from barnabas.controller.cluster_control_manager import ClusterControlManager
from barnabas.controller.result import ControllerResult
from barnabas.metadata.errors import MetadataReplayError
from barnabas.protocol.internal.metadata import ProducerIdsRecord
from barnabas.raft.client import ApiMessageAndVersion

if TYPE_CHECKING:
    from barnabas.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

log = logging.getLogger(__name__)

PRODUCER_ID_BLOCK_SIZE = 1000
_MAX_ID = (1 << 63) - 1


class ProducerIdControlManager:
    """Holds the next unallocated producer id.

    A block is returned after the record that moves the counter past it is committed. If the response is lost, the block
    is lost, too; no id is ever allocated twice.
    """

    def __init__(self, registry: SnapshotRegistry, cluster: ClusterControlManager) -> None:
        self._cluster = cluster
        self._next: TimelineObject[int | None] = TimelineObject(registry, None)

    @property
    def next_producer_id(self) -> int:
        return self._next.get() or 0

    def allocate(self, request: AllocateProducerIdsRequest) -> ControllerResult[AllocateProducerIdsResponse]:
        from barnabas.protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse

        self._cluster.check_broker_epoch(request.broker_id, request.broker_epoch)
        first = self.next_producer_id
        if first > _MAX_ID - PRODUCER_ID_BLOCK_SIZE:
            raise UnknownServerError("All producer IDs are allocated.")
        record = ProducerIdsRecord(
            broker_id=request.broker_id,
            broker_epoch=request.broker_epoch,
            next_producer_id=first + PRODUCER_ID_BLOCK_SIZE,
        )
        response = AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=PRODUCER_ID_BLOCK_SIZE)
        return ControllerResult.of([ApiMessageAndVersion(record, 0)], response)

    def replay(self, record: ProducerIdsRecord) -> None:
        current = self._next.get()
        if current is not None and record.next_producer_id <= current:
            raise MetadataReplayError(f"the next producer ID decreases from {current} to {record.next_producer_id}")
        self._next.set(record.next_producer_id)
        log.info("Allocated producer IDs below %d, the last to broker %d", record.next_producer_id, record.broker_id)
