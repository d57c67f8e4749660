"""Resolves the regular expressions of groups to topics."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final, NamedTuple

from barnabas.common.client_pattern import ClientPattern, PatternTimeoutError, search_limit_ms
from barnabas.common.clock import Clock
from barnabas.common.errors import GroupIdNotFoundError, InvalidRegularExpressionError
from barnabas.common.log_safety import LimitedLogger
from barnabas.coordinator.group import group_records
from barnabas.coordinator.group.consumer.assignment import ResolvedRegularExpression
from barnabas.coordinator.group.consumer.consumer_group import METADATA_REFRESH_INTERVAL_MS, ConsumerGroup
from barnabas.coordinator.group.consumer.consumer_group_member import ConsumerGroupMember
from barnabas.coordinator.group.consumer.topic_hashes import group_hash
from barnabas.coordinator.group.group_metrics import GroupMetrics
from barnabas.coordinator.group.group_store import GroupStore
from barnabas.coordinator.group.member_context import MemberContext
from barnabas.coordinator.runtime.coordinator_executor import CoordinatorExecutor
from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
from barnabas.coordinator.runtime.coordinator_result import CoordinatorResult

logger = LimitedLogger(logging.getLogger(__name__))

BATCH_REFRESH_MIN_INTERVAL_MS: Final = 10_000
"""The minimum time between two refreshes of a group, unless a member waits for the first result of a pattern."""

TopicFilter = Callable[[MemberContext, Collection[str]], Collection[str]]
"""Returns the topics that a client is authorized to describe."""


def all_topics_visible(_context: MemberContext, topics: Collection[str]) -> Collection[str]:
    return topics


class RegexChange(NamedTuple):
    bumps_epoch: bool
    """Whether the subscription of the group has changed already. If not, it may change when the patterns have been
    resolved."""


class _Match(NamedTuple):
    topics: AbstractSet[str]
    version: int


class RegexResolution:
    """Finds the topics that match.

    Matching all topics takes time, so it runs outside the event loop. A member with a new pattern joins at once,
    without topics. When the topics are found, they are written as a record, the group epoch increases, and the member
    gets its partitions with its next heartbeat.

    Patterns are resolved again when topics were created or deleted, and periodically, because the client's permissions
    may change too. All patterns of a group are resolved at once, with the permissions of the member whose heartbeat
    started it.
    """

    def __init__(
        self,
        store: GroupStore,
        executor: CoordinatorExecutor,
        refresh_interval_ms: int,
        metrics: GroupMetrics,
        clock: Clock,
        topic_filter: TopicFilter = all_topics_visible,
    ) -> None:
        self._store = store
        self._metrics = metrics
        self._executor = executor
        self._refresh_interval_ms = refresh_interval_ms
        self._clock = clock
        self._topic_filter = topic_filter
        self.last_image_with_new_topics = -1
        """The offset of the last metadata image with other topics than the one before."""

    def on_heartbeat(
        self,
        context: MemberContext,
        group: ConsumerGroup,
        member: ConsumerGroupMember,
        updated: ConsumerGroupMember,
        records: list[CoordinatorRecord],
    ) -> RegexChange:
        """Handles a changed pattern of a member, and starts a refresh if it is due."""
        old, new = member.subscribed_topic_regex, updated.subscribed_topic_regex
        bumps, must_refresh = False, False
        if old != new:
            self.forget_unused(group, [member], updated, records)
            resolved = group.resolved_regular_expressions.get(new) if new else None
            if not new or resolved is not None:
                bumps = True
            else:
                must_refresh = True
        if new or group.subscribed_regexes:
            self._maybe_refresh(context, group, updated, must_refresh)
        return RegexChange(bumps)

    def forget_unused(
        self,
        group: ConsumerGroup,
        gone: Collection[ConsumerGroupMember],
        updated: ConsumerGroupMember | None,
        records: list[CoordinatorRecord],
    ) -> None:
        """Removes a pattern that no member uses any more."""
        lost: dict[str, int] = {}
        for member in gone:
            if member.subscribed_topic_regex and group.has_member(member.member_id):
                lost[member.subscribed_topic_regex] = lost.get(member.subscribed_topic_regex, 0) + 1
        for regex, count in lost.items():
            kept = updated is not None and updated.subscribed_topic_regex == regex
            if (
                not kept
                and group.num_members_with_regex(regex) <= count
                and regex in group.resolved_regular_expressions
            ):
                records.append(group_records.consumer_group_regular_expression_tombstone(group.group_id, regex))

    def _maybe_refresh(
        self, context: MemberContext, group: ConsumerGroup, updated: ConsumerGroupMember, must_refresh: bool
    ) -> None:
        key = _key(group.group_id)
        if self._executor.is_scheduled(key):
            return
        regexes = set(group.subscribed_regexes)
        if updated.subscribed_topic_regex:
            regexes.add(updated.subscribed_topic_regex)
        resolved = [group.resolved_regular_expressions.get(regex) for regex in regexes]
        now_ms = self._store.now_ms()
        known = [one for one in resolved if one is not None]
        last_ms = max((one.timestamp_ms for one in known), default=-1)
        version = min((one.version for one in known), default=-1)
        if not must_refresh:
            # Below 0 if the date was set back, so the time of the last refresh is not known.
            elapsed_ms = now_ms - last_ms
            if last_ms >= 0 and 0 <= elapsed_ms < BATCH_REFRESH_MIN_INTERVAL_MS:
                return
            if (
                len(known) == len(resolved)
                and version >= self.last_image_with_new_topics
                and 0 <= elapsed_ms < self._refresh_interval_ms
            ):
                return
        group_id = group.group_id
        image = self._store.image
        names = image.topics.sorted_names

        before = {regex: one.topics for regex in regexes if (one := group.resolved_regular_expressions.get(regex))}

        def resolve() -> dict[str, ResolvedRegularExpression]:
            found = self._match(group_id, sorted(regexes), names, image.offset, before)
            topics: set[str] = set().union(*(match.topics for match in found.values()))
            visible = set(self._topic_filter(context, sorted(topics)))
            return {
                regex: ResolvedRegularExpression(frozenset(match.topics & visible), match.version, now_ms)
                for regex, match in found.items()
            }

        self._executor.schedule(key, resolve, lambda found, error: self._resolved(group_id, found, error))

    def _match(
        self,
        group_id: str,
        regexes: Collection[str],
        names: Collection[str],
        version: int,
        before: Mapping[str, frozenset[str]],
    ) -> dict[str, _Match]:
        """Returns the topics of each pattern. Runs on another thread and uses nothing but its arguments.

        All patterns of a group share one time limit, or a group with many slow ones could occupy the thread. A pattern
        that does not finish keeps its previous topics, so that its members continue. Its version is older than any
        image, so a heartbeat retries it, after `BATCH_REFRESH_MIN_INTERVAL_MS` at the earliest.
        """
        deadline_ms = self._clock.hi_res_milliseconds() + search_limit_ms(len(names) * len(regexes))
        found: dict[str, _Match] = {}
        for regex in regexes:
            reason: str | InvalidRegularExpressionError
            try:
                found[regex] = _Match(ClientPattern(regex).search(names, self._clock, deadline_ms), version)
                continue
            except PatternTimeoutError:
                reason = f"evaluating it for {len(names)} topics takes too long"
            except InvalidRegularExpressionError as error:
                reason = error  # another version of the broker, or one with google-re2, has accepted it before
            kept = before.get(regex, frozenset()).intersection(names)
            found[regex] = _Match(kept, -1)
            logger.warning("Group %r: keeping the %d topics of %.100r: %s", group_id, len(kept), regex, reason)
        return found

    def _resolved(
        self, group_id: str, found: dict[str, ResolvedRegularExpression] | None, error: BaseException | None
    ) -> CoordinatorResult[Any]:
        if error is not None or found is None:
            logger.error("Group %s: cannot resolve its regular expressions", group_id, exc_info=error)
            return CoordinatorResult()
        try:
            group = self._store.consumer_group(group_id)
        except GroupIdNotFoundError:
            return CoordinatorResult()
        records: list[CoordinatorRecord] = []
        bump = False
        for regex, resolved in found.items():
            if not group.num_members_with_regex(regex):
                continue  # its last member has left
            before = group.resolved_regular_expressions.get(regex)
            # A pattern without matches changes nothing: its members would advance to an epoch without partitions.
            bump = bump or resolved.topics != (frozenset() if before is None else before.topics)
            records.append(group_records.consumer_group_regular_expression(group_id, regex, resolved))
        new_hash = group_hash(group.subscribed_topic_names_if(found), self._store.image)
        if bump or new_hash != group.metadata_hash.get():
            epoch = group.group_epoch.get() + 1
            records.append(group_records.consumer_group_epoch(group_id, epoch, new_hash))
            self._metrics.consumer_group_rebalances.record()
            group.set_metadata_refresh_deadline(self._store.now_ms() + METADATA_REFRESH_INTERVAL_MS, epoch)
        return CoordinatorResult(records)


def _key(group_id: str) -> str:
    return f"{group_id}-regex"
