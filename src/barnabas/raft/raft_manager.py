"""The metadata quorum of a node: its log, its client and its threads, from start to stop."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.identifiers import Uuid
from barnabas.common.scheduler import KafkaScheduler
from barnabas.common.shutdownable_thread import ExitProcedure, exit_process
from barnabas.log.dirs.durable_file import make_data_dir
from barnabas.log.dirs.log_dir_lock import LogDirLock
from barnabas.log.storage_errors import disk_access
from barnabas.raft.config import RaftConfig
from barnabas.raft.kraft_client import DEFAULT_LISTENER_NAME, FaultHandler, KRaftClient, raise_fatal_exit
from barnabas.raft.kraft_driver import KafkaRaftClientDriver
from barnabas.raft.kraft_log import KafkaMetadataLog
from barnabas.raft.voter_set import VoterEndpoint

logger = logging.getLogger(__name__)


class KafkaRaftManager:
    """Builds the Raft components, and shuts them down in the right order.

        manager = KafkaRaftManager(1, directory_id, Path("data"), config, local_endpoints=[...])
        manager.client.register(listener)       # before startup, to receive all commits
        manager.startup()
        ...
        manager.shutdown()

    The constructor opens and checks the log. ``lock_directory`` is for a metadata log outside the broker's log
    directories, which are already locked.
    """

    def __init__(
        self,
        node_id: int,
        directory_id: Uuid,
        metadata_log_dir: Path,
        config: RaftConfig,
        *,
        local_endpoints: Sequence[VoterEndpoint] = (),
        controller_listener_name: str = DEFAULT_LISTENER_NAME,
        lock_directory: bool = False,
        clock: Clock = SYSTEM_CLOCK,
        fault_handler: FaultHandler = raise_fatal_exit,
        exit_procedure: ExitProcedure = exit_process,
    ) -> None:
        self._lock: LogDirLock | None = None
        if lock_directory:
            with disk_access("create", metadata_log_dir):
                make_data_dir(metadata_log_dir)
            self._lock = LogDirLock(metadata_log_dir)
        self._scheduler = KafkaScheduler(
            1, name_prefix=f"kafka-{node_id}-raft-scheduler", clock=clock, exit_procedure=exit_procedure
        )
        try:
            log = KafkaMetadataLog.open(metadata_log_dir, config, clock, self._scheduler)
        except BaseException:
            self._scheduler.shutdown()
            self._release_lock()
            raise
        self.client = KRaftClient(
            node_id,
            directory_id,
            log,
            config,
            local_endpoints=local_endpoints,
            controller_listener_name=controller_listener_name,
            clock=clock,
            fault_handler=fault_handler,
        )
        self._driver = KafkaRaftClientDriver(self.client, clock=clock, exit_procedure=exit_procedure)

    def startup(self, local_endpoints: Sequence[VoterEndpoint] | None = None) -> None:
        """Joins the quorum. ``local_endpoints`` overrides endpoints not known before, as with a listener on port 0."""
        if local_endpoints is not None:
            self.client.set_local_endpoints(local_endpoints)
        self.client.initialize()
        self._driver.start()

    def shutdown(self) -> None:
        """Closes the log and ends the threads. May be called more than once."""
        try:
            self._driver.shutdown()
            self.client.close()
        finally:
            self._scheduler.shutdown()
            self._release_lock()

    def _release_lock(self) -> None:
        if self._lock is not None:
            self._lock.release()
