"""What makes rounds comparable: each begins on a machine that has nothing left to do from the round before, and it is
noted how much of the machine somebody else took meanwhile."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

from benchmarks.peers.systems import AnyBroker
from benchmarks.waiting import WaitedInVainError, until

MAX_WAIT_S: Final = 5.0
DIRTY_BYTES: Final = 64 * 1024 * 1024
STEP_S: Final = 0.05
IDLE_PART: Final = 0.3
"""Of a core: a broker that takes less is idle. On a busy machine the wait ends by its bound."""
_MARK_OF_DELETED: Final = "-delete"


def settle(servers: Collection[AnyBroker], max_wait_s: float = MAX_WAIT_S) -> None:
    """Returns when the files of deleted topics are gone, what is left is on the disk, and the brokers are idle."""
    await_deleted(servers, max_wait_s)
    os.sync()
    _await(lambda: _dirty_bytes() < DIRTY_BYTES)
    spent = sum(server.cpu_seconds for server in servers)

    def is_idle() -> bool:
        nonlocal spent
        before, spent = spent, sum(server.cpu_seconds for server in servers)
        return spent - before < IDLE_PART * STEP_S

    time.sleep(STEP_S)
    _await(is_idle)


def await_deleted(servers: Collection[AnyBroker], max_wait_s: float = MAX_WAIT_S) -> None:
    """Returns when the files of deleted topics are gone, so that the next run is given their memory.

    The host of a virtual machine takes back what its guest has left free, and then each page that is written costs a
    fault of the host, ten times as much as the copy; memory that was freed just now has not been taken yet.
    """
    _await(lambda: not any(_doomed(server) for server in servers), max_wait_s)


def _await(condition: Callable[[], bool], max_wait_s: float = MAX_WAIT_S) -> None:
    with suppress(WaitedInVainError):
        until(condition, seconds=max_wait_s, pause_s=STEP_S)


def _doomed(server: AnyBroker) -> bool:
    return any(place.name.endswith(_MARK_OF_DELETED) for place in server.data_dir.iterdir())


def _dirty_bytes() -> int:
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return 1024 * sum(int(fields[name].split()[0]) for name in ("Dirty", "Writeback"))


class Others:
    """How much of the machine went to none of the brokers and clients, from when this was made.

    That is other programs, the kernel on its own behalf, and the host of a virtual machine.
    """

    def __init__(self, servers: Collection[AnyBroker]) -> None:
        self._servers = servers
        self._started = time.perf_counter()
        self._busy, self._known = _busy_seconds(), self._known_seconds()

    def part(self) -> float:
        """From 0 to 1, of all cores. Clients count when they have ended."""
        passed = (time.perf_counter() - self._started) * (os.cpu_count() or 1)
        others = (_busy_seconds() - self._busy) - (self._known_seconds() - self._known)
        return max(0.0, others / passed)

    def _known_seconds(self) -> float:
        uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(server.cpu_seconds for server in self._servers) + sum(use.ru_utime + use.ru_stime for use in uses)


def _busy_seconds() -> float:
    user, nice, system, _idle, _iowait, irq, soft_irq, steal, *_ = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    )
    return (user + nice + system + irq + soft_irq + steal) / os.sysconf("SC_CLK_TCK")
