"""Log segments: what appending and reading cost beside the bare system call.

The floor of an append is ``pwrite`` of the same bytes to a file, as fast as this machine does it. What a segment adds
is finding out whether an index entry is due, and making it: of batches of 16 KB, every one gets an entry in the offset
index.

A read finds the batch of an offset and returns a region of the file without reading it; ``pread`` of one header, which
it cannot do without, is its floor. Tail reads look for the newest batch, as a consumer that keeps up does; random
reads, for any.

Recovery reads everything and checks every checksum; its floor is the checksum alone.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from barnabas._kernels import checksum
from barnabas.common.clock import SYSTEM_CLOCK
from barnabas.log.segment.log_segment import LogSegment
from barnabas.records.batch import RecordBatch
from barnabas.records.builder import RecordBatchBuilder
from benchmarks.measure import Row, compare, rates

crc32c = checksum.crc32c

NOW = 1_700_000_000_000
SIZES = (200, 1_000, 16_000)
APPENDS = 2_000
READS = 2_000
RECOVERED_BYTES = 64 << 20


@dataclass(frozen=True)
class Config:
    segment_index_bytes: int = 10 * 1024 * 1024
    index_interval_bytes: int = 4096


class Appender:
    """Appends the same batch again and again, at ever higher offsets; starts over with a new segment each round."""

    def __init__(self, directory: Path, size: int) -> None:
        self._directory = Path(tempfile.mkdtemp(dir=directory))
        builder = RecordBatchBuilder()
        builder.append(NOW, None, b"v" * (size - 70))
        self.batch = RecordBatch(builder.close())
        self.base_offset = 0
        self.segment: LogSegment | None = None

    def fill(self, count: int = APPENDS) -> int:
        if self.segment is not None:
            self.segment.delete_if_exists()
        segment = self.segment = LogSegment(self.base_offset, self._directory, Config(), SYSTEM_CLOCK)
        batch = self.batch
        for offset in range(self.base_offset, self.base_offset + count):
            batch.set_base_offset(offset)
            segment.append(offset, NOW, offset, batch.view)
        self.base_offset += count
        return count


class Floor:
    """The same writes without a segment around them."""

    def __init__(self, directory: Path, batch: RecordBatch) -> None:
        self._path = directory / f"{len(batch)}.bare"
        self._batch = batch

    def fill(self) -> int:
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        batch, position = self._batch, 0
        for offset in range(APPENDS):
            batch.set_base_offset(offset)
            position += os.pwrite(fd, batch.view, position)
        os.close(fd)
        return APPENDS


def run() -> list[Row]:
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for size in SIZES:
            appender = Appender(directory, size)
            rows += append(directory, appender)
            rows += read(appender)
        rows += recover(directory)
    return rows


def append(directory: Path, appender: Appender) -> list[Row]:
    measured = rates({"segment": appender.fill, "bare pwrite": Floor(directory, appender.batch).fill})
    case = f"append batches of {len(appender.batch):,} bytes"
    return [
        *compare(case, "/s", measured, "segment", {"bare pwrite": 0.3}),
        Row(case, "segment", measured["segment"] * len(appender.batch) / 1e6, "MB/s"),
    ]


def read(appender: Appender) -> list[Row]:
    appender.fill(20_000)
    segment = appender.segment
    assert segment is not None
    last = appender.base_offset - 1
    chance = random.Random(1)
    anywhere = [chance.randrange(segment.base_offset, last) for _ in range(READS)]
    handle = segment.records.read_slice(0, 1).fd

    def reading(offsets: list[int]) -> Callable[[], int]:
        def work() -> int:
            for offset in offsets:
                segment.read(offset, 1 << 20)
            return READS

        return work

    def floor() -> int:
        for _ in range(READS):
            os.pread(handle, 61, 0)
        return READS

    measured = rates({"tail": reading([last] * READS), "anywhere": reading(anywhere), "bare pread": floor})
    return compare(f"find batches of {len(appender.batch):,} bytes", "/s", measured, "tail", {"bare pread": 0.03})


def recover(directory: Path) -> list[Row]:
    appender = Appender(directory, 16_000)
    appender.fill(RECOVERED_BYTES // 16_000)
    segment = appender.segment
    assert segment is not None
    data = segment.records.read_bytes(0, segment.size)
    view = memoryview(data)

    def work() -> int:
        assert segment is not None
        assert segment.recover() == 0
        return segment.size

    def floor() -> int:
        for start in range(0, len(data), 16_000):
            crc32c(view[start : start + 16_000])
        return len(data)

    measured = {name: rate / 1e6 for name, rate in rates({"recover": work, "bare CRC-32C": floor}, rounds=3).items()}
    return compare("recover a segment of 64 MiB", "MB/s", measured, "recover", {"bare CRC-32C": 0.1})
