"""The buckets of histograms: where a value goes and how it fades. All of it holds for both implementations."""

from __future__ import annotations

import importlib
import math
import os
import random
import threading
from types import ModuleType
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas._kernels.pure import metrics as pure_metrics

IMPLEMENTATIONS: list[ModuleType] = [pure_metrics]
try:
    IMPLEMENTATIONS.append(importlib.import_module("barnabas._kernels.compiled.metrics"))
except ImportError:
    # Built without a compiler. A CI run must not lose half of these tests.
    assert os.environ.get("CI") != "true", "the compiled buckets are not built"
needs_both = pytest.mark.skipif(len(IMPLEMENTATIONS) < 2, reason="the compiled buckets are not built")
SECOND = 1_000_000_000


@pytest.fixture(params=IMPLEMENTATIONS, ids=lambda module: module.__name__.split(".")[-2])
def buckets(request: pytest.FixtureRequest) -> Any:
    return request.param


class TestSteps:
    @pytest.mark.parametrize(
        ("value", "step"),
        [
            (0, 0.0),
            (-3, 0.0),
            (2**-21, 0.0),
            (2**-20, 2**-20),
            (1, 1.0),
            (255, 255.0),
            (256, 256.0),
            (257, 258.0),  # halfway between 256 and 258, rounded up
            (256.99, 256.0),
            (1_000, 1_000.0),
            (1_001, 1_000.0),
            (511.5, 512.0),  # rounds up to the next power of two
            (2**44 - 2**36, 2.0**44 - 2**36),
            (2**44, 2.0**44 - 2**36),
            (1e300, 2.0**44 - 2**36),
        ],
    )
    def test_where_a_value_goes(self, buckets: Any, value: float, step: float) -> None:
        table = buckets.BucketTable(1, 0.0, 0)
        table.add(0, value, 0)
        _, values, weights = table.read(0)
        assert (values, weights) == ([step], [1.0])

    @given(st.floats(min_value=2**-20, max_value=2**43))
    def test_a_value_is_remembered_within_a_256th(self, value: float) -> None:
        for implementation in IMPLEMENTATIONS:
            table = implementation.BucketTable(1, 0.0, 0)
            table.add(0, value, 0)
            assert abs(table.read(0)[1][0] - value) <= value / 256

    def test_whole_numbers_up_to_256_are_remembered_exactly(self, buckets: Any) -> None:
        table = buckets.BucketTable(1, 0.0, 0)
        table.add_all(0, range(257), 0)
        assert table.read(0)[1] == list(range(257))

    def test_steps_come_in_ascending_order(self, buckets: Any) -> None:
        table = buckets.BucketTable(1, 0.0, 0)
        table.add_all(0, [5, 1e6, 0, 3.25, 5, 0.001], 0)
        assert table.read(0)[1] == sorted(table.read(0)[1])
        assert table.read(0)[2] == [1.0, 1.0, 1.0, 2.0, 1.0]


class TestFading:
    def test_newer_values_weigh_more(self, buckets: Any) -> None:
        table = buckets.BucketTable(1, 0.015, 0)
        for second, value in [(0, 1), (0.999, 2), (1, 3), (300, 4)]:
            table.add(0, value, int(second * SECOND))
        assert table.read(0)[2] == [1.0, 1.0, math.exp(0.015), math.exp(0.015 * 300)]

    def test_without_fading_all_weigh_the_same(self, buckets: Any) -> None:
        table = buckets.BucketTable(1, 0.0, 0)
        table.add(0, 1, 0)
        table.add(0, 2, 10**9 * SECOND)
        assert table.read(0)[2] == [1.0, 1.0]

    def test_weights_are_scaled_down_before_they_grow_too_large(self, buckets: Any) -> None:
        table = buckets.BucketTable(1, 0.015, 0)
        table.add(0, 1, 0)
        table.add(0, 0, 4_000 * SECOND)
        table.add(0, 2, 4_266 * SECOND)  # 0.015 * 4,266 = 63.99
        assert table.read(0)[1:] == ([0.0, 1.0, 2.0], [math.exp(0.015 * 4_000), 1.0, math.exp(0.015 * 4_266)])
        table.add(0, 3, 4_267 * SECOND)
        _, values, weights = table.read(0)
        assert values == [0.0, 2.0, 3.0]  # the first value is too light to matter and is gone
        assert weights == pytest.approx([math.exp(-0.015 * 267), math.exp(-0.015), 1.0], rel=1e-12)
        table.add(0, 4, 4_268 * SECOND)
        assert table.read(0)[2][3] == math.exp(0.015)

    def test_after_a_long_silence_the_past_is_gone(self, buckets: Any) -> None:
        table = buckets.BucketTable(2, 0.015, 0)
        table.add_row((1, 0), 0)
        table.add_row((2, 2), 10**8 * SECOND)
        assert table.read(0)[1:] == ([2.0], [1.0])
        assert table.read(1)[1:] == ([2.0], [1.0])
        assert table.read(0)[0][0] == 2

    def test_a_time_before_the_start_counts_as_the_start(self, buckets: Any) -> None:
        table = buckets.BucketTable(1, 0.015, 100 * SECOND)
        table.add(0, 1, 0)
        table.add(0, 2, 101 * SECOND)
        table.add(0, 3, 100 * SECOND)  # a thread that is late
        assert table.read(0)[2] == [1.0, math.exp(0.015), 1.0]


