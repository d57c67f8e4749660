"""The header of a batch whose records are there already: finished by both twins in the same way."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from random import Random
from types import ModuleType

import pytest

from barnabas._kernels import checksum
from barnabas._kernels.pure import columns as _columns_pure
from barnabas.records.batch import HEADER_SIZE, CompressionType, RecordBatch
from barnabas.records.builder import RecordBatchBuilder

crc32c = checksum.crc32c

TWINS: list[ModuleType] = [_columns_pure]
with suppress(ImportError):  # not built: the twin is all there is to test
    TWINS.append(import_module("barnabas._kernels.compiled.columns"))


def built(random: Random, **state: int) -> bytearray:
    builder = RecordBatchBuilder(compression=random.choice([CompressionType.NONE, CompressionType.GZIP]), **state)  # type: ignore[arg-type]
    for _ in range(random.choice([1, 3, 40])):
        builder.append(random.getrandbits(40), None, random.randbytes(random.choice([0, 10, 5_000])))
    return builder.close()


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("seed", range(40))
def test_a_sealed_batch_is_one_that_was_built_so(twin: ModuleType, seed: int) -> None:
    random = Random(seed)
    transactional = random.random() < 0.5
    state = {
        "producer_id": random.choice([0, 7, 2**63 - 1]),
        "producer_epoch": random.choice([0, 3, 2**15 - 1]),
        "base_sequence": random.choice([0, 5, 2**31 - 1]),
    }
    wanted = built(Random(seed), **state, is_transactional=transactional)
    batch = built(Random(seed))
    checksum = twin.records_checksum(batch)
    assert checksum == crc32c(bytes(batch[HEADER_SIZE:]))
    batch[17:21] = random.randbytes(4)
    twin.seal(batch, *state.values(), transactional, checksum)
    assert batch == wanted
    RecordBatch(batch).ensure_valid()


@pytest.mark.parametrize("twin", TWINS)
def test_a_batch_of_nobody_gets_its_checksum_only(twin: ModuleType) -> None:
    wanted = built(Random(1))
    batch = bytearray(wanted)
    batch[17:21] = bytes(4)
    twin.seal(batch, -1, -1, -1, False, twin.records_checksum(batch))
    assert batch == wanted


@pytest.mark.parametrize("twin", TWINS)
def test_of_a_header_alone(twin: ModuleType) -> None:
    batch = bytearray(HEADER_SIZE)
    assert twin.records_checksum(batch) == 0
    twin.seal(batch, 1, 2, 3, False, 0)
    assert int.from_bytes(batch[17:21]) == crc32c(bytes(batch[21:]))


@pytest.mark.parametrize("twin", TWINS)
def test_what_is_no_batch(twin: ModuleType) -> None:
    for size in (0, HEADER_SIZE - 1):
        with pytest.raises(ValueError, match="no batch"):
            twin.records_checksum(bytearray(size))
        with pytest.raises(ValueError, match="no batch"):
            twin.seal(bytearray(size), 1, 1, 1, False, 0)


def test_the_checksum_of_two_pieces_however_long() -> None:
    random = Random(7)
    for bits in [*range(64)] * 4:
        first, second, length = random.getrandbits(32), random.getrandbits(32), random.getrandbits(bits)
        wanted = _columns_pure.combined_crc32c(first, second, length)
        assert {twin.combined_crc32c(first, second, length) for twin in TWINS} == {wanted}
