"""A member of a classic group."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import Future

from barnabas.protocol.messages.describe_groups import DescribedGroupMember
from barnabas.protocol.messages.join_group import JoinGroupRequestProtocol, JoinGroupResponse
from barnabas.protocol.messages.sync_group import SyncGroupResponse


class ClassicGroupMember:
    """A member: its identity, its protocols, its assignment, and its pending requests.

    During a rebalance its JoinGroup and then its SyncGroup wait here. A waiting member counts as alive, because it
    cannot send heartbeats meanwhile.
    """

    __slots__ = (
        "assignment",
        "awaiting_join_future",
        "awaiting_sync_future",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "member_id",
        "protocol_type",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "supported_protocols",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocol_type: str,
        supported_protocols: Sequence[JoinGroupRequestProtocol],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        """The name of a *static* member, which may restart without a rebalance; None for a dynamic one."""
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocol_type = protocol_type
        self.supported_protocols = list(supported_protocols)
        """In order of preference."""
        self.assignment = assignment
        self.awaiting_join_future: Future[JoinGroupResponse] | None = None
        self.awaiting_sync_future: Future[SyncGroupResponse] | None = None
        self.is_new = False
        """Whether its first JoinGroup is pending: its client may have disconnected unnoticed."""

    @property
    def is_static_member(self) -> bool:
        return self.group_instance_id is not None

    @property
    def is_awaiting_join(self) -> bool:
        return self.awaiting_join_future is not None

    @property
    def is_awaiting_sync(self) -> bool:
        return self.awaiting_sync_future is not None

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """Whether it need not send heartbeats now. A new member has to, while its first join is pending."""
        if self.is_new:
            return False
        return self.is_awaiting_join or self.is_awaiting_sync

    @property
    def protocol_names(self) -> list[str]:
        """The names of its protocols, without duplicates.

        The group counts members by protocol. If a member counted twice, no protocol would be supported by all, and the
        join phase could never complete.
        """
        return list(dict.fromkeys(protocol.name for protocol in self.supported_protocols))

    def metadata(self, protocol_name: str) -> bytes:
        """Returns its metadata for a protocol that it supports."""
        for protocol in self.supported_protocols:
            if protocol.name == protocol_name:
                return protocol.metadata
        raise ValueError(f"member {self.member_id} does not support the protocol {protocol_name}")

    def matches(self, protocols: Sequence[JoinGroupRequestProtocol]) -> bool:
        """Returns whether these are its protocols, with the same metadata and in the same order."""
        return self.supported_protocols == list(protocols)

    def vote(self, candidates: Collection[str]) -> str:
        """Returns the candidate that it prefers."""
        for name in self.protocol_names:
            if name in candidates:
                return name
        raise ValueError(f"member {self.member_id} supports none of {sorted(candidates)}")

    def describe(self, protocol_name: str | None) -> DescribedGroupMember:
        """Describes it for DescribeGroups; without a protocol, only its identity."""
        return DescribedGroupMember(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            member_metadata=b"" if protocol_name is None else self.metadata(protocol_name),
            member_assignment=b"" if protocol_name is None else self.assignment,
        )

    def __repr__(self) -> str:
        return (
            f"ClassicGroupMember({self.member_id!r}, instance={self.group_instance_id!r}, "
            f"protocols={self.protocol_names}, joining={self.is_awaiting_join}, syncing={self.is_awaiting_sync})"
        )
