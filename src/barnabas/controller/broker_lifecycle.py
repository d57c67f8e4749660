"""How registration, fencing and shutdown of brokers change their partitions."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from barnabas.common.errors import BrokerIdNotRegisteredError, StaleBrokerEpochError
from barnabas.common.identifiers import Uuid, uuid_to_string
from barnabas.controller.broker_heartbeat_manager import BrokerControlState, BrokerIdAndEpoch
from barnabas.controller.leader_elections import LeaderElections
from barnabas.controller.replication_control_manager import ReplicationControlManager
from barnabas.controller.result import ControllerResult
from barnabas.metadata.partition_registration import NO_LEADER
from barnabas.protocol.internal.metadata import BrokerRegistrationChangeRecord, UnregisterBrokerRecord
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.raft.client import ApiMessageAndVersion

if TYPE_CHECKING:
    from barnabas.protocol.messages.unregister_broker import UnregisterBrokerResponse

log = logging.getLogger(__name__)

FENCE, UNFENCE = 1, -1
"""Values of the field ``fenced`` of a BrokerRegistrationChangeRecord."""

Records = list[ApiMessageAndVersion]


class BrokerLifecycle:
    """Processes heartbeats, fencing, shutdown, unregistration, failed and cordoned log directories.

    Partition records precede the record that fences a broker and follow the one that unfences it: at no offset does a
    fenced broker lead.
    """

    def __init__(self, replication: ReplicationControlManager, elections: LeaderElections) -> None:
        self._replication = replication
        self._cluster = replication.cluster
        self._features = replication.features
        self._elections = elections

    # -- heartbeats

    def process_heartbeat(
        self, request: BrokerHeartbeatRequest
    ) -> tuple[ControllerResult[BrokerHeartbeatResponse], BrokerControlState]:
        """Returns the records, the response, and the broker's new state."""
        broker_id = request.broker_id
        registration_offset = self._cluster.registration_offset(broker_id)
        if registration_offset is None:
            raise StaleBrokerEpochError(f"Broker {broker_id} sent a heartbeat but is not registered.")
        self._cluster.check_broker_epoch(broker_id, request.broker_epoch)
        heartbeats = self._cluster.heartbeats
        current, following = heartbeats.next_state(
            request, registration_offset, lambda: self._replication.leaders.has(broker_id)
        )
        records: Records = []
        if following is not current:
            if following.fenced:
                records += self._fenced(broker_id)
            elif following is BrokerControlState.UNFENCED:
                records += self._unfenced(broker_id)
            else:
                records += self._in_controlled_shutdown(broker_id)
        heartbeats.touch(broker_id, following.fenced, request.current_metadata_offset)
        if following.should_shut_down:
            # The broker asked to shut down and may do so. Its session ends, so a restart need not wait for its expiry.
            heartbeats.tracker.forget(BrokerIdAndEpoch(broker_id, request.broker_epoch))
        version = self._features.metadata_version
        if version.supports_directories:
            records += self._directories_offline(broker_id, request.offline_log_dirs)
        if version.supports_cordoned_directories and request.cordoned_log_dirs is not None:
            records += self._directories_cordoned(broker_id, request.cordoned_log_dirs)
        response = BrokerHeartbeatResponse(
            is_caught_up=request.current_metadata_offset >= registration_offset,
            is_fenced=following.fenced,
            should_shut_down=following.should_shut_down,
        )
        return ControllerResult.of(records, response), following

    def leaderships_moved(self, broker_id: int, offset: int) -> None:
        """Notes the last offset that moves leaderships off a broker: it may stop once all brokers have read it."""
        self._cluster.heartbeats.maybe_update_controlled_shutdown_offset(broker_id, offset)

    def fence_one_stale_broker(self) -> ControllerResult[bool]:
        """Fences a broker whose session has expired; True if there was one, and there may be more.

        One at a time: the new leaders for the second broker depend on the outcome of the first.
        """
        stale = self._cluster.heartbeats.tracker.remove_one_expired()
        if stale is None:
            return ControllerResult.of([], False)
        broker = self._cluster.broker(stale.id)
        if broker is None or broker.epoch != stale.epoch or broker.fenced:
            return ControllerResult.of([], True)
        log.info("Fencing broker %d with epoch %d: its session has timed out", stale.id, stale.epoch)
        records = self._fenced(stale.id)
        self._cluster.heartbeats.fence(stale.id)
        return ControllerResult.of(records, True)

    # -- changes of state

    def _fenced(self, broker_id: int) -> Records:
        broker = self._cluster.broker(broker_id)
        assert broker is not None
        records = self._elections.leader_and_isr_updates(
            f"Broker {broker_id} is fenced", self._replication.isr_members.of(broker_id), remove=broker_id
        )
        if not broker.fenced:
            records.append(self._change(broker_id, fenced=FENCE))
        return records

    def _unfenced(self, broker_id: int) -> Records:
        return [
            self._change(broker_id, fenced=UNFENCE),
            *self._elections.leader_and_isr_updates(
                f"Broker {broker_id} is unfenced", self._replication.leaders.of(NO_LEADER), add=broker_id
            ),
        ]

    def _in_controlled_shutdown(self, broker_id: int) -> Records:
        broker = self._cluster.broker(broker_id)
        assert broker is not None
        records: Records = []
        if not broker.in_controlled_shutdown:
            records.append(self._change(broker_id, in_controlled_shutdown=1))
        records += self._elections.leader_and_isr_updates(
            f"Broker {broker_id} is shutting down", self._replication.isr_members.of(broker_id), remove=broker_id
        )
        return records

    def broker_shut_down(self, broker_id: int, clean: bool) -> Records:
        """Returns the records for a broker whose new incarnation registers: the old one has ended.

        A crash (`clean` is False) also loses unflushed records. With eligible leader replicas on, a crashed broker
        loses its eligibility. Otherwise it only leaves the ISRs that have another member.
        """
        if self._features.is_elr_enabled and not clean:
            why = f"Broker {broker_id} has crashed"
            partitions = self._replication.isr_members.of(broker_id) + self._replication.elr_members.of(broker_id)
            return self._elections.leader_and_isr_updates(why, partitions, unclean_shutdown=broker_id)
        return self._elections.leader_and_isr_updates(
            f"Broker {broker_id} has been restarted", self._replication.isr_members.of(broker_id), remove=broker_id
        )

    def unregister_broker(self, broker_id: int) -> ControllerResult[UnregisterBrokerResponse]:
        from barnabas.protocol.messages.unregister_broker import UnregisterBrokerResponse

        broker = self._cluster.broker(broker_id)
        if broker is None:
            raise BrokerIdNotRegisteredError(f"Broker {broker_id} is not registered.")
        partitions = self._replication.isr_members.of(broker_id) + self._replication.elr_members.of(broker_id)
        records = self._elections.leader_and_isr_updates(
            f"Broker {broker_id} is unregistered", partitions, remove=broker_id
        )
        records.append(ApiMessageAndVersion(UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch), 0))
        return ControllerResult.of(records, UnregisterBrokerResponse(error_message=None))

    # -- log directories

    def _directories_offline(self, broker_id: int, offline: Iterable[Uuid]) -> Records:
        broker = self._cluster.broker(broker_id)
        assert broker is not None
        failed = [directory for directory in offline if directory in broker.directories]
        if not failed:
            return []
        records: Records = []
        for directory in failed:
            records += self._elections.leader_and_isr_updates(
                f"Log directory {uuid_to_string(directory)} of broker {broker_id} has failed",
                self._replication.directories.of(directory),
                remove=broker_id,
            )
        online = [directory for directory in broker.directories if directory not in failed]
        records.append(self._change(broker_id, log_dirs=online))
        return records

    def _directories_cordoned(self, broker_id: int, cordoned: Sequence[Uuid]) -> Records:
        broker = self._cluster.broker(broker_id)
        assert broker is not None
        if broker.cordoned_directories is not None and set(broker.cordoned_directories) == set(cordoned):
            return []
        return [self._change(broker_id, cordoned_log_dirs=list(cordoned))]

    def _change(
        self,
        broker_id: int,
        *,
        fenced: int = 0,
        in_controlled_shutdown: int = 0,
        log_dirs: Sequence[Uuid] = (),
        cordoned_log_dirs: list[Uuid] | None = None,
    ) -> ApiMessageAndVersion:
        broker = self._cluster.broker(broker_id)
        assert broker is not None
        record = BrokerRegistrationChangeRecord(
            broker_id=broker_id,
            broker_epoch=broker.epoch,
            fenced=fenced,
            in_controlled_shutdown=in_controlled_shutdown,
            log_dirs=list(log_dirs),
            cordoned_log_dirs=cordoned_log_dirs,
        )
        # The oldest version that has the field, so that as many readers as possible can read the record.
        version = 3 if cordoned_log_dirs is not None else 2 if log_dirs else 1 if in_controlled_shutdown else 0
        return ApiMessageAndVersion(record, version)
