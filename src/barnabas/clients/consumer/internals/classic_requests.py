"""The requests of a member of a classic group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from barnabas.clients.consumer.internals.classic_member_state import Generation
from barnabas.clients.consumer.internals.consumer_protocol import PROTOCOL_TYPE
from barnabas.clients.consumer.internals.group_config import GroupConfig
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.message import Request
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.protocol.versions import VersionRange

JOIN_GROUP_TIMEOUT_LAPSE_MS: Final = 5_000
_MAX_REASON: Final = 255
_MAX_INT32: Final = 2**31 - 1
_FIRST_LEAVE_OF_MANY: Final = 3
_FIRST_STATIC: Final = {ApiKey.JOIN_GROUP: 5, ApiKey.SYNC_GROUP: 3, ApiKey.HEARTBEAT: 3, ApiKey.LEAVE_GROUP: 3}


def allowed_versions(api_key: ApiKey, config: GroupConfig) -> VersionRange:
    """Returns the versions to use. A static member needs a broker that supports it (KIP-345)."""
    stable = api_key.stable_versions
    if config.group_instance_id is None:
        return stable
    return VersionRange(max(stable.lowest, _FIRST_STATIC[api_key]), stable.highest)


def join_timeout_ms(config: GroupConfig) -> int:
    """Returns the request timeout of JoinGroup: the coordinator holds the response until all members have joined, which
    may take the rebalance timeout."""
    return max(config.request_timeout_ms, min(config.max_poll_interval_ms + JOIN_GROUP_TIMEOUT_LAPSE_MS, _MAX_INT32))


def join_request(
    config: GroupConfig, generation: Generation, protocols: Sequence[tuple[str, bytes]], reason: str
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=config.group_id,
        session_timeout_ms=config.session_timeout_ms,
        rebalance_timeout_ms=config.max_poll_interval_ms,
        member_id=generation.member_id,
        group_instance_id=config.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols],
        reason=reason[:_MAX_REASON],
    )


def sync_request(config: GroupConfig, generation: Generation, assignments: Mapping[str, bytes]) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=config.group_id,
        generation_id=generation.generation_id,
        member_id=generation.member_id,
        group_instance_id=config.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=generation.protocol_name,
        assignments=[
            SyncGroupRequestAssignment(member_id=member, assignment=data) for member, data in assignments.items()
        ],
    )


def heartbeat_request(config: GroupConfig, generation: Generation) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=config.group_id,
        generation_id=generation.generation_id,
        member_id=generation.member_id,
        group_instance_id=config.group_instance_id,
    )


class LeaveGroupBuilder:
    """Builds LeaveGroup for one member; versions before 3 have a single field, later ones a list."""

    api_key: ApiKey = ApiKey.LEAVE_GROUP

    def __init__(self, config: GroupConfig, generation: Generation, reason: str) -> None:
        self._config = config
        self._member_id = generation.member_id
        self._reason = reason[:_MAX_REASON]
        self.allowed_versions = allowed_versions(self.api_key, config)

    def build(self, version: int) -> Request:
        if version < _FIRST_LEAVE_OF_MANY:
            return LeaveGroupRequest(group_id=self._config.group_id, member_id=self._member_id)
        member = MemberIdentity(
            member_id=self._member_id, group_instance_id=self._config.group_instance_id, reason=self._reason
        )
        return LeaveGroupRequest(group_id=self._config.group_id, members=[member])
