"""Creates the topics that a pipeline reads. The broker itself creates each of them with its first record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.spark.client_settings import ClientSettings
from barnabas.spark.cluster_client import ClusterClient
from barnabas.spark.pipelines.config import PipelineConfig

TIMEOUT_MS: Final = 20_000
_PAUSE_MS: Final = 100


class TopicsMissingError(Exception):
    """Topics do not exist, and the cluster does not create them."""


def source_options(pipeline: str, topics: Sequence[str], config: PipelineConfig) -> dict[str, str]:
    """Returns the options of the source. The user's options take precedence."""
    client_id = f"barnabas-pipeline-{pipeline}"
    return {
        "kafka.bootstrap.servers": config.bootstrap_servers,
        "kafka.client.id": client_id,
        # Lets tools that show the lag of groups show the lag of pipelines.
        "groupId": client_id,
        "subscribe": ",".join(topics),
        "startingOffsets": config.starting_offsets,
        "maxOffsetsPerTrigger": str(config.max_offsets_per_trigger),
        "includeHeaders": "true",
        **config.source_options,
    }


def ensure_topics(options: Mapping[str, str], topics: Sequence[str], clock: Clock = SYSTEM_CLOCK) -> None:
    """Lets the cluster create missing topics, and returns when all of them can be read.

    A query cannot subscribe to a topic that does not exist. A metadata request is enough to create it: the broker uses
    the same settings as for the first record.
    """
    deadline = clock.hi_res_milliseconds() + TIMEOUT_MS
    with ClusterClient(ClientSettings.of(options), clock=clock) as client:
        while True:
            leaders = client.reader.describe(topics).leaders
            missing = sorted(set(topics) - {one.topic for one, leader in leaders.items() if leader.node is not None})
            if not missing:
                return
            if clock.hi_res_milliseconds() >= deadline:
                raise TopicsMissingError(f"the cluster has no topic {', '.join(missing)}, and does not create it")
            asked = [MetadataRequestTopic(name=name) for name in missing]
            client.send(MetadataRequest(topics=asked, allow_auto_topic_creation=True))
            clock.sleep(_PAUSE_MS)
