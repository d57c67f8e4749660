"""Where our broker spends its time in the cases that come off worst: py-spy looks at it while they run once more.

Not part of the measurement, for looking costs time too. Without py-spy nothing is kept.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.broker_process import ServerProcess
from benchmarks.peers.cases import Case
from benchmarks.peers.rounds import Measured
from benchmarks.peers.systems import OURS

WORST = 3
RATE_HZ = 200


def py_spy() -> str | None:
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy")


def keep_profiles(
    measured: Sequence[Measured],
    cases: Sequence[Case],
    servers: Mapping[str, ServerProcess],
    directory: Path,
    tell: Callable[[str], None],
) -> None:
    """A flame graph for each of the worst cases."""
    tool = py_spy()
    if tool is None:
        tell("no profiles: py-spy is not installed")
        return
    place = directory / "profiles"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    by_key = {case.key: case for case in cases}
    server = servers[OURS]
    for key in worst(measured, set(by_key)):
        graph = place / f"{key}.svg"
        by_key[key].prepare(server)
        command = [tool, "record", "--pid", str(server.process.pid), "--output", str(graph), "--rate", str(RATE_HZ)]
        recorder = subprocess.Popen([*command, "--nonblocking"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        by_key[key].measure(server)
        recorder.send_signal(signal.SIGINT)
        recorder.wait(60)
        by_key[key].clean_up(server)
        tell(f"profile of {key}: {graph.name}")


def worst(measured: Sequence[Measured], keys: set[str]) -> list[str]:
    """Those furthest from Kafka's figure, whichever way is better."""

    def merit(one: Measured) -> float:
        assert one.ratio is not None
        return one.ratio if one.metric.more_is_better else 1 / one.ratio

    ranked = sorted((one for one in measured if one.case in keys and one.ratio), key=merit)
    return list(dict.fromkeys(one.case for one in ranked))[:WORST]
