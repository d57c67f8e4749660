"""Resource usage of the process, under the names that all Prometheus client libraries use: ``process_...``.

The JMX exporter shows them too, so dashboards of Kafka have a panel for them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc/self")


def render_process() -> str:
    """Returns the metrics as Prometheus text, without those that the operating system does not provide."""
    return "".join(
        f"# HELP {name} {text}\n# TYPE {name} {kind}\n{name} {value!r}\n" for name, kind, text, value in _figures()
    )


def _figures() -> Iterator[tuple[str, str, str, float]]:
    times = os.times()
    cpu = times.user + times.system
    yield "process_cpu_seconds_total", "counter", "User and system time spent, in seconds.", cpu
    if sys.platform != "win32":
        import resource  # missing on Windows

        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        yield "process_max_fds", "gauge", "How many files may be open.", float(limit)
    if not _PROC.exists():
        return
    open_files = len(os.listdir(_PROC / "fd"))  # noqa: PTH208 - names are enough
    yield "process_open_fds", "gauge", "How many files are open.", float(open_files)
    fields = (_PROC / "stat").read_text().rpartition(")")[2].split()
    page = os.sysconf("SC_PAGE_SIZE")
    yield "process_resident_memory_bytes", "gauge", "Memory in use, in bytes.", float(int(fields[21]) * page)
    yield "process_virtual_memory_bytes", "gauge", "Memory asked for, in bytes.", float(int(fields[20]))
    yield "process_threads", "gauge", "How many threads there are.", float(int(fields[17]))
