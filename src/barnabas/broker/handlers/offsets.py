"""The committed offsets of groups.

OffsetCommit (v2-10) needs Read on the group and on each topic. An unknown topic or partition is
UNKNOWN_TOPIC_OR_PARTITION, and nothing is committed for it. From v10 on, topics are identified by id, and an unknown id
is UNKNOWN_TOPIC_ID. TxnOffsetCommit (v0-6) does the same within a transaction, and also needs Write on the
transactional id; it has ids from v6 on. Clients of v0-v3 get OFFSET_METADATA_TOO_LARGE and similar errors unchanged;
before v2 they do not know COORDINATOR_LOAD_IN_PROGRESS and get COORDINATOR_NOT_AVAILABLE.

OffsetFetch (v1-10) needs Describe on the group and on each topic. If the request names topics, the response has an
error for those that the client may not describe; if it asks for all, they are left out. Up to v7 a request has one
group, with a top-level error code from v2 on; before, an error of the group is set on each partition. From v8 on, a
request has several groups. From v10 on, topics are identified by id.

OffsetDelete (v0) needs Delete on the group and Read on each topic.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from barnabas.broker.handlers.groups import member_context, respond_when_done
from barnabas.common.errors import Errors, GroupAuthorizationError, TransactionalIdAuthorizationError
from barnabas.common.identifiers import ZERO_UUID
from barnabas.coordinator.group.group_coordinator_service import GroupCoordinatorService
from barnabas.metadata.cache import MetadataCache
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas.security.acl import AclOperation, ResourceType
from barnabas.security.auth_helper import AuthHelper
from barnabas.server.request import Request
from barnabas.server.request_handler_helper import RequestHandlerHelper
from barnabas.server.request_local import RequestLocal

T = TypeVar("T")

_COMMIT_BY_ID_SINCE: Final = 10
_TXN_COMMIT_BY_ID_SINCE: Final = 6
_FETCH_BY_ID_SINCE: Final = 10
_SEVERAL_GROUPS_SINCE: Final = 8
_ERROR_OF_ALL_SINCE: Final = 2
_TXN_LOAD_IN_PROGRESS_SINCE: Final = 2


class OffsetsHandler:
    """Passes commits and fetches to the group coordinator, without the topics that the client may not access."""

    def __init__(
        self,
        helper: RequestHandlerHelper,
        auth: AuthHelper,
        cache: MetadataCache,
        groups: GroupCoordinatorService,
    ) -> None:
        self._helper = helper
        self._auth = auth
        self._cache = cache
        self._groups = groups

    # -- OffsetCommit

    def offset_commit(self, request: Request, _local: RequestLocal) -> Future[Any]:
        body = request.body
        assert isinstance(body, OffsetCommitRequest)
        self._authorize_group(request, AclOperation.READ, body.group_id)
        refused, accepted = self._sort_topics(request, body.topics, by_id=request.api_version >= _COMMIT_BY_ID_SINCE)
        refusals = [
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
                    for partition in topic.partitions
                ],
            )
            for topic, error in refused
        ]
        if not accepted:
            return self._respond(request, _done(OffsetCommitResponse(topics=refusals)))
        body.topics = accepted

        def make(response: OffsetCommitResponse) -> OffsetCommitResponse:
            response.topics = _merge(refusals, response.topics)
            return response

        return self._respond(request, self._groups.commit_offsets(member_context(request), body), make)

    def txn_offset_commit(self, request: Request, _local: RequestLocal) -> Future[Any]:
        body = request.body
        assert isinstance(body, TxnOffsetCommitRequest)
        if self._auth.authorizer is not None and not self._auth.authorize(
            request.request_context, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, body.transactional_id
        ):
            raise TransactionalIdAuthorizationError
        self._authorize_group(request, AclOperation.READ, body.group_id)
        refused, accepted = self._sort_topics(
            request, body.topics, by_id=request.api_version >= _TXN_COMMIT_BY_ID_SINCE
        )
        refusals = [
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
                    for partition in topic.partitions
                ],
            )
            for topic, error in refused
        ]
        if not accepted:
            return self._respond(request, _done(TxnOffsetCommitResponse(topics=refusals)))
        body.topics = accepted

        def make(response: TxnOffsetCommitResponse) -> TxnOffsetCommitResponse:
            response.topics = _merge(refusals, response.topics)
            if request.api_version < _TXN_LOAD_IN_PROGRESS_SINCE:
                for topic in response.topics:
                    for partition in topic.partitions:
                        if partition.error_code == Errors.COORDINATOR_LOAD_IN_PROGRESS:
                            partition.error_code = Errors.COORDINATOR_NOT_AVAILABLE
            return response

        return self._respond(request, self._groups.commit_transactional_offsets(member_context(request), body), make)

    def _sort_topics(
        self, request: Request, topics: Sequence[T], *, by_id: bool
    ) -> tuple[list[tuple[T, Errors]], list[T]]:
        """Returns the refused topics with their errors, and the accepted ones; both are copies with topic names."""
        refused: list[tuple[T, Errors]] = []
        known: list[Any] = []
        for topic in topics:
            one: Any = topic
            if by_id:
                name = self._cache.topic_name(one.topic_id)
                if name is None:
                    refused.append((topic, Errors.UNKNOWN_TOPIC_ID))
                    continue
                one.name = name
            known.append(one)
        allowed = known
        if self._auth.authorizer is not None:
            allowed, denied = self._auth.partition_by_authorized(
                request.request_context, AclOperation.READ, ResourceType.TOPIC, known, _name_of
            )
            refused.extend((one, Errors.TOPIC_AUTHORIZATION_FAILED) for one in denied)
        accepted: list[T] = []
        for one in allowed:
            exists: list[Any] = []
            missing: list[Any] = []
            for partition in one.partitions:
                found = self._cache.contains(one.name, partition.partition_index)
                (exists if found else missing).append(partition)
            if missing:
                refused.append((_copy_of(one, missing), Errors.UNKNOWN_TOPIC_OR_PARTITION))
            if exists:
                accepted.append(_copy_of(one, exists))
        return refused, accepted

    # -- OffsetFetch

    def offset_fetch(self, request: Request, _local: RequestLocal) -> Future[Any]:
        body = request.body
        assert isinstance(body, OffsetFetchRequest)
        if request.api_version >= _SEVERAL_GROUPS_SINCE:
            groups = body.groups
        else:
            topics = None
            if body.topics is not None:
                topics = [
                    OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
                    for topic in body.topics
                ]
            groups = [OffsetFetchRequestGroup(group_id=body.group_id, topics=topics)]
        futures = [self._fetch_group(request, group, body.require_stable) for group in groups]
        return self._respond(
            request,
            _when_all(futures),
            lambda responses: self._fetched(request, body, responses),
        )

    def _fetch_group(
        self, request: Request, group: OffsetFetchRequestGroup, require_stable: bool
    ) -> Future[OffsetFetchResponseGroup]:
        if self._auth.authorizer is not None and not self._auth.authorize(
            request.request_context, AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id
        ):
            return _done(
                OffsetFetchResponseGroup(group_id=group.group_id, error_code=Errors.GROUP_AUTHORIZATION_FAILED)
            )
        by_id = request.api_version >= _FETCH_BY_ID_SINCE
        if group.topics is None:
            return _map(
                self._groups.fetch_offsets(group, require_stable=require_stable),
                lambda response: self._hide(request, response, by_id),
            )
        refused: list[OffsetFetchResponseTopics] = []
        allowed = self._fetchable(request, group.topics, by_id, refused)
        asked = OffsetFetchRequestGroup(
            group_id=group.group_id, member_id=group.member_id, member_epoch=group.member_epoch, topics=allowed
        )

        def add_refused(response: OffsetFetchResponseGroup) -> OffsetFetchResponseGroup:
            if not response.error_code:
                response.topics.extend(refused)
            return response

        return _map(self._groups.fetch_offsets(asked, require_stable=require_stable), add_refused)

    def _fetchable(
        self,
        request: Request,
        topics: Sequence[OffsetFetchRequestTopics],
        by_id: bool,
        refused: list[OffsetFetchResponseTopics],
    ) -> list[OffsetFetchRequestTopics]:
        known = []
        for topic in topics:
            if by_id:
                name = self._cache.topic_name(topic.topic_id)
                if name is None:
                    refused.append(_refused(topic, Errors.UNKNOWN_TOPIC_ID))
                    continue
                topic.name = name
            known.append(topic)
        if self._auth.authorizer is None:
            return known
        allowed, denied = self._auth.partition_by_authorized(
            request.request_context, AclOperation.DESCRIBE, ResourceType.TOPIC, known, _name_of
        )
        refused.extend(_refused(topic, Errors.TOPIC_AUTHORIZATION_FAILED) for topic in denied)
        return allowed

    def _hide(self, request: Request, response: OffsetFetchResponseGroup, by_id: bool) -> OffsetFetchResponseGroup:
        """Removes the topics that the client may not describe. With ids, a topic that no longer has an id is removed,
        too."""
        if by_id:
            for topic in response.topics:
                topic.topic_id = self._cache.topic_id(topic.name)
            response.topics = [topic for topic in response.topics if topic.topic_id != ZERO_UUID]
        if self._auth.authorizer is not None:
            response.topics, _ = self._auth.partition_by_authorized(
                request.request_context,
                AclOperation.DESCRIBE,
                ResourceType.TOPIC,
                response.topics,
                _name_of,
                log_if_denied=False,
            )
        return response

    def _fetched(
        self, request: Request, body: OffsetFetchRequest, responses: list[OffsetFetchResponseGroup]
    ) -> OffsetFetchResponse:
        version = request.api_version
        if version >= _SEVERAL_GROUPS_SINCE:
            return OffsetFetchResponse(groups=responses)
        (response,) = responses
        if response.error_code and version < _ERROR_OF_ALL_SINCE:
            return OffsetFetchResponse(
                topics=[
                    OffsetFetchResponseTopic(
                        name=topic.name,
                        partitions=[
                            OffsetFetchResponsePartition(
                                partition_index=number, committed_offset=-1, error_code=response.error_code
                            )
                            for number in topic.partition_indexes
                        ],
                    )
                    for topic in body.topics or ()
                ]
            )
        return OffsetFetchResponse(
            error_code=response.error_code,
            topics=[
                OffsetFetchResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetFetchResponsePartition(
                            partition_index=one.partition_index,
                            committed_offset=one.committed_offset,
                            committed_leader_epoch=one.committed_leader_epoch,
                            metadata=one.metadata,
                            error_code=one.error_code,
                        )
                        for one in topic.partitions
                    ],
                )
                for topic in response.topics
            ],
        )

    # -- OffsetDelete

    def offset_delete(self, request: Request, _local: RequestLocal) -> Future[Any]:
        body = request.body
        assert isinstance(body, OffsetDeleteRequest)
        self._authorize_group(request, AclOperation.DELETE, body.group_id)
        refused, accepted = self._sort_topics(request, body.topics, by_id=False)
        refusals = [
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(partition_index=partition.partition_index, error_code=error)
                    for partition in topic.partitions
                ],
            )
            for topic, error in refused
        ]
        body.topics = accepted

        def make(response: OffsetDeleteResponse) -> OffsetDeleteResponse:
            if not response.error_code:
                response.topics = _merge(refusals, response.topics)
            return response

        # Called even if no topic is left: the response must say whether the group exists.
        return self._respond(request, self._groups.delete_offsets(body), make)

    # -- the rest

    def _authorize_group(self, request: Request, operation: AclOperation, group_id: str) -> None:
        if self._auth.authorizer is not None and not self._auth.authorize(
            request.request_context, operation, ResourceType.GROUP, group_id
        ):
            raise GroupAuthorizationError

    def _respond(self, request: Request, future: Future[T], make: Callable[[T], Any] | None = None) -> Future[Any]:
        return respond_when_done(self._helper, request, future, make)


def _name_of(topic: Any) -> str:
    name: str = topic.name
    return name


def _copy_of(topic: Any, partitions: list[Any]) -> Any:
    """Returns a copy of a request's topic with some of its partitions."""
    if isinstance(topic, OffsetDeleteRequestTopic):
        return OffsetDeleteRequestTopic(name=topic.name, partitions=partitions)
    if isinstance(topic, TxnOffsetCommitRequestTopic):
        return TxnOffsetCommitRequestTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
    return OffsetCommitRequestTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def _merge(refusals: list[T], responses: list[T]) -> list[T]:
    """Merges refusals and results into one entry per topic, even if only some of its partitions were refused."""
    if not refusals:
        return responses
    merged: dict[Any, Any] = {}
    for topic in (*refusals, *responses):
        one: Any = topic
        key = (one.name, getattr(one, "topic_id", None))
        if key in merged:
            merged[key].partitions.extend(one.partitions)
        else:
            merged[key] = one
    return list(merged.values())


