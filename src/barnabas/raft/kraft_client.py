"""A voter of the metadata quorum: drives the Raft core with the log, the disk and the listeners."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NoReturn

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.errors import (
    BarnabasError,
    InvalidUpdateVersionError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
)
from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.common.shutdownable_thread import FatalExitError
from barnabas.protocol.internal.framing import MetadataRecordTypes
from barnabas.protocol.internal.metadata_topic import CLUSTER_METADATA
from barnabas.raft.batch_accumulator import BatchAccumulator, CompletedBatch
from barnabas.raft.client import (
    UNKNOWN_LEADER,
    ApiMessageAndVersion,
    NotLeaderError,
    OffsetAndEpoch,
    RaftListener,
)
from barnabas.raft.config import RaftConfig
from barnabas.raft.control_state import KRaftControlRecordStateMachine
from barnabas.raft.core import (
    AdvanceHighWatermark,
    BeginLeaderEpoch,
    Decision,
    EndLeaderEpoch,
    LeaderChanged,
    LogFlushed,
    PersistElection,
    RaftCore,
    ResignRequested,
    Start,
    TimeElapsed,
)
from barnabas.raft.kraft_log import Isolation, KafkaMetadataLog
from barnabas.raft.leader_state import membership_records
from barnabas.raft.listener_context import STARTING_NEXT_OFFSET, ListenerContext
from barnabas.raft.quorum_state import QuorumStateName
from barnabas.raft.quorum_state_file import FileQuorumStateStore
from barnabas.raft.records_iterator import control_records
from barnabas.raft.records_snapshot import RecordsSnapshotReader, RecordsSnapshotWriter
from barnabas.raft.voter_set import (
    KRAFT_VERSION_0,
    NO_VOTERS,
    ReplicaKey,
    VoterEndpoint,
    VoterNode,
    VoterSet,
)
from barnabas.records.batch import RecordBatch

if TYPE_CHECKING:
    from barnabas.raft.quorum_info import QuorumInfo
    from barnabas.raft.raft_metrics import KafkaRaftMetrics

logger = logging.getLogger(__name__)

FaultHandler = Callable[[str, BaseException], None]
"""Called with a fatal error. It must end the process, or raise."""

CLEANING_INTERVAL_MS: Final = 60_000

DEFAULT_LISTENER_NAME: Final = "CONTROLLER"


def raise_fatal_exit(what: str, error: BaseException) -> None:
    """Handles faults by default: makes the thread end the process."""
    raise FatalExitError(1, f"{what}: {error}") from error


class KRaftClient:
    """A voter of the metadata quorum over a log in files; for now the sole voter.

    **The path of a record** ::

        prepare_append     encoded, in a batch of the accumulator       the controller's thread
        schedule           may be written
        drain              one write for each batch                     Raft's thread, :meth:`poll_once`
        flush              one wait for the disk, for all of them
        high watermark     a majority has it: committed
        handle_commit      the listeners get it

    A record is committed when it is on the disk of a majority that includes this node; listeners get it only then.
    (Kafka's leader lets a quorum of one commit records that are not on disk yet.) While the disk is busy, further
    appends accumulate and share the next flush: the slower the disk, the larger the groups.

    **Decisions.** :class:`~barnabas.raft.core.RaftCore` decides on elections and the high watermark; this class passes
    messages to it and carries out its decisions, in their order.

    **A failed write ends the node.** After a disk error the state of the disk is unknown, and a second ``fsync`` may
    succeed for data that the first has lost. The fault handler ends the process; the next process reads the disk.

    **Elections.** On every start this node elects itself in a new epoch, so every record shows which run of the process
    wrote it. After it resigns, this node is elected again.

    **Threads.** All work happens in :meth:`poll_once`, which never sleeps: a test calls it directly. A
    :class:`~barnabas.raft.kraft_driver.KafkaRaftClientDriver` calls :meth:`poll` on its own thread. Any thread may call
    the methods of `RaftClient`.
    """

    def __init__(
        self,
        node_id: int,
        directory_id: Uuid,
        log: KafkaMetadataLog,
        config: RaftConfig,
        *,
        local_endpoints: Sequence[VoterEndpoint] = (),
        controller_listener_name: str = DEFAULT_LISTENER_NAME,
        store: FileQuorumStateStore | None = None,
        clock: Clock = SYSTEM_CLOCK,
        types: MetadataRecordTypes = CLUSTER_METADATA,
        fault_handler: FaultHandler = raise_fatal_exit,
    ) -> None:
        """`directory_id` is the id of the log directory, from its ``meta.properties``.

        `local_endpoints` are the controller listeners of this node, for the voter set in the log.
        """
        if directory_id == ZERO_UUID:
            raise ValueError("the directory of a voter needs an id")
        self._node_id = node_id
        self._config = config
        self._clock = clock
        self._types = types
        self._fault_handler = fault_handler
        self._local = VoterNode(ReplicaKey(node_id, directory_id), tuple(local_endpoints))
        self.log = log
        static_voters = VoterSet.of(
            VoterNode(ReplicaKey(voter.id), (VoterEndpoint(controller_listener_name, voter.host, voter.port),))
            for voter in config.voters
        )
        self._partition_state = KRaftControlRecordStateMachine(static_voters, log, types)
        self._store = store or FileQuorumStateStore.in_directory(log.directory)
        # Only Raft's thread changes these.
        self._core = RaftCore()
        self.leader_and_epoch = UNKNOWN_LEADER
        """The core's last decision, once it is persisted."""
        self.high_watermark: int | None = None
        self._accumulator: BatchAccumulator | None = None
        """Takes appends while this node leads."""
        self._initialized = False
        self._contexts: dict[RaftListener[ApiMessageAndVersion], ListenerContext] = {}
        self._clean_due_ms = clock.hi_res_milliseconds() + CLEANING_INTERVAL_MS
        self._failure: BaseException | None = None
        self._closed = False
        self._registrations: deque[tuple[RaftListener[ApiMessageAndVersion], bool]] = deque()
        """Listeners to add (True) or remove. Any thread appends; Raft's thread takes them out."""
        self._resignations: deque[int] = deque()
        """Epochs from which the state machine has resigned. Any thread appends; Raft's thread takes them out."""
        self._requested_kraft_version = KRAFT_VERSION_0
        """The highest level that was appended in this epoch."""
        self._wakeup = threading.Condition()
        """Guards `_woken`. Only the clock is called while it is held."""
        self._woken = False
        self._metrics: KafkaRaftMetrics | None = None

    # For state machines

    @property
    def node_id(self) -> int:
        return self._node_id

    @property
    def log_end_offset(self) -> int:
        return self.log.end_offset.message_offset

    @property
    def latest_snapshot_id(self) -> OffsetAndEpoch | None:
        return self.log.latest_snapshot_id

    @property
    def kraft_version(self) -> int:
        return self._partition_state.membership.kraft_version

    @property
    def voters(self) -> VoterSet:
        return self._partition_state.membership.voters

    @property
    def state(self) -> QuorumStateName:
        return self._core.quorum.name

    @property
    def granting_voters(self) -> frozenset[int]:
        """The voters that granted the last vote that this node requested."""
        return self._core.quorum.granting_voters

    def record_into(self, metrics: KafkaRaftMetrics) -> None:
        """Records appends, commits and elections into these metrics from now on."""
        self._metrics = metrics

    def register(self, listener: RaftListener[ApiMessageAndVersion]) -> None:
        if self._closed:
            raise ValueError("the Raft client is closed")
        self._registrations.append((listener, True))
        self.wakeup()

    def unregister(self, listener: RaftListener[ApiMessageAndVersion]) -> None:
        """Removes a listener in the next turn of Raft's thread; until then it may still be called."""
        self._registrations.append((listener, False))
        self.wakeup()

    def prepare_append(self, epoch: int, records: Sequence[ApiMessageAndVersion]) -> int:
        return self._leading().append(epoch, records, delay_drain=True)

    def schedule_prepared_append(self) -> None:
        self._leading().allow_drain()
        self.wakeup()

    def resign(self, epoch: int) -> None:
        current = self.leader_and_epoch
        if epoch < 0 or epoch > current.epoch:
            raise ValueError(f"cannot resign from epoch {epoch}: the current one is {current.epoch}")
        if epoch < current.epoch:
            return
        if not current.is_leader(self._node_id):
            raise ValueError(f"cannot resign: node {current.leader_id} leads in epoch {epoch}")
        self._resignations.append(epoch)
        self.wakeup()

    def upgrade_kraft_version(self, epoch: int, version: int, validate_only: bool) -> None:
        accumulator = self._leading()
        accumulator.check_epoch(epoch)
        current = max(self.kraft_version, self._requested_kraft_version)
        if version == current:
            return
        if version < current:
            raise InvalidUpdateVersionError(
                f"Invalid update of kraft.version from {current} to {version}: it cannot be downgraded."
            )
        voters = self._partition_state.membership.voters.with_voter(self._local)
        unable = [str(node.key) for node in voters if version not in node.supported_kraft_versions]
        if unable:
            raise InvalidUpdateVersionError(
                f"Invalid update of kraft.version from {current} to {version}: voters {', '.join(unable)} do not "
                "support it."
            )
        if not validate_only:
            self._requested_kraft_version = version
            accumulator.append_control_records(membership_records(version, voters))
            self.wakeup()

    def create_snapshot(
        self, snapshot_id: OffsetAndEpoch, last_contained_log_timestamp: int
    ) -> RecordsSnapshotWriter | None:
        last_offset = snapshot_id.offset - 1
        raw = self.log.create_new_snapshot(snapshot_id)
        if raw is None:
            return None
        try:
            return RecordsSnapshotWriter(
                raw,
                last_contained_log_timestamp,
                clock=self._clock,
                types=self._types,
                kraft_version=self._partition_state.kraft_version_at(last_offset),
                voters=self._partition_state.voters_at(last_offset) or NO_VOTERS,
                max_batch_size=self._config.max_batch_size_bytes,
                on_frozen=self._snapshot_frozen,
            )
        except BaseException:
            raw.close()
            raise

    def describe_quorum(self) -> QuorumInfo:
        """Returns the data for DescribeQuorum; `NotLeaderOrFollowerError` on a node that does not lead."""
        from barnabas.raft.quorum_info import QuorumInfo

        state = self._core.leader_state
        if state is None or self._failure is not None or self._closed:
            raise NotLeaderOrFollowerError(f"Node {self._node_id} does not lead the metadata quorum.")
        return QuorumInfo.of(state, self._clock.milliseconds(), self.kraft_version)

    def _leading(self) -> BatchAccumulator:
        accumulator = self._accumulator
        if accumulator is None or self._failure is not None or self._closed:
            raise NotLeaderError(f"node {self._node_id} does not lead: {self.leader_and_epoch}")
        return accumulator

    def _snapshot_frozen(self, snapshot_id: OffsetAndEpoch) -> None:
        self.log.on_snapshot_frozen(snapshot_id)
        self._partition_state.truncate_old_entries(snapshot_id.offset)

    # Start and stop

    def set_local_endpoints(self, endpoints: Sequence[VoterEndpoint]) -> None:
        """Sets the actual addresses of this node's controller listeners; must precede :meth:`initialize`."""
        self._local = VoterNode(self._local.key, tuple(endpoints))

    def initialize(self) -> None:
        """Restores the persisted state and starts an election.

        On return the epoch is on disk, but its first record only after the next :meth:`poll_once`. Raises an error if
        the files are damaged, or `UnsupportedQuorumError` if there are other voters.
        """
        if self._initialized:
            raise BarnabasError("the Raft client is already initialized")
        self._partition_state.update_state()
        membership = self._partition_state.membership
        end = OffsetAndEpoch(self.log_end_offset, self.log.last_fetched_epoch)
        now = self._clock.hi_res_milliseconds()
        self._carry_out(self._core.handle(Start(now, self._local, membership, self._store.read(), end)))
        logger.info("The voters are %s; the log ends at %d, in epoch %d", membership.voters, end.offset, end.epoch)
        self._hold_election(now)
        self._initialized = True

    def poll(self) -> None:
        """Does the work that is due, then waits until there is more."""
        timeout_ms = self.poll_once()
        with self._wakeup:
            if not self._woken:
                self._clock.wait(self._wakeup, timeout_ms)
            self._woken = False

    def wakeup(self) -> None:
        """Makes :meth:`poll` return from its wait."""
        with self._wakeup:
            self._woken = True
            self._wakeup.notify_all()

    def poll_once(self) -> int:
        """Does all work that is due, without sleeping; returns the milliseconds until more is due.

        An error goes to the fault handler, and the client does no further work.
        """
        if self._failure is not None:
            raise BarnabasError(f"the Raft client has failed: {self._failure}") from self._failure
        if not self._initialized or self._closed:
            raise BarnabasError("the Raft client is not initialized, or is closed")
        try:
            return self._poll()
        except FatalExitError as error:
            self._failure = error
            raise
        except Exception as error:  # noqa: BLE001 - after any error the state of the log is unknown
            self._fail(error)

    def close(self) -> None:
        """Writes scheduled batches, updates the listeners, and closes the log. No thread may be polling.

        After a failure nothing is written: the files stay as they are for the next start.
        """
        if self._closed:
            return
        try:
            if self._failure is None and self._initialized and self._accumulator is not None:
                self._write(self._accumulator.drain())
                self._update_listeners()
        except Exception as error:  # noqa: BLE001 - as in poll_once
            self._fail(error)
        finally:
            self._closed = True
            if self._accumulator is not None:
                self._accumulator.close()
            for context in self._contexts.values():
                context.listener.begin_shutdown()
            self._contexts.clear()
            self._close_log()

    def _close_log(self) -> None:
        if self._failure is None:
            self.log.flush(force_flush_active_segment=True)
            self.log.close()
        else:
            self.log.close_handlers()

    def _fail(self, error: BaseException) -> NoReturn:
        self._failure = error
        if self._accumulator is not None:
            self._accumulator.close()
        what = f"node {self._node_id} cannot continue with the metadata log in {self.log.directory}"
        logger.critical("%s", what, exc_info=error)
        self._fault_handler(what, error)
        raise FatalExitError(1, f"{what}: {error}") from error

    # One turn

    def _poll(self) -> int:
        self._process_registrations()
        self._advance_core()
        until_drain = self._maybe_append_batches()
        self._update_listeners()
        waits = [self._maybe_clean()]
        if until_drain is not None:
            waits.append(until_drain)
        if self._core.deadline_ms is not None:
            waits.append(max(self._core.deadline_ms - self._clock.hi_res_milliseconds(), 0))
        return min(waits)

    def _advance_core(self) -> None:
        """Passes the resignations to the core, and the time if its deadline has passed."""
        core, now = self._core, self._clock.hi_res_milliseconds()
        while self._resignations:
            self._carry_out(core.handle(ResignRequested(now, self._resignations.popleft())))
        if core.deadline_ms is not None and core.deadline_ms <= now:
            self._hold_election(now)

    def _hold_election(self, now: int) -> None:
        """Passes the time to the core, whose deadline begins an election. A sole voter wins it at once."""
        self._carry_out(self._core.handle(TimeElapsed(now)))
        if self._metrics is not None and self.leader_and_epoch.leader_id is not None:
            self._metrics.elected(self._clock.hi_res_milliseconds() - now)

    def _process_registrations(self) -> None:
        while self._registrations:
            listener, comes = self._registrations.popleft()
            if not comes:
                self._contexts.pop(listener, None)
            elif listener not in self._contexts:
                self._contexts[listener] = ListenerContext(listener, self._types, self._listener_is_done)

    def _maybe_clean(self) -> int:
        now = self._clock.hi_res_milliseconds()
        if now >= self._clean_due_ms:
            self._clean_due_ms = now + CLEANING_INTERVAL_MS
            try:
                self.log.maybe_clean()
            except KafkaStorageError as error:
                logger.error("Old snapshots could not be deleted: %s", error)
        return self._clean_due_ms - now

    # Decisions of the core

    def _carry_out(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            match decision:
                case PersistElection(election, kraft_version):
                    self._store.write(election, kraft_version)
                case LeaderChanged(leader):
                    self.leader_and_epoch = leader
                    self._fire_leader_changes()
                case BeginLeaderEpoch():
                    self._begin_leader_epoch(decision)
                case EndLeaderEpoch():
                    assert self._accumulator is not None
                    self._accumulator.close()
                    self._accumulator = None
                case AdvanceHighWatermark(high_watermark):
                    self.log.update_high_watermark(high_watermark)
                    self.high_watermark = high_watermark.message_offset

    def _begin_leader_epoch(self, decision: BeginLeaderEpoch) -> None:
        accumulator = BatchAccumulator(
            decision.epoch,
            decision.start_offset,
            linger_ms=self._config.append_linger_ms,
            clock=self._clock,
            types=self._types,
            # A batch larger than a segment must be refused at the append.
            max_batch_size=min(self._config.max_batch_size_bytes, self._config.log_segment_bytes),
        )
        # Before any other thread can access the accumulator: the first record of an epoch names its leader.
        accumulator.append_control_records(decision.control_records)
        self._requested_kraft_version = KRAFT_VERSION_0
        self._accumulator = accumulator
        self.log.initialize_leader_epoch(decision.epoch)

    # Writing

    def _maybe_append_batches(self) -> int | None:
        """Writes the batches that are due; returns the milliseconds until more are due, None if there are none."""
        accumulator = self._accumulator
        if accumulator is None:
            return None
        until = accumulator.time_until_drain()
        if until == 0:
            self._write(accumulator.drain())
            until = accumulator.time_until_drain()
        return until

    def _write(self, batches: Sequence[CompletedBatch]) -> None:
        if not batches:
            return
        started_ns = self._clock.nanoseconds()
        for batch in batches:
            appended = self.log.append_as_leader(batch.data, batch.epoch)
            if appended.last_offset != batch.last_offset:
                raise BarnabasError(f"a batch up to {batch.last_offset} was written up to {appended.last_offset}")
            own = () if batch.records else control_records(RecordBatch(batch.data))
            self._partition_state.appended(own, batch.last_offset + 1)
        self.log.flush()
        # The leader's own end offset counts only what is flushed.
        self._carry_out(self._core.handle(LogFlushed(self.log.end_offset, self._partition_state.membership)))
        if self._metrics is not None:
            records = batches[-1].last_offset + 1 - batches[0].base_offset
            self._metrics.committed(records, (self._clock.nanoseconds() - started_ns) / 1_000_000)
        self._fire_from_memory(batches)

    # Listeners

    def _fire_from_memory(self, batches: Sequence[CompletedBatch]) -> None:
        """Passes newly committed batches to the listeners that expect them next."""
        if self.high_watermark is None or batches[-1].last_offset >= self.high_watermark:
            return
        decoded = [batch.to_batch() for batch in batches]
        for context in list(self._contexts.values()):
            if context.next_expected_offset == decoded[0].base_offset:
                context.fire_handle_commit_from_memory(decoded)

    def _update_listeners(self) -> None:
        for context in list(self._contexts.values()):
            self._advance(context)
        self._fire_leader_changes()

    def _advance(self, context: ListenerContext) -> None:
        """Passes new committed batches to a listener, as long as it processes them immediately."""
        high_watermark = self.high_watermark
        if high_watermark is None:
            return
        while (offset := context.next_expected_offset) is not None and offset < high_watermark:
            if offset == STARTING_NEXT_OFFSET or offset < self.log.start_offset:
                raw = self.log.latest_snapshot()
                if raw is not None:
                    context.fire_handle_load_snapshot(RecordsSnapshotReader(raw, self._types))
                elif offset == STARTING_NEXT_OFFSET and self.log.start_offset == 0:
                    context.start_at(0)
                else:
                    raise BarnabasError(
                        f"{context.listener} needs offset {offset}; the log begins at {self.log.start_offset}, and "
                        "there is no snapshot"
                    )
            else:
                context.fire_handle_commit(offset, self.log.read(offset, Isolation.COMMITTED).records)
                if context.next_expected_offset == offset:
                    return  # a closing listener returned the reader unread: continuing would loop forever

    def _fire_leader_changes(self) -> None:
        leader, state = self.leader_and_epoch, self._core.leader_state
        for context in list(self._contexts.values()):
            if state is not None and leader.is_leader(self._node_id):
                context.maybe_fire_own_leadership(leader, state.epoch_start_offset)
            else:
                context.maybe_fire_leader_change(leader)

    def _listener_is_done(self, context: ListenerContext) -> None:
        """Called when a listener has closed a reader, on any thread."""
        is_behind = context.next_offset < (self.high_watermark or 0)
        if is_behind or context.last_fired_leader_change != self.leader_and_epoch:
            self.wakeup()

    def __repr__(self) -> str:
        return f"KRaftClient(node_id={self._node_id}, {self._core.quorum!r}, high_watermark={self.high_watermark})"
