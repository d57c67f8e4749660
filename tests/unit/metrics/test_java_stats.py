"""The same values into Kafka's stats and into ours: the same results, to the last bit.

`RecordedStats.java` runs a script of records and measurements on the classes of the Kafka client and of Yammer's
library. Here the script is made up at random, with times that like to fall on the edges of windows; ours runs it too.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.common.clock import MockClock
from barnabas.metrics.config import MetricConfig, Quota
from barnabas.metrics.names import MetricName
from barnabas.metrics.registry import Metrics
from barnabas.metrics.sensor import QuotaViolationError
from barnabas.metrics.stats import (
    Avg,
    CumulativeCount,
    CumulativeSum,
    Max,
    MeasurableStat,
    Min,
    Rate,
    SimpleRate,
    TokenBucket,
    Value,
    WindowedCount,
    WindowedSum,
)
from barnabas.metrics.units import TimeUnit
from barnabas.metrics.yammer.meter import Meter
from oracles.java import class_path

PROGRAM = Path(__file__).with_name("RecordedStats.java")
START = 1_700_000_000_000
UNITS = list(TimeUnit)
KINDS: dict[str, Callable[[TimeUnit], MeasurableStat]] = {
    "Avg": lambda _: Avg(),
    "Max": lambda _: Max(),
    "Min": lambda _: Min(),
    "Value": lambda _: Value(),
    "WindowedSum": lambda _: WindowedSum(),
    "WindowedCount": lambda _: WindowedCount(),
    "CumulativeSum": lambda _: CumulativeSum(),
    "CumulativeCount": lambda _: CumulativeCount(),
    "Rate": Rate,
    "CountRate": lambda unit: Rate(unit, WindowedCount()),
    "SimpleRate": lambda _: SimpleRate(),
    "TokenBucket": TokenBucket,
}

pytestmark = [pytest.mark.java, pytest.mark.mechanism("Q01")]


def java(script: list[str]) -> Iterator[int]:
    """The responses of RecordedStats.java."""
    missing = None
    if shutil.which("java") is None or shutil.which("javac") is None:
        missing = "no java and javac on the PATH"
    elif not any(jar.name.startswith("kafka-clients-") for jar in class_path()):
        missing = "no Kafka jars in target/jars (make jars)"
    if missing is not None:
        # A CI run must not lose these tests.
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(missing)
    path = os.pathsep.join(map(str, class_path()))
    command = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", path, str(PROGRAM)]
    done = subprocess.run(
        command, input="\n".join(script) + "\n", capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return map(int, done.stdout.split())


def bits(value: float) -> int:
    number: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return number


def random_config(source: random.Random) -> MetricConfig:
    return MetricConfig(
        samples=source.choice((1, 2, 3, 11)),
        window_ms=source.choice((1, 100, 1_000, 30_000)),
        event_window=source.choice((3, 2**63 - 1, 2**63 - 1)),
        quota=source.choice((None, Quota(source.uniform(0.1, 50)), Quota(10.0, upper=False))),
    )


def config_line(config: MetricConfig) -> str:
    bound = "none true" if config.quota is None else f"{config.quota.bound!r} {str(config.quota.upper).lower()}"
    return f"config {config.samples} {config.window_ms} {config.event_window} {bound}"


def random_step(source: random.Random, config: MetricConfig) -> int:
    """Some milliseconds to go on by: none, few, to the edge of a window, over many; now and then a little back."""
    window_ms = config.window_ms
    whole = config.samples * window_ms
    edges = (window_ms - 1, window_ms, window_ms + 1, whole - 1, whole, whole + 1, 5 * whole)
    return source.choice((0, 0, 1, source.randrange(window_ms + 1), source.choice(edges), -source.randrange(50)))


def random_value(source: random.Random) -> float:
    return source.choice((1.0, source.uniform(-5, 100), float(source.randrange(10**6)), -1.0, 0.1))


@pytest.mark.parametrize("seed", range(3))
def test_stats(seed: int) -> None:
    source = random.Random(seed)
    script: list[str] = []
    ours: list[int] = []
    for case in range(150):
        kind = source.choice(list(KINDS))
        unit = source.choice(UNITS)
        stat = KINDS[kind](unit)
        config = random_config(source)
        script += [config_line(config), f"stat {case} {kind} {unit.name}"]
        now = START
        for _ in range(source.randrange(60)):
            now += random_step(source, config)
            action = source.choice(("record", "record", "measure", "window", "config"))
            if action == "record":
                value = random_value(source)
                stat.record(config, value, now)
                script.append(f"record {case} {value!r} {now}")
            elif action == "measure":
                ours.append(bits(stat.measure(config, now)))
                script.append(f"measure {case} {now}")
            elif action == "window" and isinstance(stat, Rate):
                ours.append(stat.window_size(config, now))
                script.append(f"window {case} {now}")
            elif action == "config" and source.random() < 0.2:
                config = random_config(source)
                script.append(config_line(config))
    assert len(ours) > 1_000
    theirs = list(java(script))
    asked = [line for line in script if line.startswith(("measure", "window"))]
    wrong = [line for line, our, their in zip(asked, ours, theirs, strict=True) if our != their]
    assert not wrong


@pytest.mark.parametrize("seed", range(2))
def test_quota_violations(seed: int) -> None:
    """A sensor with two stats under a quota: when it raises, for which of them, and with what value."""
    source = random.Random(100 + seed)
    script: list[str] = []
    ours: list[int] = []
    metrics = Metrics(clock=MockClock(milliseconds=START))
    for case in range(60):
        config = random_config(source)
        kinds = source.sample(("Rate", "TokenBucket", "SimpleRate", "Value", "WindowedSum"), 2)
        stats = [KINDS[kind](TimeUnit.SECONDS) for kind in kinds]
        sensor = metrics.sensor(str(case), config)
        names = [MetricName(f"{case}-{place}", "g") for place in range(2)]
        script.append(config_line(config))
        script += [f"stat {case}.{place} {kind} SECONDS" for place, kind in enumerate(kinds)]
        script.append(f"sensor {case} {case}.0 {case}.1")
        for name, stat in zip(names, stats, strict=True):
            sensor.add(name, stat)
        now = START
        for _ in range(source.randrange(60)):
            now += random_step(source, config)
            if source.random() < 0.1:
                config = random_config(source)
                script.append(config_line(config))
                for metric in sensor.metrics:
                    metric.reconfigure(config)
            value = random_value(source)
            script.append(f"sense {value!r} {now}")
            try:
                sensor.record(value, now)
                ours.append(-1)
            except QuotaViolationError as violated:
                ours += [names.index(violated.metric.name), bits(violated.value)]
    assert ours.count(-1) > 200
    assert len(ours) - ours.count(-1) > 200
    assert ours == list(java(script))


def test_moving_averages() -> None:
    """Yammer's averages tick by tick, against a meter that is only looked at when there is something new."""
    source = random.Random(7)
    events = [source.choice((0, 0, source.randrange(10_000))) for _ in range(300)]
    answers = list(java([f"tick {minutes} {number}" for number in events for minutes in (1, 5, 15)]))
    theirs = struct.unpack(f"<{len(answers)}d", struct.pack(f"<{len(answers)}q", *answers))
    clock = MockClock()
    meter = Meter(clock)
    for tick, number in enumerate(events):
        if number:
            meter.mark(number)
        clock.advance(5_000)
        if number:
            ours = [meter.one_minute_rate, meter.five_minute_rate, meter.fifteen_minute_rate]
            assert ours == pytest.approx(theirs[tick * 3 : tick * 3 + 3], rel=1e-12)
