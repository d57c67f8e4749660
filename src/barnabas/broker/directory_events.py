"""What becomes of news about log directories."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.broker.assignments_manager import AssignmentsManager
from barnabas.broker.broker_lifecycle_manager import BrokerLifecycleManager
from barnabas.common.identifiers import Uuid
from barnabas.replica.fetch_session import TopicIdPartition


class ControllerDirectoryEvents:
    """Tells the controller: where a replica is with AssignReplicasToDirs, that a directory has failed by heartbeat."""

    def __init__(
        self, assignments: AssignmentsManager, lifecycle: BrokerLifecycleManager, log_dir_failure_timeout_ms: int
    ) -> None:
        """``log.dir.failure.timeout.ms``: a failure that the controller cannot be told of for so long is the end."""
        self._lifecycle = lifecycle
        self._timeout_ms = log_dir_failure_timeout_ms
        self._assignments = assignments

    def handle_assignment(
        self, partition: TopicIdPartition, directory_id: Uuid, reason: str, callback: Callable[[], object]
    ) -> None:
        self._assignments.on_assignment(partition, directory_id, reason, callback)

    def handle_failure(self, directory_id: Uuid) -> None:
        self._lifecycle.propagate_directory_failure(directory_id, self._timeout_ms)
