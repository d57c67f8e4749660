"""The controller's metrics, under Kafka's names."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

from barnabas.common.clock import Clock
from barnabas.controller.offset_control_manager import OffsetControlManager
from barnabas.controller.replication_control_manager import ReplicationControlManager
from barnabas.metrics.yammer.registry import KafkaMetricsGroup, MetricsRegistry

_COUNTERS = (
    "EventQueueOperationsStartedCount",
    "EventQueueOperationsTimedOutCount",
    "MetadataErrorCount",
    "NewActiveControllersCount",
    "TimedOutBrokerHeartbeatCount",
)


class QuorumControllerMetrics:
    """``kafka.controller:type=KafkaController``, ``type=ControllerEventManager`` and ``type=ControllerStats``."""

    def __init__(self, registry: MetricsRegistry, clock: Clock) -> None:
        self._clock = clock
        stats = KafkaMetricsGroup(registry, "kafka.controller", "ControllerStats")
        self._unclean_elections = stats.new_meter("UncleanLeaderElectionsPerSec", "elections")
        self._controller = KafkaMetricsGroup(registry, "kafka.controller", "KafkaController")
        events = KafkaMetricsGroup(registry, "kafka.controller", "ControllerEventManager")
        self._queue_time = events.new_histogram("EventQueueTimeMs")
        self._processing_time = events.new_histogram("EventQueueProcessingTimeMs")
        self._lock = threading.Lock()
        """Guards the counts: the controller's thread and that of a timed-out heartbeat increase them."""
        self._counts: Counter[str] = Counter()
        for name in _COUNTERS:
            self._controller.new_gauge(name, self._reader(name))

    def _reader(self, name: str) -> Callable[[], int]:
        return lambda: self._counts[name]

    def watch(self, offsets: OffsetControlManager, replication: ReplicationControlManager) -> None:
        """Adds gauges for the offsets of a controller, and counts unclean elections while it is active."""

        def count_unclean_election() -> None:
            if offsets.active:  # while the log is loaded, old elections are replayed
                self._unclean_elections.mark()

        replication.on_unclean_election = count_unclean_election
        self._controller.new_gauge("ActiveControllerCount", lambda: int(offsets.active))
        self._controller.new_gauge("LastAppliedRecordOffset", lambda: offsets.last_applied_offset)
        self._controller.new_gauge("LastCommittedRecordOffset", lambda: offsets.last_committed_offset)
        self._controller.new_gauge("LastAppliedRecordTimestamp", lambda: offsets.last_applied_timestamp)
        self._controller.new_gauge("LastAppliedRecordLagMs", lambda: self._lag_ms(offsets))

    def _lag_ms(self, offsets: OffsetControlManager) -> int:
        return 0 if offsets.active else self._clock.milliseconds() - offsets.last_applied_timestamp

    def count(self, name: str) -> None:
        with self._lock:
            self._counts[name] += 1

    def event_waited(self, nanoseconds: int) -> None:
        self._queue_time.update(nanoseconds // 1_000_000)

    def event_processed(self, nanoseconds: int) -> None:
        self._processing_time.update(nanoseconds // 1_000_000)
