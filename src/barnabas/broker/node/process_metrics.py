"""Resource usage of the process.

``process_...`` are the names that all Prometheus client libraries use; the JMX exporter shows them too, so dashboards
of Kafka have a panel for them. ``kafka_server_kafkaserver_linux_disk_...`` are Kafka's, from ``/proc/self/io``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from barnabas.metrics.families import COUNTER, GAUGE, NO_LABELS, MetricFamily, MetricSelection

_PROC = Path("/proc/self")


class ProcessMetrics:
    """The families of the process, without those that the operating system does not provide."""

    def families(self, selection: MetricSelection) -> Iterator[MetricFamily]:  # noqa: ARG002 - there are few
        for name, kind, text, value in _figures():
            yield MetricFamily.of(name, kind, text, [(NO_LABELS, value)])


def _figures() -> Iterator[tuple[str, str, str, float]]:
    times = os.times()
    cpu = times.user + times.system
    yield "process_cpu_seconds_total", COUNTER, "User and system time spent, in seconds.", cpu
    if sys.platform != "win32":
        import resource  # missing on Windows

        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        yield "process_max_fds", GAUGE, "How many files may be open.", float(limit)
    if not _PROC.exists():
        return
    open_files = len(os.listdir(_PROC / "fd"))  # noqa: PTH208 - names are enough
    yield "process_open_fds", GAUGE, "How many files are open.", float(open_files)
    fields = (_PROC / "stat").read_text().rpartition(")")[2].split()
    page = os.sysconf("SC_PAGE_SIZE")
    yield "process_resident_memory_bytes", GAUGE, "Memory in use, in bytes.", float(int(fields[21]) * page)
    yield "process_virtual_memory_bytes", GAUGE, "Memory asked for, in bytes.", float(int(fields[20]))
    yield "process_threads", GAUGE, "How many threads there are.", float(int(fields[17]))
    yield from _disk_figures()


def _disk_figures() -> Iterator[tuple[str, str, str, float]]:
    try:
        lines = (_PROC / "io").read_text().splitlines()
    except OSError:  # not allowed in some containers
        return
    counts = dict(line.split(": ") for line in lines)
    for name, field in (("read", "read_bytes"), ("write", "write_bytes")):
        text = f"kafka.server:type=KafkaServer,name=linux-disk-{name}-bytes"
        yield f"kafka_server_kafkaserver_linux_disk_{name}_bytes", GAUGE, text, float(counts[field])
