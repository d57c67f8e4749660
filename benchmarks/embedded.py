"""What a broker for each test costs.

* ``start`` and ``stop`` of an `EmbeddedBroker` that nobody uses, with its data in a temporary directory, which is not
  synced, and in one that is to be kept, which is; and the processor time of both together, which is what there is to
  compare on a machine that does other things as well;
* ``per test``: what a run of pytest spends on ``barnabas_broker`` in each of many tests that write a record, but for
  the first, which imports things. That is to be under 150 ms.

Each figure is the median of its rounds.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from barnabas.embedded import EmbeddedBroker
from benchmarks.measure import Row

ROUNDS: Final = 25
WARM_UP: Final = 3
TESTS: Final = 40
LIMIT_MS: Final = 150.0
UNIT: Final = "ms"
_PROJECT: Final = """
import pytest
from barnabas import KafkaProducer

@pytest.mark.parametrize("number", range({tests}))
def test_broker(barnabas_broker, number):
    with KafkaProducer(bootstrap_servers=barnabas_broker.bootstrap_servers) as producer:
        assert producer.send("orders", b"tea").result().offset == 0
"""
_DURATION: Final = re.compile(r"^([0-9.]+)s (setup|teardown) +\S+\[(\d+)\]$", re.MULTILINE)


def run() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as place:
        kept = (Path(place) / str(number) for number in range(ROUNDS + WARM_UP))
        measured = start_and_stop({"temporary": EmbeddedBroker, "kept": lambda: EmbeddedBroker(next(kept))})
        per_test = fixture_costs(Path(place))
    rows = []
    for index, case in enumerate(("start of a broker", "stop of a broker", "processor time of start and stop")):
        for name, figures in measured.items():
            rows.append(Row(case, name, statistics.median(one[index] for one in figures), UNIT))
    median = statistics.median(per_test)
    case = f"barnabas_broker: setup and teardown, {len(per_test)} tests"
    rows.append(Row(case, "per test", median, UNIT, LIMIT_MS / median, f"of {LIMIT_MS:g} ms", 1.0))
    rows.append(Row(case, "slowest", max(per_test), UNIT))
    return rows


def start_and_stop(contenders: dict[str, Callable[[], EmbeddedBroker]]) -> dict[str, list[tuple[float, float, float]]]:
    """Milliseconds to start and to stop a broker of each kind, and of processor time, round after round."""
    seen: dict[str, list[tuple[float, float, float]]] = {name: [] for name in contenders}
    for number in range(ROUNDS + WARM_UP):
        for name, make in contenders.items():
            broker = make()
            used, began = time.process_time(), time.perf_counter()
            broker.start()
            started = time.perf_counter()
            broker.stop()
            stopped, used = time.perf_counter(), time.process_time() - used
            if number >= WARM_UP:
                seen[name].append(((started - began) * 1e3, (stopped - started) * 1e3, used * 1e3))
    return seen


def fixture_costs(place: Path) -> list[float]:
    """Milliseconds that pytest says to have spent on the fixture, for each test but the first."""
    (place / "test_project.py").write_text(_PROJECT.format(tests=TESTS))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--durations=0", "--durations-min=0"]
    result = subprocess.run(
        [*command, "test_project.py"], cwd=place, env=environment, capture_output=True, text=True, check=False
    )
    if result.returncode:
        raise RuntimeError(result.stdout + result.stderr)
    spent = dict.fromkeys(map(str, range(TESTS)), 0.0)
    for seconds, _, number in _DURATION.findall(result.stdout):
        spent[number] += float(seconds) * 1e3
    return [milliseconds for number, milliseconds in spent.items() if number != "0"]
