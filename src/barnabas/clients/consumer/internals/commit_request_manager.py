"""Commits offsets, automatically and on request, and fetches committed offsets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from random import Random
from typing import Any

from barnabas.clients.common.offsets import OffsetAndMetadata
from barnabas.clients.consumer.errors import CommitFailedError, RetriableCommitFailedError
from barnabas.clients.consumer.internals.background_events import BackgroundEventQueue
from barnabas.clients.consumer.internals.background_future import completed, new_future
from barnabas.clients.consumer.internals.consumer_metadata import ConsumerMetadata
from barnabas.clients.consumer.internals.coordinator_request_manager import CoordinatorRequestManager
from barnabas.clients.consumer.internals.group_config import GroupConfig
from barnabas.clients.consumer.internals.group_events import OffsetsCommittedEvent
from barnabas.clients.consumer.internals.group_metrics import GroupMetrics
from barnabas.clients.consumer.internals.membership_manager import MembershipManager
from barnabas.clients.consumer.internals.offset_requests import OffsetCommitBuilder, OffsetFetchBuilder
from barnabas.clients.consumer.internals.request_managers import FOREVER, PollResult, UnsentRequest
from barnabas.clients.consumer.internals.request_state import RequestState, Timer
from barnabas.clients.consumer.internals.subscription_state import SubscriptionState
from barnabas.common.errors import (
    BarnabasError,
    Errors,
    GroupAuthorizationError,
    KafkaTimeoutError,
    RetriableError,
    StaleMemberEpochError,
    TopicAuthorizationError,
)
from barnabas.common.topic_partition import TopicPartition
from barnabas.network.client.client_request import ClientResponse
from barnabas.protocol.messages.offset_commit import OffsetCommitResponse
from barnabas.protocol.messages.offset_fetch import OffsetFetchResponse

log = logging.getLogger(__name__)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
Committed = Mapping[TopicPartition, OffsetAndMetadata | None]

_MOVED = frozenset({Errors.COORDINATOR_NOT_AVAILABLE, Errors.NOT_COORDINATOR, Errors.REQUEST_TIMED_OUT})
_JUST_RETRY = frozenset({Errors.COORDINATOR_LOAD_IN_PROGRESS, Errors.UNKNOWN_TOPIC_OR_PARTITION})


class _Attempt:
    """A pending commit or fetch: retried until it succeeds, fails for good, or its deadline passes."""

    __slots__ = ("deadline_ms", "future", "state")

    def __init__(self, state: RequestState, deadline_ms: int | None) -> None:
        self.state = state
        self.deadline_ms = deadline_ms
        """None: no retries."""
        self.future: Future[Any] = new_future()

    def is_late(self, now: int) -> bool:
        return self.deadline_ms is not None and now >= self.deadline_ms


class _CommitAttempt(_Attempt):
    __slots__ = ("offsets", "refresh")

    def __init__(
        self,
        state: RequestState,
        deadline_ms: int | None,
        offsets: Offsets,
        refresh: Callable[[], Offsets] | None = None,
    ) -> None:
        super().__init__(state, deadline_ms)
        self.offsets = offsets
        self.refresh = refresh
        """For an automatic commit: returns the offsets of the next attempt, as records may have been consumed since."""


class _FetchAttempt(_Attempt):
    __slots__ = ("partitions",)

    def __init__(self, state: RequestState, deadline_ms: int, partitions: frozenset[TopicPartition]) -> None:
        super().__init__(state, deadline_ms)
        self.partitions = partitions


class CommitRequestManager:
    """Sends offset commits and fetches to the coordinator.

    **commit_sync** is retried after transient errors (the coordinator has moved or is loading, the connection broke)
    until its deadline. **commit_async** is sent once: a later commit may have succeeded before a retry, which would
    then move the group back.

    **Automatic commits** are sent when the application polls and ``auto.commit.interval.ms`` have passed: a poll means
    that the previous records are processed. Before partitions are revoked, and on close, the consumed offsets are
    committed once more, with retries, so that the next owner starts behind them.

    Requests carry member id and epoch; the membership manager handles their rejection.
    """

    def __init__(
        self,
        config: GroupConfig,
        subscriptions: SubscriptionState,
        metadata: ConsumerMetadata,
        coordinator: CoordinatorRequestManager,
        background_events: BackgroundEventQueue,
        metrics: GroupMetrics,
        random: Random,
        now: int,
    ) -> None:
        self._config = config
        self._subscriptions = subscriptions
        self._metadata = metadata
        self._coordinator = coordinator
        self._events = background_events
        self._metrics = metrics
        self._random = random
        self._unsent_commits: list[_CommitAttempt] = []
        self._unsent_fetches: list[_FetchAttempt] = []
        self._fetches: dict[frozenset[TopicPartition], _FetchAttempt] = {}
        """All pending fetches. Equal requests share one response."""
        self._timer = Timer(config.auto_commit_interval_ms, now)
        self._auto_commit_in_flight = False
        self.membership: MembershipManager
        """Set later: the two managers need each other."""

    # -- requests to send

    def poll(self, now: int) -> PollResult:
        self._expire(now)
        node = self._coordinator.coordinator
        if node is None:
            self._fail_if_hopeless()
            return PollResult(self._time_to_deadline(now))
        requests = []
        commits, self._unsent_commits = self._unsent_commits, []
        for commit in commits:
            if not commit.state.can_send(now):
                self._unsent_commits.append(commit)
            elif (request := self._commit_request(commit)) is not None:
                requests.append(request)
        fetches, self._unsent_fetches = self._unsent_fetches, []
        for fetch in fetches:
            if fetch.state.can_send(now):
                requests.append(self._fetch_request(fetch))
            else:
                self._unsent_fetches.append(fetch)
        return PollResult(min(self._time_to_deadline(now), self._time_to_retry(now)), requests)

    def maximum_time_to_wait(self, now: int) -> int:
        if not self._config.enable_auto_commit or not self._subscriptions.assignment:
            return FOREVER
        return max(self._timer.remaining_ms(now), 1)

    def poll_on_close(self, now: int) -> PollResult:
        """Sends pending commits for the last time, without backoff."""
        for attempt in (*self._unsent_commits, *self._unsent_fetches):
            attempt.state.reset()
        return self.poll(now)

    def _attempts(self) -> list[_Attempt]:
        return [*self._unsent_commits, *self._unsent_fetches]

    def _time_to_deadline(self, now: int) -> int:
        deadlines = [one.deadline_ms for one in self._attempts() if one.deadline_ms is not None]
        return max(min(deadlines) - now, 0) if deadlines else FOREVER

    def _time_to_retry(self, now: int) -> int:
        return min((one.state.remaining_backoff_ms(now) for one in self._attempts()), default=FOREVER)

    def _expire(self, now: int) -> None:
        for attempt in self._attempts():
            # With no time left there is still one attempt, if the coordinator is known.
            if attempt.is_late(now) and (attempt.state.attempts or self._coordinator.coordinator is None):
                self._remove(attempt)
                what = "OffsetCommit" if isinstance(attempt, _CommitAttempt) else "OffsetFetch"
                attempt.future.set_exception(
                    KafkaTimeoutError(f"{what} request could not complete before timeout expired.")
                )

    def _fail_if_hopeless(self) -> None:
        error = self._coordinator.fatal_error
        if error is not None and self._attempts():
            self._coordinator.take_fatal_error()
            for attempt in self._attempts():
                self._remove(attempt)
                attempt.future.set_exception(error)

    def _remove(self, attempt: _Attempt) -> None:
        if isinstance(attempt, _CommitAttempt):
            self._unsent_commits.remove(attempt)
        elif isinstance(attempt, _FetchAttempt):
            self._unsent_fetches.remove(attempt)
            del self._fetches[attempt.partitions]

    def _new_state(self) -> RequestState:
        return RequestState(self._config.retry_backoff_ms, self._config.retry_backoff_max_ms, self._random)

    # -- commits

    def commit_async(self, offsets: Offsets) -> Future[Offsets]:
        """Commits once. Fails with `RetriableCommitFailedError` if a retry might work."""
        return self._commit(_CommitAttempt(self._new_state(), None, offsets))

    def commit_sync(self, offsets: Offsets, deadline_ms: int) -> Future[Offsets]:
        return self._commit(_CommitAttempt(self._new_state(), deadline_ms, offsets))

    def _commit(self, attempt: _CommitAttempt) -> Future[Offsets]:
        if attempt.offsets:
            self._unsent_commits.append(attempt)
        else:
            attempt.future.set_result({})
        return attempt.future

    def on_application_poll(self, now: int) -> None:
        """Commits the offsets that the application has processed, if the interval has passed."""
        if not self._config.enable_auto_commit or not self._timer.is_expired(now) or self._auto_commit_in_flight:
            return
        self._timer.reset(now)
        offsets = self._subscriptions.positions.all_consumed()
        if not offsets:
            return
        self._auto_commit_in_flight = True
        future = self._commit(_CommitAttempt(self._new_state(), None, offsets))

        def done(ended: Future[Offsets]) -> None:
            self._auto_commit_in_flight = False
            error = ended.exception()
            if error is None:
                self._events.put(OffsetsCommittedEvent(ended.result()))
            elif isinstance(error, RetriableCommitFailedError):
                log.debug("Auto-commit of %s failed and will be repeated: %s", offsets, error)
                self._timer.reset(now, self._config.retry_backoff_ms)
            else:
                log.warning("Auto-commit of %s failed: %s", offsets, error)

        future.add_done_callback(done)

    def auto_commit_before_revocation(self, deadline_ms: int) -> Future[Offsets]:
        """Commits all consumed offsets, if auto-commit is on, with retries until the deadline.

        The future may fail; the caller should continue all the same."""
        if not self._config.enable_auto_commit:
            return completed({})
        consumed = self._subscriptions.positions.all_consumed
        future = self._commit(_CommitAttempt(self._new_state(), deadline_ms, consumed(), consumed))

        def done(ended: Future[Offsets]) -> None:
            if ended.exception() is None and ended.result():
                self._events.put(OffsetsCommittedEvent(ended.result()))

        future.add_done_callback(done)
        return future

    def reset_auto_commit_timer(self, now: int) -> None:
        """Restarts the auto-commit interval after a new assignment."""
        self._timer.reset(now)

    def _commit_request(self, attempt: _CommitAttempt) -> UnsentRequest | None:
        try:
            identity = self.membership.identity_for_commit()
        except BarnabasError as error:
            attempt.future.set_exception(error)
            return None
        builder = OffsetCommitBuilder(self._config.group_id, identity, attempt.offsets, self._metadata.snapshot)
        attempt.state.sent()
        return UnsentRequest(
            builder, self._coordinator.coordinator, lambda response: self._on_commit(attempt, builder, response)
        )

    def _on_commit(self, attempt: _CommitAttempt, builder: OffsetCommitBuilder, response: ClientResponse) -> None:
        now = response.received_ms
        if response.body is None:
            error: Exception | None = self._no_response(response)
        else:
            assert isinstance(response.body, OffsetCommitResponse)
            self._metrics.commit_response(response.latency_ms)
            error = self._commit_error(builder, response.body, now)
        if error is None:
            attempt.state.succeeded(now)
            attempt.future.set_result(dict(attempt.offsets))
            return
        attempt.state.failed(now)
        log.debug("OffsetCommit of %s failed: %s", attempt.offsets, error)
        if attempt.deadline_ms is None:
            if isinstance(error, RetriableError):
                failed = RetriableCommitFailedError(f"Offset commit failed with a retriable error: {error}")
                failed.__cause__ = error
                error = failed
            attempt.future.set_exception(_stale_as_failed(error))
            return
        retriable = isinstance(error, RetriableError) or (
            isinstance(error, StaleMemberEpochError) and self._may_repeat_with_new_epoch(attempt)
        )
        if not retriable:
            attempt.future.set_exception(_stale_as_failed(error))
        elif attempt.is_late(now):
            attempt.future.set_exception(_timed_out(error))
        else:
            if attempt.refresh is not None:
                attempt.offsets = attempt.refresh()
            self._unsent_commits.append(attempt)

    def _may_repeat_with_new_epoch(self, attempt: _CommitAttempt) -> bool:
        """Whether a commit with a stale epoch may be retried with the new one.

        It may only for partitions that this member still has: for others it could move the new owner back."""
        if self.membership.identity_for_fetch().generation_or_epoch <= 0:
            return False
        return attempt.refresh is not None or attempt.offsets.keys() <= self._subscriptions.assignment.partitions()

    def _commit_error(self, builder: OffsetCommitBuilder, response: OffsetCommitResponse, now: int) -> Exception | None:
        """Returns the first error; for missing topic authorization, all topics."""
        unauthorized: set[str] = set()
        for partition, error in builder.errors(response):
            if error is Errors.NONE:
                continue
            if error is Errors.TOPIC_AUTHORIZATION_FAILED:
                unauthorized.add(partition.topic)
                continue
            if error is Errors.GROUP_AUTHORIZATION_FAILED:
                return GroupAuthorizationError(f"Not authorized to access group: {self._config.group_id}")
            if error in _MOVED:
                self._coordinator.mark_coordinator_unknown(f"{error.name} in response to OffsetCommit", now)
                return error.to_exception()
            if error is Errors.UNKNOWN_TOPIC_ID:
                self._metadata.request_update()
                return error.to_exception()
            if error in _JUST_RETRY or error is Errors.STALE_MEMBER_EPOCH:
                return error.to_exception()
            if error in {Errors.OFFSET_METADATA_TOO_LARGE, Errors.INVALID_COMMIT_OFFSET_SIZE}:
                return error.to_exception()
            told = self.membership.on_commit_error(error, builder.identity)
            return told or BarnabasError(f"Unexpected error in commit of {partition}: {error.message}")
        if unauthorized:
            return TopicAuthorizationError(f"Not authorized to access topics: [{', '.join(sorted(unauthorized))}]")
        return None

    def _no_response(self, response: ClientResponse) -> Exception:
        self._coordinator.handle_disconnect(response)
        error = response.authentication_error or response.version_mismatch
        if error is not None:
            return error
        network = Errors.NETWORK_EXCEPTION.to_exception(response.reason)
        assert network is not None
        return network

    # -- fetches

    def fetch_offsets(self, partitions: Collection[TopicPartition], deadline_ms: int) -> Future[Committed]:
        """Returns the committed offset of each partition, None where there is none."""
        wanted = frozenset(partitions)
        if not wanted:
            return completed({})
        attempt = self._fetches.get(wanted)
        if attempt is None:
            attempt = _FetchAttempt(self._new_state(), deadline_ms, wanted)
            self._fetches[wanted] = attempt
            self._unsent_fetches.append(attempt)
        elif attempt.deadline_ms is not None:
            attempt.deadline_ms = max(attempt.deadline_ms, deadline_ms)
        return attempt.future

    def _fetch_request(self, attempt: _FetchAttempt) -> UnsentRequest:
        identity = self.membership.identity_for_fetch()
        builder = OffsetFetchBuilder(
            self._config.group_id, identity, sorted(attempt.partitions), self._metadata.snapshot
        )
        attempt.state.sent()
        return UnsentRequest(
            builder, self._coordinator.coordinator, lambda response: self._on_fetch(attempt, builder, response)
        )

    def _on_fetch(self, attempt: _FetchAttempt, builder: OffsetFetchBuilder, response: ClientResponse) -> None:
        now = response.received_ms
        offsets: dict[TopicPartition, OffsetAndMetadata | None] = dict.fromkeys(attempt.partitions)
        if response.body is None:
            error: Exception | None = self._no_response(response)
        else:
            assert isinstance(response.body, OffsetFetchResponse)
            error = self._fetch_error(builder, response.body, offsets, now)
        if error is None:
            attempt.state.succeeded(now)
            del self._fetches[attempt.partitions]
            attempt.future.set_result(offsets)
            return
        attempt.state.failed(now)
        log.debug("OffsetFetch of %s failed: %s", sorted(attempt.partitions), error)
        still_member = self.membership.identity_for_fetch().generation_or_epoch > 0
        if isinstance(error, RetriableError) or (isinstance(error, StaleMemberEpochError) and still_member):
            if not attempt.is_late(now):
                self._unsent_fetches.append(attempt)
                return
            error = _timed_out(error)
        del self._fetches[attempt.partitions]
        attempt.future.set_exception(error)

    def _fetch_error(
        self,
        builder: OffsetFetchBuilder,
        response: OffsetFetchResponse,
        offsets: dict[TopicPartition, OffsetAndMetadata | None],
        now: int,
    ) -> Exception | None:
        error = builder.group_error(response)
        if error in {Errors.COORDINATOR_NOT_AVAILABLE, Errors.NOT_COORDINATOR}:
            self._coordinator.mark_coordinator_unknown(f"{error.name} in response to OffsetFetch", now)
        if error is Errors.GROUP_AUTHORIZATION_FAILED:
            return GroupAuthorizationError(f"Not authorized to access group: {self._config.group_id}")
        if error is not Errors.NONE:
            return error.to_exception()
        unauthorized: set[str] = set()
        unstable: Exception | None = None
        for row in builder.rows(response):
            if row.error is Errors.NONE:
                offsets[row.partition] = row.committed
            elif row.error is Errors.TOPIC_AUTHORIZATION_FAILED:
                unauthorized.add(row.partition.topic)
            elif row.error in {Errors.UNSTABLE_OFFSET_COMMIT, Errors.UNKNOWN_TOPIC_ID}:
                if row.error is Errors.UNKNOWN_TOPIC_ID:
                    self._metadata.request_update()
                unstable = row.error.to_exception()
            elif row.error is Errors.UNKNOWN_TOPIC_OR_PARTITION:
                return BarnabasError(f"Topic or Partition {row.partition} does not exist")
            else:
                return BarnabasError(
                    f"Unexpected error in fetch offset response for partition {row.partition}: {row.error.message}"
                )
        if unauthorized:
            return TopicAuthorizationError(f"Not authorized to access topics: [{', '.join(sorted(unauthorized))}]")
        return unstable


def _timed_out(error: Exception) -> Exception:
    if isinstance(error, KafkaTimeoutError):
        return error
    late = KafkaTimeoutError(f"It kept failing until its time was over: {error}")
    late.__cause__ = error
    return late


def _stale_as_failed(error: Exception) -> Exception:
    if not isinstance(error, StaleMemberEpochError):
        return error
    failed = CommitFailedError(f"OffsetCommit failed with stale member epoch. {error}")
    failed.__cause__ = error
    return failed
