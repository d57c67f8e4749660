"""How much request data may be held at once."""

from __future__ import annotations

import random
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.network.reactor.memory_pool import UNBOUNDED, SimpleMemoryPool
from network_fixtures import WAIT_S

pytestmark = pytest.mark.mechanism("N07")


def test_without_a_bound_everything_is_granted() -> None:
    assert UNBOUNDED.try_reserve(1 << 40)
    UNBOUNDED.release(1 << 40)
    assert (UNBOUNDED.bounded, UNBOUNDED.is_out_of_memory) == (False, False)


def test_a_reservation_is_granted_while_anything_is_left_and_may_overdraw() -> None:
    pool = SimpleMemoryPool(100, 60)
    assert pool.try_reserve(60)
    assert pool.try_reserve(39)
    assert (pool.available, pool.is_out_of_memory) == (1, False)
    assert pool.try_reserve(60), "one byte is left, so the next request gets all it needs"
    assert (pool.available, pool.is_out_of_memory) == (-59, True)
    assert not pool.try_reserve(1)
    assert not pool.try_reserve(0)
    assert pool.denied == 2
    pool.release(60)
    assert (pool.available, pool.is_out_of_memory) == (1, False)
    assert pool.try_reserve(1)


def test_a_strict_pool_never_overdraws() -> None:
    pool = SimpleMemoryPool(100, 60, strict=True)
    assert pool.try_reserve(60)
    assert not pool.try_reserve(41)
    assert pool.try_reserve(40)
    assert pool.available == 0


@pytest.mark.parametrize("size", [-1, 61])
def test_a_single_reservation_has_bounds(size: int) -> None:
    pool = SimpleMemoryPool(100, 60)
    with pytest.raises(ValueError, match="up to 60 at once"):
        pool.try_reserve(size)
    assert pool.available == 100


def test_more_cannot_be_given_back_than_was_taken() -> None:
    pool = SimpleMemoryPool(100, 60)
    pool.try_reserve(10)
    with pytest.raises(ValueError, match="has not handed them out"):
        pool.release(11)
    assert pool.available == 90
    pool.release(10)
    assert pool.available == pool.size == 100


@pytest.mark.parametrize(("size", "single"), [(0, 1), (-5, 1), (10, 11), (10, 0)])
def test_a_pool_must_be_able_to_serve_its_largest_request(size: int, single: int) -> None:
    with pytest.raises(ValueError, match="cannot serve"):
        SimpleMemoryPool(size, single)


@given(st.lists(st.integers(0, 50), max_size=60), st.booleans())
def test_what_is_available_is_the_size_less_what_is_held(sizes: list[int], strict: bool) -> None:
    pool = SimpleMemoryPool(100, 50, strict=strict)
    held: list[int] = []
    for size in sizes:
        fits = pool.available >= size if strict else pool.available > 0
        assert pool.try_reserve(size) == fits
        if fits:
            held.append(size)
        elif held:
            pool.release(held.pop(0))
        assert pool.available == 100 - sum(held)
        assert sum(held) <= 100 + (0 if strict else 49)
    for size in held:
        pool.release(size)
    assert pool.available == 100


def test_many_threads_never_hold_more_than_the_pool_and_one_request_of_one_of_them() -> None:
    pool = SimpleMemoryPool(1000, 100)
    threads_count, rounds = 8, 300
    too_little: list[int] = []
    start = threading.Barrier(threads_count)

    def work(seed: int) -> None:
        choose = random.Random(seed)
        start.wait(WAIT_S)
        for _ in range(rounds):
            size = choose.randint(0, 100)
            if pool.try_reserve(size):
                if pool.available < -99:
                    too_little.append(pool.available)
                pool.release(size)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(threads_count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert not too_little
    assert pool.available == 1000
