"""When the broker's process collects all garbage."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.broker.node.kafka_raft_server import KafkaRaftServer
from barnabas.cli import start
from barnabas.cli.full_collections import AFTER, POSTPONED_NS, REST, FullCollections
from barnabas.cli.start import PULSE_S, wait_for_signal
from barnabas.common.clock import MockClock


class Process:
    """Counts collections, of which each takes a millisecond."""

    def __init__(self) -> None:
        self.clock = MockClock()
        self.busy = False
        self.pending = 0
        self.collected = 0
        self.schedule = FullCollections(
            lambda: self.busy, self.clock, pending=lambda: self.pending, collect=self._collect
        )

    def _collect(self) -> None:
        self.collected += 1
        self.pending = 0
        self.clock.advance(1)

    def pulse(self, after_ms: float = 1000) -> int:
        self.clock.advance(after_ms)
        self.schedule.run_if_due()
        return self.collected


def test_a_collection_runs_after_many_allocations() -> None:
    process = Process()
    assert process.pulse() == 0
    process.pending = AFTER - 1
    assert process.pulse() == 0
    process.pending = AFTER
    assert process.pulse() == 1
    assert process.pulse() == 1


def test_a_large_request_postpones_it_but_not_for_ever() -> None:
    process = Process()
    process.busy = True
    process.pending = AFTER
    assert process.pulse() == 0
    assert process.pulse(POSTPONED_NS / 1e6 - 1) == 0
    process.busy = False
    assert process.pulse() == 1
    process.busy = True
    process.pending = AFTER
    assert process.pulse() == 1
    assert process.pulse(POSTPONED_NS / 1e6) == 2


def test_collections_take_a_hundredth_of_the_time() -> None:
    process = Process()
    process.pending = AFTER
    assert process.pulse() == 1
    process.pending = AFTER
    assert process.pulse(REST - 1) == 1
    assert process.pulse(1) == 2


class Cycle:
    def __init__(self) -> None:
        self.itself = self


def test_the_default_is_the_interpreters_collector() -> None:
    gc.disable()
    try:
        gone = weakref.ref(Cycle())
        schedule = FullCollections(lambda: False, MockClock(), pending=lambda: AFTER)
        assert gone() is not None
        schedule.run_if_due()
        assert gone() is None
    finally:
        gc.enable()


class Stop:
    """Signals of which one arrives after the first pulse."""

    def wait(self, pulse: Callable[[], None], every_s: float) -> signal.Signals:
        assert 0 < every_s <= PULSE_S
        pulse()
        return signal.SIGTERM


class Manager:
    """A supervisor with a watchdog."""

    watchdog_s = 30.0

    def ready(self, text: str) -> None: ...

    def alive(self) -> None: ...


@pytest.mark.parametrize("manager", [None, Manager()], ids=["alone", "supervised"])
@pytest.mark.parametrize("is_busy", [False, True])
def test_the_main_thread_collects_unless_the_broker_has_large_requests(
    manager: Any, is_busy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    collected: list[None] = []
    scheduled = partial(FullCollections, pending=lambda: AFTER, collect=lambda: collected.append(None))
    monkeypatch.setattr(start, "FullCollections", scheduled)
    server: Any = SimpleNamespace(
        has_large_requests=is_busy, broker=None, bootstrap_servers="", health=lambda: {"status": "up"}
    )
    assert wait_for_signal(cast("Any", Stop()), server, manager) is signal.SIGTERM
    assert len(collected) == (0 if is_busy else 1)


@pytest.mark.parametrize("has_bulk", [False, True])
def test_bulk_requests_are_large_requests(has_bulk: bool) -> None:
    class Node(KafkaRaftServer):
        def __init__(self) -> None:
            self.broker = cast("Any", SimpleNamespace(serving=SimpleNamespace(channel=channel)))

    channel = SimpleNamespace(has_bulk=has_bulk)
    node = Node()
    assert node.has_large_requests is has_bulk
    node.broker = None
    assert not node.has_large_requests


def test_a_started_broker_collects_by_this_schedule_only() -> None:
    """Python 3.14, whose last threshold is 0, has no full collections, and keeps its own schedule."""
    program = (
        "import gc; from barnabas.cli.start import keep_for_good; before = gc.get_threshold(); gc.disable(); "
        "keep_for_good(); now = gc.get_threshold(); "
        "print(gc.isenabled(), now[2] > 1_000_000 if before[2] else now == before)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ)
    assert result.stdout.split() == ["True", "True"]
