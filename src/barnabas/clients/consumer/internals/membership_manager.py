"""The interface of a group member, for both protocols."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Final, NamedTuple, Protocol

from barnabas.clients.consumer.group_metadata import ConsumerGroupMetadata, GroupMembershipOperation
from barnabas.clients.consumer.internals.request_managers import RequestManager
from barnabas.common.errors import Errors


class MemberIdentity(NamedTuple):
    """Identifies a member to the coordinator: its id, and the *generation* of a classic group or the *member epoch* of
    the consumer protocol. The number prevents a member from acting on an old state of the group."""

    generation_or_epoch: int
    member_id: str
    group_instance_id: str | None = None


NO_MEMBER: Final = MemberIdentity(-1, "")
"""A consumer that assigns partitions by hand; the coordinator accepts its offsets while the group has no members."""


class MembershipManager(RequestManager, Protocol):
    """Common interface of both protocols. All methods are called on the background thread.

    Listeners are called on the application's thread, and only in ``poll()`` or the like; so anything that leads to such
    a call, a rebalance in particular, advances when the application polls.
    """

    def on_application_poll(self, now: int) -> None:
        """Records that the application is alive. Joins or rejoins the group if there is a reason to."""
        ...

    def on_subscription_change(self) -> None:
        """Handles a changed subscription."""
        ...

    def leave_group(self, operation: GroupMembershipOperation, deadline_ms: int | None) -> Future[None]:
        """Calls the listener, gives up the assignment and the subscription, and leaves the group.

        Completes at the deadline at the latest, and never fails: leaving is best effort."""
        ...

    def identity_for_commit(self) -> MemberIdentity:
        """Returns the identity for a commit; raises an error if the coordinator would certainly reject it."""
        ...

    def identity_for_fetch(self) -> MemberIdentity:
        """Returns the identity for fetching committed offsets."""
        ...

    def on_commit_error(self, error: Errors, sent: MemberIdentity) -> Exception | None:
        """Handles a commit that was rejected because of its sender; returns the error for the application.

        Returns None if the error has another cause."""
        ...

    @property
    def group_metadata(self) -> ConsumerGroupMetadata:
        """Returns the group metadata. Thread-safe: it is replaced, never changed."""
        ...
