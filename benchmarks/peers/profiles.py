"""Where our broker spends its time in the cases that come off worst: they run once more while it is looked at.

``perf`` sees the kernel and everything that is compiled, py-spy the functions of Python; both look at the same run, and
what one of them cannot do on a machine the text leaves out. No part of the measurement, for looking costs time too.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import barnabas
from benchmarks.broker_process import ServerProcess
from benchmarks.peers.case import Case
from benchmarks.peers.profile_text import Profile, functions_of, profile_text, shares_of, symbols_of, system_calls_of
from benchmarks.peers.rounds import Measured, reason_of
from benchmarks.peers.run import Kept

WORST = 3
MOST = 6
"""Every case that has not reached a target gets a profile, up to so many."""
RATE_HZ = 499
PYTHON_RATE_HZ = 100
TIMEOUT_S = 60
DIRECTORY = "profiles"


def worst(measured: Sequence[Measured], keys: set[str]) -> list[str]:
    """Those furthest from their targets, or from Kafka's figure where there is none: all that have not reached one (up
    to `MOST`), and as many others as make it `WORST`."""
    ranked = sorted(
        (one for one in measured if one.case in keys and one.merit is not None),
        key=lambda one: (one.reached is not False, one.merit),
    )
    missed = {one.case for one in ranked if one.reached is False}
    return list(dict.fromkeys(one.case for one in ranked))[: min(max(WORST, len(missed)), MOST)]


def keep_profiles(
    measured: Sequence[Measured],
    cases: Sequence[Case],
    server: ServerProcess,
    directory: Path,
    tell: Callable[[str], None],
) -> dict[str, Kept]:
    """A text for each of the worst cases."""
    perf, py_spy = shutil.which("perf"), _py_spy()
    if perf is None and py_spy is None:
        tell("no profiles: there is neither perf nor py-spy on this machine")
        return {}
    texts: dict[str, str] = {}
    by_key = {case.key: case for case in cases}
    kept: dict[str, Kept] = {}
    for key in worst(measured, set(by_key)):
        figures = [str(one) for one in measured if one.case == key]
        try:
            profile = _look(by_key[key], server, perf, py_spy)
        except Exception as error:  # noqa: BLE001 - the run has its figures, with or without this
            tell(f"no profile of {key}: {reason_of(error)}")
            continue
        texts[f"{key}.txt"] = profile_text(figures, profile)
        kept[key] = Kept(f"{DIRECTORY}/{key}.txt", shares_of(profile.symbols))
        tell(f"profile of {key}: {DIRECTORY}/{key}.txt")
    if texts:
        place = directory / DIRECTORY
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        for name, text in texts.items():
            (place / name).write_text(text)
    return kept


def _py_spy() -> str | None:
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy")


def _look(case: Case, server: ServerProcess, perf: str | None, py_spy: str | None) -> Profile:
    pid = str(server.process.pid)
    with tempfile.TemporaryDirectory() as name:
        data, stacks = Path(name) / "perf.data", Path(name) / "stacks"
        recorders: list[subprocess.Popen[bytes]] = []
        case.prepare(server)
        try:
            try:
                if perf is not None:
                    recorders.append(_start(perf, "record", "-g", "-F", str(RATE_HZ), "-o", str(data), "-p", pid))
                if py_spy is not None:
                    options = ("--format", "raw", "--function", "--nonblocking", "--rate", str(PYTHON_RATE_HZ))
                    recorders.append(_start(py_spy, "record", "--pid", pid, "--output", str(stacks), *options))
                case.measure(server)
            finally:
                for recorder in recorders:
                    _end(recorder)
        finally:
            case.clean_up(server)
        # A recorder that was not let do its work has left nothing.
        flat = _report(perf, data, "--no-children", "-F", "overhead,dso,symbol") if perf and data.exists() else ""
        deep = _report(perf, data, "--children", "-F", "overhead_children,dso,symbol") if flat and perf else ""
        raw = stacks.read_text() if stacks.exists() else ""
    if not flat and not raw:
        raise RuntimeError("neither perf nor py-spy may look at the process")
    return Profile(symbols_of(flat, _our_modules()), system_calls_of(deep), functions_of(raw))


def _our_modules() -> frozenset[str]:
    """The names of the files of our compiled modules."""
    (place,) = barnabas.__path__
    return frozenset(path.name for path in Path(place).rglob("*.so"))


def _start(*command: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _end(recorder: subprocess.Popen[bytes]) -> None:
    recorder.send_signal(signal.SIGINT)
    try:
        recorder.wait(TIMEOUT_S)
    except subprocess.TimeoutExpired:
        recorder.kill()
        recorder.wait(TIMEOUT_S)


def _report(perf: str, data: Path, *options: str) -> str:
    # Asks no server for symbols.
    environment = {**os.environ, "DEBUGINFOD_URLS": ""}
    command = [perf, "report", "-i", str(data), "--stdio", "-g", "none", "-t", "|", *options]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S, env=environment)
    return result.stdout
