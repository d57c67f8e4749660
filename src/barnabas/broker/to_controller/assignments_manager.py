"""Reports to the controller in which log directory each replica is (KIP-858)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.to_controller.broker_lifecycle_manager import BrokerLifecycleManager
from barnabas.broker.to_controller.controller_exchange import ControllerExchange
from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.errors import Errors
from barnabas.common.events.event_queue import KafkaEventQueue, QueuedCall
from barnabas.common.identifiers import Uuid
from barnabas.metadata.image import MetadataImage
from barnabas.metrics.yammer.registry import KafkaMetricsGroup, MetricsRegistry
from barnabas.network.client.client_request import ClientResponse
from barnabas.network.client.exponential_backoff import ExponentialBackoff
from barnabas.replica.fetch.fetch_session import TopicIdPartition

if TYPE_CHECKING:
    from barnabas.protocol.messages.assign_replicas_to_dirs import (
        AssignReplicasToDirsRequest,
        AssignReplicasToDirsResponse,
        RequestDirectoryData,
        RequestTopicData,
    )
    from barnabas.server.controller_channel import ControllerChannel

log = logging.getLogger(__name__)

MAX_ASSIGNMENTS_PER_REQUEST = 2_250
"""Keeps a request below 64 KiB even if every replica is of another topic."""
BATCH_DELAY_MS = 100
"""How long assignments are batched: a broker that starts or takes over replicas has thousands at once."""
MAX_BACKOFF_MS = 10_000
QUIET_MS = 120_000
"""How long the failures of an assignment are not logged: most disappear when the metadata arrive."""

_SEND = "maybe_send_assignments"
_NS_PER_MS = 1_000_000
_Key = tuple[Uuid, int]


class _Assignment(NamedTuple):
    partition: TopicIdPartition
    directory_id: Uuid
    submitted_ns: int
    on_success: Callable[[], object]

    @property
    def key(self) -> _Key:
        return self.partition.topic_id, self.partition.partition

    def is_valid(self, broker_id: int, image: MetadataImage) -> bool:
        """Returns whether the replica still exists: it may have been deleted or reassigned since."""
        topic = image.topics.by_id.get(self.partition.topic_id)
        partition = None if topic is None else topic.partitions.get(self.partition.partition)
        return partition is not None and broker_id in partition.replicas


class AssignmentsManager:
    """Reports replica directories in batches until the controller has acknowledged each.

    A later assignment of a replica replaces an earlier one that has not been sent. An assignment that the controller
    refuses, such as for a topic that it does not know yet, is retried. That of a deleted replica is dropped.

    Most brokers have one log directory and report nothing. So the thread and the connection are created with the first
    assignment.
    """

    def __init__(
        self,
        broker_id: int,
        channel: ControllerChannel,
        image: Callable[[], MetadataImage],
        broker_epoch: Callable[[], int],
        registry: MetricsRegistry,
        *,
        clock: Clock = SYSTEM_CLOCK,
        random: Random | None = None,
        threaded: bool = True,
    ) -> None:
        """Without ``threaded`` a test runs ``queue`` itself."""
        self._broker_id = broker_id
        self._channel = channel
        self._image = image
        self._broker_epoch = broker_epoch
        self._clock = clock
        self._threaded = threaded
        self._backoff = ExponentialBackoff(
            BATCH_DELAY_MS,
            2,
            MAX_BACKOFF_MS,
            0.02,
            Random() if random is None else random,  # noqa: S311 - spreads load, keeps no secret
        )
        self.queue = KafkaEventQueue(f"broker-{broker_id}-directory-assignments-manager-event-handler", clock)
        self._lock = threading.Lock()
        """Guards the fields below. Nothing but the start of the threads is called while it is held."""
        self._ready: dict[_Key, _Assignment] = {}
        self._in_flight: dict[_Key, _Assignment] = {}
        self._failures = 0
        self._started = False
        self._closed = False
        self._metrics = KafkaMetricsGroup(registry, "org.apache.kafka.server", "AssignmentsManager")
        self._metrics.new_gauge("QueuedReplicaToDirAssignments", lambda: self.pending)

    @property
    def pending(self) -> int:
        """Returns the number of assignments that the controller has not acknowledged."""
        with self._lock:
            return len(self._ready) + len(self._in_flight)

    def on_assignment(
        self, partition: TopicIdPartition, directory_id: Uuid, reason: str, callback: Callable[[], object]
    ) -> None:
        """Reports that a replica is in a directory; calls ``callback`` once the controller has acknowledged it."""
        log.debug("%s is in directory %s: %s", partition, directory_id.hex(), reason)
        assignment = _Assignment(partition, directory_id, self._clock.nanoseconds(), callback)
        with self._lock:
            if self._closed:
                return
            self._ready[assignment.key] = assignment
            if not self._started:
                self._started = True
                self._channel.start()
                if self._threaded:
                    self.queue.start()
        self._schedule()

    def close(self) -> None:
        """Ends the thread. Unreported assignments are reported when the broker starts again."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self.queue.begin_shutdown("close")
        self._channel.shutdown()
        self.queue.close()
        self._metrics.remove_metric("QueuedReplicaToDirAssignments")

    def _schedule(self) -> None:
        with self._lock:
            if self._failures:
                delay_ms = self._backoff.backoff(self._failures)
            elif len(self._ready) > MAX_ASSIGNMENTS_PER_REQUEST and not self._in_flight:
                delay_ms = 0
            else:
                delay_ms = BATCH_DELAY_MS
        time_ns = self._clock.nanoseconds() + delay_ms * _NS_PER_MS
        self.queue.schedule_deferred(
            _SEND, time_ns, QueuedCall("report of directories", self._maybe_send), earliest=True
        )

    def _maybe_send(self) -> None:
        image = self._image()
        dropped = 0
        with self._lock:
            if self._in_flight:
                return  # its response schedules the next
            sending: dict[_Key, _Assignment] = {}
            while self._ready and len(sending) < MAX_ASSIGNMENTS_PER_REQUEST:
                key = next(iter(self._ready))
                assignment = self._ready.pop(key)
                if assignment.is_valid(self._broker_id, image):
                    sending[key] = assignment
                else:
                    dropped += 1
            self._in_flight = sending
        log.debug("Reporting the directories of %d replicas; %d others are gone", len(sending), dropped)
        if sending:
            self._channel.send_request(
                self._request(sending), ControllerExchange(self.queue, "report of directories", self._handle_response)
            )

    def _request(self, assignments: Mapping[_Key, _Assignment]) -> AssignReplicasToDirsRequest:
        from barnabas.protocol.messages.assign_replicas_to_dirs import (
            AssignReplicasToDirsRequest,
            RequestDirectoryData,
            RequestPartitionData,
            RequestTopicData,
        )

        directories: dict[Uuid, RequestDirectoryData] = {}
        topics: dict[tuple[Uuid, Uuid], RequestTopicData] = {}
        for (topic_id, index), assignment in assignments.items():
            directory_id = assignment.directory_id
            directory = directories.get(directory_id)
            if directory is None:
                directory = directories[directory_id] = RequestDirectoryData(id=directory_id)
            topic = topics.get((directory_id, topic_id))
            if topic is None:
                topic = topics[directory_id, topic_id] = RequestTopicData(topic_id=topic_id)
                directory.topics.append(topic)
            topic.partitions.append(RequestPartitionData(partition_index=index))
        return AssignReplicasToDirsRequest(
            broker_id=self._broker_id, broker_epoch=self._broker_epoch(), directories=list(directories.values())
        )

    def _handle_response(self, response: ClientResponse | None) -> None:
        with self._lock:
            sent, self._in_flight = self._in_flight, {}
        body, failure = _body_or_failure(response)
        if body is None:
            log.error("The directories of %d replicas could not be reported: %s. Trying again.", len(sent), failure)
            self._again(sent)
            with self._lock:
                self._failures += 1
        else:
            with self._lock:
                self._failures = 0
            self._settle(sent, body)
        with self._lock:
            more = bool(self._ready)
        if more:
            self._schedule()

    def _settle(self, sent: dict[_Key, _Assignment], body: AssignReplicasToDirsResponse) -> None:
        now_ns = self._clock.nanoseconds()
        for directory in body.directories:
            for topic in directory.topics:
                for partition in topic.partitions:
                    key = topic.topic_id, partition.partition_index
                    assignment = sent.pop(key, None)
                    if assignment is None:
                        log.error("The controller responded for a replica that was not in the request: %r", partition)
                    elif not partition.error_code:
                        _call(assignment.on_success)
                    else:
                        self._again({key: assignment})
                        noisy = now_ns - assignment.submitted_ns > QUIET_MS * _NS_PER_MS
                        error = Errors.for_code(partition.error_code)
                        log.log(
                            logging.ERROR if noisy else logging.DEBUG,
                            "The directory of %s could not be reported: %s",
                            assignment.partition,
                            error.name,
                        )
        if sent:
            log.error("The controller's response does not mention %d replicas: they are sent again", len(sent))
            self._again(sent)

    def _again(self, assignments: Mapping[_Key, _Assignment]) -> None:
        with self._lock:
            for key, assignment in assignments.items():
                self._ready.setdefault(key, assignment)  # unless there is a newer assignment


