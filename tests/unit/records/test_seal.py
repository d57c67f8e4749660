"""The header of a batch whose records are already encoded."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas._kernels import checksum
from barnabas.records.batch import HEADER_SIZE, CompressionType, RecordBatch
from barnabas.records.builder import RecordBatchBuilder
from barnabas.records.seal import records_checksum, seal

crc32c = checksum.crc32c


def built(random: Random, **state: int) -> bytearray:
    builder = RecordBatchBuilder(compression=random.choice([CompressionType.NONE, CompressionType.GZIP]), **state)  # type: ignore[arg-type]
    for _ in range(random.choice([1, 3, 40])):
        builder.append(random.getrandbits(40), None, random.randbytes(random.choice([0, 10, 5_000])))
    return builder.close()


@pytest.mark.parametrize("seed", range(40))
def test_a_sealed_batch_is_one_that_was_built_so(seed: int) -> None:
    random = Random(seed)
    transactional = random.random() < 0.5
    state = {
        "producer_id": random.choice([0, 7, 2**63 - 1]),
        "producer_epoch": random.choice([0, 3, 2**15 - 1]),
        "base_sequence": random.choice([0, 5, 2**31 - 1]),
    }
    wanted = built(Random(seed), **state, is_transactional=transactional)
    batch = built(Random(seed))
    of_records = records_checksum(batch)
    assert of_records == crc32c(bytes(batch[HEADER_SIZE:]))
    batch[17:21] = random.randbytes(4)
    seal(batch, state["producer_id"], state["producer_epoch"], state["base_sequence"], transactional, of_records)
    assert batch == wanted
    RecordBatch(batch).ensure_valid()


def test_a_batch_of_nobody_gets_its_checksum_only() -> None:
    wanted = built(Random(1))
    batch = bytearray(wanted)
    batch[17:21] = bytes(4)
    seal(batch, -1, -1, -1, False, records_checksum(batch))
    assert batch == wanted


def test_of_a_header_alone() -> None:
    batch = bytearray(HEADER_SIZE)
    assert records_checksum(batch) == 0
    seal(batch, 1, 2, 3, False, 0)
    assert int.from_bytes(batch[17:21]) == crc32c(bytes(batch[21:]))


def test_what_is_no_batch() -> None:
    for size in (0, HEADER_SIZE - 1):
        with pytest.raises(ValueError, match="at least"):
            records_checksum(bytearray(size))
        with pytest.raises(ValueError, match="at least"):
            seal(bytearray(size), 1, 1, 1, False, 0)


@given(st.binary(max_size=100), st.binary(max_size=300), st.integers(0, 3))
def test_the_checksum_of_two_pieces_comes_from_those_of_each(first: bytes, second: bytes, times: int) -> None:
    second *= 50**times // 10 + 1
    assert checksum.combined_crc32c(crc32c(first), crc32c(second), len(second)) == crc32c(first + second)
