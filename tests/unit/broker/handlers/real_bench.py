"""The handlers of records over a real replica manager with real logs, and no sockets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from barnabas.broker.handlers.delete_records import DeleteRecordsHandler
from barnabas.broker.handlers.describe_producers import DescribeProducersHandler
from barnabas.broker.handlers.fetch import FetchHandler
from barnabas.broker.handlers.list_offsets import ListOffsetsHandler
from barnabas.broker.handlers.log_dirs import LogDirsHandler
from barnabas.broker.handlers.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from barnabas.broker.handlers.produce import ProduceHandler
from barnabas.protocol.message import Request as RequestMessage
from barnabas.replica.fetch.fetch_session_cache import FetchSessionCache
from barnabas.replica.fetch.fetch_session_manager import FetchManager
from barnabas.security.auth_helper import AuthHelper
from barnabas.server.dispatch import ApiDispatcher, handlers_of
from barnabas.server.request import Request
from handler_fixtures import HandlerBench
from replica_fixtures import ReplicaBox
from unit.broker.handlers.data_bench import COMPACT, SMALL, T

SETTINGS = {"compact": {"cleanup.policy": "compact"}, "small": {"max.message.bytes": "1000"}}


class RealBench(HandlerBench):
    """A broker with the topics ``t`` (of two partitions), ``compact`` and ``small``, all led by it."""

    def __init__(self, directory: Path, **box: Any) -> None:
        self.box = ReplicaBox([directory / "a", directory / "b"], overrides=dict(SETTINGS), **box)
        super().__init__(clock=self.box.clock)
        for name, topic_id, partitions in (("t", T, 2), ("compact", COMPACT, 1), ("small", SMALL, 1)):
            self.box.create_topic(name, topic_id, partitions=partitions)
        manager = self.box.manager
        auth = AuthHelper()
        self.dispatcher = ApiDispatcher(
            handlers_of(
                ProduceHandler(self.helper, auth, self.box.cache, manager, self.clock),
                FetchHandler(
                    self.helper,
                    auth,
                    self.box.cache,
                    manager,
                    FetchManager(self.clock, FetchSessionCache(10)),
                    manager.stats,
                    self.clock,
                    fetch_max_bytes=manager.config.fetch_max_bytes,
                ),
                ListOffsetsHandler(self.helper, auth, manager),
                OffsetForLeaderEpochHandler(self.helper, auth, manager),
                DeleteRecordsHandler(self.helper, auth, self.box.cache, manager),
                LogDirsHandler(self.helper, auth, manager),
                DescribeProducersHandler(self.helper, auth, self.box.cache, manager),
            ),
            self.helper,
            drain_actions=manager.action_queue.try_complete_actions,
        )

    def send(self, body: RequestMessage, version: int | None = None) -> Request:
        """Has a request handled; its response may come later."""
        request = self.request(body, body.api_key.versions.highest if version is None else version)
        self.run(self.dispatcher.handle, request)
        return request

    def answered_now(self, body: RequestMessage, version: int | None = None) -> Any:
        return self.answer(self.send(body, version))
