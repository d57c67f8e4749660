"""The producer's I/O thread: it does all network work."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Final

from barnabas.clients.common.metadata import LeaderIdAndEpoch
from barnabas.clients.common.metadata_snapshot import MetadataSnapshot
from barnabas.clients.common.telemetry.client_telemetry_reporter import ClientTelemetryReporter
from barnabas.clients.producer.errors import TransactionAbortedError
from barnabas.clients.producer.internals.batch_completion import BatchCompletion
from barnabas.clients.producer.internals.core_sharing import CoreSharing
from barnabas.clients.producer.internals.in_flight_batches import InFlightBatches
from barnabas.clients.producer.internals.kafka_client import KafkaClient
from barnabas.clients.producer.internals.partition_result import PartitionResult, partition_result
from barnabas.clients.producer.internals.producer_batch import ProducerBatch
from barnabas.clients.producer.internals.producer_metadata import ProducerMetadata
from barnabas.clients.producer.internals.producer_metrics import SenderMetrics
from barnabas.clients.producer.internals.record_accumulator import RecordAccumulator
from barnabas.clients.producer.internals.sender_config import SenderConfig
from barnabas.clients.producer.internals.sequence_resolution import SequenceResolver
from barnabas.clients.producer.internals.transaction_coordinators import CoordinatorType
from barnabas.clients.producer.internals.transaction_manager import TransactionManager
from barnabas.clients.producer.internals.transaction_requests import TxnRequestHandler
from barnabas.clients.producer.internals.transaction_state import State
from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.errors import (
    AuthenticationError,
    BarnabasError,
    ClusterAuthorizationError,
    Errors,
    ProtocolError,
    TransactionalIdAuthorizationError,
)
from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.common.topic_partition import TopicPartition
from barnabas.network.client.client_request import ClientResponse
from barnabas.network.client.inflight import FOREVER
from barnabas.network.client.node import Node
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.protocol.versions import VersionRange

log = logging.getLogger(__name__)

LAST_PRODUCE: Final = ApiKey.PRODUCE.stable_versions.highest
LAST_PRODUCE_BEFORE_TRANSACTION_V2: Final = 11
LAST_PRODUCE_BY_NAME: Final = 12


class Sender:
    """Drains the accumulator, sends the batches and handles the responses, on its own thread.

    One iteration, `run_once`::

        questions           ask leaders which of the batches they refuse they already have (`SequenceResolver`)
        transactions        identity, coordinator, the next step of a transaction
        ready               which nodes have batches that may be sent
        client.ready        of these, which are connected and can take another request
        drain               one batch of each of their partitions, with sequence numbers
        expire              fail expired batches, waiting or in flight
        send                one request for each node
        poll                write requests, read responses, call callbacks

    `BatchCompletion` decides what a response means for its batches.

    **Wake-ups.** An appending thread wakes this one only if there is new work, and once per iteration. `woken` is reset
    when an iteration begins, before any queue is checked. That iteration sees every earlier append; a later append sets
    `woken` and wakes up the poll.
    """

    def __init__(
        self,
        client: KafkaClient,
        metadata: ProducerMetadata,
        accumulator: RecordAccumulator,
        config: SenderConfig,
        metrics: SenderMetrics,
        *,
        transaction_manager: TransactionManager | None = None,
        telemetry: ClientTelemetryReporter | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._client = client
        self._metadata = metadata
        self._accumulator = accumulator
        self._config = config
        self._metrics = metrics
        self._transaction_manager = transaction_manager
        self._telemetry = telemetry
        self._clock = clock
        self._in_flight_batches = InFlightBatches(accumulator.config.delivery_timeout_ms)
        self._completion = completion = BatchCompletion(
            accumulator, self._in_flight_batches, metadata, config, metrics, transaction_manager
        )
        self._resolver: SequenceResolver | None = None
        if transaction_manager is not None:
            self._resolver = completion.resolver = SequenceResolver(
                client,
                metadata,
                accumulator,
                transaction_manager,
                config,
                self._send_alone,
                completion.complete_as_written,
            )
        self._watches_latency = accumulator.config.partition_availability_timeout_ms > 0
        self._pause_ms = max(config.retry_backoff_ms, 1)
        """The poll timeout when no event is expected."""
        self.is_running = True
        self._force_close = False
        self.woken = False
        self.core_sharing: CoreSharing | None = None
        """Core sharing with the thread that sends tables, once there is one."""

    # -- the thread

    def run(self) -> None:
        """Runs until `initiate_close`, and then until everything is sent or `force_close` is called.

        Closing is bounded even if the cluster is down. Records fail after ``delivery.timeout.ms``. An open transaction
        that is not aborted within ``max.block.ms`` is left to the coordinator, which aborts it after
        ``transaction.timeout.ms``.
        """
        log.debug("Starting the producer's I/O thread")
        while self.is_running:
            self._run_once_logged()
        log.debug("Sending what is left")
        manager = self._transaction_manager
        while not self._force_close and (
            self._accumulator.has_undrained
            or self._client.in_flight_request_count() > 0
            or (self._telemetry is not None and self._telemetry.has_last_push)
        ):
            self._run_once_logged()
        deadline_ms = self._now() + self._config.max_block_ms
        while not self._force_close and manager is not None and manager.machine.has_ongoing_transaction:
            if self._now() >= deadline_ms:
                log.warning(
                    "The producer closes with an open transaction: it could not be ended within %d ms (max.block.ms)",
                    self._config.max_block_ms,
                )
                self._force_close = True
            elif not manager.machine.is_completing and not manager.requests:
                log.info("Aborting the open transaction, because the producer is closed")
                try:
                    manager.begin_abort()
                except BarnabasError:
                    log.exception("The open transaction cannot be aborted")
                    self._force_close = True
            self._run_once_logged()
        if self._force_close:
            if manager is not None:
                manager.close()
            self._accumulator.abort_incomplete_batches()
        self._client.close()
        log.debug("The producer's I/O thread has ended")

    def _run_once_logged(self) -> None:
        try:
            self.run_once()
        except Exception:
            log.exception("Uncaught error in the producer's I/O thread")

    def wakeup(self) -> None:
        """Interrupts a running poll. Thread-safe."""
        self._client.wakeup()

    def wake_for_work(self) -> None:
        """Wakes the I/O thread because there is something to send. Thread-safe."""
        if not self.woken:
            self.woken = True
            self._client.wakeup()

    def initiate_close(self) -> None:
        self._accumulator.close()
        self.is_running = False
        self.wakeup()

    def force_close(self) -> None:
        self._force_close = True
        self.initiate_close()

    # -- one iteration

    def run_once(self) -> None:
        self.woken = False
        delay_ms = FOREVER
        manager = self._transaction_manager
        if manager is not None and not manager.is_quiet:
            manager.maybe_resolve_sequences()
            last_error = manager.machine.last_error
            if manager.machine.has_fatal_error:
                if last_error is not None:
                    self._maybe_abort_batches(last_error)
                self._client.poll(self._pause_ms, self._now())
                return
            if manager.machine.has_abortable_error and self._should_handle_authorization_error(manager, last_error):
                return
            if manager.partitions.sequence_questions:
                assert self._resolver is not None
                delay_ms = self._resolver.run(self._now())
            manager.bump_idempotent_epoch_and_reset_id_if_needed()
            waits = self._maybe_send_transactional_request(manager)
            if waits is None:
                self._expire_behind_request()
                return
            delay_ms = min(delay_ms, waits)
        now = self._clock.hi_res_milliseconds()
        sharing = self.core_sharing
        if sharing is not None:
            sharing.follow()
        delay_ms = min(delay_ms, self._send_producer_data(now))
        if sharing is not None and sharing.is_bound and not self._client.in_flight_request_count():
            sharing.let_go()
        self._client.poll(delay_ms, now)

    def _now(self) -> int:
        return self._clock.hi_res_milliseconds()

    def _maybe_abort_batches(self, error: Exception) -> None:
        if self._accumulator.has_incomplete:
            log.error("Giving up all batches: %s", error)
            self._accumulator.abort_batches(error)
            self._in_flight_batches.clear()

    def _should_handle_authorization_error(self, manager: TransactionManager, error: Exception | None) -> bool:
        """Fails everything after an authorization error. The producer recovers when the permission is granted."""
        if not isinstance(error, TransactionalIdAuthorizationError | ClusterAuthorizationError):
            return False
        failed = AuthenticationError(str(error))
        failed.__cause__ = error
        manager.fail_pending_requests(failed)
        self._maybe_abort_batches(error)
        manager.transition_to_uninitialized(error)
        return True

    # -- transactions

    def _maybe_send_transactional_request(self, manager: TransactionManager) -> int | None:
        """Sends the next transactional request, if there is one.

        Returns None if it has polled and data must wait for the response; else how long no request is due."""
        # A response or a wake-up ends the poll, so the timeout may be long.
        response_timeout_ms = self._config.request_timeout_ms
        if manager.requests.in_flight_correlation_id is not None:
            self._client.poll(response_timeout_ms, self._now())
            return None
        machine = manager.machine
        aborts = machine.has_abortable_error or machine.state is State.ABORTING_TRANSACTION
        if aborts and self._accumulator.has_incomplete:
            error = machine.last_error or TransactionAbortedError()
            self._accumulator.abort_undrained_batches(error)
        now = self._now()
        handler = manager.next_request(has_incomplete_batches=self._accumulator.has_incomplete, now=now)
        if isinstance(handler, int):
            return handler
        kind = handler.coordinator_type
        node = self._client.least_loaded_node(now).node if kind is None else manager.coordinators.get(kind)
        if node is None:
            if kind is None:
                manager.requests.push(handler)
                self._client.poll(self._pause_ms, now)
            else:
                manager.lookup_coordinator(kind, handler.coordinator_key)
                manager.requests.push(handler)
            return None
        if not self._client.ready(node, now):
            self._await_node(manager, handler, node, now)
            return None
        if kind is CoordinatorType.TRANSACTION:
            manager.coordinators.handle_coordinator_ready()
        request = self._client.new_client_request(
            node.id_string,
            handler,
            now,
            request_timeout_ms=self._config.request_timeout_ms,
            callback=handler.on_complete,
        )
        log.debug("Sending %s to node %s", handler.operation, node)
        manager.requests.in_flight_correlation_id = request.correlation_id
        try:
            self._client.send(request, now)
        except ProtocolError as error:
            # A value of the application does not fit: an offset or its metadata. No response will come.
            manager.requests.in_flight_correlation_id = None
            if manager.machine.state is State.INITIALIZING:
                handler.fatal_error(error)
            else:
                handler.abortable_error(error)
            return None
        self._client.poll(response_timeout_ms, self._now())
        return None

    def _await_node(self, manager: TransactionManager, handler: TxnRequestHandler, node: Node, now: int) -> None:
        """Waits for a node that is not connected or not ready. If it is unreachable, looks up the coordinator again."""
        error = self._client.authentication_error(node)
        if error is not None:
            handler.fatal_error(error)
        elif self._client.connection_failed(node):
            if handler.coordinator_type is not None:
                manager.lookup_coordinator(handler.coordinator_type, handler.coordinator_key)
            else:
                self._metadata.request_update()
            manager.requests.retry(handler)
        else:
            manager.requests.push(handler)
        self._client.poll(min(self._config.request_timeout_ms, self._client.poll_delay_ms(node, now)), now)

    # -- data

    def _send_producer_data(self, now: int) -> int:
        """Sends the batches that are ready; returns how long there is nothing more to send."""
        accumulator = self._accumulator
        snapshot = self._metadata.snapshot
        result = accumulator.ready(snapshot, now)
        if result.unknown_leader_topics:
            for topic in result.unknown_leader_topics:
                self._metadata.add(topic, now)
            log.debug("Asking for metadata: no leader is known for partitions of %s", result.unknown_leader_topics)
            self._metadata.request_update()
            accumulator.errors.leaderless_topics = result.unknown_leader_topics
        elif accumulator.errors.leaderless_topics:
            accumulator.errors.leaderless_topics = set()
        not_ready_ms = FOREVER
        ready_nodes: list[Node] = []
        for node in result.ready_nodes:
            if self._client.ready(node, now):
                if self._watches_latency:
                    accumulator.ready_check.update_node_latency_stats(node.id, now, True)
                ready_nodes.append(node)
            else:
                if self._watches_latency:
                    accumulator.ready_check.update_node_latency_stats(node.id, now, False)
                not_ready_ms = min(not_ready_ms, self._client.poll_delay_ms(node, now))
        batches: Mapping[int, list[ProducerBatch]] = {}
        if ready_nodes:
            batches = accumulator.batch_drain.drain(snapshot, ready_nodes, self._config.max_request_size, now)
            self._take_off(batches)
        expiry_ms = min(accumulator.ready_check.next_expiry_time_ms, self._in_flight_batches.next_expiry_time_ms)
        if now >= expiry_ms:
            expiry_ms = self._fail_expired(now)
        if not batches:
            return max(min(result.next_ready_check_delay_ms, not_ready_ms, expiry_ms - now), 0)
        self._metrics.update_produce_request_metrics(batches, now)
        takes_more = False
        for node in ready_nodes:
            node_batches = batches[node.id]
            if node_batches:
                self._send_produce_request(now, node, node_batches, snapshot)
                # If the socket did not take the whole request, another iteration would find the same: poll until there
                # is room, or a response.
                takes_more = takes_more or self._client.can_send_more(node.id_string)
        if takes_more:
            return 0  # there may be more batches
        # A ready node may have queues that `drain` passed over, or whose first batch backs off: `ready` gives no delay
        # for those. The pause bounds how late they are checked if no response ends the poll before.
        pause_ms = self._pause_ms if ready_nodes else FOREVER
        return max(min(result.next_ready_check_delay_ms, not_ready_ms, expiry_ms - now, pause_ms), 0)

    def _fail_expired(self, now: int) -> int:
        """Fails expired batches; returns when the next one expires."""
        self._completion.fail_expired(self._accumulator.expired_batches(now), now)
        self._completion.fail_expired(self._in_flight_batches.expired(now), now)
        return min(self._accumulator.ready_check.next_expiry_time_ms, self._in_flight_batches.next_expiry_time_ms)

    def _expire_behind_request(self) -> None:
        """Fails expired batches in an iteration that a transactional request has used.

        A request that cannot be sent, because no coordinator is reachable, uses every iteration. Without this call,
        records would wait for it beyond ``delivery.timeout.ms``.
        """
        now = self._now()
        if self._accumulator.ready_check.next_expiry_time_ms == FOREVER:
            self._accumulator.ready(self._metadata.snapshot, now)  # batches may have been added since the last call
        self._fail_expired(now)

    def _take_off(self, batches: Mapping[int, Iterable[ProducerBatch]]) -> None:
        self._in_flight_batches.add(batches)
        if self._config.guarantee_message_order:
            for node_batches in batches.values():
                for batch in node_batches:
                    self._accumulator.mute_partition(batch.topic_partition)

    # -- requests

    def _send_produce_request(
        self, now: int, node: Node, batches: Sequence[ProducerBatch], snapshot: MetadataSnapshot
    ) -> None:
        config = self._config
        topics: dict[str, TopicProduceData] = {}
        by_partition: dict[TopicPartition, ProducerBatch] = {}
        names: dict[Uuid, str] = {}
        highest = LAST_PRODUCE
        for batch in batches:
            where = batch.topic_partition
            topic, partition = where
            row = PartitionProduceData(index=partition, records=batch.records)
            data = topics.get(topic)
            if data is None:
                topic_id = snapshot.topic_id(topic)
                if topic_id == ZERO_UUID:
                    highest = min(highest, LAST_PRODUCE_BY_NAME)
                names[topic_id] = topic
                topics[topic] = TopicProduceData(name=topic, topic_id=topic_id, partition_data=[row])
            else:
                data.partition_data.append(row)
            by_partition[where] = batch
            batch.in_flight = True
        transactional_id: str | None = None
        manager = self._transaction_manager
        if manager is not None and manager.is_transactional:
            transactional_id = manager.transactional_id
            if not manager.coordinators.is_transaction_v2_enabled:
                highest = min(highest, LAST_PRODUCE_BEFORE_TRANSACTION_V2)
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=config.acks,
            timeout_ms=config.request_timeout_ms,
            topic_data=list(topics.values()),
        )
        self._client.send(
            self._client.new_client_request(
                node.id_string,
                request,
                now,
                expect_response=config.acks != 0,
                request_timeout_ms=config.request_timeout_ms,
                callback=lambda response: self._handle_produce_response(response, by_partition, names),
                allowed_versions=_versions_up_to(highest),
            ),
            now,
        )

    def _send_alone(self, node: Node, batch: ProducerBatch, now: int) -> None:
        """Sends a batch that is no longer in a queue, in a request of its own."""
        batches = {node.id: [batch]}
        batch.drained(now)
        self._take_off(batches)
        self._metrics.update_produce_request_metrics(batches, now)
        self._send_produce_request(now, node, batches[node.id], self._metadata.snapshot)

    # -- responses

    def _handle_produce_response(
        self, response: ClientResponse, batches: Mapping[TopicPartition, ProducerBatch], names: Mapping[Uuid, str]
    ) -> None:
        now = response.received_ms
        body = response.body
        if body is None:
            self._complete_all(batches.values(), self._without_response(response), now)
            return
        assert isinstance(body, ProduceResponse)
        leaders: dict[TopicPartition, LeaderIdAndEpoch] = {}
        if not self._complete_single(body, batches, names):
            written: list[ProducerBatch] = []
            try:
                included = self._complete_included(response, body, batches, names, written, leaders, now)
            finally:
                self._accumulator.deallocate_all(written)
            if included < len(batches):
                self._complete_missing(response.destination, batches, now)
            if leaders:
                nodes = [Node(row.node_id, row.host, row.port, row.rack) for row in body.node_endpoints]
                for partition in self._metadata.update_partition_leadership(leaders, nodes):
                    log.debug("The leader of %s has changed", partition)
        request = response.request
        self._metrics.record_latency(request.destination, now - request.created_ms, now)

    def _complete_single(
        self, body: ProduceResponse, batches: Mapping[TopicPartition, ProducerBatch], names: Mapping[Uuid, str]
    ) -> bool:
        """Handles the common response to a large batch: alone in its request, and written.

        Returns false, and does nothing, for any other response."""
        if len(batches) != 1 or len(body.responses) != 1 or self._config.guarantee_message_order:
            return False
        topic = body.responses[0]
        if len(topic.partition_responses) != 1:
            return False
        row = topic.partition_responses[0]
        ((partition, batch),) = batches.items()
        if (
            row.error_code
            or (topic.name or names.get(topic.topic_id), row.index) != partition
            or not batch.in_flight
            or batch.final_state is not None
        ):
            return False
        batch.in_flight = False
        if self._completion.write_down_success(batch, row.base_offset, row.log_append_time_ms):
            self._in_flight_batches.remove(batch)
            self._accumulator.deallocate_all((batch,))
        return True

    def _complete_included(
        self,
        response: ClientResponse,
        body: ProduceResponse,
        batches: Mapping[TopicPartition, ProducerBatch],
        names: Mapping[Uuid, str],
        written: list[ProducerBatch],
        leaders: dict[TopicPartition, LeaderIdAndEpoch],
        now: int,
    ) -> int:
        """Handles a response; returns how many of the batches it covers.

        The batches in ``written`` are completed; the caller frees their memory in one step."""
        included = 0
        usual = not self._config.guarantee_message_order
        for topic in body.responses:
            name = topic.name or names.get(topic.topic_id)
            if name is None:
                log.warning("A response from node %s is about a topic that was not sent", response.destination)
                continue
            for row in topic.partition_responses:
                partition = TopicPartition(name, row.index)
                batch = batches.get(partition)
                if batch is None:
                    log.warning("A response from node %s is about %s, not sent to", response.destination, partition)
                    continue
                included += batch.in_flight
                if row.error_code == 0 and usual and batch.in_flight and not batch.is_done:
                    if written and batch.has_callbacks:
                        # Handling an error may need the memory of the batches before this one.
                        self._accumulator.deallocate_all(written)
                        written.clear()
                    batch.in_flight = False
                    if self._completion.write_down_success(batch, row.base_offset, row.log_append_time_ms):
                        self._in_flight_batches.remove(batch)
                        written.append(batch)
                    continue
                result = partition_result(row)
                if result.leader is not None:
                    leaders[partition] = result.leader
                self._completion.complete_batch(batch, result, now)
        return included

    def _complete_missing(self, node: str, batches: Mapping[TopicPartition, ProducerBatch], now: int) -> None:
        for partition, batch in batches.items():
            if batch.in_flight:
                message = f"the response of node {node} does not include {partition}"
                self._completion.complete_batch(
                    batch, PartitionResult(Errors.UNKNOWN_SERVER_ERROR, message=message), now
                )

    def _without_response(self, response: ClientResponse) -> PartitionResult:
        if response.timed_out:
            message = f"Disconnected from node {response.destination} due to timeout"
            return PartitionResult(Errors.REQUEST_TIMED_OUT, message=message)
        if response.disconnected:
            reason = f": {response.reason}" if response.reason else ""
            return PartitionResult(
                Errors.NETWORK_EXCEPTION, message=f"Disconnected from node {response.destination}{reason}"
            )
        if response.version_mismatch is not None:
            log.warning("%s", response.version_mismatch)
            return PartitionResult(Errors.UNSUPPORTED_VERSION, message=str(response.version_mismatch))
        return PartitionResult(Errors.NONE)  # acks=0

    def _complete_all(self, batches: Iterable[ProducerBatch], result: PartitionResult, now: int) -> None:
        for batch in batches:
            self._completion.complete_batch(batch, result, now)


@cache
def _versions_up_to(highest: int) -> VersionRange:
    return VersionRange(ApiKey.PRODUCE.stable_versions.lowest, highest)
