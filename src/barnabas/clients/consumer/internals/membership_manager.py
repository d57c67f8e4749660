"""A member of a group, whichever of the two protocols it speaks."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Final, NamedTuple, Protocol

from barnabas.clients.consumer.group_metadata import ConsumerGroupMetadata, GroupMembershipOperation
from barnabas.clients.consumer.internals.request_managers import RequestManager
from barnabas.common.errors import Errors


class MemberIdentity(NamedTuple):
    """By what a coordinator recognizes a member: its id, and a number that says which state of the group it has seen,
    so that it cannot act on an old one. That is the *generation* of a classic group and the *member epoch* of the newer
    protocol."""

    generation_or_epoch: int
    member_id: str
    group_instance_id: str | None = None


NO_MEMBER: Final = MemberIdentity(-1, "")
"""A consumer that assigns partitions by hand; the coordinator takes its offsets while the group has no members."""


class MembershipManager(RequestManager, Protocol):
    """What both have in common. All methods are called on the background thread.

    Listeners are called on the application's thread, and only while it is in ``poll()`` or the like; so whatever leads
    to such a call, a rebalance in particular, moves on when the application polls.
    """

    def on_application_poll(self, now: int) -> None:
        """The application is alive. Joins or rejoins the group if there is a reason to."""
        ...

    def on_subscription_change(self) -> None:
        """There is another subscription than before."""
        ...

    def leave_group(self, operation: GroupMembershipOperation, deadline_ms: int | None) -> Future[None]:
        """Has the listener told, gives up the assignment and the subscription, and tells the coordinator. Done at the
        deadline at the latest, and never failed: to leave is a matter of courtesy."""
        ...

    def identity_for_commit(self) -> MemberIdentity:
        """Who commits; raises an error if it is clear beforehand that the coordinator would not take it."""
        ...

    def identity_for_fetch(self) -> MemberIdentity:
        """Who asks for committed offsets."""
        ...

    def on_commit_error(self, error: Errors, sent: MemberIdentity) -> Exception | None:
        """A coordinator has refused a commit because of who sent it: what to tell the application. None if the error
        is about something else."""
        ...

    @property
    def group_metadata(self) -> ConsumerGroupMetadata:
        """For any thread: it is replaced, never changed."""
        ...
