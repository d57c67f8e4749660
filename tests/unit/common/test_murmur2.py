"""murmur2, compiled and in Python."""

from __future__ import annotations

from random import Random

import pytest

from barnabas._kernels import murmur2 as chosen
from barnabas._kernels.pure import murmur2 as pure

# From Kafka's own tests of its hash.
KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.mechanism("P03")
@pytest.mark.parametrize("key", KNOWN)
def test_known_hashes(key: bytes) -> None:
    assert chosen.murmur2(key) == pure.murmur2(key) == KNOWN[key]


def test_the_compiled_one_is_the_same() -> None:
    random = Random(3)
    for _ in range(5_000):
        key = random.randbytes(random.randrange(50))
        assert chosen.murmur2(key) == pure.murmur2(key)
        count = random.randint(1, 1_000)
        assert chosen.partition_for_key(key, count) == pure.partition_for_key(key, count)


@pytest.mark.parametrize("hash_of", [chosen.murmur2, pure.murmur2])
def test_any_bytes(hash_of: object) -> None:
    assert callable(hash_of)
    assert hash_of(b"foobar") == hash_of(bytearray(b"foobar")) == hash_of(memoryview(b"foobar"))
    assert hash_of(memoryview(b"f.o.o.b.a.r.")[::2]) == hash_of(b"foobar")


@pytest.mark.parametrize("module", [chosen, pure])
def test_no_partitions(module: object) -> None:
    with pytest.raises(ValueError, match="none to choose from"):
        module.partition_for_key(b"key", 0)  # type: ignore[attr-defined]
