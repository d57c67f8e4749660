"""The client's half of incremental fetch sessions (KIP-227)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, NamedTuple

from barnabas.common.errors import Errors
from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)

log = logging.getLogger(__name__)

INVALID_SESSION_ID: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_MAX_EPOCH: Final = 2**31 - 1


class PartitionToFetch(NamedTuple):
    """Where to fetch one partition from, and how much."""

    topic_id: Uuid
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int | None
    last_fetched_epoch: int | None = None


class SessionFetch(NamedTuple):
    """The partitions of the next request of a session."""

    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]
    partitions: Mapping[TopicPartition, PartitionToFetch]
    """All partitions of the session, also those that have not changed and are not named in the request."""
    can_use_topic_ids: bool

    @property
    def is_full(self) -> bool:
        return self.session_epoch in {INITIAL_EPOCH, FINAL_EPOCH}


class FetchSessionHandler:
    """Tracks which partitions one broker knows from the requests of a fetch session.

    The first request is *full*: it names all partitions, with epoch 0, and the response carries the session id. The
    next requests, with epochs 1, 2, 3, name only the changes: partitions whose offset has moved, new partitions, and
    partitions to forget. If the epochs of client and broker differ, a full request starts a new session::

        client                                         broker
        epoch 0: a@0 b@0 c@0                      ->
                                                  <-   session 7: data for a
        session 7, epoch 1: a@100                 ->                       (b and c as before)
                                                  <-   data for c          (nothing new in a and b)
        session 7, epoch 2: c@40, forget b        ->

    A *sessionless* handler sends full requests only, and the broker keeps nothing.
    """

    def __init__(self, node_id: int, *, sessionless: bool = False) -> None:
        self._node_id = node_id
        self._session_id = INVALID_SESSION_ID
        # A full request with the final epoch and no session id asks for no session.
        self._full_epoch = FINAL_EPOCH if sessionless else INITIAL_EPOCH
        self._next_epoch = self._full_epoch
        self._partitions: dict[TopicPartition, PartitionToFetch] = {}
        self._used_topic_ids = True
        self._names: dict[Uuid, str] = {}
        self._named: dict[tuple[str, int], TopicPartition] = {}
        """The partitions of the session by topic and number, as responses name them."""

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def partitions(self) -> Mapping[TopicPartition, PartitionToFetch]:
        return self._partitions

    # -- requests

    def build(self, wanted: Mapping[TopicPartition, PartitionToFetch]) -> SessionFetch:
        """Returns the request after which the session has these partitions, in this order."""
        with_ids = True
        for row in wanted.values():
            if row.topic_id == ZERO_UUID:
                with_ids = False
                break
        if self._next_epoch in {INITIAL_EPOCH, FINAL_EPOCH} or with_ids != self._used_topic_ids:
            # A session uses ids or names, never both: a change needs another session. Epoch 0 with the old session id
            # tells the broker to drop the old one.
            self._next_epoch = self._full_epoch
            partitions = self._remember(wanted, with_ids)
            return SessionFetch(self._session_id, self._full_epoch, _topics(wanted), [], partitions, with_ids)
        before = self._partitions
        changed: dict[TopicPartition, PartitionToFetch] = {}
        kept = 0
        for partition, row in wanted.items():
            if partition in before:
                old = before[partition]
                # A topic that was deleted and recreated is a new one to the broker.
                if old.topic_id == row.topic_id or not with_ids:
                    kept += 1
                if old == row:
                    continue
            changed[partition] = row
        forgotten: list[ForgottenTopic] = []
        if kept < len(before):
            forgotten = _forgotten(
                {
                    partition: row
                    for partition, row in before.items()
                    if partition not in wanted or (with_ids and wanted[partition].topic_id != row.topic_id)
                }
            )
        partitions = self._remember(wanted, with_ids)
        return SessionFetch(self._session_id, self._next_epoch, _topics(changed), forgotten, partitions, with_ids)

    def _remember(
        self, wanted: Mapping[TopicPartition, PartitionToFetch], with_ids: bool
    ) -> Mapping[TopicPartition, PartitionToFetch]:
        """Returns the partitions of the session now. The mapping is replaced, never changed."""
        self._partitions = dict(wanted)
        if self._named.keys() != self._partitions.keys():
            self._named = {partition: partition for partition in wanted}
        self._used_topic_ids = with_ids
        self._names = {row.topic_id: partition.topic for partition, row in wanted.items()} if with_ids else {}
        return self._partitions

    def final_request(self) -> FetchRequest | None:
        """Returns the request that closes the session; None if there is none."""
        if self._session_id == INVALID_SESSION_ID:
            return None
        return FetchRequest(session_id=self._session_id, session_epoch=FINAL_EPOCH)

    # -- responses

    def read_response(self, response: FetchResponse) -> list[tuple[TopicPartition, PartitionData]] | None:
        """Returns the rows of a response; None if the session has to start again."""
        if response.error_code:
            error = Errors.for_code(response.error_code)
            log.info(
                "Node %d was unable to process the fetch request of session %d: %s",
                self._node_id,
                self._session_id,
                error.name,
            )
            if error is Errors.FETCH_SESSION_ID_NOT_FOUND:
                self._session_id = INVALID_SESSION_ID
            self._next_epoch = self._full_epoch
            return None
        included = self._included(response)
        # The response to a full request has all partitions of the request.
        if included is None or (
            self._next_epoch == self._full_epoch and {partition for partition, _ in included} != self._partitions.keys()
        ):
            log.info(
                "The response of node %d has other partitions than the request; starting a new fetch session",
                self._node_id,
            )
            self._next_epoch = self._full_epoch
            return None
        if response.session_id == INVALID_SESSION_ID:
            self._session_id = INVALID_SESSION_ID  # the broker has no room for sessions, or has dropped this one
            self._next_epoch = self._full_epoch
        elif self._next_epoch == self._full_epoch:
            self._session_id = response.session_id
            self._next_epoch = 1
        else:
            self._next_epoch = 1 if self._next_epoch == _MAX_EPOCH else self._next_epoch + 1
        return included

    def _included(self, response: FetchResponse) -> list[tuple[TopicPartition, PartitionData]] | None:
        """Returns the rows of a response; None if the session does not have one of their partitions."""
        found: list[tuple[TopicPartition, PartitionData]] = []
        named = self._named
        for topic in response.responses:
            name = topic.topic or self._names.get(topic.topic_id)  # newer versions name a topic by its id
            if name is None:
                return None
            for row in topic.partitions:
                key = (name, row.partition_index)
                if key not in named:
                    return None
                found.append((named[key], row))
        return found

    def handle_error(self) -> None:
        """Starts a new session after a request without a response, which the broker may or may not have seen."""
        self._next_epoch = self._full_epoch

    def __repr__(self) -> str:
        return (
            f"FetchSessionHandler(node {self._node_id}, session {self._session_id}, epoch {self._next_epoch}, "
            f"{len(self._partitions)} partitions)"
        )


def _topics(rows: Mapping[TopicPartition, PartitionToFetch]) -> list[FetchTopic]:
    """Groups consecutive partitions of a topic into one entry; keeps their order, which is their priority."""
    topics: list[FetchTopic] = []
    for partition, row in rows.items():
        if not topics or topics[-1].topic != partition.topic or topics[-1].topic_id != row.topic_id:
            topics.append(FetchTopic(topic=partition.topic, topic_id=row.topic_id))
        topics[-1].partitions.append(
            FetchPartition(
                partition=partition.partition,
                current_leader_epoch=-1 if row.current_leader_epoch is None else row.current_leader_epoch,
                fetch_offset=row.fetch_offset,
                last_fetched_epoch=-1 if row.last_fetched_epoch is None else row.last_fetched_epoch,
                partition_max_bytes=row.max_bytes,
            )
        )
    return topics


def _forgotten(rows: Mapping[TopicPartition, PartitionToFetch]) -> list[ForgottenTopic]:
    topics: dict[tuple[str, Uuid], ForgottenTopic] = {}
    for partition, row in rows.items():
        key = (partition.topic, row.topic_id)
        if key not in topics:
            topics[key] = ForgottenTopic(topic=partition.topic, topic_id=row.topic_id)
        topics[key].partitions.append(partition.partition)
    return list(topics.values())
