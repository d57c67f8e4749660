"""The fast way in: a record whose topic is known, for a batch that has room."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from barnabas.clients.producer.internals.future_record_metadata import ACCELERATED, FutureRecordMetadata
from barnabas.common.clock import Clock

if TYPE_CHECKING:
    from barnabas.clients.producer.internals._fast import FastSend
    from barnabas.clients.producer.internals.producer_metadata import ProducerMetadata
    from barnabas.clients.producer.internals.record_accumulator import RecordAccumulator
    from barnabas.clients.producer.internals.sender import Sender
    from barnabas.clients.producer.internals.transaction_manager import TransactionManager

LongWay: TypeAlias = Callable[..., FutureRecordMetadata]
"""`KafkaProducer.send` for what the fast way has no answer to; takes all its arguments, by position."""


class NoFastSend:
    """Has all records take the long way."""

    __slots__ = ("send",)

    def __init__(self, long_way: LongWay) -> None:
        self.send = long_way

    def try_send(self, *_: Any) -> FutureRecordMetadata | None:
        return None


def make_fast_send(
    accumulator: RecordAccumulator,
    metadata: ProducerMetadata,
    sender: Sender,
    transaction_manager: TransactionManager | None,
    clock: Clock,
    long_way: LongWay,
    *,
    max_size: int,
    batch_size: int,
    ignore_keys: bool,
    usable: bool,
) -> FastSend | NoFastSend:
    """The compiled way in, if it was built and there is nothing in its way: no interceptors, serializers, partitioner
    or transactions. Else all records take the long way, which does the same and more."""
    if not usable or not ACCELERATED:
        return NoFastSend(long_way)
    from barnabas.clients.producer.internals import _fast  # noqa: PLC0415 - it may not have been built

    return _fast.FastSend(
        accumulator, metadata, sender, transaction_manager, clock, long_way, max_size, batch_size, ignore_keys
    )
