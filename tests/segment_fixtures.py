"""What tests of log segments share: small batches, a configuration, and a look at what the process holds open."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from barnabas.common.clock import MockClock
from barnabas.log.segment.log_segment import LogSegment
from barnabas.records.batch import CompressionType, RecordBatch
from barnabas.records.builder import RecordBatchBuilder

NOW = 1_700_000_000_000

linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")


@dataclass(frozen=True)
class Config:
    segment_index_bytes: int = 10 * 1024 * 1024
    index_interval_bytes: int = 4096


def batch_of(
    base_offset: int,
    timestamps: Sequence[int] = (NOW,),
    *,
    value: bytes = b"v" * 20,
    compression: CompressionType = CompressionType.NONE,
    **header: Any,
) -> bytes:
    """A batch with a record for each timestamp."""
    builder = RecordBatchBuilder(base_offset=base_offset, compression=compression, **header)
    for timestamp in timestamps:
        builder.append(timestamp, None, value)
    return bytes(builder.close())


def append(segment: LogSegment, *batches: bytes) -> int:
    """One append of these batches, with the facts that a log finds out by validating them."""
    parsed = [RecordBatch(batch) for batch in batches]
    largest = max(parsed, key=lambda batch: batch.max_timestamp)
    return segment.append(
        parsed[-1].last_offset, largest.max_timestamp, largest.last_offset, batches[0] if len(batches) == 1 else batches
    )


def open_segment(
    directory: Path,
    base_offset: int = 0,
    config: Config = Config(),  # noqa: B008 - frozen
    **options: Any,
) -> LogSegment:
    return LogSegment(base_offset, directory, config, options.pop("clock", MockClock(NOW)), **options)


def open_files(below: Path) -> list[str]:
    """The descriptors that this process has of files below a directory, deleted ones too."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = str(entry.readlink())
        except FileNotFoundError:  # the one that lists the directory
            continue
        if target.startswith(str(below)):
            found.append(target)
    return sorted(found)


def memory_maps(below: Path) -> list[str]:
    """The files below a directory that are mapped into memory."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    return [line.split(maxsplit=5)[5] for line in lines if str(below) in line]


def write_at(path: Path, position: int, data: bytes) -> None:
    """Damage."""
    fd = os.open(path, os.O_WRONLY)
    try:
        os.pwrite(fd, data, position)
    finally:
        os.close(fd)
