from __future__ import annotations

import random
import struct
from contextlib import suppress
from importlib import import_module
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas._kernels import record_batch
from barnabas._kernels.pure import record_batch as pure
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.append_origin import AppendOrigin
from barnabas.log.config.log_config import LogConfig
from barnabas.log.log_validator import LogValidator
from barnabas.records.batch import HEADER, CompressionType
from barnabas.records.builder import RecordBatchBuilder
from unit.records.strategies import with_crc

TWINS: list[ModuleType] = [pure]
with suppress(ImportError):  # not built here
    TWINS.append(import_module("barnabas._kernels.compiled.record_batch"))

both = pytest.mark.parametrize("twin", TWINS, ids=lambda module: module.__name__.split(".")[-2])

NOW = 1_000_000
BEFORE, AFTER = 2**63 - 1, 3_600_000
"""As topics have it if nobody says otherwise."""


def batch(timestamps: tuple[int, ...] = (NOW, NOW + 5), key: bytes | None = b"k", **options: object) -> bytes:
    settings = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 3, **options}
    builder = RecordBatchBuilder(**settings)  # type: ignore[arg-type]
    for timestamp in timestamps:
        builder.append(timestamp, key, b"value")
    return bytes(builder.close())


def patched(data: bytes, form: str, position: int, value: int) -> bytes:
    """With another value in the header, and a checksum that fits."""
    changed = bytearray(data)
    struct.pack_into(">" + form, changed, position, value)
    return bytes(with_crc(changed))


def is_plain(twin: ModuleType, data: bytes, **changes: int) -> bool:
    limits = {"max_size": 10_000, "now_ms": NOW, "before": BEFORE, "after": AFTER, "keys_needed": False, **changes}
    found: bool = twin.is_plain_batch(memoryview(data), *limits.values())
    return found


@both
@pytest.mark.parametrize(
    "data",
    [
        batch(),
        batch(key=None),
        batch(is_transactional=True),
        batch(producer_id=-1, producer_epoch=-1, base_sequence=-1),
        batch((NOW + 5, NOW, NOW + 5)),
        batch((-1,)),
        batch((0,)),
        batch((NOW,) * 30_000),
    ],
    ids=["", "no key", "transactional", "no producer", "falling", "no timestamp", "1970", "large"],
)
def test_plain_batches(twin: ModuleType, data: bytes) -> None:
    assert is_plain(twin, data, max_size=len(data))
    assert not is_plain(twin, data, max_size=len(data) - 1)


@both
@pytest.mark.parametrize(
    "data",
    [
        b"",
        batch()[:-1],
        batch()[:61],
        batch() + b"\0",
        batch() + batch(),
        batch()[:-1] + b"!",
        batch(compression=CompressionType.GZIP),
        batch(is_control=True),
        patched(batch(), "q", 0, 1),
        bytes(batch()[:11] + b"\5" + batch()[12:]),
        bytes(batch()[:16] + b"\1" + batch()[17:]),
        patched(batch(), "h", 21, 0x08),
        patched(batch(), "h", 21, 0x40),
        patched(batch(), "h", 21, -0x8000),
        patched(batch(), "i", 23, 2),
        patched(batch(), "i", 23, -1),
        patched(batch(), "i", 57, 1),
        patched(batch(), "i", 57, 0),
        patched(patched(batch(), "i", 57, 3), "i", 23, 2),
        patched(patched(batch(), "i", 57, 1), "i", 23, 0),
        patched(batch(), "q", 27, -2),
        patched(batch(), "q", 27, 2**63 - 1),
        patched(batch(), "q", 35, -2),
        patched(batch(), "q", 35, NOW + 6),
        patched(batch(), "q", 35, NOW + 4),
        patched(batch(), "h", 51, -1),
        patched(batch(), "i", 53, -1),
        patched(batch(is_transactional=True), "q", 43, -1),
        patched(batch((NOW, -1)), "q", 27, 0),
    ],
)
def test_everything_else_is_for_somebody_to_look_at(twin: ModuleType, data: bytes) -> None:
    assert not is_plain(twin, data)


