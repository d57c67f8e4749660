"""The Kafka client of the source and the sink."""

from __future__ import annotations

from barnabas.clients.common.blocking_client import BlockingClient
from barnabas.clients.common.topic_reader import TopicReader
from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.spark.client_settings import ClientSettings


class ClusterClient(BlockingClient):
    """A `BlockingClient` with Spark's settings, and a reader of topics. Belongs to one thread."""

    def __init__(self, settings: ClientSettings, *, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(
            ",".join(settings.bootstrap_servers),
            config=settings.network_config(),
            clock=clock,
            channel_factory=settings.security.channel_factory(),
        )
        self.settings = settings
        self.reader = TopicReader(self, settings.fetch_settings(), settings.request_timeout_ms)
