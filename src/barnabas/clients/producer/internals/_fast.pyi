from typing import Any

from barnabas.clients.producer.internals._append_state_pure import (
    BatchCore,
    PartitionerCore,
    PartitionQueue,
    StickyPartitionInfo,
    TopicEntry,
    load_table,
    scan_queues,
    take_batches,
)
from barnabas.clients.producer.internals._future_pure import FutureRecordMetadata

__all__ = [
    "BatchCore",
    "FastSend",
    "FutureRecordMetadata",
    "PartitionQueue",
    "PartitionerCore",
    "StickyPartitionInfo",
    "TopicEntry",
    "load_table",
    "scan_queues",
    "take_batches",
]

class FastSend:
    def __init__(
        self,
        accumulator: Any,
        metadata: Any,
        sender: Any,
        manager: Any,
        clock: Any,
        long_way: Any,
        max_size: int,
        batch_size: int,
        ignore_keys: bool,
    ) -> None: ...
    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        callback: Any = None,
    ) -> FutureRecordMetadata: ...
    def try_send(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Any,
        partition: int | None,
        timestamp_ms: int | None,
        callback: Any,
    ) -> FutureRecordMetadata | None: ...

def current_core() -> int: ...
