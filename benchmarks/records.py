"""Record batches: our builder and reader, compiled and in plain Python, beside kafka-python's and aiokafka's.

A batch is what a producer with default settings sends: 16 KiB, here of values of 100 bytes without key and headers, not
compressed. Building includes the header and its checksum. Reading makes the objects and looks at every field of each,
because some make a field only when it is asked for.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from functools import partial
from types import ModuleType
from typing import Any

from aiokafka.record._crecords import default_records as aiokafka_records
from kafka.record import default_records as kafka_records

from barnabas import _kernels
from barnabas._kernels import is_compiled
from barnabas._kernels.crc32c_package import Checksum, from_package
from barnabas._kernels.pure import append_state as pure_state
from barnabas._kernels.pure import record_codec as pure_codec
from barnabas.records import builder, reader
from barnabas.records.batch import RecordBatch
from barnabas.records.validation import validate_header, validate_records
from benchmarks.measure import Row, compare, rates

ACCELERATED = is_compiled("record_codec")

NOW = 1_700_000_000_000
VALUE = b"v" * 100
KEY = b"k" * 16
HEADERS: list[tuple[str, bytes | None]] = [("source", b"12345678"), ("trace", b"t" * 16)]
BATCH_SIZE = 16384
RECORDS = 150
REPEAT = 20

OURS = "barnabas" if ACCELERATED else "barnabas (not compiled)"
PURE = "barnabas, plain Python"
KAFKA_PYTHON = "kafka-python"
AIOKAFKA = "aiokafka, compiled"


def run(rounds: int = 9) -> list[Row]:
    return (
        building(rounds)
        + building_while_there_is_room(rounds)
        + building_with_keys_and_headers(rounds)
        + reading(rounds)
        + reading_with_keys_and_headers(rounds)
        + validating(rounds)
        + checksums(rounds)
    )


def plain_python(name: str) -> ModuleType:
    """A module of ours, loaded a second time on top of the kernels in plain Python."""
    names = ["barnabas.records.builder", "barnabas.records.reader"]
    compiled = {module: sys.modules.pop(module, None) for module in names}
    chosen = {"append_state": _kernels.append_state, "record_codec": _kernels.record_codec}
    vars(_kernels).update(append_state=pure_state, record_codec=pure_codec)
    try:
        return importlib.import_module(f"barnabas.records.{name}")
    finally:
        vars(_kernels).update(chosen)
        sys.modules.update({module: loaded for module, loaded in compiled.items() if loaded is not None})


def build_ours(module: Any, key: bytes | None, headers: list[tuple[str, bytes | None]]) -> bytearray:
    batch = module.RecordBatchBuilder(max_size=1 << 20)
    append = batch.append
    for index in range(RECORDS):
        append(NOW + index, key, VALUE, headers)
    data: bytearray = batch.close()
    return data


def build_theirs(module: Any, key: bytes | None, headers: list[tuple[str, bytes | None]]) -> bytearray:
    batch = module.DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    append = batch.append
    for index in range(RECORDS):
        append(index, NOW + index, key, VALUE, headers)
    data: bytearray = batch.build()
    return data


def repeated(work: Callable[..., Any], *arguments: Any) -> Callable[[], int]:
    def several() -> int:
        for _ in range(REPEAT):
            work(*arguments)
        return REPEAT * RECORDS

    return several


def building(rounds: int) -> list[Row]:
    return _building(rounds, "batch builder, values of 100 bytes", None, [], {KAFKA_PYTHON: 3.0, AIOKAFKA: 0.5})


def building_with_keys_and_headers(rounds: int) -> list[Row]:
    return _building(rounds, "batch builder, with keys and two headers", KEY, HEADERS, {})


def _building(
    rounds: int, case: str, key: bytes | None, headers: list[tuple[str, bytes | None]], targets: dict[str, float]
) -> list[Row]:
    contenders = {
        OURS: repeated(build_ours, builder, key, headers),
        PURE: repeated(build_ours, plain_python("builder"), key, headers),
        KAFKA_PYTHON: repeated(build_theirs, kafka_records, key, headers),
        AIOKAFKA: repeated(build_theirs, aiokafka_records, key, headers),
    }
    return compare(case, "records/s", rates(contenders, rounds), OURS, targets)


def building_while_there_is_room(rounds: int) -> list[Row]:
    """What a producer does: append until the batch is full, then start another."""

    def fill_ours(module: Any) -> int:
        total = 0
        for _ in range(REPEAT):
            batch = module.RecordBatchBuilder(max_size=BATCH_SIZE)
            append = batch.try_append
            while append(NOW, None, VALUE) is not None:
                pass
            total += batch.record_count
            batch.close()
        return total

    def fill_theirs(module: Any) -> int:
        total = 0
        for _ in range(REPEAT):
            batch = module.DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, BATCH_SIZE)
            append = batch.append
            index = 0
            while append(index, NOW, None, VALUE, []) is not None:
                index += 1
            total += index
            batch.build()
        return total

    twin = plain_python("builder")
    contenders = {
        OURS: lambda: fill_ours(builder),
        PURE: lambda: fill_ours(twin),
        KAFKA_PYTHON: lambda: fill_theirs(kafka_records),
        AIOKAFKA: lambda: fill_theirs(aiokafka_records),
    }
    measured = rates(contenders, rounds)
    return compare("batch builder, until it is full", "records/s", measured, OURS, {KAFKA_PYTHON: 3.0, AIOKAFKA: 0.5})


def look_at(records: Iterable[Any]) -> None:
    for record in records:
        _ = record.offset, record.timestamp, record.key, record.value, record.headers


def reading(rounds: int) -> list[Row]:
    data = bytes(build_ours(builder, None, []))
    return _reading(rounds, "batch reader, values of 100 bytes", data, {KAFKA_PYTHON: 3.0, AIOKAFKA: 0.5})


def reading_with_keys_and_headers(rounds: int) -> list[Row]:
    data = bytes(build_ours(builder, KEY, HEADERS))
    return _reading(rounds, "batch reader, with keys and two headers", data, {})


def _reading(rounds: int, case: str, data: bytes, targets: dict[str, float]) -> list[Row]:
    twin = plain_python("reader")
    contenders = {
        OURS: repeated(lambda: look_at(reader.read_records(RecordBatch(data)))),
        f"{OURS}, views": repeated(lambda: look_at(reader.read_records(RecordBatch(data), copy=False))),
        PURE: repeated(lambda: look_at(twin.read_records(RecordBatch(data)))),
        KAFKA_PYTHON: repeated(lambda: look_at(kafka_records.DefaultRecordBatch(data))),
        AIOKAFKA: repeated(lambda: look_at(aiokafka_records.DefaultRecordBatch(data))),
    }
    return compare(case, "records/s", rates(contenders, rounds), OURS, targets)


def validating(rounds: int) -> list[Row]:
    """What a broker does with a batch it has received: the header and checksum always, every record if it wants to."""
    data = bytes(build_ours(builder, None, []))
    contenders = {
        "barnabas, header and checksum": repeated(lambda: validate_header(RecordBatch(data))),
        "barnabas, every record": repeated(lambda: validate_records(RecordBatch(data))),
    }
    measured = rates(contenders, rounds)
    return [Row("batch validation", name, rate, "records/s") for name, rate in measured.items()]


def checksums(rounds: int) -> list[Row]:
    """Each kernel that this processor can run, and the package that is there for others."""
    try:
        _checksum = importlib.import_module("barnabas._kernels.compiled.checksum")
    except ImportError:
        return []
    rows: list[Row] = []
    for name, size in (("1 KiB", 1 << 10), ("16 KiB", 1 << 14), ("1 MiB", 1 << 20)):
        data, repeat = bytes(size), (1 << 23) // size

        def over(function: Checksum, data: bytes = data, repeat: int = repeat) -> int:
            for _ in range(repeat):
                function(data, 0)
            return repeat * len(data)

        def by(kernel: str, over: Callable[[Checksum], int] = over) -> int:
            _checksum.choose(kernel)
            return over(_checksum.crc32c)

        contenders: dict[str, Callable[[], int]] = {
            f"barnabas, {kernel}": partial(by, kernel) for kernel in _checksum.KERNELS
        }
        contenders["package crc32c"] = partial(over, from_package())
        measured = rates(contenders, rounds)
        rows += [Row(f"checksum of {name}", who, rate / 1e6, "MB/s") for who, rate in measured.items()]
    _checksum.choose(_checksum.KERNELS[0] if _checksum.KERNELS else None)
    return rows
