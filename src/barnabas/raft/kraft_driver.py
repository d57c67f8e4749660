"""Raft's thread."""

from __future__ import annotations

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.shutdownable_thread import ExitProcedure, ShutdownableThread, exit_process
from barnabas.raft.kraft_client import KRaftClient


class KafkaRaftClientDriver(ShutdownableThread):
    """Polls a :class:`~barnabas.raft.kraft_client.KRaftClient` until shutdown, under Kafka's thread name.

    The owner of the client closes it after this thread has ended.
    """

    def __init__(
        self, client: KRaftClient, *, clock: Clock = SYSTEM_CLOCK, exit_procedure: ExitProcedure = exit_process
    ) -> None:
        super().__init__(f"kafka-{client.node_id}-raft-io-thread", clock=clock, exit_procedure=exit_procedure)
        self._client = client

    def do_work(self) -> None:
        self._client.poll()

    def on_shutdown_initiated(self) -> None:
        self._client.wakeup()
