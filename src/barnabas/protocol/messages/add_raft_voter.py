"""AddRaftVoter (API 80): makes a controller a voter of the metadata quorum (KIP-853).

Sent by an administrator, or by a controller that joins on its own; brokers forward it, the raft leader carries it out.
A voter is named by its node id *and* its log directory id, so that a node that returns with an empty disk is not
mistaken for the voter it replaces. The leader checks that the newcomer supports the current ``kraft.version``, waits
until it has nearly caught up, then appends a VotersRecord; only one change of the voter set may be in flight.

``cluster_id`` null skips the check that the request reached the right cluster. DUPLICATE_VOTER means that the id is a
voter already, REQUEST_TIMED_OUT that the newcomer did not catch up within ``timeout_ms``.

Versions: v1 ``ack_when_committed``; with false, the leader responds as soon as it has appended the new set. A
self-joining controller needs that, because the commit may depend on the controller itself.
"""

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
