"""DOC AddRaftVoter."""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, boolean, int16, int32, string, uint16, uuid
from barnabas.protocol.message import Request, Response, Struct


class Listener(Struct):
    name: str = string(default="")
    host: str = string(default="")
    port: int = uint16(default=0)


class AddRaftVoterRequest(Request, api_key=ApiKey.ADD_RAFT_VOTER):
    cluster_id: str | None = string(default="", nullable="0+")
    timeout_ms: int = int32(default=0)
    voter_id: int = int32(default=0)
    voter_directory_id: Uuid = uuid(default=ZERO_UUID)
    listeners: list[Listener] = array(Listener, default_factory=list)
    ack_when_committed: bool = boolean("1+", default=True)


class AddRaftVoterResponse(Response, api_key=ApiKey.ADD_RAFT_VOTER):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(default="", nullable="0+", ignorable=True)
