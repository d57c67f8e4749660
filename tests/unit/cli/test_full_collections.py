"""When the broker's process collects all garbage."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

from barnabas.cli.full_collections import AFTER, POSTPONED_NS, REST, FullCollections
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


def test_the_default_is_the_interpreters_collector() -> None:
    cycle: list[object] = []
    cycle.append(cycle)
    del cycle
    schedule = FullCollections(lambda: False, MockClock(), pending=lambda: AFTER)
    schedule.run_if_due()
    assert gc.get_count()[2] == 0


def test_a_started_broker_collects_by_this_schedule_only() -> None:
    program = (
        "import gc; from barnabas.cli.start import keep_for_good; "
        "gc.disable(); keep_for_good(); print(gc.isenabled(), gc.get_threshold()[2] > 1_000_000)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ)
    assert result.stdout.split() == ["True", "True"]
