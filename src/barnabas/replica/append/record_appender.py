"""The append of the replica manager, as its users in other layers see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.common.topic_partition import TopicPartition
    from barnabas.log.append_origin import AppendOrigin
    from barnabas.log.producers.verification_state import VerificationGuard
    from barnabas.log.segment.file_handle import Buffer
    from barnabas.replica.fetch.fetch_session import TopicIdPartition
    from barnabas.replica.results import BufferHolder, ProduceCallback


class RecordAppender(Protocol):
    """See `RecordAppends.append_records`."""

    def append_records(
        self,
        timeout_ms: int,
        required_acks: int,
        entries: Mapping[TopicIdPartition, Buffer],
        callback: ProduceCallback,
        *,
        origin: AppendOrigin = ...,
        internal_topics_allowed: bool = False,
        verification_guards: Mapping[TopicPartition, VerificationGuard] | None = None,
        transaction_version: int = ...,
        holder: BufferHolder | None = None,
    ) -> None: ...