def _body_or_failure(response: ClientResponse | None) -> tuple[AssignReplicasToDirsResponse | None, str]:
    from barnabas.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsResponse

    if response is None:
        return None, "no controller could be asked in time"
    failure = response.authentication_error or response.version_mismatch
    if failure is not None:
        return None, str(failure)
    body = response.body
    assert isinstance(body, AssignReplicasToDirsResponse)
    if body.error_code:
        return None, Errors.for_code(body.error_code).name
    return body, ""


def _call(callback: Callable[[], object]) -> None:
    try:
        callback()
    except Exception:
        log.exception("The callback of a reported directory failed")


class DirectoryReports:
    """The broker's `DirectoryEventHandler`: assignments go out by AssignReplicasToDirs, failures by heartbeat."""

    def __init__(
        self, assignments: AssignmentsManager, lifecycle: BrokerLifecycleManager, log_dir_failure_timeout_ms: int
    ) -> None:
        """``log.dir.failure.timeout.ms``: how long a failure may stay unreported before the broker stops."""
        self._lifecycle = lifecycle
        self._timeout_ms = log_dir_failure_timeout_ms
        self._assignments = assignments

    def handle_assignment(
        self, partition: TopicIdPartition, directory_id: Uuid, reason: str, callback: Callable[[], object]
    ) -> None:
        self._assignments.on_assignment(partition, directory_id, reason, callback)

    def handle_failure(self, directory_id: Uuid) -> None:
        self._lifecycle.propagate_directory_failure(directory_id, self._timeout_ms)
