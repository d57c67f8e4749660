"""Sensors: what is recorded where, when a quota is violated, and that threads lose nothing."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from random import Random

import pytest

from barnabas.common.clock import MockClock
from barnabas.metrics.config import MetricConfig, Quota, RecordingLevel
from barnabas.metrics.names import MetricName
from barnabas.metrics.registry import Metrics
from barnabas.metrics.sensor import TOGETHER_MS, QuotaViolationError, Sensor
from barnabas.metrics.stats import (
    Avg,
    CumulativeCount,
    CumulativeSum,
    Max,
    Meter,
    Min,
    Rate,
    TokenBucket,
    Value,
    WindowedCount,
    WindowedSum,
)

TEN_SECONDS = MetricConfig(samples=11, window_ms=1_000)


@pytest.fixture
def clock() -> MockClock:
    return MockClock()


@pytest.fixture
def metrics(clock: MockClock) -> Metrics:
    return Metrics(TEN_SECONDS, clock=clock)


def value_of(metrics: Metrics, name: str) -> float:
    metric = metrics.metric(MetricName(name, "g"))
    assert metric is not None
    value = metric.value()
    assert isinstance(value, int | float)
    return value


class TestRecording:
    def test_every_stat_gets_every_value(self, metrics: Metrics) -> None:
        sensor = metrics.sensor("sizes")
        assert sensor.add(MetricName("avg", "g"), Avg())
        assert sensor.add(MetricName("max", "g"), Max())
        assert sensor.add_compound(Meter(MetricName("rate", "g"), MetricName("total", "g")))
        for value in (10, 30, 20):
            sensor.record(value)
        assert [value_of(metrics, name) for name in ("avg", "max", "rate", "total")] == [20, 30, 6, 60]

    def test_the_default_is_one_and_now(self, metrics: Metrics, clock: MockClock) -> None:
        sensor = metrics.sensor("events")
        sensor.add(MetricName("sum", "g"), WindowedSum())
        sensor.record()
        clock.advance(11_000)
        assert value_of(metrics, "sum") == 0
        sensor.record()
        assert value_of(metrics, "sum") == 1

    def test_parents_get_every_value_too(self, metrics: Metrics) -> None:
        grandparent = metrics.sensor("grandparent")
        parents = [metrics.sensor("one", parents=[grandparent]), metrics.sensor("two")]
        child = metrics.sensor("child", parents=parents)
        for sensor in (grandparent, *parents, child):
            sensor.add(MetricName(sensor.name, "g"), CumulativeSum())
        child.record(5)
        parents[0].record(2)
        assert [value_of(metrics, name) for name in ("child", "one", "two", "grandparent")] == [5, 7, 5, 7]

    def test_two_ways_to_one_ancestor_are_refused(self, metrics: Metrics) -> None:
        top = metrics.sensor("top")
        left, right = metrics.sensor("left", parents=[top]), metrics.sensor("right", parents=[top])
        with pytest.raises(ValueError, match="'top' is reached more than once"):
            metrics.sensor("child", parents=[left, right])
        assert metrics.get_sensor("child") is None

    def test_a_sensor_more_detailed_than_configured_records_nothing(self, metrics: Metrics) -> None:
        config = MetricConfig(record_level=RecordingLevel.DEBUG)
        for level, count in [(RecordingLevel.INFO, 2), (RecordingLevel.DEBUG, 2), (RecordingLevel.TRACE, 0)]:
            sensor = metrics.sensor(level.name, config, recording_level=level)
            sensor.add(MetricName(level.name, "g"), CumulativeCount())
            sensor.record()
            sensor.check_then_record()
            assert sensor.should_record is (count > 0)
            assert value_of(metrics, level.name) == count

    def test_adding_the_same_metric_again_changes_nothing(self, metrics: Metrics) -> None:
        sensor = metrics.sensor("events")
        assert sensor.add(MetricName("sum", "g"), CumulativeSum())
        sensor.record(3)
        assert sensor.add(MetricName("sum", "g"), CumulativeSum())
        sensor.record(4)
        assert value_of(metrics, "sum") == 7

    def test_a_name_that_another_sensor_has_is_refused_whole(self, metrics: Metrics) -> None:
        metrics.sensor("one").add(MetricName("rate", "g"), Rate())
        two = metrics.sensor("two")
        with pytest.raises(ValueError, match="already"):
            two.add(MetricName("rate", "g"), Rate())
        with pytest.raises(ValueError, match="already"):
            two.add_compound(Meter(MetricName("rate", "g"), MetricName("total", "g")))
        assert metrics.metric(MetricName("total", "g")) is None
        assert two.metrics == ()
        two.record()  # no stat of the refused ones is left behind
        assert repr(two) == "Sensor('two', 0 stats)"


@pytest.mark.mechanism("Q01")
class TestQuotas:
    def sensor(self, metrics: Metrics, bound: float = 100.0, upper: bool = True) -> Sensor:
        sensor = metrics.sensor("bytes", TEN_SECONDS.with_quota(Quota(bound, upper)))
        sensor.add(MetricName("rate", "g"), Rate())
        return sensor

    def test_the_bound_itself_is_allowed_and_the_next_byte_is_not(self, metrics: Metrics) -> None:
        sensor = self.sensor(metrics)
        sensor.record(1_000)
        with pytest.raises(QuotaViolationError) as violated:
            sensor.record(1)
        assert violated.value.metric is metrics.metric(MetricName("rate", "g"))
        assert (violated.value.value, violated.value.bound) == (100.1, 100.0)
        assert "100.1" in str(violated.value)

    def test_a_violation_is_recorded_and_can_be_taken_back(self, metrics: Metrics) -> None:
        sensor = self.sensor(metrics)
        with pytest.raises(QuotaViolationError):
            sensor.record(1_001)
        assert value_of(metrics, "rate") == 100.1
        sensor.record(-1_001)
        assert value_of(metrics, "rate") == 0

    def test_unchecked_recording_never_raises_and_counts(self, metrics: Metrics) -> None:
        sensor = self.sensor(metrics)
        sensor.record(2_000, check_quotas=False)
        sensor.record_unchecked(1_000)
        with pytest.raises(QuotaViolationError) as violated:
            sensor.check_quotas()
        assert violated.value.value == 300

    def test_a_lower_bound_is_violated_from_below(self, metrics: Metrics) -> None:
        sensor = self.sensor(metrics, upper=False)
        with pytest.raises(QuotaViolationError):
            sensor.record(999)
        sensor.record(1)

    def test_a_token_bucket_is_violated_below_zero_whatever_the_bound(self, metrics: Metrics) -> None:
        sensor = metrics.sensor("mutations", TEN_SECONDS.with_quota(Quota(1.0)))
        sensor.add(MetricName("tokens", "g"), TokenBucket())
        sensor.record(0)  # 11 tokens are left, far above the bound of 1
        sensor.record(11)  # none is left: not below zero
        with pytest.raises(QuotaViolationError) as violated:
            sensor.record(0.5)
        assert violated.value.value == -0.5

    def test_the_first_metric_out_of_bounds_is_reported(self, metrics: Metrics) -> None:
        sensor = metrics.sensor("both")
        sensor.add(MetricName("free", "g"), Value())
        sensor.add(MetricName("first", "g"), Value(), TEN_SECONDS.with_quota(Quota(10)))
        sensor.add(MetricName("second", "g"), Value(), TEN_SECONDS.with_quota(Quota(5)))
        for value, name in [(11, "first"), (7, "second")]:
            with pytest.raises(QuotaViolationError) as violated:
                sensor.record(value)
            assert violated.value.metric.name.name == name

    def test_a_violated_child_does_not_reach_its_parents(self, metrics: Metrics) -> None:
        parent = metrics.sensor("parent")
        parent.add(MetricName("total", "g"), CumulativeSum())
        child = metrics.sensor("child", TEN_SECONDS.with_quota(Quota(5)), parents=[parent])
        child.add(MetricName("last", "g"), Value())
        child.record(5)
        with pytest.raises(QuotaViolationError):
            child.record(6)
        assert value_of(metrics, "total") == 5
        child.record_unchecked(6)
        assert value_of(metrics, "total") == 11

    def test_a_violated_parent_raises_through_the_child(self, metrics: Metrics) -> None:
        parent = metrics.sensor("parent", TEN_SECONDS.with_quota(Quota(5)))
        parent.add(MetricName("total", "g"), CumulativeSum())
        child = metrics.sensor("child", parents=[parent])
        child.add(MetricName("last", "g"), Value())
        with pytest.raises(QuotaViolationError) as violated:
            child.record(6)
        assert violated.value.metric.name.name == "total"
        assert value_of(metrics, "last") == 6
        child.record(6, check_quotas=False)  # holds for the parent as well

    def test_a_new_limit_takes_hold_at_once_and_keeps_the_usage(self, metrics: Metrics) -> None:
        sensor = self.sensor(metrics)
        sensor.record(1_000)
        metric = metrics.metric(MetricName("rate", "g"))
        assert metric is not None
        metric.reconfigure(metric.config.with_quota(Quota(99.0)))
        with pytest.raises(QuotaViolationError) as violated:
            sensor.record(0)
        assert (violated.value.value, violated.value.bound) == (100.0, 99.0)
        metric.reconfigure(metric.config.with_quota(None))
        sensor.record(10_000)

    def test_strict_recording_records_nothing_over_the_limit(self, metrics: Metrics) -> None:
        parent = metrics.sensor("parent")
        parent.add(MetricName("total", "g"), CumulativeSum())
        sensor = metrics.sensor("strict", TEN_SECONDS.with_quota(Quota(1.0)), parents=[parent])
        sensor.add(MetricName("tokens", "g"), TokenBucket())
        sensor.check_then_record(20)  # nothing was violated before it
        with pytest.raises(QuotaViolationError):
            sensor.check_then_record(1)
        assert value_of(metrics, "tokens") == -9
        assert value_of(metrics, "total") == 20

    def test_a_gauge_has_no_value_to_compare(self, metrics: Metrics) -> None:
        name = MetricName("version", "g")
        metric = metrics.add_metric(name, lambda _config, _now: "1.0", TEN_SECONDS.with_quota(Quota(0)))
        assert metric.value() == "1.0"
        assert metric.measurable is None


class TestExpiry:
    def test_a_sensor_expires_after_it_was_idle_for_longer_than_allowed(
        self, metrics: Metrics, clock: MockClock
    ) -> None:
        sensor = metrics.sensor("client", inactive_sensor_expiration_seconds=3_600)
        forever = metrics.sensor("broker")
        clock.advance(3_600_000)
        assert not sensor.has_expired()
        clock.advance(1)
        assert sensor.has_expired()
        assert not forever.has_expired()

    def test_recording_keeps_it_alive(self, metrics: Metrics, clock: MockClock) -> None:
        sensor = metrics.sensor("client", inactive_sensor_expiration_seconds=10)
        clock.advance(10_000)
        sensor.record()
        clock.advance(10_000)
        assert not sensor.has_expired()
        sensor.check_then_record()
        clock.advance(10_000)
        assert not sensor.has_expired()
        clock.advance(1)
        assert sensor.has_expired()

    def test_nothing_can_be_added_to_a_sensor_that_expired_or_was_removed(
        self, metrics: Metrics, clock: MockClock
    ) -> None:
        expired = metrics.sensor("expired", inactive_sensor_expiration_seconds=10)
        removed = metrics.sensor("removed")
        metrics.remove_sensor("removed")
        clock.advance(10_001)
        for sensor in (expired, removed):
            assert not sensor.add(MetricName("sum", "g"), CumulativeSum())
            assert not sensor.add_compound(Meter(MetricName("rate", "g"), MetricName("total", "g")))
        assert {name.name for name in metrics.metrics} == {"count"}


class Probe:
    """A stat that writes down who is inside of it, and lets the first one stay until somebody else comes in too.

    Where a lock keeps the others out, nobody comes, and it goes on after a moment.
    """

    def __init__(self) -> None:
        self.log: list[str] = []
        self._second = threading.Event()
        self.first_is_inside = threading.Event()

    def record(self, config: MetricConfig, value: float, time_ms: int) -> None:
        self._visit("record")

    def measure(self, config: MetricConfig, now_ms: int) -> float:
        self._visit("measure")
        return 0.0

    def _visit(self, what: str) -> None:
        who = threading.current_thread().name
        self.log.append(f"{who} {what}")
        if who == "first":
            self.first_is_inside.set()
            self._second.wait(0.1)
        else:
            self._second.set()
        self.log.append(f"{who} left")


class TestOneStep:
    """What must not be mixed with what another thread does."""

    def log(self, metrics: Metrics, first: Callable[[Sensor], object], second: Callable[[Sensor], object]) -> list[str]:
        """What happens in a sensor when the second thread comes while the first one is inside."""
        probe = Probe()
        sensor = metrics.sensor("probed", TEN_SECONDS.with_quota(Quota(1.0)))
        sensor.add(MetricName("probe", "g"), probe)
        one = threading.Thread(target=first, args=(sensor,), name="first")
        two = threading.Thread(target=second, args=(sensor,), name="second")
        one.start()
        assert probe.first_is_inside.wait(60)
        two.start()
        one.join()
        two.join()
        log = probe.log
        # Nobody comes in before the one who is inside has left.
        assert [entry.split()[0] for entry in log[::2]] == [entry.split()[0] for entry in log[1::2]]
        assert all(entry.endswith("left") for entry in log[1::2])
        return log[::2]

    def test_recording_with_its_check(self, metrics: Metrics) -> None:
        log = self.log(metrics, Sensor.record, Sensor.record)
        assert log == ["first record", "first measure", "second record", "second measure"]

    def test_the_check_with_what_is_recorded_after_it(self, metrics: Metrics) -> None:
        log = self.log(metrics, Sensor.check_then_record, Sensor.check_then_record)
        assert log == ["first measure", "first record", "second measure", "second record"]

    def test_reading_a_value(self, metrics: Metrics) -> None:
        log = self.log(metrics, Sensor.record, lambda sensor: sensor.metrics[0].value())
        assert log == ["first record", "first measure", "second measure"]

    def test_changing_the_configuration(self, metrics: Metrics) -> None:
        """The first thread records and checks by one configuration."""
        log = self.log(metrics, Sensor.record, lambda sensor: sensor.metrics[0].reconfigure(TEN_SECONDS))
        assert log == ["first record", "first measure"]


class TestThreads:
    THREADS, TIMES = 8, 2_000

    def run(self, work: threading.Barrier, target: object) -> None:
        assert callable(target)
        failures: list[BaseException] = []

        def loop() -> None:
            try:
                work.wait()
                for _ in range(self.TIMES):
                    target()
            except BaseException as error:
                failures.append(error)
                raise

        threads = [threading.Thread(target=loop) for _ in range(self.THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures

    def test_no_value_is_lost(self, metrics: Metrics) -> None:
        parent = metrics.sensor("parent")
        parent.add(MetricName("parent", "g"), CumulativeSum())
        child = metrics.sensor("child", parents=[parent])
        child.add(MetricName("sum", "g"), CumulativeSum())
        child.add(MetricName("windowed", "g"), WindowedSum())
        child.add_compound(Meter(MetricName("rate", "g"), MetricName("total", "g")))
        self.run(threading.Barrier(self.THREADS), lambda: child.record(2))
        expected = self.THREADS * self.TIMES * 2
        assert [value_of(metrics, name) for name in ("sum", "windowed", "total", "parent")] == [expected] * 4

    def test_of_those_who_meet_at_the_last_token_only_one_gets_through(self, metrics: Metrics) -> None:
        """The bucket holds 1,000 * 1 * 1 tokens. Checked and recorded apart, some would slip through together."""
        config = MetricConfig(samples=1_000, window_ms=1_000, quota=Quota(1.0))
        sensor = metrics.sensor("strict", config)
        sensor.add(MetricName("tokens", "g"), TokenBucket())
        passed: list[int] = []

        def ask() -> None:
            try:
                sensor.check_then_record()
                passed.append(1)
            except QuotaViolationError:
                pass

        self.run(threading.Barrier(self.THREADS), ask)
        assert len(passed) == 1_001  # down to zero, and once more below it
        assert value_of(metrics, "tokens") == -1

    def test_stats_may_be_added_while_values_come_in(self, metrics: Metrics) -> None:
        sensor = metrics.sensor("busy")
        sensor.add(MetricName("sum", "g"), CumulativeSum())
        added: list[MetricName] = []

        def record_or_add() -> None:
            sensor.record()
            if len(added) < 20:
                name = MetricName(f"more-{len(added)}", "g")
                added.append(name)
                sensor.add(name, CumulativeSum())

        self.run(threading.Barrier(self.THREADS), record_or_add)
        assert value_of(metrics, "sum") == self.THREADS * self.TIMES
        assert len(sensor.metrics) == 1 + len(set(added))


def test_several_values_at_once_are_as_good_as_one_by_one(clock: MockClock) -> None:
    def recorded(at_once: bool) -> list[float]:
        config = MetricConfig(samples=2, window_ms=1_000, event_window=7)
        metrics = Metrics(config, clock=clock)
        parent = metrics.sensor("parent")
        parent.add(metrics.metric_name("parent-max", "g"), Max())
        sensor = metrics.sensor("s", parents=[parent])
        sensor.add(metrics.metric_name("avg", "g"), Avg())
        sensor.add(metrics.metric_name("max", "g"), Max())
        sensor.add_compound(Meter(metrics.metric_name("rate", "g"), metrics.metric_name("total", "g")))
        now = clock.milliseconds()
        seen = []
        steps: tuple[tuple[int, list[float]], ...] = (
            (0, [3, 1, 2]),
            (0, []),
            (500, [5.0, 4]),
            (600, [9] * 9),
            (4_000, [1]),
        )
        for later_ms, values in steps:
            time_ms = now + later_ms
            if at_once:
                sensor.record_all(values, time_ms)
            else:
                for value in values:
                    sensor.record_unchecked(value, time_ms)
            seen += [value_of(metrics, name) for name in ("avg", "max", "total", "parent-max")]
        return seen

    assert recorded(at_once=True) == recorded(at_once=False)


class TestSoon:
    """`record_soon` notes values down; whoever looks sees them all."""

    @staticmethod
    def all_kinds(clock: MockClock, name: str) -> tuple[Sensor, list[Callable[[], float]]]:
        metrics = Metrics(MetricConfig(samples=3, window_ms=1_000, event_window=50), clock=clock)
        parent = metrics.sensor("parent")
        parent.add(metrics.metric_name("parent-sum", "g"), WindowedSum())
        sensor = metrics.sensor(name, parents=[parent])
        for kind, stat in (
            ("avg", Avg()),
            ("max", Max()),
            ("min", Min()),
            ("sum", CumulativeSum()),
            ("count", CumulativeCount()),
            ("last", Value()),
            ("windowed", WindowedSum()),
            ("windowed-count", WindowedCount()),
        ):
            sensor.add(metrics.metric_name(kind, "g"), stat)
        name_of = metrics.metric_name
        sensor.add_compound(Meter(name_of("rate", "g"), name_of("total", "g")))
        sensor.add_compound(Meter(name_of("times", "g"), name_of("times-total", "g"), stat=WindowedCount()))
        shown = [metric for metric in metrics.metrics.values() if metric.name.group == "g"]
        return sensor, [metric.value for metric in shown]

    def test_what_is_seen_is_what_would_have_been_recorded(self, clock: MockClock) -> None:
        random = Random(5)
        now, now_ones = self.all_kinds(clock, "now")
        soon, soon_ones = self.all_kinds(clock, "soon")
        for _ in range(1_500):
            value = random.choice([random.randrange(1_000), random.random(), -3, 0])
            if random.random() < 0.2:
                values = [value, 7, random.random()][: random.randrange(4)]
                for each in values:
                    soon.record_soon(each, clock.milliseconds())
                    now.record_unchecked(each)
            else:
                soon.record_soon(value)
                now.record_unchecked(value)
            if random.random() < 0.1:
                assert [read() for read in soon_ones] == [read() for read in now_ones]
            if random.random() < 0.1:
                # Times that are multiples of what counts as simultaneous, so that both take them for the same ones.
                clock.advance(random.choice([TOGETHER_MS, 5 * TOGETHER_MS, 37 * TOGETHER_MS]))

    def test_many_sensors_note_one_value_each(self, clock: MockClock) -> None:
        random = Random(6)
        one_by_one, together = ([self.all_kinds(clock, "s") for _ in range(3)] for _ in range(2))
        for _ in range(300):
            values = [random.randrange(100) for _ in range(3)]
            for (sensor, _), value in zip(one_by_one, values, strict=True):
                sensor.record_soon(value, clock.milliseconds())
            notes = [(sensor, value) for (sensor, _), value in zip(together, values, strict=True)]
            Sensor.record_each_soon(notes, clock.milliseconds())
            if random.random() < 0.2:
                clock.advance(random.randrange(3 * TOGETHER_MS))
            if random.random() < 0.2:
                assert [read() for _, reads in together for read in reads] == [
                    read() for _, reads in one_by_one for read in reads
                ]

    def test_values_of_long_ago_stay_there(self, metrics: Metrics, clock: MockClock) -> None:
        sensor = metrics.sensor("s")
        sensor.add(MetricName("avg", "g"), Avg())
        sensor.record_soon(5)
        clock.advance(1_000 * 60)
        assert math.isnan(value_of(metrics, "avg"))

    def test_a_clock_that_went_back(self, metrics: Metrics, clock: MockClock) -> None:
        sensor = metrics.sensor("s")
        sensor.add(MetricName("sum", "g"), CumulativeSum())
        for later in (0, 500, -60_000, 10, 90_000):
            sensor.record_soon(1, clock.milliseconds() + later)
        assert value_of(metrics, "sum") == 5

    def test_not_a_number(self, clock: MockClock) -> None:
        for values in ([1.0, math.nan, 2.0], [math.nan, 1.0], [1.0, math.nan]):
            sensor, _ = self.all_kinds(clock, "s")
            other, _ = self.all_kinds(clock, "s")
            for value in values:
                sensor.record_soon(value, clock.milliseconds())
                other.record_unchecked(value)
            seen, expected = ([metric.value() for metric in made.metrics] for made in (sensor, other))
            assert str(seen) == str(expected)

    def test_nothing_is_noted_below_the_level(self, metrics: Metrics) -> None:
        sensor = metrics.sensor("s", recording_level=RecordingLevel.DEBUG)
        sensor.add(MetricName("sum", "g"), CumulativeSum())
        sensor.record_soon(1)
        Sensor.record_each_soon([(sensor, 1)], 0)
        assert value_of(metrics, "sum") == 0

    def test_a_sensor_that_notes_down_does_not_expire(self, clock: MockClock) -> None:
        metrics = Metrics(clock=clock)
        sensor = metrics.sensor("s", inactive_sensor_expiration_seconds=1)
        for _ in range(5):
            clock.advance(900)
            sensor.record_soon(1)
            assert not metrics.expire_inactive_sensors()

    def test_readers_lose_nothing_and_count_nothing_twice(self, metrics: Metrics, clock: MockClock) -> None:
        sensor = metrics.sensor("s")
        sensor.add(MetricName("sum", "g"), CumulativeSum())
        over = threading.Event()

        def look() -> None:
            while not over.is_set():
                value_of(metrics, "sum")

        readers = [threading.Thread(target=look) for _ in range(2)]
        for reader in readers:
            reader.start()
        for number in range(20_000):
            sensor.record_soon(1, number)
        over.set()
        for reader in readers:
            reader.join()
        assert value_of(metrics, "sum") == 20_000
