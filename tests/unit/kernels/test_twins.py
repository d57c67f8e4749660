"""Every public name of every kernel: the compiled function and its Python twin get the same inputs.

`CASES` maps ``kernel.name`` to a function that calls one implementation. Classes that keep state have test modules of
their own, which run once with each implementation; `TESTED_IN` names them.
"""

from __future__ import annotations

import inspect
import os
import random
import select
import socket
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas import _kernels
from barnabas.protocol.headers import _APIS, ParsedHeader, parse_request_header_pure
from barnabas.records.batch import HEADER_SIZE
from unit.records.strategies import CODECS, RecordInput, build, mutate, record_inputs

TESTS = Path(__file__).parents[1]
seeds = st.integers(0, 2**32)
binaries = st.binary(max_size=300)


def compiled(name: str) -> ModuleType:
    module: ModuleType = pytest.importorskip(f"barnabas._kernels.compiled.{name}", reason="not built")
    return module


def pure(name: str) -> ModuleType:
    return import_module(f"barnabas._kernels.pure.{name}")


def damaged(seed: int, *, codec: int | None = None) -> bytearray:
    """A batch of a few records, in three of four cases with damage somewhere."""
    source = random.Random(seed)
    records = [
        RecordInput(1_000 + source.randrange(9), source.choice((None, b"k")), source.randbytes(source.randrange(90)))
        for _ in range(source.randrange(1, 6))
    ]
    data = build(records) if codec is None else build(records, CODECS[codec % len(CODECS)])
    return bytearray(mutate(data, source) if source.randrange(4) else data)


