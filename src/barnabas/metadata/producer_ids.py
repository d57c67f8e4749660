"""The producer IDs part of an image: one number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.common.dataclass import dataclass
from barnabas.protocol.internal.metadata import ProducerIdsRecord

if TYPE_CHECKING:
    from barnabas.metadata.writer import ImageWriter, ImageWriterOptions


@dataclass(frozen=True, slots=True)
class ProducerIdsImage:
    """All IDs below ``next_producer_id`` were allocated in blocks to brokers; -1 if none ever was."""

    next_producer_id: int = -1

    def __bool__(self) -> bool:
        return self.next_producer_id >= 0

    def write(self, writer: ImageWriter, _options: ImageWriterOptions) -> None:
        if self.next_producer_id >= 0:
            # The owner of the last block is not stored.
            writer.write(ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=self.next_producer_id))


class ProducerIdsDelta:
    """The number after the next blocks."""

    def __init__(self, image: ProducerIdsImage) -> None:
        self.image = image
        self._changed: int | None = None

    @classmethod
    def of_everything(cls, image: ProducerIdsImage) -> ProducerIdsDelta:
        delta = cls(ProducerIdsImage())
        delta._changed = image.next_producer_id
        return delta

    @property
    def next_producer_id(self) -> int:
        return self.image.next_producer_id if self._changed is None else self._changed

    def replay(self, record: ProducerIdsRecord) -> None:
        self._changed = record.next_producer_id

    def finish_snapshot(self) -> None:
        if self._changed is None:
            self._changed = ProducerIdsImage().next_producer_id

    def __bool__(self) -> bool:
        return self.next_producer_id != self.image.next_producer_id

    def apply(self) -> ProducerIdsImage:
        return ProducerIdsImage(self.next_producer_id) if self else self.image
