"""Sends a broker's metrics and traces of sampled requests to an OpenTelemetry collector (OTLP over HTTP).

It is off unless ``barnabas.otlp.endpoint`` is set, and this module is not loaded then. A thread of its own collects,
encodes and sends; a sampled request only appends to a queue.

All of it is best effort. While a collector is down or slow, exports are lost: metrics are cumulative, so the next
export makes up for them, and spans are dropped. Both are counted:

================================================================ ======================================================
``barnabas.telemetry:type=OtlpExporter,name=ExportsPerSec``      requests that the collector has accepted
``...name=FailedExportsPerSec``                                  requests that it has refused, or that did not arrive
``...name=DroppedSpansPerSec``                                   requests whose trace did not fit into the queue
================================================================ ======================================================
"""

from __future__ import annotations

import gzip
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from http.client import HTTPException
from typing import Final
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from barnabas.common.clock import Clock
from barnabas.common.config_def import ConfigError
from barnabas.common.dataclass import dataclass, field
from barnabas.common.log_safety import LimitedLogger
from barnabas.metrics.families import MetricFamily
from barnabas.metrics.yammer.registry import KafkaMetricsGroup, MetricsRegistry
from barnabas.telemetry.otlp_messages import encode_metrics, encode_spans
from barnabas.telemetry.request_log import RequestLogEntry

logger = LimitedLogger(logging.getLogger(__name__))

ENDPOINT: Final = "barnabas.otlp.endpoint"
METRICS_PATH: Final = "/v1/metrics"
TRACES_PATH: Final = "/v1/traces"
THREAD_NAME: Final = "otlp-exporter"
REQUEST_TIMEOUT_S: Final = 10.0
CLOSING_TIMEOUT_S: Final = 2.0
"""The timeout of the last requests: a broker does not wait long for a collector before it stops."""
MAX_QUEUED: Final = 2_048
"""The number of requests whose traces may wait. Each refers to its response, of up to 64 KiB."""
TRACES_LINGER_MS: Final = 1_000
_FOREVER_MS: Final = 2**31


@dataclass(frozen=True, slots=True)
class OtlpConfig:
    """The endpoint, the interval and the contents of exports."""

    endpoint: str
    metrics_interval_ms: int = 60_000
    """0: no metrics."""
    traces: bool = True
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        parts = urlsplit(self.endpoint)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ConfigError.invalid(ENDPOINT, self.endpoint, "expected a URL such as http://127.0.0.1:4318")
        if parts.username is not None:
            # The endpoint is not a secret: logs and DescribeConfigs show it.
            raise ConfigError(f"{ENDPOINT} must not have a user: set barnabas.otlp.headers instead", name=ENDPOINT)


class OtlpExporter:
    """Exports until it is closed.

    `_changed` guards the queue and `_closed`. Nothing is called while it is held but the clock, to wait.
    """

    def __init__(
        self,
        config: OtlpConfig,
        collect: Callable[[], Iterable[MetricFamily]],
        resource: Mapping[str, str],
        registry: MetricsRegistry,
        clock: Clock,
    ) -> None:
        """`resource` describes this node. Starts the thread."""
        self._config = config
        self._collect = collect
        self._resource = resource
        self._clock = clock
        self._base = config.endpoint.rstrip("/")
        self._start_ns = clock.milliseconds() * 1_000_000
        group = KafkaMetricsGroup(registry, "barnabas.telemetry", "OtlpExporter")
        self._exports = group.new_meter("ExportsPerSec", "requests")
        self._failures = group.new_meter("FailedExportsPerSec", "requests")
        self._dropped = group.new_meter("DroppedSpansPerSec", "requests")
        self._changed = threading.Condition()
        self._queue: list[RequestLogEntry] = []
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
        self._thread.start()

    def offer(self, entry: RequestLogEntry) -> None:
        """Queues the trace of a request; drops it if the queue is full. Called on a network thread."""
        with self._changed:
            if len(self._queue) < MAX_QUEUED:
                self._queue.append(entry)
                if len(self._queue) == 1:
                    self._changed.notify()
                return
        self._dropped.mark()

    def close(self) -> None:
        """Sends the queued traces and the last metrics, and ends the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    # -- the thread

    def _run(self) -> None:
        interval_ms = self._config.metrics_interval_ms or _FOREVER_MS
        metrics_due_ms = self._now_ms() + interval_ms
        while True:
            closed = self._wait_until(metrics_due_ms)
            self._export_traces()
            if closed or self._now_ms() >= metrics_due_ms:
                if self._config.metrics_interval_ms:
                    self._export_metrics()
                metrics_due_ms = self._now_ms() + interval_ms
            if closed:
                return

    def _wait_until(self, due_ms: int) -> bool:
        """Waits until metrics are due, or traces have waited for long enough; returns whether it is closed."""
        with self._changed:
            while not self._closed and not self._queue and (left_ms := due_ms - self._now_ms()) > 0:
                self._clock.wait(self._changed, left_ms)
            traces_due_ms = min(due_ms, self._now_ms() + TRACES_LINGER_MS)
            while not self._closed and (left_ms := traces_due_ms - self._now_ms()) > 0:
                self._clock.wait(self._changed, left_ms)
            return self._closed

    def _now_ms(self) -> int:
        return self._clock.hi_res_milliseconds()

    def _export_traces(self) -> None:
        with self._changed:
            entries, self._queue = self._queue, []
        if entries:
            # The monotonic clock measures durations, the wall clock dates; they are combined here.
            epoch_ns = self._clock.milliseconds() * 1_000_000 - self._clock.nanoseconds()
            self._send(TRACES_PATH, lambda: encode_spans(entries, self._resource, epoch_ns))

    def _export_metrics(self) -> None:
        now_ns = self._clock.milliseconds() * 1_000_000
        self._send(METRICS_PATH, lambda: encode_metrics(self._collect(), self._resource, self._start_ns, now_ns))

    def _send(self, path: str, encode: Callable[[], bytes]) -> None:
        """Sends one request; a failure is logged and counted."""
        headers = {
            **self._config.headers,
            "Content-Type": "application/x-protobuf",
            "Content-Encoding": "gzip",
            "User-Agent": "barnabas",
        }
        url = self._base + path
        timeout_s = CLOSING_TIMEOUT_S if self._closed else REQUEST_TIMEOUT_S
        try:
            body = gzip.compress(encode(), 1)
            with urlopen(Request(url, body, headers, method="POST"), timeout=timeout_s) as response:  # noqa: S310 - OtlpConfig has checked the scheme
                response.read()
        except HTTPError as error:
            with error:
                logger.warning("%s has refused an export: %s %s", url, error.code, error.reason)
            self._failures.mark()
        except (OSError, HTTPException) as error:
            logger.warning("Cannot export to %s: %s", url, error)
            self._failures.mark()
        except Exception:
            logger.warning("An export to %s failed", url, exc_info=True)
            self._failures.mark()
        else:
            self._exports.mark()