def outcome(call: Callable[[], Any]) -> Any:
    """The result, or the type and the words of the exception."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - to be compared
        return type(error), str(error)


# --- kernels on bytes and numbers

CASES: dict[str, tuple[Any, Callable[[Any, Any], Any]]] = {}


def case(name: str, inputs: Any) -> Callable[[Callable[[Any, Any], Any]], None]:
    def register(function: Callable[[Any, Any], Any]) -> None:
        CASES[name] = (inputs, function)

    return register


@case("checksum.crc32c", st.tuples(binaries, st.integers(0, 2**32 - 1)))
def _(kernel: Any, given: Any) -> Any:
    data, value = given
    return kernel.crc32c(data), kernel.crc32c(memoryview(data), value)


@case("checksum.choose", st.just("abacus"))
def _(kernel: Any, given: Any) -> Any:
    with pytest.raises(ValueError, match=f"no kernel {given} here"):
        kernel.choose(given)


@case("murmur2.murmur2", binaries)
def _(kernel: Any, given: Any) -> Any:
    return kernel.murmur2(given)


@case("murmur2.partition_for_key", st.tuples(binaries, st.integers(-2, 1_000)))
def _(kernel: Any, given: Any) -> Any:
    return outcome(lambda: kernel.partition_for_key(*given))


@case("murmur2.item_for_key", st.tuples(st.none() | st.text() | binaries, st.integers(0, 300)))
def _(kernel: Any, given: Any) -> Any:
    key, count = given
    found = kernel.item_for_key(key, tuple(range(count)))
    if type(key) is bytes and count:
        assert found == kernel.partition_for_key(key, count)
    else:
        assert found is None
    return found


@case("columns.partitions_for_keys", st.tuples(st.lists(st.none() | binaries, max_size=9), st.integers(0, 50)))
def _(kernel: Any, given: Any) -> Any:
    keys, count = given
    array = pa.array(keys, pa.binary())
    found = np.empty(len(array), np.int32)
    return outcome(
        lambda: kernel.partitions_for_keys(
            kernel.BinaryColumn(*array.buffers(), False, array.offset, len(array)), count, found
        )
    ) or (found.tolist() if count else None)


@case("record_batch.is_plain_batch", st.tuples(seeds, st.booleans(), st.sampled_from([10, 10_000])))
def _(kernel: Any, given: Any) -> Any:
    seed, keys_needed, max_size = given
    return kernel.is_plain_batch(memoryview(damaged(seed)), max_size, 1_005, 2**63 - 1, 3_600_000, keys_needed)


@case("record_batch.offset_after", st.lists(seeds, max_size=4))
def _(kernel: Any, given: Any) -> Any:
    return kernel.offset_after(memoryview(b"".join(map(damaged, given))))


@case("record_batch.leader_epoch_before", st.tuples(st.lists(seeds, max_size=4), st.integers(-1, 2**63 - 1)))
def _(kernel: Any, given: Any) -> Any:
    return kernel.leader_epoch_before(memoryview(b"".join(map(damaged, given[0]))), given[1])


@case("record_batch.find_batch", st.tuples(st.lists(seeds, max_size=4), st.sampled_from([-1, 0, 1, 4, 9, 2**63 - 1])))
def _(kernel: Any, given: Any) -> Any:
    return kernel.find_batch(b"".join(map(damaged, given[0])), given[1])


@case("record_codec.iterate_records", st.tuples(seeds, st.booleans(), st.none() | st.integers(0, 10**13)))
def _(kernel: Any, given: Any) -> Any:
    seed, copy, log_append_time = given
    section = bytes(damaged(seed)[HEADER_SIZE:])
    found: list[Any] = []

    def read() -> None:
        for record in kernel.iterate_records(section, 3, 5, 1_000, log_append_time, copy):
            fields = (record.offset, record.timestamp, record.key, record.value, record.headers)
            found.append([bytes(field) if isinstance(field, memoryview) else field for field in fields])

    return outcome(read), found


@case("record_codec.walk_records", st.tuples(seeds, st.integers(0, 5), st.booleans()))
def _(kernel: Any, given: Any) -> Any:
    seed, count, consecutive = given
    return outcome(
        lambda: tuple(kernel.walk_records(bytes(damaged(seed)[HEADER_SIZE:]), count, 1_000, count - 1, consecutive))
    )


@case("record_codec.encode_headers", st.lists(st.tuples(st.text(max_size=9), st.none() | binaries), max_size=4))
def _(kernel: Any, given: Any) -> Any:
    return bytes(kernel.encode_headers(given))


@case("record_codec.size_of_payload", record_inputs)
def _(kernel: Any, given: Any) -> Any:
    return kernel.size_of_payload(given.key, given.value, given.headers)


@case("append_state.RecordFuture", st.tuples(st.integers(0, 2**31), st.integers(-1, 2**63 - 1), st.integers(-1, 9)))
def _(kernel: Any, fields: Any) -> Any:
    future = kernel.RecordFuture("result", *fields, 7)
    return future.batch_result, future.index, future.timestamp_ms, future.key_size, future.value_size


@case("append_state.AppendState", st.lists(record_inputs, max_size=5))
def _(kernel: Any, given: Any) -> Any:
    appender = kernel.AppendState(None, 10_000, 1.0)
    results = [outcome(partial(appender.append, *record)) for record in given]
    return results, bytes(appender.take(0))


@case("record_codec.Record", st.tuples(st.integers(0, 2**63 - 1), st.none() | binaries))
def _(kernel: Any, given: Any) -> Any:
    record = kernel.Record(given[0], 5, given[1], b"v", (("h", None),), 9)
    return repr(record), hash(record), record == kernel.Record(given[0], 5, given[1], b"v", (("h", None),), 9)


@case("headers.header_parser", st.tuples(st.integers(-1, 100), st.integers(-1, 20), st.none() | binaries, binaries))
def _(kernel: Any, given: Any) -> Any:
    api, version, client_id, rest = given
    size = (-1 if client_id is None else len(client_id)).to_bytes(2, "big", signed=True)
    data = b"".join(
        [api.to_bytes(2, "big", signed=True), version.to_bytes(2, "big", signed=True), b"\0\0\0\7", size]
    ) + (client_id or b"")
    parse = kernel.header_parser(_APIS, ParsedHeader, parse_request_header_pure)
    return [outcome(partial(parse, buffer)) for buffer in (data + rest, data, rest)]


@case(
    "checksum.combined_crc32c", st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**63))
)
def _(kernel: Any, given: Any) -> Any:
    return kernel.combined_crc32c(*given)


@case("sockets.new_buffer", st.integers(-1, 500))
def _(kernel: Any, given: Any) -> Any:
    return outcome(lambda: len(kernel.new_buffer(given)))


@case("sockets.large_buffer", st.integers(0, 500))
def _(kernel: Any, given: Any) -> Any:
    return len(kernel.large_buffer(given))


@case("sockets.resize", st.tuples(binaries, st.integers(0, 500)))
def _(kernel: Any, given: Any) -> Any:
    data = bytearray(given[0])
    kernel.resize(data, given[1])
    return len(data), bytes(data[: len(given[0])])


@case("sockets.address_of", st.binary(min_size=1, max_size=9))
def _(kernel: Any, given: Any) -> Any:
    data = bytearray(given)
    return kernel.address_of(memoryview(data)[len(given) - 1 :]) - kernel.address_of(data)


@case("sockets.wait", st.booleans())
def _(kernel: Any, given: Any) -> Any:
    ends = socket.socketpair()
    epoll = select.epoll()
    try:
        epoll.register(ends[0].fileno(), select.EPOLLIN)
        if given:
            ends[1].send(b"x")
        return [events for _, events in kernel.wait(epoll, 0)]
    finally:
        epoll.close()
        for end in ends:
            end.close()


@case("sockets.SocketIo", st.lists(st.binary(min_size=1, max_size=90), min_size=1, max_size=4))
def _(kernel: Any, given: Any) -> Any:
    ends = socket.socketpair()
    for end in ends:
        end.setblocking(False)
    near, far = (kernel.SocketIo(end) for end in ends)
    files: list[int] = []
    try:
        sent = [near.send(given[0]), near.send_more(given[0]), near.sendmsg(given)]
        buffer = bytearray(10)
        received = [
            bytes(far.recv(1 << 16)),
            outcome(lambda: far.recv(1))[0],
            outcome(lambda: far.recv_into(buffer))[0],
        ]
        far.keep_files(files, 2)
        sent.append(near.send_with_files(b"f", [0, 1]))
        received.append(bytes(far.recv(10)))
        with Path(__file__).open("rb") as file:
            sent.append(near.send_file(file.fileno(), 3, 40))
        return sent, received, len(files), bytes(far.recv(100))
    finally:
        for fd in files:
            os.close(fd)
        for io, end in zip((near, far), ends, strict=True):
            io.close()
            end.close()


@case("metrics.BucketTable", st.lists(st.floats(-10, 1e12), max_size=20))
def _(kernel: Any, given: Any) -> Any:
    table = kernel.BucketTable(2, 0.015, 0)
    for index, value in enumerate(given):
        table.add_row((value, -value), index * 700_000_000)
    return [[f"{number:.9g}" for number in part] for column in (0, 1) for part in table.read(column)]


@case("metrics.EventCount", st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 20 * 10**9)), max_size=20))
def _(kernel: Any, given: Any) -> Any:
    count, now = kernel.EventCount(0), 0
    for events, passed in given:
        now += passed
        count.add(events, now)
    return count.count, [f"{count.rate(which, now):.9g}" for which in range(3)]


TESTED_IN: dict[str, str] = {
    "codec": "protocol/test_every_message.py",
    "columns": "records/columns/test_columns_kernel.py",
    "consumer_record": "clients/consumer/test_consumer_record.py",
    "reactor": "network/reactor/test_reactor.py",
    "memory": "protocol/test_message_memory.py",
    "timeline": "server/test_timeline.py",
}
"""Where the classes of these kernels, and what works on them, are tested with both implementations."""


@pytest.mark.parametrize("name", CASES)
def test_the_same_inputs_give_the_same_results(name: str) -> None:
    kernel, _, _ = name.partition(".")
    first, second = compiled(kernel), pure(kernel)
    inputs, function = CASES[name]

    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(inputs)
    def check(given: Any) -> None:
        assert function(first, given) == function(second, given)

    check()


@pytest.mark.parametrize("kernel", _kernels.__all__)
def test_every_public_name_has_a_twin_and_a_case(kernel: str) -> None:
    module, twin = compiled(kernel), pure(kernel)
    public = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
    }
    assert public, "a kernel without a public name"
    assert not {name for name in public if not hasattr(twin, name)}, "these have no twin"
    if kernel in TESTED_IN:
        path = TESTS / TESTED_IN[kernel]
        assert f"barnabas._kernels.compiled.{kernel}" in path.read_text(), f"{path} does not run both"
    else:
        assert public <= {name.partition(".")[2] for name in CASES if name.startswith(f"{kernel}.")}


@pytest.mark.parametrize("kernel", _kernels.__all__)
def test_the_twin_of_a_class_has_all_its_methods(kernel: str) -> None:
    module, twin = compiled(kernel), pure(kernel)
    for name, value in vars(module).items():
        if inspect.isclass(value) and value.__module__ == module.__name__ and not name.startswith("_"):
            methods = {method for method in dir(value) if method[0] != "_" and callable(getattr(value, method))}
            assert methods <= set(dir(getattr(twin, name))), name
