"""Where keyed records go, compared with Kafka's own producer."""

from __future__ import annotations

from random import Random

import pytest

from barnabas._kernels import murmur2
from oracles.producer import ProducerOracle

partition_for_key = murmur2.partition_for_key


@pytest.mark.java
@pytest.mark.mechanism("P03")
@pytest.mark.parametrize("count", [1, 7, 12, 1_000_003, 2**31 - 1])
def test_ten_thousand_keys(producer_oracle: ProducerOracle, count: int) -> None:
    random = Random(count)
    keys = [random.randbytes(random.choice([0, 1, 2, 3, 4, 5, 7, 8, 16, 36, 250])) for _ in range(10_000)]
    assert producer_oracle.partitions(keys, count) == [partition_for_key(key, count) for key in keys]
