"""Writes an image as records: the contents of a snapshot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from barnabas.common.dataclass import dataclass
from barnabas.metadata.errors import UnwritableMetadataError
from barnabas.metadata.metadata_version import MetadataVersion
from barnabas.protocol.internal.framing import MetadataRecord


class ImageWriter(Protocol):
    """Receives the records of an image in order, each with the version to encode it in."""

    def write(self, record: MetadataRecord, version: int = 0) -> None: ...

    def close(self, complete: bool) -> None:
        """Ends the writing. If not ``complete``, everything written so far must be discarded."""
        ...


def _raise(error: UnwritableMetadataError) -> None:
    raise error


@dataclass(frozen=True, slots=True)
class ImageWriterOptions:
    """The metadata version to write for, and how to handle data that it cannot express.

    Writing for the image's own version never loses anything. Writing for an older one, before a downgrade, may: by
    default that is an error, and ``on_loss`` can record it and continue instead.
    """

    metadata_version: MetadataVersion
    on_loss: Callable[[UnwritableMetadataError], None] = _raise

    def handle_loss(self, what: str) -> None:
        self.on_loss(
            UnwritableMetadataError(f"metadata.version {self.metadata_version.release} has no records for {what}")
        )


class RecordListWriter:
    """Collects the records in a list, with their versions.

    >>> from barnabas.protocol.internal.metadata import NoOpRecord
    >>> writer = RecordListWriter()
    >>> writer.write(NoOpRecord())
    >>> writer.records
    [(NoOpRecord(), 0)]
    """

    def __init__(self) -> None:
        self.records: list[tuple[MetadataRecord, int]] = []
        self._closed = False

    def write(self, record: MetadataRecord, version: int = 0) -> None:
        if self._closed:
            raise ValueError("the writer is closed")
        self.records.append((record, version))

    def close(self, complete: bool) -> None:
        if not self._closed and not complete:
            self.records.clear()
        self._closed = True


class BatchWriter:
    """Passes the records on in batches.

    A snapshot of a large cluster has a million records; this holds only one batch at a time. ``end`` is called with
    whether the image was written completely.
    """

    def __init__(
        self,
        append: Callable[[list[tuple[MetadataRecord, int]]], None],
        end: Callable[[bool], None],
        batch_size: int = 1024,
    ) -> None:
        self._append = append
        self._end = end
        self._batch_size = batch_size
        self._batch: list[tuple[MetadataRecord, int]] = []
        self._closed = False

    def write(self, record: MetadataRecord, version: int = 0) -> None:
        if self._closed:
            raise ValueError("the writer is closed")
        self._batch.append((record, version))
        if len(self._batch) >= self._batch_size:
            self._flush()

    def close(self, complete: bool) -> None:
        if self._closed:
            return
        self._closed = True
        if complete:
            self._flush()
        self._end(complete)

    def _flush(self) -> None:
        batch, self._batch = self._batch, []
        if batch:
            self._append(batch)