def _refused(topic: OffsetFetchRequestTopics, error: Errors) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(partition_index=number, committed_offset=-1, error_code=error)
            for number in topic.partition_indexes
        ],
    )


def _done(value: T) -> Future[T]:
    future: Future[T] = Future()
    future.set_result(value)
    return future


def _map(future: Future[T], function: Callable[[T], T]) -> Future[T]:
    response: Future[T] = Future()

    def on_done(finished: Future[T]) -> None:
        try:
            response.set_result(function(finished.result()))
        except BaseException as error:  # noqa: BLE001 - it goes to whoever waits
            response.set_exception(error)

    future.add_done_callback(on_done)
    return response


def _when_all(futures: Sequence[Future[T]]) -> Future[list[T]]:
    response: Future[list[T]] = Future()
    if not futures:
        response.set_result([])
        return response
    lock = threading.Lock()  # guards the count; nothing is called while it is held
    waiting = len(futures)

    def on_done(_: Future[T]) -> None:
        nonlocal waiting
        with lock:
            waiting -= 1
            is_last = not waiting
        if is_last:
            try:
                response.set_result([future.result() for future in futures])
            except BaseException as error:  # noqa: BLE001 - it goes to whoever waits
                response.set_exception(error)

    for future in futures:
        future.add_done_callback(on_done)
    return response
