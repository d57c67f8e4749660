from typing import Any

from barnabas.clients.producer.internals._future_pure import FutureRecordMetadata

__all__ = ["FastSend", "FutureRecordMetadata"]

class FastSend:
    def __init__(
        self,
        accumulator: Any,
        metadata: Any,
        sender: Any,
        manager: Any,
        clock: Any,
        max_size: int,
        batch_size: int,
        ignore_keys: bool,
    ) -> None: ...
    def __call__(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Any,
        partition: int | None,
        timestamp_ms: int | None,
        callback: Any,
    ) -> FutureRecordMetadata | None: ...