class TestTable:
    def test_columns_are_kept_apart(self, buckets: Any) -> None:
        table = buckets.BucketTable(3, 0.0, 0)
        table.add_row((1, 2, 3), 0)
        table.add(1, 5, 0)
        assert [table.read(column)[1] for column in range(3)] == [[1.0], [2.0, 5.0], [3.0]]
        assert [table.read(column)[0][0] for column in range(3)] == [1, 2, 1]

    def test_values_are_divided(self, buckets: Any) -> None:
        table = buckets.BucketTable(1, 0.0, 0, 1e6)
        table.add(0, 400_000, 0)
        table.add_row((2_500_000,), 0)
        assert table.read(0)[0][-2:] == (0.4, 2.5)

    def test_totals(self, buckets: Any) -> None:
        table = buckets.BucketTable(1, 0.0, 0)
        assert table.read(0) == ((0, 0.0, 0.0, 0.0, 0.0, 0.0), [], [])
        table.add_all(0, [10, 7, 16], 0)
        assert table.read(0)[0] == (3, 10.0, 3.0, 45.0, 7.0, 16.0)

    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
    def test_a_number_that_is_none_is_refused_whole(self, buckets: Any, bad: float) -> None:
        table = buckets.BucketTable(2, 0.0, 0)
        with pytest.raises(ValueError, match="finite"):
            table.add_row((1, bad), 0)
        with pytest.raises(ValueError, match="finite"):
            table.add_all(0, [1, bad], 0)
        with pytest.raises(ValueError, match="finite"):
            table.add(0, bad, 0)
        assert table.read(0)[0][0] == 0

    def test_large_numbers_are_numbers(self, buckets: Any) -> None:
        table = buckets.BucketTable(2, 0.0, 0)
        table.add_row((1.7e308, 1.7e308), 0)  # their sum is infinite, they are not
        assert table.read(0)[0][5] == 1.7e308

    def test_a_row_has_a_value_for_each_column(self, buckets: Any) -> None:
        table = buckets.BucketTable(2, 0.0, 0)
        for row in [(), (1,), (1, 2, 3)]:
            with pytest.raises(ValueError, match=f"{len(row)} values for 2 columns"):
                table.add_row(row, 0)
        with pytest.raises(IndexError):
            table.add(2, 1, 0)
        with pytest.raises(IndexError):
            table.read(2)

    @pytest.mark.parametrize("columns", [0, -1, 33])
    def test_impossible_tables_are_refused(self, buckets: Any, columns: int) -> None:
        with pytest.raises(ValueError, match="columns"):
            buckets.BucketTable(columns, 0.0, 0)
        with pytest.raises(ValueError, match="divided by 0"):
            buckets.BucketTable(1, 0.0, 0, 0.0)

    def test_no_row_is_lost_or_torn_between_threads(self, buckets: Any) -> None:
        table = buckets.BucketTable(3, 0.015, 0)
        threads, times = 8, 3_000
        barrier = threading.Barrier(threads + 1)
        torn: list[object] = []

        def write(thread: int) -> None:
            barrier.wait()
            for turn in range(times):
                table.add_row((thread, turn, 1), turn * SECOND // 1_000)

        def read() -> None:
            barrier.wait()
            for _ in range(200):
                totals, values, weights = table.read(2)
                # All of this column's values are 1, so the one weight is the sum of all that were counted.
                if totals[0] and (values != [1.0] or weights[0] < totals[0]):
                    torn.append((totals, values, weights))

        workers = [threading.Thread(target=write, args=(thread,)) for thread in range(threads)]
        workers.append(threading.Thread(target=read))
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert not torn
        for column, total in enumerate((sum(range(threads)) * times, sum(range(times)) * threads, threads * times)):
            totals = table.read(column)[0]
            assert totals[0] == threads * times
            assert totals[1] * totals[0] + totals[2] == pytest.approx(total)


class SlowTime(int):
    """A time that is looked at slowly: the first to do so waits for a moment whether somebody else does it too."""

    second = threading.Event()
    first_is_inside = threading.Event()
    overlapped: ClassVar[list[bool]] = []

    def __sub__(self, other: int) -> int:
        if not self.first_is_inside.is_set():
            self.first_is_inside.set()
            self.overlapped.append(self.second.wait(0.1))
        else:
            self.second.set()
        return int(self) - other


def test_the_twin_lets_in_one_thread_at_a_time() -> None:
    """The compiled table needs no such test: it runs no Python code in which a thread could be stopped."""
    table = pure_metrics.BucketTable(1, 0.0, 0)
    threads = [threading.Thread(target=table.add, args=(0, 1.0, SlowTime(5))) for _ in range(2)]
    threads[0].start()
    assert SlowTime.first_is_inside.wait(60)
    threads[1].start()
    for thread in threads:
        thread.join()
    assert SlowTime.overlapped == [False]
    assert SlowTime.second.is_set()


@needs_both
def test_both_implementations_agree() -> None:
    source = random.Random(3)
    tables = [implementation.BucketTable(4, 0.015, 5 * SECOND, 1_000.0) for implementation in IMPLEMENTATIONS]
    now = 0
    for _ in range(3_000):
        now += source.choice((0, 1, SECOND // 3, 40 * SECOND))
        row = tuple(source.choice((0, source.randrange(10**9), source.lognormvariate(8, 3), -2.5)) for _ in range(4))
        for table in tables:
            table.add_row(row, now)
    for column in range(4):
        compiled, pure = (table.read(column) for table in tables)
        assert compiled[1] == pure[1]
        assert compiled[2] == pytest.approx(pure[2], rel=1e-12)
        assert compiled[0] == pytest.approx(pure[0], rel=1e-12)
