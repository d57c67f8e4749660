"""CRC-32C: every kernel that this processor can run says what the package says."""

from __future__ import annotations

import importlib.util
import random
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from barnabas._kernels import checksum, is_compiled, record_batch
from barnabas._kernels.crc32c_package import Checksum, from_package
from barnabas.records.batch import RecordBatch
from barnabas.records.builder import RecordBatchBuilder

crc32c = checksum.crc32c
is_plain_batch = record_batch.is_plain_batch

BUILT = importlib.util.find_spec("barnabas._kernels.compiled.checksum") is not None
KERNELS: tuple[str, ...] = ()
if BUILT:
    _checksum = importlib.import_module("barnabas._kernels.compiled.checksum")
    KERNELS = _checksum.KERNELS
needs_extension = pytest.mark.skipif(not BUILT, reason="the extension was not built")


@pytest.fixture(params=[*KERNELS, pytest.param(None, marks=needs_extension)])
def kernel(request: pytest.FixtureRequest) -> Iterator[Checksum]:
    """Each of them; None is the extension that leaves it to the package."""
    _checksum.choose(request.param)
    yield _checksum.crc32c
    _checksum.choose(KERNELS[0] if KERNELS else None)


def by_definition(data: bytes) -> int:
    """Bit by bit: the remainder of a division of polynomials."""
    state = 0xFFFFFFFF
    for octet in data:
        state ^= octet
        for _ in range(8):
            state = state >> 1 ^ (0x82F63B78 if state & 1 else 0)
    return state ^ 0xFFFFFFFF


def test_known_values(kernel: Checksum) -> None:
    assert kernel(b"", 0) == 0
    assert kernel(b"123456789", 0) == 0xE3069283
    # The examples of RFC 3720.
    assert kernel(bytes(32), 0) == 0x8A9136AA
    assert kernel(b"\xff" * 32, 0) == 0x62A8AB43
    assert kernel(bytes(range(32)), 0) == 0x46DD794E


def test_as_it_is_defined(kernel: Checksum) -> None:
    chance = random.Random(1)
    for size in (1, 7, 63, 64, 127, 128, 129, 255, 1007, 1008, 1024, 3000, 8064, 9100):
        data = chance.randbytes(size)
        assert kernel(data, 0) == by_definition(data), size


def test_every_length_at_every_alignment(kernel: Checksum) -> None:
    package, memory = from_package(), memoryview(random.Random(2).randbytes(5100))
    for alignment in range(64):
        for length in range(5001):
            data = memory[alignment : alignment + length]
            assert kernel(data, 0) == package(data, 0), (alignment, length)


def test_long_ones(kernel: Checksum) -> None:
    chance, package = random.Random(3), from_package()
    memory = memoryview(chance.randbytes((2 << 20) + 100))
    sizes = [8063, 8064, 8065, 16128, 16128 + 1008, 1 << 20, (2 << 20) - 1, 2 << 20]
    sizes += [chance.randrange(5000, 100_000) for _ in range(200)]
    for size in sizes:
        start = chance.randrange(64)
        data = memory[start : start + size]
        assert kernel(data, 0) == package(data, 0), (start, size)


def test_every_bit_counts(kernel: Checksum) -> None:
    """A checksum is linear: of data with a single bit, each is another one, at whatever place a kernel adds it."""
    package, data = from_package(), bytearray(9500)
    for bit in range(0, 8 * len(data), 37):
        data[bit >> 3] = 1 << (bit & 7)
        assert kernel(data, 0) == package(data, 0), bit
        data[bit >> 3] = 0


def test_one_piece_behind_another(kernel: Checksum) -> None:
    chance, package = random.Random(4), from_package()
    for _ in range(300):
        data = memoryview(chance.randbytes(chance.choice([10, 200, 3000, 20_000])))
        cut = chance.randrange(len(data) + 1)
        assert kernel(data[cut:], kernel(data[:cut], 0)) == package(data, 0)
        value = chance.getrandbits(32)
        assert kernel(data, value) == package(data, value)


def test_threads_at_the_same_time(kernel: Checksum) -> None:
    data = random.Random(5).randbytes(3 << 20)
    expected, found = from_package()(data, 0), []
    threads = [threading.Thread(target=lambda: found.append(kernel(data, 0))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4


def test_compiled_callers_use_it(kernel: Checksum) -> None:
    builder = RecordBatchBuilder()
    builder.append(1, b"k", b"v" * 3000)
    batch = bytearray(builder.close())
    assert kernel(batch[21:], 0) == RecordBatch(batch).crc
    assert is_plain_batch(memoryview(batch), 5000, 10, 100, 100, True)
    batch[100] ^= 1
    assert not is_plain_batch(memoryview(batch), 5000, 10, 100, 100, True)


def test_what_has_no_bytes_is_refused(kernel: Checksum) -> None:
    with pytest.raises(TypeError):
        kernel("text", 0)  # type: ignore[arg-type]
    with pytest.raises(BufferError):
        kernel(memoryview(bytes(10))[::2], 0)


@needs_extension
def test_a_kernel_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="no kernel abacus here"):
        _checksum.choose("abacus")


@pytest.mark.skipif(not KERNELS, reason="no kernel for this processor")
@pytest.mark.skipif(not is_compiled("checksum"), reason="BARNABAS_PURE=1")
def test_the_extension_is_used_and_the_package_is_not_even_loaded() -> None:
    assert checksum.crc32c is _checksum.crc32c
    script = (
        "import sys; from barnabas._kernels import checksum; assert checksum.crc32c(b'123456789') == 0xE3069283;"
        "assert not any(name.startswith('crc32c') for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=180)


def test_pieces_of_the_same_bytes() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"6789", crc32c(b"12345")) == 0xE3069283
    assert from_package() is from_package()