@both
def test_the_limits_of_the_topic(twin: ModuleType) -> None:
    assert is_plain(twin, batch(key=b""), keys_needed=True)
    assert not is_plain(twin, batch(key=None), keys_needed=True)
    assert is_plain(twin, batch(), after=5)
    assert not is_plain(twin, batch(), after=4)
    assert is_plain(twin, batch(), now_ms=NOW + 10, before=10)
    assert not is_plain(twin, batch(), now_ms=NOW + 10, before=9)
    assert is_plain(twin, batch((-1, NOW)), before=NOW)  # from 1970 on, all may be as old as it likes
    assert not is_plain(twin, batch((-1, NOW)), before=10)  # others can tell a record without a time from an old one


@both
@pytest.mark.parametrize("delta", [-(2**63), 2**63 - 1, -NOW - 2])
def test_a_timestamp_beyond_all_bounds(twin: ModuleType, delta: int) -> None:
    raw = (delta << 1) ^ (delta >> 63)
    encoded = bytearray()
    while raw >= 0x80:
        encoded.append(raw & 0x7F | 0x80)
        raw >>= 7
    encoded.append(raw)
    record = b"\0" + bytes(encoded) + b"\0\1\1\0"
    section = bytes([len(record) * 2]) + record
    for base in (-1, 0, NOW, 2**63 - 1):
        header = bytearray(HEADER.pack(0, 49 + len(section), -1, 2, 0, 0, 0, base, 2**63 - 3, -1, -1, -1, 1))
        assert not is_plain(twin, bytes(with_crc(header + section)), after=2**63 - 1)


def test_long_batches_with_anything_wrong() -> None:
    """They are gone through block by block; both say the same wherever something is wrong, and yes to some."""
    answers: list[bool] = []
    for seed in range(200):
        chance = random.Random(seed)
        builder, size = RecordBatchBuilder(), 0
        limit = chance.choice([300, 3000, 65_400, 65_600, 140_000])
        while size < limit:
            value = bytes(chance.choice([0, 10, 100, 5000, 9000, 70_000]))
            size += len(value) + 10
            key = chance.choice([None, b"", b"k", bytes(70)])
            headers = [("h", b"v")] if chance.random() < 0.02 else []
            builder.append(NOW + chance.choice([0, 1, 63, 64, -64, 9000, 2**20, 2**21]), key, value, headers)
        data = bytearray(builder.close())
        if seed % 4:
            for _ in range(chance.randint(1, 2)):
                at = chance.choice([61, 62, 63, 64, 65, 66, len(data) - 1, chance.randrange(61, len(data))])
                data[at] = chance.choice([data[at] ^ 1 << chance.randrange(8), data[at] ^ 1, 0x80, 0xFF, 0, 1])
            if seed % 4 > 1:
                data = bytearray(with_crc(data))
        found = {is_plain(twin, bytes(data), max_size=1_000_000, keys_needed=seed % 8 == 4) for twin in TWINS}
        assert len(found) == 1, f"seed {seed}"
        answers += found
    assert 50 < answers.count(True) < 150


def test_somebody_was_chosen() -> None:
    assert record_batch.is_plain_batch in [twin.is_plain_batch for twin in TWINS]


@settings(max_examples=300)
@given(st.data())
def test_what_is_plain_would_pass_as_it_is(data: st.DataObject) -> None:
    """Whatever is changed about a batch: all say the same, and yes only if the validator finds nothing to say or do."""
    changed = bytearray(
        batch(
            tuple(data.draw(st.lists(st.sampled_from([-1, 0, NOW - 50, NOW, NOW + 50]), min_size=1, max_size=3))),
            key=data.draw(st.sampled_from([None, b"k"])),
        )
    )
    for _ in range(data.draw(st.integers(0, 3))):
        place = data.draw(st.integers(0, len(changed) - 1))
        changed[place] = data.draw(st.one_of(st.integers(0, 3), st.integers(0, 255)))
    if data.draw(st.booleans()):
        changed = bytearray(with_crc(changed))
    compacted = data.draw(st.booleans())
    before, after = data.draw(st.sampled_from([20, NOW, BEFORE])), data.draw(st.sampled_from([20, AFTER]))
    answers = {is_plain(twin, bytes(changed), before=before, after=after, keys_needed=compacted) for twin in TWINS}
    assert len(answers) == 1
    if answers == {True}:
        config = LogConfig.from_properties(
            {
                "cleanup.policy": "compact" if compacted else "delete",
                "message.timestamp.before.max.ms": before,
                "message.timestamp.after.max.ms": after,
            }
        )
        validator = LogValidator(TopicPartition("t", 0), config)
        validated = validator.validate(bytes(changed), AppendOrigin.CLIENT, NOW)
        assert validated.view == changed
